//! Takes instructions from the SuperLink, as many as there are places.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use trellis_client::fleet::FleetError;
use trellis_clock::now_s;
use trellis_core::id::{MessageId, RunId};
use trellis_wire::proto;

use super::link::Unanswered;
use super::{Engine, carry};
use crate::error::Error;
use crate::store::Receipt;
use crate::work::State;

/// A SuperLink that takes longer than this to say that there is nothing holds the question open: it may be asked again at
/// once. The official ones answer at once, and are asked again after a pause.
const HELD: Duration = Duration::from_millis(500);
/// The pause is short while something happens, and grows.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// Between two looks at a disk that is full.
const FULL_PAUSE: Duration = Duration::from_secs(5);

pub async fn take_all(engine: Arc<Engine>) -> Result<(), Error> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        // What the last question brought is under way by now.
        engine.watch.asking(false);
        let Some(slot) = slot(&engine).await else { return Ok(()) };
        if wanted(&engine).await.is_none() {
            return Ok(());
        }
        engine.watch.asking(true);
        let Some(node) = engine.identity().await else { return Ok(()) };
        let asked = Instant::now();
        let pulled = tokio::select! {
            pulled = engine.link.call(|fleet| async move { fleet.pull_messages(node).await }) => pulled,
            () = recalled(&engine) => continue,
        };
        match pulled {
            Ok(answer) if answer.messages_list.is_empty() => {
                if asked.elapsed() < HELD {
                    if engine.pause(pause).await.is_none() {
                        return Ok(());
                    }
                    pause = (pause * 5 / 4).min(LONGEST_PAUSE);
                }
            }
            Ok(answer) => {
                pause = SHORTEST_PAUSE;
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

/// Waits until the node takes work. `None`: it stops.
async fn wanted(engine: &Engine) -> Option<()> {
    tokio::select! {
        () = engine.stop.cancelled() => None,
        () = engine.drain.until(false) => Some(()),
    }
}

/// Waits until a question that the SuperLink holds is to be taken back. Who holds it hands out again what nobody confirmed; an
/// official one does not, and answers sooner.
async fn recalled(engine: &Engine) {
    tokio::time::sleep(HELD).await;
    engine.drain.until(true).await;
}

async fn refused(engine: &Engine, error: &FleetError) -> Option<()> {
    if matches!(error, FleetError::NotKnown { .. }) {
        engine.disown();
        return Some(());
    }
    tracing::warn!(%error, "the SuperLink gives no instructions");
    engine.pause(LONGEST_PAUSE).await
}

/// A place for an instruction, and room on the disk for what it brings.
async fn slot(engine: &Arc<Engine>) -> Option<OwnedSemaphorePermit> {
    let slot = tokio::select! {
        () = engine.stop.cancelled() => return None,
        slot = Arc::clone(&engine.slots).acquire_owned() => slot.ok()?,
    };
    let mut told = false;
    loop {
        let limit = engine.config.limits.disk_bytes;
        let used = engine.disk(|store| Ok(store.objects().used_bytes()?)).await.unwrap_or(0);
        engine.watch.disk(used, limit);
        if used < limit {
            return Some(slot);
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(used, limit, "no new instructions until replies were delivered: the disk limit is reached");
        }
        engine.pause(FULL_PAUSE).await?;
    }
}

async fn take(
    engine: &Arc<Engine>,
    message: proto::Message,
    tree: proto::ObjectTree,
    slot: Option<OwnedSemaphorePermit>,
) {
    let Some(metadata) = &message.metadata else {
        tracing::warn!("an instruction without metadata was not taken");
        return;
    };
    let Ok(id) = metadata.message_id.parse::<MessageId>() else {
        tracing::warn!(instruction = metadata.message_id, "an instruction without a proper id was not taken");
        return;
    };
    let run = RunId(metadata.run_id);
    if crate::store::objects_of(&tree).is_err() {
        tracing::warn!(%run, instruction = %id, "an instruction whose objects have no proper names was not taken");
        return;
    }
    tracing::debug!(%run, instruction = %id, kind = metadata.message_type, "instruction");
    // Official SuperLinks hand an instruction out once: it is held here until the disk has it.
    let (kept, objects) = (message.clone(), tree.clone());
    let store = move |store: &crate::store::Store| store.receive(id, &kept, &objects, now_s());
    match engine.until_stored("an instruction could not be stored", store).await {
        None => {}
        Some(Receipt::New) => {
            engine.watch.instruction_received();
            carry::begin(Arc::clone(engine), run, id, slot);
        }
        // Its confirmation was lost; while it is being fetched somebody is at it.
        Some(Receipt::Again(State::Fetching)) => {}
        Some(Receipt::Again(_)) => carry::confirm(engine, run, id).await,
    }
}
