//! The servers under test: how each is started, where it listens, what it uses. Knows nothing of the measurements.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tonic::transport::Endpoint;

use crate::Failure;
use crate::process::{self, Memory};

const START_LIMIT: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(50);
const LOG_TAIL_BYTES: usize = 2000;
/// Room for a few chunks per connection, so that the generator's flow control never holds a server back.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024 * 1024;

/// A server to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Contender {
    /// The original, state in memory.
    Memory,
    /// The original, state in a database file.
    Database,
    /// Ours as it comes: a durable state directory.
    Trellis,
}

impl Contender {
    pub const ALL: [Contender; 3] = [Contender::Memory, Contender::Database, Contender::Trellis];
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Contender::Memory => "1.25 memory",
            Contender::Database => "1.25 --database",
            Contender::Trellis => "trellis",
        })
    }
}

/// Where the programs are.
pub struct Programs {
    pub official_venv: PathBuf,
    pub trellis: PathBuf,
}

/// The three services of a server.
pub struct Addresses {
    control: SocketAddr,
    fleet: SocketAddr,
    server_app_io: SocketAddr,
}

impl Addresses {
    /// Ports that were free a moment ago, all different.
    fn free() -> io::Result<Self> {
        let listeners: Vec<TcpListener> =
            (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
        let address = |index: usize| listeners[index].local_addr();
        Ok(Self { control: address(0)?, fleet: address(1)?, server_app_io: address(2)? })
    }

    pub fn control(&self) -> Endpoint {
        endpoint(self.control)
    }

    pub fn fleet(&self) -> Endpoint {
        endpoint(self.fleet)
    }

    pub fn server_app_io(&self) -> Endpoint {
        endpoint(self.server_app_io)
    }

    fn all(&self) -> [SocketAddr; 3] {
        [self.control, self.fleet, self.server_app_io]
    }
}

fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::from_shared(format!("http://{address}"))
        .expect("a socket address makes a valid URI")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
}

/// A running server in its own directory and process group; killed when dropped.
pub struct SuperLink {
    pub addresses: Addresses,
    child: Child,
    pid: u32,
    dir: TempDir,
}

impl SuperLink {
    pub async fn start(contender: Contender, programs: &Programs) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("trellis-bench-").tempdir()?;
        let addresses = Addresses::free()?;
        let mut command = command(contender, programs, &dir);
        let log = File::create(dir.path().join("log"))?;
        command
            .args(["--insecure", "--isolation", "process"])
            .args(["--control-api-address", &addresses.control.to_string()])
            .args(["--fleet-api-address", &addresses.fleet.to_string()])
            .args(["--serverappio-api-address", &addresses.server_app_io.to_string()])
            .env("FLWR_TELEMETRY_ENABLED", "0")
            .env("FLWR_HOME", dir.path().join("flwr"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|error| format!("{contender} could not be started: {error}"))?;
        let pid = child.id().ok_or("the server ended at once")?;
        let mut server = Self { addresses, child, pid, dir };
        server.wait_until_listening().await?;
        Ok(server)
    }

    pub fn cpu_time(&self) -> io::Result<Duration> {
        process::cpu_time(self.pid)
    }

    pub fn memory(&self) -> io::Result<Memory> {
        process::memory(self.pid)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The end of what the server wrote, for when something went wrong.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }

    async fn wait_until_listening(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        for address in self.addresses.all() {
            while TcpStream::connect(address).await.is_err() {
                if let Some(status) = self.child.try_wait()? {
                    return Err(format!("the server ended with {status}: {}", self.log_tail()).into());
                }
                if began.elapsed() > START_LIMIT {
                    return Err(format!("the server does not listen on {address}: {}", self.log_tail()).into());
                }
                tokio::time::sleep(START_POLL).await;
            }
        }
        Ok(())
    }
}

impl Drop for SuperLink {
    fn drop(&mut self) {
        // Its state is thrown away with its directory, so there is nothing to end gracefully. An error means that
        // it ended before.
        if let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn command(contender: Contender, programs: &Programs, dir: &TempDir) -> Command {
    let official = || Command::new(programs.official_venv.join("bin/flower-superlink"));
    match contender {
        Contender::Memory => {
            let mut command = official();
            command.args(["--database", ":flwr-in-memory:"]);
            command
        }
        Contender::Database => {
            let mut command = official();
            command.arg("--database").arg(dir.path().join("state.db"));
            command
        }
        Contender::Trellis => {
            let mut command = Command::new(&programs.trellis);
            command.arg("superlink").arg("--state-dir").arg(dir.path().join("state"));
            command
        }
    }
}
