//! Starts ServerApps: one process per run, which outlives the SuperLink. Native ServerApps always, those of FABs in
//! subprocess isolation.
//!
//! A ServerApp has its own process group and writes its output to a file, so that it survives a kill of the SuperLink.
//! The next SuperLink finds it by a mark in its environment and watches it again.

mod capacity;
mod process;
mod program;
mod python;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use trellis_core::app;
use trellis_core::id::RunId;
use trellis_core::port::{Topic, crash};
use trellis_core::refusal::Refusal;
use trellis_core::run::{MAX_RESTARTS, Outcome, ServerApp, State};

use crate::api::app::{append_log, new_token};
use crate::link::Link;
use capacity::default_server_apps;
use process::{AppProcess, Ended, Order};
pub use program::Programs;
use program::{Program, Starts};
pub use python::{NoPython, interpreter_of, on_path};

/// Poll interval of the launcher.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time for a process to exit after its run has finished.
const GRACE_AFTER_END: Duration = Duration::from_secs(60);
/// After this time, a process that is still exiting frees its slot.
const SLOT_GRACE: Duration = Duration::from_secs(5);
/// Time between SIGTERM and SIGKILL after a run was stopped.
const GRACE_AFTER_STOP: Duration = Duration::from_secs(5);
/// Maximum output of a failed app in the run's log.
const TAIL_BYTES: u64 = 64 << 10;
/// Delays before the restarts of a native ServerApp. Their sum is below the timeout of its token.
const RESTART_DELAYS: [Duration; MAX_RESTARTS as usize] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];
/// The checkpoint from which a native run continues, in the directory of the run.
const NEWEST_CHECKPOINT: &str = "latest";

/// A permit for one concurrent ServerApp, released on drop. `None`: the limit was already reached when a process of an
/// earlier SuperLink was found.
type Slot = Option<OwnedSemaphorePermit>;

/// Starts and watches ServerApps.
pub struct Launcher {
    link: Arc<Link>,
    programs: Programs,
    /// `host:port` of the ServerAppIo API for apps.
    address: String,
    /// Output of apps, one file per run.
    outputs: PathBuf,
    /// One permit per concurrent process.
    slots: Arc<Semaphore>,
}

impl Launcher {
    pub fn new(link: Arc<Link>, programs: Programs, address: String) -> std::io::Result<Launcher> {
        let outputs = link.directory().join(program::OUTPUTS);
        std::fs::create_dir_all(&outputs)?;
        let slots = Arc::new(Semaphore::new(link.limits.server_apps.unwrap_or_else(default_server_apps)));
        Ok(Launcher { link, programs, address, outputs, slots })
    }

    /// Adopts the apps of an earlier SuperLink, and records the end of those that are gone.
    pub async fn adopt(self: &Arc<Self>) -> Result<(), Refusal> {
        let unfinished = self.link.read(|view| view.unfinished_runs())?;
        let found = process::find(&self.mark());
        for run in unfinished.iter().filter(|run| *run.state() != State::Pending) {
            match found.iter().find(|app| app.run == run.id) {
                Some(app) => {
                    tracing::info!(run = run.id.0, pid = app.pid(), "ServerApp is still running");
                    self.watch(run.id, app.clone(), self.slot_if_free());
                }
                None if self.programs.start(run.server_app) || self.was_watched(run.id)? => {
                    let (launcher, id, slot) = (Arc::clone(self), run.id, self.slot_if_free());
                    // A restart waits for its delay in the background.
                    tokio::spawn(async move {
                        launcher.store_end(id, "The ServerApp died while the SuperLink was away.", slot).await;
                    });
                }
                None => {}
            }
        }
        for app in found.iter().filter(|app| !unfinished.iter().any(|run| run.id == app.run)) {
            tracing::info!(run = app.run.0, pid = app.pid(), "killing the ServerApp of a finished run");
            app.kill();
        }
        process::clear_ended(&self.outputs, |id| unfinished.iter().any(|run| run.id == id));
        Ok(())
    }

    /// Returns whether a launcher claimed the run, so that only the end of the process frees the run.
    fn was_watched(&self, run: RunId) -> Result<bool, Refusal> {
        self.link.read(|view| Ok(view.token(run)?.is_some_and(|token| token.state.is_watched())))
    }

