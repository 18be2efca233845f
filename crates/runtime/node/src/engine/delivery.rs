//! Hands replies over to the SuperLink, the oldest first, until it has all of each.

use std::sync::Arc;
use std::time::Duration;

use trellis_clock::now_s;
use trellis_core::id::ObjectId;

use super::Engine;
use super::carry::{self, Trouble, ask};
use super::transfer::{self, Sent};
use crate::error::Error;
use crate::store::{Owed, Waiting};
use crate::watch::Dropped;
use crate::work::Event;

/// A reply that the SuperLink announced and then did not want is announced again so often.
const MOST_ANNOUNCEMENTS: usize = 3;
/// Between two tries after trouble with the disk.
const PAUSE: Duration = Duration::from_secs(2);

pub async fn deliver_all(engine: Arc<Engine>) -> Result<(), Error> {
    loop {
        let Some(owed) = engine.until_stored("replies could not be read", |store| store.oldest_owed()).await else {
            return Ok(());
        };
        let Some(owed) = owed else {
            tokio::select! {
                () = engine.stop.cancelled() => return Ok(()),
                () = engine.answered.notified() => continue,
            }
        };
        match deliver(&engine, &owed).await {
            Ok(()) => engine.note_owed().await,
            Err(Trouble::Stopping) => return Ok(()),
            Err(Trouble::RunOver(why)) => engine.end_run(owed.run, &why).await,
            Err(Trouble::Failed { reason, .. }) => {
                tracing::error!(run = %owed.run, instruction = %owed.id, "a reply is lost: {reason}");
                engine.watch.reply_dropped(Dropped::Refused);
                engine.forget(owed.id).await;
            }
            Err(Trouble::Disk(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a reply could not be read: trying again");
                if engine.pause(PAUSE).await.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

async fn deliver(engine: &Arc<Engine>, owed: &Owed) -> Result<(), Trouble> {
    let id = owed.id;
    for _ in 0..MOST_ANNOUNCEMENTS {
        if now_s() >= owed.expires_at {
            tracing::warn!(run = %owed.run, instruction = %id, "a reply is dropped: nobody waits for it any more");
            engine.watch.reply_dropped(Dropped::Expired);
            engine.forget(id).await;
            return Ok(());
        }
        match announce_and_send(engine, owed).await? {
            Sent::All => {
                tracing::debug!(run = %owed.run, instruction = %id, "reply delivered");
                let age = Duration::try_from_secs_f64(now_s() - owed.replied_at).unwrap_or_default();
                engine.watch.reply_delivered(age);
                engine.forget(id).await;
                return Ok(());
            }
            Sent::Lost => {
                tracing::warn!(run = %owed.run, instruction = %id, "a reply was damaged: carrying the instruction out again");
                engine.disk(move |store| store.step(id, Event::ObjectsLost)).await?;
                carry::begin(Arc::clone(engine), owed.run, id, None);
                return Ok(());
            }
            Sent::Unwanted => {}
        }
    }
    let reason = format!("the SuperLink did not take its objects, {MOST_ANNOUNCEMENTS} times");
    Err(Trouble::Failed { code: trellis_wire::error_reply::ErrorCode::Unknown, reason })
}

async fn announce_and_send(engine: &Arc<Engine>, owed: &Owed) -> Result<Sent, Trouble> {
    let answer = ask(engine, owed.run, |fleet, node| {
        let (message, tree) = (owed.message.clone(), owed.tree.clone());
        async move { fleet.push_messages(node, message, tree, owed.runtime_s).await }
    })
    .await?;
    let wanted: Vec<ObjectId> = answer.objects_to_push.iter().filter_map(|id| id.parse().ok()).collect();
    transfer::send(engine, owed.run, wanted, &answer.session_id).await
}

/// Waits until everything is delivered, but not for long.
pub async fn farewell(engine: &Engine, limit: Duration) {
    let all_delivered = async {
        while let Ok(Waiting { replies: 1.., .. }) = engine.disk(|store| store.waiting()).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if engine.identity.borrow().is_some() {
        let _ = tokio::time::timeout(limit, all_delivered).await;
    }
}
