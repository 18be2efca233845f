//! Brings one instruction to an answer: fetches what it consists of, finds its app and its context, lets the app work. Each
//! step is in the store before the next begins, so that a node which ends here goes on here.

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
use crate::work::{Event, MOST_ATTEMPTS, State};

/// Between two looks at whether the run still goes on while an app works for it.
const RUN_CHECK: Duration = Duration::from_secs(15);
/// Between two tries of what the app, or the disk, could not do just now.
const PAUSE: Duration = Duration::from_secs(5);

/// Starts to work on an instruction that is in the store.
pub fn begin(engine: Arc<Engine>, run: RunId, id: MessageId, slot: Option<OwnedSemaphorePermit>) {
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
            while let Step::GoOn = step(&engine, id).await {}
        }
        drop(slot);
        engine.note_owed().await;
        drop(under_way);
    });
}

enum Step {
    GoOn,
    /// Answered, forgotten, or the node stops.
    Done,
}

async fn step(engine: &Arc<Engine>, id: MessageId) -> Step {
    let Some(Some(work)) = engine.until_stored("an instruction could not be read", move |store| store.work(id)).await
    else {
        return Step::Done;
    };
    if now_s() >= work.expires_at {
        tracing::warn!(run = %work.run, instruction = %id, "an instruction is dropped: nobody waits for it any more");
        engine.forget(id).await;
        return Step::Done;
    }
    let done = match work.state {
        State::Fetching => fetch(engine, &work).await,
        State::Ready => carry_out(engine, &work).await,
        // Nobody is at it but this: its end could not be stored.
        State::Running => begin_again(engine, &work).await,
        State::Replied => return Step::Done,
    };
    match done {
        Ok(()) => Step::GoOn,
        Err(Trouble::Stopping) => Step::Done,
        Err(Trouble::RunOver(why)) => {
            engine.end_run(work.run, &why).await;
            Step::Done
        }
        Err(Trouble::Failed { code, reason }) => {
            tracing::warn!(run = %work.run, instruction = %id, "answered with an error: {reason}");
            match engine.refuse(&work, code, &reason).await {
                Ok(_) => Step::Done,
                Err(error) => later(engine, &error).await,
            }
        }
        Err(Trouble::Disk(error)) => later(engine, &error).await,
    }
}

async fn later(engine: &Engine, error: &StoreError) -> Step {
    tracing::error!(error = error as &dyn std::error::Error, "trying again");
    match engine.pause(PAUSE).await {
        Some(()) => Step::GoOn,
        None => Step::Done,
    }
}

/// Why a step was not made.
#[derive(Debug)]
pub enum Trouble {
    Stopping,
    RunOver(String),
    Failed { code: ErrorCode, reason: String },
    Disk(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Disk(error)
    }
}

impl Trouble {
    /// A call about a run that was not answered as hoped. `None`: it was about the node, and may be made again.
    pub fn of(engine: &Engine, unanswered: Unanswered) -> Option<Trouble> {
        match unanswered {
            // The session ends the node.
            Unanswered::Stopping | Unanswered::GivenUp(_) => Some(Trouble::Stopping),
            Unanswered::Refused(error @ FleetError::RunOver { .. }) => Some(Trouble::RunOver(error.to_string())),
            Unanswered::Refused(FleetError::NotKnown { .. }) => {
                engine.disown();
                None
            }
            Unanswered::Refused(error) => {
                Some(Trouble::Failed { code: ErrorCode::Unknown, reason: format!("The SuperLink refused: {error}") })
            }
        }
    }
}