    fn slot_if_free(&self) -> Slot {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Starts pending runs, oldest first, as slots become free, until the SuperLink stops.
    pub async fn run(self: Arc<Self>) {
        while !self.link.room.is_closed() {
            let pending = self
                .link
                .room
                .wait(Topic::Launch, Duration::from_secs(3600), POLL_INTERVAL, || {
                    let mut runs = self.link.read(|view| view.pending_runs())?;
                    runs.retain(|(_, server_app)| self.programs.start(*server_app));
                    Ok::<_, Refusal>((!runs.is_empty()).then_some(runs))
                })
                .await;
            for (run, server_app) in pending.ok().flatten().unwrap_or_default() {
                let slot = tokio::select! {
                    slot = Arc::clone(&self.slots).acquire_owned() => slot.ok(),
                    () = self.link.room.closed() => return,
                };
                if let Err(error) = self.launch(run, server_app, slot).await {
                    tracing::error!(run = run.0, %error, "cannot start a ServerApp");
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }

    async fn launch(self: &Arc<Self>, run: RunId, server_app: ServerApp, slot: Slot) -> Result<(), Refusal> {
        let (secret, hash) = new_token();
        let now = self.link.now();
        if !self.link.write(move |tx| app::claim_watched(tx, run, server_app, hash, now)).await? {
            return Ok(());
        }
        crash::point("run-claimed");
        self.start(run, server_app, &secret, slot).await
    }

    /// Starts the process of a claimed run.
    async fn start(
        self: &Arc<Self>,
        run: RunId,
        server_app: ServerApp,
        secret: &str,
        slot: Slot,
    ) -> Result<(), Refusal> {
        let program = match self.programs.of(server_app) {
            Starts::Here(program) => program,
            Starts::Nowhere(why) => {
                return self.not_started(run, format!("The ServerApp cannot be started: {why}.")).await;
            }
            Starts::Elsewhere => return Ok(()),
        };
        let order = Order { run, token: secret, address: &self.address, mark: &self.mark(), output: &self.output(run) };
        match AppProcess::start(program, &order) {
            Ok(app) => {
                crash::point("app-spawned");
                tracing::info!(run = run.0, pid = app.pid(), "ServerApp started");
                self.watch(run, app, slot);
                Ok(())
            }
            Err(error) => {
                self.not_started(run, format!("The ServerApp could not be started with {program}: {error}")).await
            }
        }
    }

    async fn not_started(&self, run: RunId, reason: String) -> Result<(), Refusal> {
        tracing::error!(run = run.0, reason, "cannot start a ServerApp");
        let now = self.link.now();
        append_log(&self.link, run, format!("{reason}\n")).await?;
        self.link.write(move |tx| app::finish(tx, run, Outcome::Failed, &reason, now)).await
    }

    fn watch(self: &Arc<Self>, run: RunId, app: AppProcess, mut slot: Slot) {
        let launcher = Arc::clone(self);
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = app.ended() => ended,
                outcome = launcher.run_over(run) => {
                    let grace = match outcome {
                        Some(Outcome::Stopped) => {
                            app.terminate();
                            GRACE_AFTER_STOP
                        }
                        _ => GRACE_AFTER_END,
                    };
                    let end = Instant::now() + grace;
                    if timeout(SLOT_GRACE, app.ended()).await.is_err() {
                        slot = None;
                    }
                    if timeout_at(end, app.ended()).await.is_err() {
                        app.kill();
                    }
                    app.ended().await
                }
            };
            app.kill(); // Processes that it left behind.
            tracing::debug!(run = run.0, pid = app.pid(), how = %ended, "ServerApp ended");
            launcher.ended(run, &ended, slot).await;
        });
    }

    /// Waits for the end of the run; returns `None` if the SuperLink stops first.
    async fn run_over(&self, run: RunId) -> Option<Outcome> {
        loop {
            let outcome = self
                .link
                .room
                .wait(Topic::Finished(run), Duration::from_secs(3600), POLL_INTERVAL * 5, || {
                    self.link.read(|view| {
                        Ok(view.run(run)?.and_then(|run| match run.state() {
                            State::Finished { outcome, .. } => Some(*outcome),
                            _ => None,
                        }))
                    })
                })
                .await;
            match outcome {
                Ok(Some(outcome)) => return Some(outcome),
                _ if self.link.room.is_closed() => std::future::pending::<()>().await,
                _ => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    async fn ended(self: &Arc<Self>, run: RunId, how: &Ended, slot: Slot) {
        let finished = self.link.read(|view| Ok(view.run(run)?.is_none_or(|run| run.state().is_finished())));
        let tail = process::tail(&self.output(run), TAIL_BYTES);
        // Before the output file is written again.
        let _ = std::fs::remove_file(self.output(run));
        process::clear(&self.outputs, run);
        if !matches!(finished, Ok(true)) {
            let reason = format!("The ServerApp process {how} before it finished the run.");
            if let Err(error) = append_log(&self.link, run, format!("{reason} Its last output:\n{tail}\n")).await {
                tracing::error!(run = run.0, %error, "cannot log the last output of a ServerApp");
            }
            self.store_end(run, &reason, slot).await;
        }
    }

    /// Retries until the end is stored: nothing else frees a run with a watched process.
    async fn store_end(self: &Arc<Self>, run: RunId, reason: &str, mut slot: Slot) {
        while let Err(error) = self.gone(run, reason, slot.take()).await {
            tracing::error!(run = run.0, %error, "cannot store the end of a ServerApp; retrying");
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = self.link.room.closed() => return,
            }
        }
    }

    async fn gone(self: &Arc<Self>, run: RunId, reason: &str, slot: Slot) -> Result<(), Refusal> {
        tracing::warn!(run = run.0, reason, "ServerApp ended");
        if self.restart(run, reason, slot).await? {
            return Ok(());
        }
        let (reason, now) = (reason.to_owned(), self.link.now());
        self.link.write(move |tx| app::process_exited(tx, run, &reason, now)).await
    }

    /// Restarts a native ServerApp that died. It continues from its last checkpoint, or from the start if no round was
    /// finished. Returns `false` if a restart is impossible or the limit is reached.
    async fn restart(self: &Arc<Self>, id: RunId, reason: &str, slot: Slot) -> Result<bool, Refusal> {
        let Some(run) = self.link.read(|view| view.run(id))? else { return Ok(false) };
        let is_at_work = run.server_app == ServerApp::Native && *run.state() == State::Running;
        let times = run.launches.saturating_sub(1) as usize;
        let has_checkpoint = self.has_checkpoint(id);
        // Before the end of the first round, a new start loses nothing.
        let loses_nothing = has_checkpoint || self.link.read(|view| Ok(view.reports_after(id, None, 1)?.is_empty()))?;
        let Some(pause) = RESTART_DELAYS.get(times).filter(|_| is_at_work && loses_nothing) else {
            return Ok(false);
        };
        let (number, seconds) = (times + 1, pause.as_secs());
        let from = if has_checkpoint { "continues from its last checkpoint" } else { "starts from the beginning" };
        let text =
            format!("{reason} It is restarted in {seconds} s and {from} (restart {number} of {MAX_RESTARTS}).\n");
        append_log(&self.link, id, text).await?;
        tokio::select! {
            () = tokio::time::sleep(*pause) => {}
            _ = self.run_over(id) => return Ok(true),
            // The next SuperLink finds no process and handles it.
            () = self.link.room.closed() => return Ok(true),
        }
        let ((secret, hash), now) = (new_token(), self.link.now());
        if !self.link.write(move |tx| app::restart(tx, id, hash, now)).await? {
            return Ok(false);
        }
        self.start(id, ServerApp::Native, &secret, slot).await?;
        Ok(true)
    }

    fn has_checkpoint(&self, run: RunId) -> bool {
        let Starts::Here(program) = self.programs.of(ServerApp::Native) else { return false };
        program.keeps.as_ref().is_some_and(|keeps| keeps.join(run.to_string()).join(NEWEST_CHECKPOINT).exists())
    }

    fn output(&self, run: RunId) -> PathBuf {
        self.outputs.join(format!("{run}.log"))
    }

    /// Returns the mark of this SuperLink's apps: the path of its state.
    fn mark(&self) -> String {
        let directory = self.link.directory();
        std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned()).display().to_string()
    }
}
