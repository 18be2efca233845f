//! Tasks that run beside the reconciles because they take long: the operator's ready script, and the start of the use case's run.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::Agent;
use crate::recipe::{Probe, Recipe, submission};
use crate::settings::RoleSettings;
use crate::supervisor::run;

/// Delay before the start of the run is retried.
const SUBMIT_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Delay between two executions of the ready script.
const SCRIPT_INTERVAL: Duration = Duration::from_secs(2);
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Background {
    script: Script,
    submission: Submission,
}

/// The ready script, and its last result.
#[derive(Debug, Default)]
struct Script {
    path: Option<String>,
    task: Option<JoinHandle<bool>>,
    finished: Option<Instant>,
    agrees: bool,
}

#[derive(Debug, Default)]
struct Submission {
    began: Option<Instant>,
    task: Option<JoinHandle<Result<String, String>>>,
}

/// The result of a task that has finished.
fn outcome<T>(task: &mut Option<JoinHandle<T>>) -> Option<T> {
    use std::future::Future as _;
    use std::task::{Context, Poll, Waker};
    let running = task.as_mut()?;
    if !running.is_finished() {
        return None;
    }
    let polled = std::pin::Pin::new(running).poll(&mut Context::from_waker(Waker::noop()));
    *task = None;
    match polled {
        Poll::Ready(Ok(result)) => Some(result),
        _ => None,
    }
}

impl Agent {
    /// Whether the operator's ready script, if there is one, exited with 0 last.
    pub(super) fn script_agrees(&mut self) -> bool {
        let path = self.current.as_ref().and_then(|current| current.settings.common.ready_script.clone());
        let script = &mut self.background.script;
        if script.path != path {
            *script = Script { path, ..Script::default() };
        }
        let Some(path) = script.path.as_ref().map(|path| self.place.named(path)) else { return true };
        if let Some(agrees) = outcome(&mut script.task) {
            script.agrees = agrees;
            script.finished = Some(Instant::now());
        }
        if script.task.is_none() && script.finished.is_none_or(|at| at.elapsed() >= SCRIPT_INTERVAL) {
            script.task = Some(tokio::spawn(async move {
                match tokio::time::timeout(SCRIPT_TIMEOUT, run(&path, &[])).await {
                    Ok(Ok(_)) => true,
                    Ok(Err(why)) => {
                        tracing::info!("the ready script failed: {why}");
                        false
                    }
                    Err(_) => {
                        tracing::info!("the ready script did not finish within {} s", SCRIPT_TIMEOUT.as_secs());
                        false
                    }
                }
            }));
        }
        script.agrees
    }

    /// Starts the run of the use case if it is due. It starts once in the life of the VM.
    pub(super) fn submit(&mut self) {
        let Some(current) = &self.current else { return };
        let RoleSettings::SuperLink(link) = &current.settings.role else { return };
        let Some(use_case) = link.use_case else { return };
        let submission = &mut self.background.submission;
        match outcome(&mut submission.task) {
            Some(Ok(_)) => {
                tracing::info!(app = use_case.name(), "the run of the use case is started");
                self.memory.submitted = true;
                return self.save_memory();
            }
            Some(Err(why)) => tracing::warn!("the run of the use case cannot be started: {why}"),
            None => {}
        }
        let waits = submission.began.is_some_and(|at| at.elapsed() < SUBMIT_RETRY_INTERVAL);
        let is_due = submission::is_due(link, self.state.observed());
        if self.memory.submitted || waits || submission.task.is_some() || !is_due {
            return;
        }
        let Recipe { probe: Probe::SuperLink { calls: Some(calls), trust, .. }, .. } = &current.recipe else {
            return;
        };
        let words = submission::words(use_case, &link.training, calls, trust.as_deref());
        let program = self.place.program.clone();
        submission.began = Some(Instant::now());
        submission.task = Some(tokio::spawn(async move {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            run(&program, &words).await
        }));
    }
}
