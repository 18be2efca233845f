//! Official app processes: serves unmodified `flwr-clientapp` and `flower-superexec` of Flower 1.25 to 1.42, on one port, over
//! gRPC (ClientAppIo, Runtime) and HTTP (Runtime). Optionally starts a `flwr-clientapp` for each instruction.
//!
//! This module knows nothing of SuperLinks and of the delivery of replies.

mod api;
mod assignment;
mod caller;
mod job_queue;
mod objects;
mod process;
mod rpc;
mod service;
#[cfg(test)]
mod testing;

/// All served calls, for tests that check that none is missing.
pub mod calls {
    pub use super::rpc::{ALL, Access, On, Rpc};
    pub use trellis_front::Transport;
}

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use trellis_core::id::RunId;
use trellis_front::listen::local;
use trellis_front::{Keepalive, Listener, SuperexecSecret};
use trellis_wire::error_reply::ErrorCode;

use crate::app::{Job, Outcome};
use crate::app_log::AppLog;
use crate::objects::Objects;
use assignment::Delivery;
use job_queue::{Ending, JobHandle, JobQueue};
use process::AppProcess;
pub use process::{Interpreter, Scratches};
use service::{AppPort, Server};

/// The time that an app has to exit after its delivery.
const GRACE_AFTER_DELIVERY: Duration = Duration::from_secs(10);
/// Concurrent requests per connection.
const REQUESTS_PER_CONNECTION: u32 = 128;

/// The configuration of the API for official apps.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Port 0: any free one.
    pub address: SocketAddr,
    pub launch: Launch,
    /// The secret of SuperExecs; `None`: any client that reaches the port may take instructions.
    pub superexec_secret: Option<PathBuf>,
    /// For the output of apps.
    pub log: AppLog,
}

/// How apps are started.
#[derive(Debug, Clone)]
pub enum Launch {
    /// By the node, one for each instruction.
    PerMessage(Interpreter),
    /// By SuperExecs, which pull instructions.
    BySuperExec,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address} for apps; choose another address, or port 0 for any free one")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot read the secret of SuperExecs from {path}")]
    Secret { path: String, source: io::Error },
    #[error("the secret of SuperExecs in {path} is empty")]
    EmptySecret { path: String },
}

/// The API for official apps, and the apps started by the node.
pub struct OfficialApps {
    queue: Arc<JobQueue>,
    launch: Launch,
    address: SocketAddr,
    log: AppLog,
    stop: CancellationToken,
    /// Closes the port when this is dropped.
    _served: DropGuard,
}

impl OfficialApps {
    /// Opens the port and serves it until `shutdown`.
    pub async fn start(
        settings: Settings,
        objects: Objects,
        shutdown: &CancellationToken,
    ) -> Result<OfficialApps, StartError> {
        let secret = settings.superexec_secret.as_deref().map(read_secret).transpose()?;
        let cannot_bind = |source| StartError::Bind { address: settings.address, source };
        let listener = Listener::bind(&settings.address.to_string(), None).await.map_err(cannot_bind)?;
        let address = listener.address().map_err(cannot_bind)?;
        let stop = shutdown.child_token();
        let queue = JobQueue::new(stop.clone());
        let server = Server::new(Arc::clone(&queue), objects, secret, stop.clone());
        tokio::spawn(trellis_front::serve(AppPort(server), listener, Keepalive::default(), REQUESTS_PER_CONNECTION));
        tracing::info!(%address, "API for apps is listening");
        let Settings { launch, log, .. } = settings;
        Ok(OfficialApps { queue, launch, address, log, _served: stop.clone().drop_guard(), stop })
    }

    /// The address of the API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops all apps; current and future instructions are postponed.
    pub fn close(&self) {
        self.stop.cancel();
    }

    /// Removes the scratch directory of a finished run.
    pub fn end_run(&self, run: RunId) {
        if let Launch::PerMessage(interpreter) = &self.launch {
            interpreter.scratches.end(run.0);
        }
    }

