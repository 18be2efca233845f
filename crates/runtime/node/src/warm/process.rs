//! A worker process: starting it, waiting until it is ready, and killing it with its child processes. It does not know what
//! workers execute.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{BufReader, BufWriter};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use trellis_clock::now_s;
use trellis_core::Seconds;
use trellis_core::id::RunId;
use trellis_sandbox::{Sandbox, Scratch};

use super::frame::{self, Response};
use crate::app::InstalledApp;
use crate::app_log::AppLog;
use crate::fab::RESERVED;
use crate::output::Output;
use crate::resources::{Confined, Confinement};

/// Includes importing flwr from a cold and slow disk.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// For a graceful stop: apps may have exit handlers.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// For reaping a killed process and reading the rest of its output.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Reduces wake-ups for large models; the default of 64 KiB doubles their transfer time.
const PIPE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 64 << 10;
const REASON_OUTPUT_BYTES: usize = 2 << 10;

/// The program of a worker.
const PROGRAM: &[u8] = include_bytes!("../../../../../python/trellis_worker.py");
const PROGRAM_NAME: &str = "trellis_worker.py";

/// The number of workers started by this process, which numbers their scratch directories.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// How workers are started.
#[derive(Clone)]
pub struct Launcher {
    pub python: PathBuf,
    /// Program, working directory and variables of workers; only used without a sandbox.
    pub program: PathBuf,
    pub directory: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    pub confinement: Arc<Confinement>,
    pub sandbox: Arc<Sandbox>,
    pub log: AppLog,
}

/// The versions that a worker reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    pub python: String,
    pub flwr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{} cannot be started: install Python with flwr, or name its interpreter with --python", python.display())]
    NoPython { python: PathBuf, source: io::Error },
    #[error("no process can be started at the moment")]
    NotNow(#[source] io::Error),
    #[error("{} cannot run apps: {reason}", python.display())]
    Unusable { python: PathBuf, reason: String },
    #[error("{} {how} before it was ready to run apps{output}", python.display())]
    Ended { python: PathBuf, how: Ended, output: LastOutput },
    #[error("{} was not ready to run apps within {} s", python.display(), START_TIMEOUT.as_secs())]
    Late { python: PathBuf },
}

impl StartError {
    /// Whether no usable Python is installed.
    pub fn is_about_python(&self) -> bool {
        matches!(self, StartError::NoPython { .. } | StartError::Unusable { .. })
    }

    /// Whether a retry may succeed without intervention.
    pub fn is_temporary(&self) -> bool {
        matches!(self, StartError::NotNow(_))
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Code(i32),
    Signal(i32),
    /// Killed because of a limit.
    OverLimit(String),
    /// The system does not know.
    Unknown,
}

impl From<io::Result<ExitStatus>> for Ended {
    fn from(status: io::Result<ExitStatus>) -> Ended {
        let Ok(status) = status else { return Ended::Unknown };
        status.code().map(Ended::Code).or(status.signal().map(Ended::Signal)).unwrap_or(Ended::Unknown)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Code(code) => write!(f, "ended with exit code {code}"),
            Ended::Signal(9) => f.write_str("ended with signal 9 (SIGKILL), as when memory runs out"),
            Ended::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "ended with signal {signal} ({name})"),
                None => write!(f, "ended with signal {signal}"),
            },
            Ended::OverLimit(reason) => write!(f, "was killed: {reason}"),
            Ended::Unknown => f.write_str("ended"),
        }
    }
}

/// Signals that end faulty programs, or that are sent to end them.
fn signal_name(signal: i32) -> Option<&'static str> {
    let known = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::SYS, "SIGSYS"),
    ];
    known.into_iter().find_map(|(number, name)| (number.as_raw() == signal).then_some(name))
}

/// The last output, as the end of a sentence.
#[derive(Debug)]
pub struct LastOutput(String);

impl fmt::Display for LastOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str(", without any output")
        } else {
            write!(f, "; its last output:\n{}", self.0)
        }
    }
}

