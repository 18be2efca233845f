//! Processes one instruction: fetches its objects, prepares its app and context, and executes it. Each step is stored before the
//! next one begins, so a restarted node continues where it was.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use trellis_client::fleet::{Fleet, FleetError};
use trellis_clock::now_s;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::proto;

use super::install;
use super::link::Unanswered;
use super::{Engine, shard, transfer};
use crate::app::{Job, Outcome, Reply};
use crate::store::{Answer, StoreError, Work};
use crate::watch::{AppEnd, Ending};
use crate::work::{Event, MAX_ATTEMPTS, State};

/// The interval of checks whether the run still exists while an app works for it.
const RUN_POLL_INTERVAL: Duration = Duration::from_secs(15);
/// The delay before a postponed step is retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Starts processing an instruction that is in the store.
pub fn start(engine: Arc<Engine>, run: RunId, id: MessageId, slot: Option<OwnedSemaphorePermit>) {
    let (tasks, under_way) = (engine.tasks.clone(), engine.watch.under_way(run));
    tasks.spawn(async move {
        let slot = match slot {
            Some(slot) => slot,
            None => match Arc::clone(&engine.slots).acquire_owned().await {
                Ok(slot) => slot,
                Err(_) => return,
            },
        };
        {
            let _busy = engine.busy.read().await;
            while let Step::Continue = step(&engine, id).await {}
        }
        drop(slot);
        engine.update_waiting().await;
        drop(under_way);
    });
}

enum Step {
    Continue,
    /// Answered or removed, or the node is stopping.
    Done,
}

async fn step(engine: &Arc<Engine>, id: MessageId) -> Step {
    let Some(Some(work)) = engine.until_stored("an instruction cannot be read", move |store| store.work(id)).await
    else {
        return Step::Done;
    };
    if now_s() >= work.expires_at {
        tracing::warn!(run = %work.run, instruction = %id, "an instruction is dropped: its TTL has passed");
        engine.forget(id).await;
        return Step::Done;
    }
    let done = match work.state {
        State::Fetching => fetch(engine, &work).await,
        State::Ready => execute(engine, &work).await,
        // The end of a previous attempt in this process could not be stored.
        State::Running => restart(engine, &work).await,
        State::Replied => return Step::Done,
    };
    match done {
        Ok(()) => Step::Continue,
        Err(StepError::Stopping) => Step::Done,
        Err(StepError::RunOver(reason)) => {
            engine.end_run(work.run, &reason).await;
            Step::Done
        }
        Err(StepError::Failed { code, reason }) => {
            tracing::warn!(run = %work.run, instruction = %id, "answered with an error: {reason}");
            match engine.refuse(&work, code, &reason).await {
                Ok(_) => Step::Done,
                Err(error) => retry_later(engine, &error).await,
            }
        }
        Err(StepError::Disk(error)) => retry_later(engine, &error).await,
    }
}

async fn retry_later(engine: &Engine, error: &StoreError) -> Step {
    tracing::error!(error = error as &dyn std::error::Error, "retrying");
    match engine.pause(RETRY_DELAY).await {
        Some(()) => Step::Continue,
        None => Step::Done,
    }
}

/// Why a step failed.
#[derive(Debug)]
pub enum StepError {
    Stopping,
    RunOver(String),
    Failed { code: ErrorCode, reason: String },
    Disk(StoreError),
}

impl From<StoreError> for StepError {
    fn from(error: StoreError) -> StepError {
        StepError::Disk(error)
    }
}

impl StepError {
    /// The failure of a call about a run. `None`: the cause is the node's registration, so the call is retried.
    pub fn of(engine: &Engine, unanswered: Unanswered) -> Option<StepError> {
        match unanswered {
            // The session stops the node.
            Unanswered::Stopping | Unanswered::GivenUp(_) => Some(StepError::Stopping),
            Unanswered::Refused(error @ FleetError::RunOver { .. }) => Some(StepError::RunOver(error.to_string())),
            Unanswered::Refused(FleetError::NotKnown { .. }) => {
                engine.report_registration_lost();
                None
            }
            Unanswered::Refused(error) => {
                Some(StepError::Failed { code: ErrorCode::Unknown, reason: format!("The SuperLink refused: {error}") })
            }
        }
    }
}

