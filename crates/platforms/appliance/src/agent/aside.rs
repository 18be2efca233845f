//! What takes its time and must not hold up the truth: the operator's ready script, and the run of a use case. Both go on beside
//! the passes, which take up what came of them.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::Agent;
use crate::recipe::{Probe, Recipe, submission};
use crate::settings::{RoleSettings, Settings};
use crate::supervisor::run;

/// Before a run that could not be started is tried again.
const SUBMIT_AGAIN: Duration = Duration::from_secs(30);
/// From the end of one question to the ready script to the next.
const SCRIPT_INTERVAL: Duration = Duration::from_secs(2);
const SCRIPT_LIMIT: Duration = Duration::from_secs(30);

/// The ready script, and what it said last.
#[derive(Debug, Default)]
pub struct Script {
    path: Option<String>,
    asking: Option<JoinHandle<bool>>,
    looked: Option<Instant>,
    agrees: bool,
}

#[derive(Debug, Default)]
pub struct Submission {
    began: Option<Instant>,
    under_way: Option<JoinHandle<Result<String, String>>>,
}

/// What came of a task that is over. This thread alone runs them, so one that is not is left alone.
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
        Poll::Ready(Ok(came)) => Some(came),
        _ => None,
    }
}

impl Agent {
    /// A program of the operator may have a say in what ready means. Until it has spoken, nothing is ready.
    pub(super) fn script_agrees(&mut self) -> bool {
        let path = self.in_force.as_ref().and_then(|settings| settings.common.ready_script.clone());
        if self.script.path != path {
            self.script = Script { path, ..Script::default() };
        }
        let Some(path) = self.script.path.as_ref().map(|path| self.place.named(path)) else { return true };
        if let Some(agrees) = outcome(&mut self.script.asking) {
            self.script.agrees = agrees;
            self.script.looked = Some(Instant::now());
        }
        if self.script.asking.is_none() && self.script.looked.is_none_or(|at| at.elapsed() >= SCRIPT_INTERVAL) {
            self.script.asking = Some(tokio::spawn(async move {
                match tokio::time::timeout(SCRIPT_LIMIT, run(&path, &[])).await {
                    Ok(Ok(_)) => true,
                    Ok(Err(why)) => {
                        tracing::info!("the ready script does not agree: {why}");
                        false
                    }
                    Err(_) => {
                        tracing::info!("the ready script said nothing for {} s", SCRIPT_LIMIT.as_secs());
                        false
                    }
                }
            }));
        }
        self.script.agrees
    }

    /// The run of a use case, once in the life of the VM.
    pub(super) fn submit(&mut self) {
        let Some(Settings { role: RoleSettings::SuperLink(link), .. }) = &self.in_force else { return };
        let Some(use_case) = link.use_case else { return };
        match outcome(&mut self.submission.under_way) {
            Some(Ok(_)) => {
                tracing::info!(app = use_case.name(), "the run of the use case is started");
                self.memory.submitted = true;
                return self.remember();
            }
            Some(Err(why)) => tracing::warn!("the run of the use case cannot be started: {why}"),
            None => {}
        }
        let waits = self.submission.began.is_some_and(|at| at.elapsed() < SUBMIT_AGAIN);
        if self.memory.submitted
            || waits
            || self.submission.under_way.is_some()
            || !submission::is_due(link, &self.seen)
        {
            return;
        }
        let Some(Recipe { probe: Probe::SuperLink { calls: Some(calls), trust, .. }, .. }) = &self.recipe else {
            return;
        };
        let words = submission::words(use_case, &link.training, calls, trust.as_deref());
        let program = self.place.program.clone();
        self.submission.began = Some(Instant::now());
        self.submission.under_way = Some(tokio::spawn(async move {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            run(&program, &words).await
        }));
    }
}