/// A process and its process group, until it is reaped.
#[derive(Debug, Clone)]
pub struct Process {
    pid: Pid,
    ended: watch::Receiver<Option<Ended>>,
}

impl Process {
    /// Ensures that the child is reaped.
    fn watch(mut child: Child, confinement: &Confinement, scratch: Option<Arc<Scratch>>) -> io::Result<Process> {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| io::Error::other("the process ended at once"))?;
        let (tell, ended) = watch::channel(None);
        let confined = confinement.enter(pid.as_raw_nonzero().get() as u32);
        let confined = confined
            .inspect_err(|error| tracing::warn!(%error, "the resource limits of an app cannot be enforced"))
            .ok();
        tokio::spawn(async move {
            let how = Ended::from(child.wait().await);
            let how = confined.as_ref().and_then(Confined::kill_reason).map_or(how, Ended::OverLimit);
            // Remaining child processes of the app have no purpose.
            let _ = kill_process_group(pid, Signal::KILL);
            if let Some(scratch) = scratch {
                // If the removal fails, the next start of the node removes the directory.
                let _swept_later = spawn_blocking(move || scratch.remove()).await;
            }
            let _ = tell.send(Some(how));
        });
        Ok(Process { pid, ended })
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    pub fn kill(&self) {
        if !self.has_ended() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        let how = ended.wait_for(Option::is_some).await;
        how.ok().and_then(|how| how.clone()).unwrap_or(Ended::Unknown)
    }

    /// The resident memory of the process, without child processes.
    pub fn resident_bytes(&self) -> Option<u64> {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).ok()?;
        let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }
}

/// Kills the process group when dropped.
struct KillOnDrop(Process);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// A started worker that is not ready yet.
pub struct Starting {
    worker: Worker,
    python: PathBuf,
}

impl Launcher {
    /// Starts an unassigned worker.
    pub fn start(&self) -> Result<Starting, StartError> {
        let (mut command, scratch) = self.command().map_err(|source| self.start_error(source))?;
        command
            .envs(self.confinement.environment(self.confinement.next_slot()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let worker = command.spawn().and_then(|child| Worker::of(child, self, scratch));
        let worker = worker.map_err(|source| self.start_error(source))?;
        Ok(Starting { worker, python: self.python.clone() })
    }

    fn command(&self) -> io::Result<(Command, Option<Arc<Scratch>>)> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let scratch = self.sandbox.scratch(&format!("worker-{number}"))?;
        let mut command = Command::from(self.sandbox.command(scratch.as_ref(), None)?);
        match &scratch {
            Some(scratch) => command.arg(scratch.put(PROGRAM_NAME, PROGRAM)?),
            None => {
                let environment = self.environment.iter().map(|(name, value)| (name, value));
                command.arg(&self.program).current_dir(&self.directory).envs(environment)
            }
        };
        Ok((command, scratch.map(Arc::new)))
    }

    fn start_error(&self, source: io::Error) -> StartError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => StartError::NotNow(source),
            _ if matches!(source.raw_os_error(), Some(code) if is_shortage(code)) => StartError::NotNow(source),
            _ => StartError::NoPython { python: self.python.clone(), source },
        }
    }
}

/// Too many open files.
fn is_shortage(code: i32) -> bool {
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].iter().any(|errno| errno.raw_os_error() == code)
}

impl Starting {
    pub fn process(&self) -> &Process {
        self.worker.process()
    }

    /// Waits until the worker reports that it is ready.
    pub async fn ready(self) -> Result<(Worker, WorkerInfo), StartError> {
        let Starting { mut worker, python } = self;
        match timeout(START_TIMEOUT, frame::read(&mut worker.from)).await {
            Ok(Ok((Response::Ready { python, flwr }, _))) => Ok((worker, WorkerInfo { python, flwr })),
            Ok(Ok((Response::Unusable { reason }, _))) => Err(StartError::Unusable { python, reason }),
            Ok(_) => {
                let (how, output) = worker.after_crash().await;
                Err(StartError::Ended { python, how, output })
            }
            Err(_) => Err(StartError::Late { python }),
        }
    }
}

