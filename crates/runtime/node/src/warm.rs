//! Warm apps: Python workers that load the ClientApp of a run once and execute its instructions one after another.
//!
//! This module knows nothing of links and of the installation of apps. The caller limits concurrency and time, and never executes
//! two instructions of one run at the same time.

mod exchange;
mod frame;
mod pool;
mod process;
mod retention;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use trellis_core::Seconds;
use trellis_core::id::RunId;
use trellis_sandbox::Sandbox;
use trellis_wire::error_reply::ErrorCode;

use self::exchange::{Answer, ExchangeError};
use self::pool::{ActiveWorker, RunWorker, Workers};
use self::process::Launcher;
pub use self::process::{StartError, WorkerInfo};
use crate::app::{Job, Outcome};
use crate::app_log::AppLog;
use crate::config::WarmSettings;
use crate::objects::Objects;
use crate::resources::Confinement;
use crate::watch::Watch;

pub struct Setup {
    /// The Python with the `flwr` that apps use.
    pub python: PathBuf,
    pub settings: WarmSettings,
    /// The directory for the worker's program.
    pub assets: PathBuf,
    /// Working directory of apps if there is no sandbox. Must exist.
    pub directory: PathBuf,
    /// Variables in addition to the environment of the node, if there is no sandbox.
    pub environment: Vec<(OsString, OsString)>,
    pub confinement: Arc<Confinement>,
    pub sandbox: Arc<Sandbox>,
    pub objects: Objects,
    pub watch: Watch,
    /// For the output of apps.
    pub log: AppLog,
}

/// The status of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerStatus {
    /// `None`: a spare worker.
    pub run: Option<RunId>,
    pub pid: u32,
    pub busy: bool,
    /// The number of executed instructions.
    pub messages: u64,
    pub rss_bytes: Option<u64>,
    pub started: Seconds,
}

/// All workers of a node. Dropping this kills them; `close` stops them gracefully.
pub struct WarmApps {
    workers: Arc<Workers>,
    objects: Objects,
}

impl WarmApps {
    pub fn new(setup: Setup) -> io::Result<WarmApps> {
        let Setup { python, settings, assets, directory, environment, confinement, sandbox, objects, watch, log } =
            setup;
        let program = process::install_program(&assets)?;
        let launcher = Launcher { python, program, directory, environment, confinement, sandbox, log };
        Ok(WarmApps { workers: Arc::new(Workers::new(launcher, settings, watch)), objects })
    }

    /// Checks that the interpreter can run apps: starts a worker, which may then become the spare one.
    pub async fn check(&self) -> Result<WorkerInfo, StartError> {
        let (worker, info) = self.workers.launcher.start()?.ready().await?;
        self.workers.keep_spare(worker);
        Ok(info)
    }

    /// Executes an instruction. Dropping the future kills the app and its child processes.
    ///
    /// Objects of an incomplete reply may remain in the object files.
    pub async fn execute(&self, job: Job) -> Outcome {
        let Some(app) = job.app.clone() else {
            let reason = "The app of this run is not installed on the node".to_owned();
            return Outcome::Failed { code: ErrorCode::LoadClientAppException, reason };
        };
        if self.workers.are_closed() {
            return stopping();
        }
        let run = RunId(job.metadata().run_id);
        let owned = match self.workers.acquire(run, &app).await {
            Ok(owned) => owned,
            Err(error) => return not_started(run, &error),
        };
        let mut at_work = ActiveWorker::begin(&self.workers, owned);
        let answer = exchange::execute(at_work.worker(), &job, &app, &self.objects).await;
        self.settle(at_work.done(), answer).await
    }

    /// Handles an answer, or its absence: returns the outcome, and keeps or stops the worker.
    async fn settle(&self, owned: RunWorker, answer: Result<Answer, ExchangeError>) -> Outcome {
        let run = owned.run;
        let crashed = |reason: String| {
            tracing::warn!(%run, reason, "the app failed");
            Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason: format!("ClientApp {reason}") }
        };
        match answer {
            Ok(Answer::Replied { reply, loaded }) => {
                self.workers.release(owned, loaded);
                Outcome::Replied(reply)
            }
            Ok(Answer::Failed { reason }) => {
                self.workers.release(owned, true);
                crashed(format!("failed: {reason}"))
            }
            Ok(Answer::Exit { reason }) => {
                let (_, output) = owned.worker.after_crash().await;
                crashed(format!("called {reason}{output}"))
            }
            Err(_) if self.workers.are_closed() => stopping(),
            Err(ExchangeError::Gone(_)) => {
                let (how, output) = owned.worker.after_crash().await;
                crashed(format!("{how}{output}"))
            }
            Err(ExchangeError::Protocol(what)) => crashed(format!("violated the protocol and was killed: {what}")),
            Err(error @ (ExchangeError::Missing(_) | ExchangeError::Disk(_))) => {
                Outcome::Postponed { reason: chain(&error) }
            }
        }
    }

    /// Stops the worker of a finished run.
    pub fn end_run(&self, run: RunId) {
        self.workers.end_run(run);
    }

    /// Stops all workers; current and future instructions are postponed.
    pub async fn close(&self) {
        self.workers.close().await;
    }

    pub fn status(&self) -> Vec<WorkerStatus> {
        self.workers.status()
    }
}

fn stopping() -> Outcome {
    Outcome::Postponed { reason: "the node is stopping".to_owned() }
}

/// A broken interpreter must be repaired by the operator; the sender of the instruction gets an error reply.
fn not_started(run: RunId, error: &StartError) -> Outcome {
    let reason = chain(error);
    if error.is_temporary() {
        tracing::warn!(%run, reason, "no app worker could be started; retrying");
        return Outcome::Postponed { reason };
    }
    tracing::error!(%run, reason, "no app worker can be started");
    Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason: format!("The node cannot run apps: {reason}") }
}

/// The error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
