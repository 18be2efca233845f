//! The servers under test: how to start each, its addresses and its resource usage.

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

use crate::Failure;
use crate::client::Transport;
use crate::process::{self, Memory};

const START_LIMIT: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(50);
const LOG_TAIL_BYTES: usize = 2000;
/// Any free port, for APIs that the benchmark does not use.
const ANY_PORT: &str = "127.0.0.1:0";

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Contender {
    /// The original, state in memory.
    Memory,
    /// The original, state in a database file.
    Database,
    /// Trellis with defaults: a durable state directory.
    Trellis,
}

impl Contender {
    pub const ALL: [Contender; 3] = [Contender::Memory, Contender::Database, Contender::Trellis];

    /// Returns its name among the servers of a transport.
    pub fn title(self, transport: Transport) -> String {
        let version = transport.official_version();
        match self {
            Contender::Memory => format!("{version} memory"),
            Contender::Database => format!("{version} --database"),
            Contender::Trellis => "trellis".to_owned(),
        }
    }
}

/// Paths of the programs.
pub struct Programs {
    /// The virtual environment with the original for this transport, if it is measured.
    pub official_venv: Option<PathBuf>,
    pub trellis: PathBuf,
}

/// The addresses of a server's three APIs, and the transport.
#[derive(Clone)]
pub struct Addresses {
    pub transport: Transport,
    pub control: SocketAddr,
    pub fleet: SocketAddr,
    pub server_app_io: SocketAddr,
}

impl Addresses {
    /// Picks free ports: one per API over gRPC, one for all over HTTP.
    fn free(transport: Transport) -> io::Result<Self> {
        let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind(ANY_PORT)).collect::<io::Result<_>>()?;
        let address = |index: usize| match transport {
            Transport::Grpc => listeners[index].local_addr(),
            Transport::Http => listeners[0].local_addr(),
        };
        Ok(Self { transport, control: address(0)?, fleet: address(1)?, server_app_io: address(2)? })
    }

    fn all(&self) -> [SocketAddr; 3] {
        [self.control, self.fleet, self.server_app_io]
    }

    /// Returns the flags for these addresses. The original serves one transport only; Trellis serves both.
    fn flags(&self, contender: Contender) -> Vec<String> {
        let grpc = |control: &str, fleet: &str, server_app_io: &str| {
            vec![
                format!("--control-api-address={control}"),
                format!("--fleet-api-address={fleet}"),
                format!("--serverappio-api-address={server_app_io}"),
            ]
        };
        let http = |port: u16| vec!["--host=127.0.0.1".to_owned(), format!("--port={port}")];
        let grpc_here = || grpc(&self.control.to_string(), &self.fleet.to_string(), &self.server_app_io.to_string());
        let http_here = || http(self.control.port());
        match (contender, self.transport) {
            (Contender::Trellis, Transport::Grpc) => [grpc_here(), http(0)].concat(),
            (Contender::Trellis, Transport::Http) => [grpc(ANY_PORT, ANY_PORT, ANY_PORT), http_here()].concat(),
            (_, Transport::Grpc) => grpc_here(),
            (_, Transport::Http) => {
                [http_here(), vec!["--disable-runtime-dependency-installation".to_owned()]].concat()
            }
        }
    }
}

/// A running server with its own directory and process group; killed on drop.
pub struct SuperLink {
    pub addresses: Addresses,
    child: Child,
    pid: u32,
    dir: TempDir,
}

impl SuperLink {
    pub async fn start(contender: Contender, transport: Transport, programs: &Programs) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("trellis-bench-").tempdir()?;
        let addresses = Addresses::free(transport)?;
        let mut command = command(contender, programs, &dir)?;
        let log = File::create(dir.path().join("log"))?;
        command
            .args(["--insecure", "--isolation", "process"])
            .args(addresses.flags(contender))
            .env("FLWR_TELEMETRY_ENABLED", "0")
            .env("FLWR_HOME", dir.path().join("flwr"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        let title = contender.title(transport);
        let child = command.spawn().map_err(|error| format!("{title} could not be started: {error}"))?;
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

    /// Returns the end of the server's log, for error messages.
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
        // The state is removed with its directory, so a graceful stop is not needed. An error means that the server has
        // already ended.
        if let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn command(contender: Contender, programs: &Programs, dir: &TempDir) -> Result<Command, Failure> {
    if contender == Contender::Trellis {
        let mut command = Command::new(&programs.trellis);
        command.arg("superlink").arg("--state-dir").arg(dir.path().join("state"));
        return Ok(command);
    }
    let venv = programs.official_venv.as_ref().ok_or("its virtual environment was not given")?;
    let mut command = Command::new(venv.join("bin/flower-superlink"));
    match contender {
        Contender::Database => command.arg("--database").arg(dir.path().join("state.db")),
        _ => command.args(["--database", ":flwr-in-memory:"]),
    };
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_http_one_port_has_all_services() {
        let addresses = Addresses::free(Transport::Http).unwrap();
        assert_eq!(addresses.all(), [addresses.control; 3]);
        let port = format!("--port={}", addresses.control.port());
        let flags = ["--host=127.0.0.1", port.as_str(), "--disable-runtime-dependency-installation"];
        assert_eq!(addresses.flags(Contender::Memory), flags);
        assert!(addresses.flags(Contender::Trellis).contains(&port));
    }

    #[test]
    fn trellis_never_uses_a_fixed_port() {
        let names = ["--control-api-address", "--fleet-api-address", "--serverappio-api-address", "--host", "--port"];
        for transport in Transport::ALL {
            let flags = Addresses::free(transport).unwrap().flags(Contender::Trellis);
            let given: Vec<&str> = flags.iter().filter_map(|flag| Some(flag.split_once('=')?.0)).collect();
            assert_eq!(given, names);
        }
    }
}