/// A worker process with its pipes. Dropping it kills the process group.
pub struct Worker {
    process: KillOnDrop,
    pub to: BufWriter<ChildStdin>,
    pub from: BufReader<ChildStdout>,
    output: Arc<Output>,
    reading: JoinHandle<()>,
    pub started: Seconds,
    scratch: Option<Arc<Scratch>>,
    /// The directory of the run's app, once the run is known.
    app: Option<PathBuf>,
}

impl Worker {
    fn of(mut child: Child, launcher: &Launcher, scratch: Option<Arc<Scratch>>) -> io::Result<Worker> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = KillOnDrop(Process::watch(child, &launcher.confinement, scratch.clone())?);
        let (Some(to), Some(from), Some(errors)) = pipes else {
            return Err(io::Error::other("its standard streams were taken before the start"));
        };
        // Only improves the speed; the system may limit the memory of pipes.
        let _ = rustix::pipe::fcntl_setpipe_size(&to, PIPE_BYTES);
        let _ = rustix::pipe::fcntl_setpipe_size(&from, PIPE_BYTES);
        let (output, reading) = Output::follow(process.0.pid(), errors, launcher.log.clone());
        Ok(Worker {
            process,
            to: BufWriter::with_capacity(BUFFER_BYTES, to),
            from: BufReader::with_capacity(BUFFER_BYTES, from),
            output,
            reading,
            started: now_s(),
            scratch,
            app: None,
        })
    }

    /// The directory from which the worker loads the app of its run. In a sandbox it is a private copy: the readable paths of a
    /// worker are fixed before its run is known, and it must not read the apps of other runs.
    pub async fn app_directory(&mut self, app: &InstalledApp) -> io::Result<PathBuf> {
        if let Some(directory) = &self.app {
            return Ok(directory.clone());
        }
        let directory = match self.scratch.clone() {
            Some(scratch) => {
                let from = app.directory.clone();
                spawn_blocking(move || scratch.copy(&from, &RESERVED)).await.map_err(io::Error::other)??
            }
            None => app.directory.clone(),
        };
        self.app = Some(directory.clone());
        Ok(directory)
    }

    pub fn process(&self) -> &Process {
        &self.process.0
    }

    pub fn belongs_to(&self, run: RunId) {
        self.output.belongs_to(run);
    }

    /// Asks the worker to exit, and kills it after a timeout.
    pub async fn end(self) -> Ended {
        let Worker { process, to, .. } = self;
        drop(to);
        match timeout(END_TIMEOUT, process.0.ended()).await {
            Ok(how) => how,
            Err(_) => {
                process.0.kill();
                timeout(KILL_TIMEOUT, process.0.ended()).await.unwrap_or(Ended::Unknown)
            }
        }
    }

    /// How a worker that no longer answers ended, and its last output; kills it if necessary.
    pub async fn after_crash(self) -> (Ended, LastOutput) {
        // Its input stays open: closing it would make the worker exit at once, while it may still be writing output.
        let Worker { process, to: _open, output, reading, .. } = self;
        let how = match timeout(END_TIMEOUT, process.0.ended()).await {
            Ok(how) => how,
            Err(_) => {
                process.0.kill();
                let _ = timeout(KILL_TIMEOUT, process.0.ended()).await;
                Ended::Unknown
            }
        };
        let _ = timeout(KILL_TIMEOUT, reading).await;
        (how, LastOutput(output.tail(REASON_OUTPUT_BYTES)))
    }
}

/// Writes the worker's program. Its name contains its hash, because nodes of different versions may share a directory.
pub fn install_program(assets: &Path) -> io::Result<PathBuf> {
    let hash = trellis_wire::object::object_id(PROGRAM).to_string();
    let path = assets.join(format!("trellis_worker_{}.py", &hash[..16]));
    if std::fs::read(&path).is_ok_and(|there| there == PROGRAM) {
        return Ok(path);
    }
    std::fs::create_dir_all(assets)?;
    trellis_files::replace(&path, PROGRAM, trellis_files::PRIVATE_FILE)?;
    Ok(path)
}
