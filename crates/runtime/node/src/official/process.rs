//! An official `flwr-clientapp` that the node starts: a process group that is killed when its owner is dropped.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use trellis_core::id::RunId;
use trellis_sandbox::{Sandbox, Scratch};

use crate::app_log::AppLog;
use crate::output::Output;
use crate::resources::{Confined, Confinement};

/// Child processes of an app may hold its output open, so waiting for the rest of the output is limited.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
const REASON_OUTPUT_BYTES: usize = 8 << 10;

/// Reads token and address from the environment, which only the owner of the process can read, and calls flwr's own entry point
/// with the flags of its version.
const PROGRAM: &str = include_str!("clientapp.py");

/// How apps are started.
#[derive(Debug, Clone)]
pub struct Interpreter {
    /// The Python with the `flwr` that apps use.
    pub python: PathBuf,
    /// The directory where apps are unpacked if there is no sandbox.
    pub flwr_home: PathBuf,
    /// Whether apps may install dependencies from a package index (Flower 1.29 and later).
    pub allow_dependency_installation: bool,
    pub confinement: Arc<Confinement>,
    pub sandbox: Arc<Sandbox>,
    pub scratches: Scratches,
}

/// The scratch directories of runs, shared by successive apps of a run.
#[derive(Debug, Clone, Default)]
pub struct Scratches(Arc<Mutex<HashMap<u64, Arc<Scratch>>>>);

impl Scratches {
    /// The scratch directory of a run, created if missing; `None` if there is no sandbox.
    fn of(&self, run: u64, sandbox: &Sandbox) -> io::Result<Option<Arc<Scratch>>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scratch) = known.get(&run) {
            return Ok(Some(Arc::clone(scratch)));
        }
        let Some(made) = sandbox.scratch(&format!("run-{run}"))?.map(Arc::new) else { return Ok(None) };
        known.insert(run, Arc::clone(&made));
        Ok(Some(made))
    }

    /// Removes the scratch directory of a finished run.
    pub fn end(&self, run: u64) {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
        if let Some(scratch) = ended {
            // If the removal fails, the next start of the node removes the directory.
            tokio::task::spawn_blocking(move || scratch.remove());
        }
    }
}

/// An app and its child processes.
pub struct AppProcess {
    /// `None` after its end.
    group: Option<Pid>,
    child: Child,
    output: Arc<Output>,
    reading: JoinHandle<()>,
    confined: Option<Confined>,
}

impl AppProcess {
    pub fn start(
        interpreter: &Interpreter,
        address: SocketAddr,
        token: &str,
        run: RunId,
        log: &AppLog,
    ) -> io::Result<AppProcess> {
        let (read, write) = io::pipe()?;
        let scratch = interpreter.scratches.of(run.0, &interpreter.sandbox)?;
        let mut command = Command::from(interpreter.sandbox.command(scratch.as_deref(), Some(address.port()))?);
        if scratch.is_none() {
            command.env("FLWR_HOME", &interpreter.flwr_home);
        }
        let child = command
            .args(["-u", "-c", PROGRAM])
            .envs(interpreter.confinement.environment(interpreter.confinement.next_slot()))
            .env("TRELLIS_APP_ADDRESS", address.to_string())
            .env("TRELLIS_APP_TOKEN", token)
            .env("TRELLIS_APP_INSTALLS", if interpreter.allow_dependency_installation { "1" } else { "" })
            .stdin(Stdio::null())
            .stdout(write.try_clone()?)
            .stderr(write)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let confined = child.id().map(|pid| interpreter.confinement.enter(pid));
        let confined = confined.and_then(|entered| {
            entered.inspect_err(|error| tracing::warn!(%error, "the resource limits of an app cannot be enforced")).ok()
        });
        let group = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let from = pipe::Receiver::from_owned_fd(read.into())?;
        let (output, reading) = Output::follow(child.id().unwrap_or_default(), from, log.clone());
        output.belongs_to(run);
        Ok(AppProcess { group, child, output, reading, confined })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for its end and describes it.
    pub async fn ended(&mut self) -> String {
        let how = match self.child.wait().await {
            Ok(status) => match self.confined.as_ref().and_then(Confined::kill_reason) {
                Some(reason) => format!("was killed ({reason})"),
                None => describe(status),
            },
            Err(error) => format!("cannot be watched ({error})"),
        };
        self.kill();
        how
    }

    /// The end of its output, after its exit.
    pub async fn last_output(&mut self) -> String {
        let _ = tokio::time::timeout(OUTPUT_TIMEOUT, &mut self.reading).await;
        self.output.tail(REASON_OUTPUT_BYTES)
    }

    /// Kills the process group.
    pub fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for AppProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