/// Makes a call about a run, as the node that the SuperLink knows.
pub async fn ask<T, F>(engine: &Engine, run: RunId, mut call: impl FnMut(Fleet, NodeId) -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, FleetError>>,
{
    loop {
        let node = engine.identity().await.ok_or(Trouble::Stopping)?;
        match engine.link.call(|fleet| call(fleet, node)).await {
            Ok(answer) => return Ok(answer),
            // Official SuperLinks that lost their state break over runs which they do not know; about a run they tell.
            Err(Unanswered::Refused(FleetError::Refused { is_fault: true, .. })) => {
                let known = engine.link.call(|fleet| async move { fleet.get_run(node, run).await }).await;
                if let Some(trouble @ Trouble::RunOver(_)) = known.err().and_then(|why| Trouble::of(engine, why)) {
                    return Err(trouble);
                }
                engine.pause(PAUSE).await.ok_or(Trouble::Stopping)?;
            }
            Err(unanswered) => {
                if let Some(trouble) = Trouble::of(engine, unanswered) {
                    return Err(trouble);
                }
            }
        }
    }
}

async fn begin_again(engine: &Engine, work: &Work) -> Result<(), Trouble> {
    let id = work.id;
    if work.attempts >= MOST_ATTEMPTS {
        return Err(Trouble::Failed { code: ErrorCode::ClientAppCrashed, reason: too_often(work.attempts) });
    }
    engine.disk(move |store| store.step(id, Event::Interrupted)).await?;
    Ok(())
}

pub fn too_often(attempts: u32) -> String {
    format!("The node began {attempts} times to carry this out, and each time could not end it.")
}

async fn fetch(engine: &Arc<Engine>, work: &Work) -> Result<(), Trouble> {
    transfer::fetch(engine, work.run, &work.tree).await?;
    let id = work.id;
    engine.disk(move |store| store.step(id, Event::Fetched)).await?;
    confirm(engine, work.run, id).await;
    Ok(())
}

/// Tells the SuperLink that an instruction is safe here. Not waited for: who does not hear it says the instruction again.
pub async fn confirm(engine: &Arc<Engine>, run: RunId, id: MessageId) {
    let engine = Arc::clone(engine);
    tokio::spawn(async move {
        let text = id.to_string();
        let confirmed = ask(&engine, run, |fleet, node| {
            let text = text.clone();
            async move { fleet.confirm(node, run, &text).await }
        });
        if let Err(trouble) = confirmed.await {
            tracing::debug!(%run, instruction = %id, ?trouble, "not confirmed");
        }
    });
}

async fn carry_out(engine: &Arc<Engine>, work: &Work) -> Result<(), Trouble> {
    let turn = engine.turn(work.run);
    let _turn = tokio::select! {
        () = engine.stop.cancelled() => return Err(Trouble::Stopping),
        turn = turn.lock_owned() => turn,
    };
    let id = work.id;
    if !transfer::is_here(engine, &work.tree).await? {
        tracing::warn!(run = %work.run, instruction = %id, "objects of an instruction are gone from the disk: fetching them again");
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
        why = run_over(engine, run) => return Err(Trouble::RunOver(why)),
        () = engine.stop.cancelled() => Outcome::Postponed { reason: "the node stops".to_owned() },
    };
    tell(engine, run, &outcome);
    conclude(engine, work, outcome).await
}

fn tell(engine: &Engine, run: RunId, outcome: &Outcome) {
    let (ending, runtime_s) = match outcome {
        Outcome::Replied(reply) => (Ending::Replied, Some(reply.runtime_s)),
        Outcome::Failed { .. } => (Ending::Failed, None),
        Outcome::Postponed { .. } => (Ending::Postponed, None),
    };
    engine.watch.instruction_done(run, ending, runtime_s.and_then(|s| Duration::try_from_secs_f64(s).ok()));
}

async fn conclude(engine: &Engine, work: &Work, outcome: Outcome) -> Result<(), Trouble> {
    let id = work.id;
    match outcome {
        Outcome::Replied(reply) => {
            let Reply { message, tree, context, runtime_s } = *reply;
            let answer = Answer { message, tree, context: Some(context), runtime_s };
            // The objects lie in their files: only the row may be refused, and the row alone is tried again.
            let keep = move |store: &crate::store::Store| store.answer(id, &answer, now_s());
            engine.until_stored("a reply could not be stored", keep).await.ok_or(Trouble::Stopping)?;
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
                return Err(Trouble::Stopping);
            }
            tracing::warn!(run = %work.run, instruction = %id, "an instruction is carried out later: {reason}");
            engine.pause(PAUSE).await.ok_or(Trouble::Stopping)
        }
    }
}

/// An app that takes longer than anybody waits, or than it may, is given up.
async fn too_late(engine: &Engine, work: &Work) -> Outcome {
    let left = Duration::try_from_secs_f64(work.expires_at - now_s()).unwrap_or_default();
    let (limit, whose) = match engine.config.apps.timeout {
        Some(timeout) if timeout < left => (timeout, "the time that this node gives an app"),
        _ => (left, "the time that its sender waits"),
    };
    tokio::time::sleep(limit).await;
    let reason = format!("The app did not answer within {:.0} s, {whose}.", limit.as_secs_f64());
    Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason }
}

/// Waits until the SuperLink says that the run is over.
async fn run_over(engine: &Engine, run: RunId) -> String {
    loop {
        tokio::time::sleep(RUN_CHECK).await;
        let Some(node) = *engine.identity.borrow() else { continue };
        match engine.link.fleet().get_run(node, run).await {
            Ok(found) if is_finished(&found) => return "it was finished, or stopped".to_owned(),
            Err(error @ FleetError::RunOver { .. }) => return error.to_string(),
            _ => {}
        }
    }
}

pub fn is_finished(run: &proto::Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.status == "finished")
}

/// Everything that an app needs to know.
async fn prepare(engine: &Arc<Engine>, work: &Work) -> Result<Job, Trouble> {
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