    /// Executes an instruction with an app. Dropping the future kills the app and invalidates its token.
    pub async fn execute(&self, job: Job) -> Outcome {
        let carried_out = async {
            match &self.launch {
                Launch::PerMessage(interpreter) => self.launch(interpreter, job).await,
                Launch::BySuperExec => self.offer(job).await,
            }
        };
        tokio::select! {
            outcome = carried_out => outcome,
            () = self.stop.cancelled() => Outcome::Postponed { reason: "The SuperNode is stopping.".to_owned() },
        }
    }

    /// Waits until a SuperExec takes the job and its app delivers.
    async fn offer(&self, job: Job) -> Outcome {
        match self.queue.offer(job).ended().await {
            Ending::Delivered(delivery) => outcome(delivery),
            Ending::Lapsed => crashed("The ClientApp stopped responding.".to_owned()),
        }
    }

    async fn launch(&self, interpreter: &Interpreter, job: Job) -> Outcome {
        let run = job.metadata().run_id;
        let (mut post, token) = self.queue.assign(job);
        let mut app = match AppProcess::start(interpreter, local(self.address), &token, RunId(run), &self.log) {
            Ok(app) => app,
            Err(error) => return not_started(&interpreter.python, &error),
        };
        tracing::debug!(run, pid = app.pid(), "ClientApp started");
        tokio::select! {
            biased; // A delivery at the moment of the exit counts.
            ending = post.ended() => match ending {
                Ending::Delivered(Delivery::Nothing { reason }) => {
                    let _ = tokio::time::timeout(GRACE_AFTER_DELIVERY, app.ended()).await;
                    crashed(with_output(&reason, &mut app).await)
                }
                Ending::Delivered(Delivery::Reply(reply)) => {
                    tokio::spawn(await_exit(app, post, self.stop.clone()));
                    outcome(Delivery::Reply(reply))
                }
                Ending::Delivered(damaged) => outcome(damaged),
                Ending::Lapsed => crashed(with_output("The ClientApp stopped responding.", &mut app).await),
            },
            how = app.ended() => {
                let reason = format!("The ClientApp process {how} before it replied.");
                crashed(with_output(&reason, &mut app).await)
            }
        }
    }
}

/// A missing interpreter must be installed by the operator; the sender of the instruction gets an error reply.
fn not_started(python: &Path, error: &io::Error) -> Outcome {
    let reason = format!("The ClientApp cannot be started with {}: {error}", python.display());
    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) {
        return crashed(format!(
            "{reason}: install Python with flwr on the node, or name its interpreter with --python."
        ));
    }
    Outcome::Postponed { reason: format!("{reason}.") }
}

/// Waits until an app that has delivered exits. Until then its token remains valid for its last calls.
async fn await_exit(mut app: AppProcess, _job: JobHandle, stop: CancellationToken) {
    tokio::select! {
        _ = tokio::time::timeout(GRACE_AFTER_DELIVERY, app.ended()) => {}
        () = stop.cancelled() => {}
    }
}

fn outcome(delivery: Delivery) -> Outcome {
    match delivery {
        Delivery::Reply(reply) => Outcome::Replied(reply),
        Delivery::Nothing { reason } => crashed(reason),
        Delivery::Damaged { what } => {
            Outcome::Postponed { reason: format!("An object for the ClientApp is missing: {what}.") }
        }
    }
}

fn crashed(reason: String) -> Outcome {
    Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason }
}

async fn with_output(reason: &str, app: &mut AppProcess) -> String {
    match app.last_output().await {
        words if words.is_empty() => reason.to_owned(),
        words => format!("{reason} Its last output:\n{words}"),
    }
}

fn read_secret(path: &Path) -> Result<SuperexecSecret, StartError> {
    let name = || path.display().to_string();
    let secret = std::fs::read(path).map_err(|source| StartError::Secret { path: name(), source })?;
    if secret.is_empty() {
        return Err(StartError::EmptySecret { path: name() });
    }
    Ok(SuperexecSecret::new(&secret))
}