/// Makes a call about a run, with the node's id at the SuperLink.
pub async fn ask<T, F>(engine: &Engine, run: RunId, mut call: impl FnMut(Fleet, NodeId) -> F) -> Result<T, StepError>
where
    F: Future<Output = Result<T, FleetError>>,
{
    loop {
        let node = engine.identity().await.ok_or(StepError::Stopping)?;
        match engine.link.call(|fleet| call(fleet, node)).await {
            Ok(answer) => return Ok(answer),
            // An official SuperLink that lost its state fails with an internal error for unknown runs; a call about a run shows the cause.
            Err(Unanswered::Refused(FleetError::Refused { is_fault: true, .. })) => {
                let known = engine.link.call(|fleet| async move { fleet.get_run(node, run).await }).await;
                if let Some(error @ StepError::RunOver(_)) =
                    known.err().and_then(|reason| StepError::of(engine, reason))
                {
                    return Err(error);
                }
                engine.pause(RETRY_DELAY).await.ok_or(StepError::Stopping)?;
            }
            Err(unanswered) => {
                if let Some(error) = StepError::of(engine, unanswered) {
                    return Err(error);
                }
            }
        }
    }
}

async fn restart(engine: &Engine, work: &Work) -> Result<(), StepError> {
    let id = work.id;
    if work.attempts >= MAX_ATTEMPTS {
        return Err(StepError::Failed { code: ErrorCode::ClientAppCrashed, reason: too_often(work.attempts) });
    }
    engine.disk(move |store| store.step(id, Event::Interrupted)).await?;
    Ok(())
}

pub fn too_often(attempts: u32) -> String {
    format!("The node started this instruction {attempts} times and was interrupted each time.")
}

async fn fetch(engine: &Arc<Engine>, work: &Work) -> Result<(), StepError> {
    transfer::fetch(engine, work.run, &work.tree).await?;
    let id = work.id;
    engine.disk(move |store| store.step(id, Event::Fetched)).await?;
    confirm(engine, work.run, id).await;
    Ok(())
}

/// Confirms that an instruction is stored. Does not wait: the SuperLink redelivers unconfirmed instructions.
pub async fn confirm(engine: &Arc<Engine>, run: RunId, id: MessageId) {
    let engine = Arc::clone(engine);
    tokio::spawn(async move {
        let text = id.to_string();
        let confirmed = ask(&engine, run, |fleet, node| {
            let text = text.clone();
            async move { fleet.confirm(node, run, &text).await }
        });
        if let Err(error) = confirmed.await {
            tracing::debug!(%run, instruction = %id, ?error, "not confirmed");
        }
    });
}

async fn execute(engine: &Arc<Engine>, work: &Work) -> Result<(), StepError> {
    let turn = engine.turn(work.run);
    let _turn = tokio::select! {
        () = engine.stop.cancelled() => return Err(StepError::Stopping),
        turn = turn.lock_owned() => turn,
    };
    let id = work.id;
    if !transfer::is_complete(engine, &work.tree).await? {
        tracing::warn!(run = %work.run, instruction = %id, "objects of an instruction are missing on the disk: fetching them again");
        engine.disk(move |store| store.step(id, Event::ObjectsLost)).await?;
        return Ok(());
    }
    let job = prepare(engine, work).await?;
    if !engine.disk(move |store| store.step(id, Event::Started)).await? {
        return Ok(());
    }
    let run = work.run;
    let outcome = tokio::select! {
        outcome = engine.apps.execute(job) => {
            if let Outcome::Failed { code: ErrorCode::ClientAppCrashed, .. } = outcome {
                engine.watch.app_ended(AppEnd::Crashed);
            }
            outcome
        }
        failed = too_late(engine, work) => {
            engine.watch.app_ended(AppEnd::Timeout);
            failed
        }
        reason = run_over(engine, run) => return Err(StepError::RunOver(reason)),
        () = engine.stop.cancelled() => Outcome::Postponed { reason: "the node is stopping".to_owned() },
    };
    report(engine, run, &outcome);
    conclude(engine, work, outcome).await
}

