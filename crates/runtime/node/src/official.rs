//! Official app processes: serves `flwr-clientapp` and `flower-superexec` of Flower 1.25 to 1.42, unmodified, on one port,
//! over gRPC (ClientAppIo, Runtime) and HTTP (Runtime); and starts a `flwr-clientapp` for each instruction, if it is to.
//!
//! Knows nothing of SuperLinks, and nothing of what becomes of a reply.

mod api;
mod assignment;
mod board;
mod caller;
mod objects;
mod output;
mod process;
mod rpc;
mod service;
#[cfg(test)]
mod testing;

/// Every call that is served, for those who test that none is forgotten.
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
use crate::objects::Objects;
use assignment::Delivery;
use board::{Board, Ending, Post};
use process::AppProcess;
pub use process::{Interpreter, Scratches};
use service::{AppPort, Server};

/// An app that has delivered may tidy up for this long.
const GRACE_AFTER_DELIVERY: Duration = Duration::from_secs(10);
/// Requests one connection may have open at once.
const REQUESTS_PER_CONNECTION: u32 = 128;

/// What official apps are served with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Port 0: any free one.
    pub address: SocketAddr,
    pub launch: Launch,
    /// Secret that SuperExecs prove themselves with; `None`: whoever reaches the port may take instructions.
    pub superexec_secret: Option<PathBuf>,
}

/// Who starts apps.
#[derive(Debug, Clone)]
pub enum Launch {
    /// We do, one for each instruction.
    PerMessage(Interpreter),
    /// SuperExecs, which ask for instructions.
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

/// Official apps at work.
pub struct OfficialApps {
    board: Arc<Board>,
    launch: Launch,
    address: SocketAddr,
    stop: CancellationToken,
    /// Ends the port, too, when this is dropped.
    _served: DropGuard,
}

impl OfficialApps {
    /// Opens the port. It is served until `shutdown`.
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
        let board = Board::new(stop.clone());
        let server = Server::new(Arc::clone(&board), objects, secret, stop.clone());
        tokio::spawn(trellis_front::serve(AppPort(server), listener, Keepalive::default(), REQUESTS_PER_CONNECTION));
        tracing::info!(%address, "API for apps is listening");
        Ok(OfficialApps { board, launch: settings.launch, address, _served: stop.clone().drop_guard(), stop })
    }

    /// Where apps find this node.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all apps; instructions that are being carried out are postponed, and so are those that still come.
    pub fn close(&self) {
        self.stop.cancel();
    }

    /// Removes the scratch directory of a run that gets no more messages.
    pub fn end_run(&self, run: RunId) {
        if let Launch::PerMessage(interpreter) = &self.launch {
            interpreter.scratches.end(run.0);
        }
    }

    /// Has an app carry out an instruction. If the future is dropped, the app is ended, and its token good no more.
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

    /// Waits for a SuperExec to take the job and for its app to deliver.
    async fn offer(&self, job: Job) -> Outcome {
        match self.board.offer(job).ended().await {
            Ending::Delivered(delivery) => outcome(delivery),
            Ending::Lapsed => crashed("The ClientApp stopped responding.".to_owned()),
        }
    }

    async fn launch(&self, interpreter: &Interpreter, job: Job) -> Outcome {
        let run = job.metadata().run_id;
        let (mut post, token) = self.board.assign(job);
        let mut app = match AppProcess::start(interpreter, local(self.address), &token, run) {
            Ok(app) => app,
            Err(error) => return not_started(&interpreter.python, &error),
        };
        tracing::debug!(run, pid = app.pid(), "ClientApp started");
        tokio::select! {
            biased; // What an app delivered in its last moment counts.
            ending = post.ended() => match ending {
                Ending::Delivered(Delivery::Nothing { why }) => {
                    let _ = tokio::time::timeout(GRACE_AFTER_DELIVERY, app.ended()).await;
                    crashed(with_output(&why, &mut app).await)
                }
                Ending::Delivered(Delivery::Reply(reply)) => {
                    tokio::spawn(let_end(app, post, self.stop.clone()));
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

/// An interpreter that is not there is for the operator to put there; the sender of the instruction is told at once.
fn not_started(python: &Path, error: &io::Error) -> Outcome {
    let reason = format!("The ClientApp cannot be started with {}: {error}", python.display());
    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) {
        return crashed(format!(
            "{reason}: install Python with flwr on the node, or name its interpreter with --python."
        ));
    }
    Outcome::Postponed { reason: format!("{reason}.") }
}

/// Lets an app that has delivered end by itself; its token is good until then, for its last calls.
async fn let_end(mut app: AppProcess, _post: Post, stop: CancellationToken) {
    tokio::select! {
        _ = tokio::time::timeout(GRACE_AFTER_DELIVERY, app.ended()) => {}
        () = stop.cancelled() => {}
    }
}

fn outcome(delivery: Delivery) -> Outcome {
    match delivery {
        Delivery::Reply(reply) => Outcome::Replied(reply),
        Delivery::Nothing { why } => crashed(why),
        Delivery::Damaged { what } => {
            Outcome::Postponed { reason: format!("What the ClientApp needs is not here: {what}.") }
        }
    }
}

fn crashed(reason: String) -> Outcome {
    Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason }
}

async fn with_output(reason: &str, app: &mut AppProcess) -> String {
    match app.last_words().await {
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
