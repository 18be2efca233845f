//! Pulls instructions from the SuperLink, as many as there are free slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use trellis_client::fleet::FleetError;
use trellis_clock::now_s;
use trellis_core::id::{MessageId, RunId};
use trellis_wire::proto;

use super::link::Unanswered;
use super::{Engine, execution};
use crate::error::Error;
use crate::store::Receipt;
use crate::work::State;

/// An empty answer that took longer than this was a long poll, so the next pull follows at once. Official SuperLinks answer at
/// once; the next pull follows after the poll interval.
const LONG_POLL_MIN: Duration = Duration::from_millis(500);
/// The poll interval is short after activity and then grows.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The interval of checks while the disk limit is exceeded.
const DISK_FULL_POLL_INTERVAL: Duration = Duration::from_secs(5);

pub async fn take_all(engine: Arc<Engine>) -> Result<(), Error> {
    let mut pause = MIN_POLL_INTERVAL;
    loop {
        // The instructions of the previous pull are being processed.
        engine.watch.asking(false);
        let Some(slot) = slot(&engine).await else { return Ok(()) };
        if until_active(&engine).await.is_none() {
            return Ok(());
        }
        engine.watch.asking(true);
        let Some(node) = engine.identity().await else { return Ok(()) };
        let asked = Instant::now();
        let pulled = tokio::select! {
            pulled = engine.link.call(|fleet| async move { fleet.pull_messages(node).await }) => pulled,
            () = until_draining(&engine) => continue,
        };
        match pulled {
            Ok(answer) if answer.messages_list.is_empty() => {
                if asked.elapsed() < LONG_POLL_MIN {
                    if engine.pause(pause).await.is_none() {
                        return Ok(());
                    }
                    pause = (pause * 5 / 4).min(MAX_POLL_INTERVAL);
                }
            }
            Ok(answer) => {
                pause = MIN_POLL_INTERVAL;
                let mut slot = Some(slot);
                for (message, tree) in answer.messages_list.into_iter().zip(answer.message_object_trees) {
                    take(&engine, message, tree, slot.take()).await;
                }
            }
            Err(Unanswered::Stopping) => return Ok(()),
            Err(Unanswered::GivenUp(error)) => return Err(Error::Link(error)),
            Err(Unanswered::Refused(error)) => {
                if refused(&engine, &error).await.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits until the node is not draining. `None`: the node is stopping.
async fn until_active(engine: &Engine) -> Option<()> {
    tokio::select! {
        () = engine.stop.cancelled() => None,
        () = engine.drain.until(false) => Some(()),
    }
}

/// Waits until an open long poll must be cancelled. The SuperLink redelivers unconfirmed messages, so dropping the poll is safe;
/// an official SuperLink does not redeliver, but answers at once.
async fn until_draining(engine: &Engine) {
    tokio::time::sleep(LONG_POLL_MIN).await;
    engine.drain.until(true).await;
}

async fn refused(engine: &Engine, error: &FleetError) -> Option<()> {
    if matches!(error, FleetError::NotKnown { .. }) {
        engine.report_registration_lost();
        return Some(());
    }
    tracing::warn!(%error, "the SuperLink refuses to send instructions");
    engine.pause(MAX_POLL_INTERVAL).await
}

/// Waits for a free slot and for disk space.
async fn slot(engine: &Arc<Engine>) -> Option<OwnedSemaphorePermit> {
    let slot = tokio::select! {
        () = engine.stop.cancelled() => return None,
        slot = Arc::clone(&engine.slots).acquire_owned() => slot.ok()?,
    };
    let mut has_logged = false;
    loop {
        let limit = engine.config.limits.disk_bytes;
        let used = engine.disk(|store| Ok(store.objects().used_bytes()?)).await.unwrap_or(0);
        engine.watch.disk(used, limit);
        if used < limit {
            return Some(slot);
        }
        if !std::mem::replace(&mut has_logged, true) {
            tracing::warn!(used, limit, "the disk limit is reached: no new instructions until replies are delivered");
        }
        engine.pause(DISK_FULL_POLL_INTERVAL).await?;
    }
}

async fn take(
    engine: &Arc<Engine>,
    message: proto::Message,
    tree: proto::ObjectTree,
    slot: Option<OwnedSemaphorePermit>,
) {
    let Some(metadata) = &message.metadata else {
        tracing::warn!("an instruction without metadata was refused");
        return;
    };
    let Ok(id) = metadata.message_id.parse::<MessageId>() else {
        tracing::warn!(instruction = metadata.message_id, "an instruction with an invalid id was refused");
        return;
    };
    let run = RunId(metadata.run_id);
    if crate::store::objects_of(&tree).is_err() {
        tracing::warn!(%run, instruction = %id, "an instruction with invalid object ids was refused");
        return;
    }
    tracing::debug!(%run, instruction = %id, kind = metadata.message_type, "instruction");
    // Official SuperLinks send an instruction only once, so it stays in memory until it is stored.
    let (kept, objects) = (message.clone(), tree.clone());
    let store = move |store: &crate::store::Store| store.receive(id, &kept, &objects, now_s());
    match engine.until_stored("an instruction cannot be stored", store).await {
        None => {}
        Some(Receipt::New) => {
            engine.watch.instruction_received();
            execution::start(Arc::clone(engine), run, id, slot);
        }
        // Its confirmation was lost. In state Fetching its task confirms it.
        Some(Receipt::Again(State::Fetching)) => {}
        Some(Receipt::Again(_)) => execution::confirm(engine, run, id).await,
    }
}
