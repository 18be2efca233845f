//! Delivers replies to the SuperLink, oldest first.

use std::sync::Arc;
use std::time::Duration;

use trellis_clock::now_s;
use trellis_core::id::ObjectId;

use super::Engine;
use super::execution::{self, StepError, ask};
use super::transfer::{self, Sent};
use crate::error::Error;
use crate::store::{PendingReply, Waiting};
use crate::watch::Dropped;
use crate::work::Event;

/// The limit of announcements of a reply which objects the SuperLink then refuses.
const MAX_ANNOUNCEMENTS: usize = 3;
/// The delay after a disk failure.
const RETRY_DELAY: Duration = Duration::from_secs(2);

pub async fn deliver_all(engine: Arc<Engine>) -> Result<(), Error> {
    loop {
        let Some(pending) = engine.until_stored("replies cannot be read", |store| store.oldest_pending()).await else {
            return Ok(());
        };
        let Some(pending) = pending else {
            tokio::select! {
                () = engine.stop.cancelled() => return Ok(()),
                () = engine.answered.notified() => continue,
            }
        };
        match deliver(&engine, &pending).await {
            Ok(()) => engine.update_waiting().await,
            Err(StepError::Stopping) => return Ok(()),
            Err(StepError::RunOver(reason)) => engine.end_run(pending.run, &reason).await,
            Err(StepError::Failed { reason, .. }) => {
                tracing::error!(run = %pending.run, instruction = %pending.id, "a reply is lost: {reason}");
                engine.watch.reply_dropped(Dropped::Refused);
                engine.forget(pending.id).await;
            }
            Err(StepError::Disk(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a reply cannot be read: retrying");
                if engine.pause(RETRY_DELAY).await.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

async fn deliver(engine: &Arc<Engine>, pending: &PendingReply) -> Result<(), StepError> {
    let id = pending.id;
    for _ in 0..MAX_ANNOUNCEMENTS {
        if now_s() >= pending.expires_at {
            tracing::warn!(run = %pending.run, instruction = %id, "a reply is dropped: the TTL of its instruction has passed");
            engine.watch.reply_dropped(Dropped::Expired);
            engine.forget(id).await;
            return Ok(());
        }
        match announce_and_send(engine, pending).await? {
            Sent::All => {
                tracing::debug!(run = %pending.run, instruction = %id, "reply delivered");
                let age = Duration::try_from_secs_f64(now_s() - pending.replied_at).unwrap_or_default();
                engine.watch.reply_delivered(age);
                engine.forget(id).await;
                return Ok(());
            }
            Sent::Lost => {
                tracing::warn!(run = %pending.run, instruction = %id, "a reply is damaged: executing the instruction again");
                engine.disk(move |store| store.step(id, Event::ObjectsLost)).await?;
                execution::start(Arc::clone(engine), pending.run, id, None);
                return Ok(());
            }
            Sent::Refused => {}
        }
    }
    let reason = format!("the SuperLink refused its objects {MAX_ANNOUNCEMENTS} times");
    Err(StepError::Failed { code: trellis_wire::error_reply::ErrorCode::Unknown, reason })
}

async fn announce_and_send(engine: &Arc<Engine>, pending: &PendingReply) -> Result<Sent, StepError> {
    let answer = ask(engine, pending.run, |fleet, node| {
        let (message, tree) = (pending.message.clone(), pending.tree.clone());
        async move { fleet.push_messages(node, message, tree, pending.runtime_s).await }
    })
    .await?;
    let missing: Vec<ObjectId> = answer.objects_to_push.iter().filter_map(|id| id.parse().ok()).collect();
    transfer::send(engine, pending.run, missing, &answer.session_id).await
}

/// Waits until everything is delivered, up to a timeout.
pub async fn flush(engine: &Engine, timeout: Duration) {
    let all_delivered = async {
        while let Ok(Waiting { replies: 1.., .. }) = engine.disk(|store| store.waiting()).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if engine.identity.borrow().is_some() {
        let _ = tokio::time::timeout(timeout, all_delivered).await;
    }
}
