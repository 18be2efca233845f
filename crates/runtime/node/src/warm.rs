//! Warm apps: Python workers that load a run's ClientApp once and carry out its instructions one after another.
//!
//! Knows nothing of links, nor of how apps come to this machine. How many instructions are carried out at once, and for
//! how long, is decided by the caller, who never asks for two of one run at the same time.

mod exchange;
mod fate;
mod frame;
mod output;
mod pool;
mod process;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use trellis_core::Seconds;
use trellis_core::id::RunId;
use trellis_sandbox::Sandbox;
use trellis_wire::error_reply::ErrorCode;

use self::exchange::{Answer, Trouble};
use self::pool::{AtWork, Owned, Workers};
use self::process::Launcher;
pub use self::process::{StartError, WorkerInfo};
use crate::app::{Job, Outcome};
use crate::config::WarmSettings;
use crate::objects::Objects;
use crate::resources::Confinement;
use crate::watch::Watch;

pub struct Setup {
    /// Python whose `flwr` the apps use.
    pub python: PathBuf,
    pub settings: WarmSettings,
    /// Where the worker's program is put.
    pub assets: PathBuf,
    /// Working directory of apps if there is no sandbox. Must exist.
    pub directory: PathBuf,
    /// Variables in addition to the environment of the node, if there is no sandbox.
    pub environment: Vec<(OsString, OsString)>,
    pub confinement: Arc<Confinement>,
    pub sandbox: Arc<Sandbox>,
    pub objects: Objects,
    pub watch: Watch,
}

/// One worker, as it is told of.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerStatus {
    /// `None`: it waits for the next run.
    pub run: Option<RunId>,
    pub pid: u32,
    pub busy: bool,
    /// Instructions that it carried out.
    pub messages: u64,
    pub rss_bytes: Option<u64>,
    pub started: Seconds,
}

/// All workers of a node. Dropped, it ends them; `close` does so in order.
pub struct WarmApps {
    workers: Arc<Workers>,
    objects: Objects,
}

impl WarmApps {
    pub fn new(setup: Setup) -> io::Result<WarmApps> {
        let Setup { python, settings, assets, directory, environment, confinement, sandbox, objects, watch } = setup;
        let program = process::install_program(&assets)?;
        let launcher = Launcher { python, program, directory, environment, confinement, sandbox };
        Ok(WarmApps { workers: Arc::new(Workers::new(launcher, settings, watch)), objects })
    }

    /// Whether the interpreter can run apps: starts one, which then waits for the first run.
    pub async fn check(&self) -> Result<WorkerInfo, StartError> {
        let (worker, info) = self.workers.launcher.start()?.ready().await?;
        self.workers.lay_by(worker);
        Ok(info)
    }

    /// Carries out an instruction. Dropped before it is done, it ends the app and everything the app started.
    ///
    /// Objects of a reply that did not come to its end may stay among the object files.
    pub async fn execute(&self, job: Job) -> Outcome {
        let Some(app) = job.app.clone() else {
            let reason = "The app of this run is not installed on the node".to_owned();
            return Outcome::Failed { code: ErrorCode::LoadClientAppException, reason };
        };
        if self.workers.are_closed() {
            return stopping();
        }
        let run = RunId(job.metadata().run_id);
        let owned = match self.workers.one_for(run, &app).await {
            Ok(owned) => owned,
            Err(error) => return not_started(run, &error),
        };
        let mut at_work = AtWork::begin(&self.workers, owned);
        let answer = exchange::carry_out(at_work.worker(), &job, &app, &self.objects).await;
        self.settle(at_work.done(), answer).await
    }

    /// What an answer, or its absence, means for the worker and the instruction.
    async fn settle(&self, owned: Owned, answer: Result<Answer, Trouble>) -> Outcome {
        let run = owned.run;
        let crashed = |reason: String| {
            tracing::warn!(%run, reason, "the app failed");
            Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason: format!("ClientApp {reason}") }
        };
        match answer {
            Ok(Answer::Replied { reply, loaded }) => {
                self.workers.rest(owned, loaded);
                Outcome::Replied(reply)
            }
            Ok(Answer::Failed { reason }) => {
                self.workers.rest(owned, true);
                crashed(format!("failed: {reason}"))
            }
            Ok(Answer::Exit { reason }) => {
                let (_, output) = owned.worker.after_crash().await;
                crashed(format!("called {reason}{output}"))
            }
            Err(_) if self.workers.are_closed() => stopping(),
            Err(Trouble::Gone(_)) => {
                let (how, output) = owned.worker.after_crash().await;
                crashed(format!("{how}{output}"))
            }
            Err(Trouble::Nonsense(what)) => crashed(format!("does not keep to the rules, and was ended: {what}")),
            Err(trouble @ (Trouble::Missing(_) | Trouble::Disk(_))) => Outcome::Postponed { reason: chain(&trouble) },
        }
    }

    /// Nothing more comes for a run: its worker goes.
    pub fn end_run(&self, run: RunId) {
        self.workers.end_run(run);
    }

    /// Ends all workers; instructions that are being carried out are postponed, and so are those that still come.
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

/// A broken interpreter is for the operator to mend; the sender of the instruction is told at once.
fn not_started(run: RunId, error: &StartError) -> Outcome {
    let reason = chain(error);
    if error.may_pass() {
        tracing::warn!(%run, reason, "no app worker could be started; it is tried again");
        return Outcome::Postponed { reason };
    }
    tracing::error!(%run, reason, "no app worker can be started");
    Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason: format!("The node cannot run apps: {reason}") }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}