fn report(engine: &Engine, run: RunId, outcome: &Outcome) {
    let (ending, runtime_s) = match outcome {
        Outcome::Replied(reply) => (Ending::Replied, Some(reply.runtime_s)),
        Outcome::Failed { .. } => (Ending::Failed, None),
        Outcome::Postponed { .. } => (Ending::Postponed, None),
    };
    engine.watch.instruction_done(run, ending, runtime_s.and_then(|s| Duration::try_from_secs_f64(s).ok()));
}

async fn conclude(engine: &Engine, work: &Work, outcome: Outcome) -> Result<(), StepError> {
    let id = work.id;
    match outcome {
        Outcome::Replied(reply) => {
            let Reply { message, tree, context, runtime_s } = *reply;
            let answer = Answer { message, tree, context: Some(context), runtime_s };
            // The objects are stored: only the row can fail, so only the row is retried.
            let keep = move |store: &crate::store::Store| store.answer(id, &answer, now_s());
            engine.until_stored("a reply cannot be stored", keep).await.ok_or(StepError::Stopping)?;
            Ok(())
        }
        Outcome::Failed { code, reason } => {
            tracing::warn!(run = %work.run, instruction = %id, "the app failed: {reason}");
            engine.refuse(work, code, &reason).await?;
            Ok(())
        }
        Outcome::Postponed { reason } => {
            engine.disk(move |store| store.step(id, Event::Postponed)).await?;
            if engine.stop.is_cancelled() {
                return Err(StepError::Stopping);
            }
            tracing::warn!(run = %work.run, instruction = %id, "an instruction is postponed: {reason}");
            engine.pause(RETRY_DELAY).await.ok_or(StepError::Stopping)
        }
    }
}

/// Elapses at the timeout of the app or the TTL of the instruction, whichever is earlier.
async fn too_late(engine: &Engine, work: &Work) -> Outcome {
    let left = Duration::try_from_secs_f64(work.expires_at - now_s()).unwrap_or_default();
    let (limit, which) = match engine.config.apps.timeout {
        Some(timeout) if timeout < left => (timeout, "the timeout of this node"),
        _ => (left, "the TTL of the message"),
    };
    tokio::time::sleep(limit).await;
    let reason = format!("The app did not answer within {:.0} s, {which}.", limit.as_secs_f64());
    Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason }
}

/// Returns when the SuperLink reports that the run is over.
async fn run_over(engine: &Engine, run: RunId) -> String {
    loop {
        tokio::time::sleep(RUN_POLL_INTERVAL).await;
        let Some(node) = *engine.identity.borrow() else { continue };
        match engine.link.fleet().get_run(node, run).await {
            Ok(found) if is_finished(&found) => return "it has finished or was stopped".to_owned(),
            Err(error @ FleetError::RunOver { .. }) => return error.to_string(),
            _ => {}
        }
    }
}

pub fn is_finished(run: &proto::Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.status == "finished")
}

/// Collects everything that an app needs.
async fn prepare(engine: &Arc<Engine>, work: &Work) -> Result<Job, StepError> {
    let id = work.run;
    let known = match engine.disk(move |store| store.run(id)).await? {
        Some(known) => known,
        None => {
            let run = ask(engine, id, |fleet, node| async move { fleet.get_run(node, id).await }).await?;
            let kept = proto::Run { run_id: id.0, ..run };
            let run = kept.clone();
            engine.disk(move |store| store.put_run(&kept, now_s())).await?;
            crate::store::KnownRun { run, context: None, used_at: now_s() }
        }
    };
    let (app, config) = install::app_of(engine, &known.run).await?;
    let node_id = work.instruction.metadata.as_ref().map_or(0, |metadata| metadata.dst_node_id);
    let context = proto::Context {
        run_id: id.0,
        node_id,
        node_config: shard::node_config(engine, NodeId(node_id), id).await,
        run_config: config,
        series_id: known.run.series_id,
        state: Some(known.context.and_then(|context| context.state).unwrap_or_default()),
    };
    Ok(Job { run: known.run, instruction: work.instruction.clone(), tree: work.tree.clone(), context, app })
}
