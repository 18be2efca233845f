//! PushObject and PullObject: the objects of instructions and replies.

use bytes::{Bytes, BytesMut};
use trellis_core::id::ObjectId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::object::{PushedObject, object_id, pulled, read_pull};
use trellis_front::{Answer, MessageReader, Rest};
use trellis_wire::object::{ObjectError, verify};
use trellis_wire::proto::{PullObjectResponse, PushObjectResponse};

use super::assignment::{Assignment, Delivery, Need};
use super::caller::Caller;
use crate::objects::Objects;

/// The largest accepted object. Flower splits arrays into chunks of 5 MiB.
const OBJECT_BYTES: u64 = 512 << 20;

/// Receives an object of the reply.
pub async fn push(caller: Caller, body: MessageReader) -> Result<Answer, Refusal> {
    let mut pushed = PushedObject::read(body).await?;
    let (run, tasks) = (pushed.run, caller.tasks(pushed.run)?);
    let id = object_id(&pushed.id)?;
    let (mut task, mut wish) = (0, Need::Unannounced);
    for one in tasks {
        match caller.with(one, |assignment, _| assignment.need(id))? {
            Need::Unannounced => {}
            known => (task, wish) = (one, known),
        }
    }
    let stored = match wish {
        Need::Needed => {
            let bytes = gather(&mut pushed, id).await?;
            let stored = keep(&caller.server.objects, id, bytes).await?;
            if stored {
                caller.with(task, |assignment, _| assignment.arrived(id))?;
            }
            stored
        }
        Need::Known | Need::Unannounced => {
            while pushed.piece().await?.is_some() {}
            wish == Need::Known
        }
    };
    if !stored {
        tracing::warn!(run, object = %id, "an object was refused: it is unannounced, or its content has another hash");
    }
    Ok(Answer::message(&PushObjectResponse { stored }))
}

async fn gather(pushed: &mut PushedObject, id: ObjectId) -> Result<Bytes, Refusal> {
    if pushed.bytes > OBJECT_BYTES {
        let text = format!("object {id} is larger than the limit of {OBJECT_BYTES} bytes");
        return Err(Refusal::new(Kind::TooLarge, text));
    }
    let mut bytes = BytesMut::new();
    while let Some(piece) = pushed.piece().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Stores an object if its content matches its id.
async fn keep(objects: &Objects, id: ObjectId, bytes: Bytes) -> Result<bool, Refusal> {
    match verify(id, &bytes) {
        Err(ObjectError::HashMismatch { .. }) => return Ok(false),
        Err(error) => return Err(Refusal::new(Kind::Precondition, format!("object {id}: {error}"))),
        Ok(_) => {}
    }
    let objects = objects.clone();
    on_disk(move || objects.put(id, &bytes)).await.map(|()| true)
}

/// Sends an object of the instruction.
pub async fn pull(caller: Caller, body: MessageReader) -> Result<Answer, Refusal> {
    let request = read_pull(body).await?;
    let tasks = caller.tasks(request.run_id)?;
    let id = object_id(&request.object_id)?;
    for task in tasks {
        if !caller.with(task, |assignment, _| assignment.needs(id))? {
            continue;
        }
        let objects = caller.server.objects.clone();
        if let Some(bytes) = on_disk(move || objects.read(id)).await? {
            return Ok(pulled(Rest::Whole(bytes)));
        }
        let damaged = Delivery::Damaged { what: format!("object {id} of the instruction is damaged or missing") };
        caller.with(task, |assignment: &mut Assignment, _| assignment.deliver(damaged))?;
    }
    Ok(Answer::message(&PullObjectResponse::default()))
}

/// Runs disk operations on a blocking thread.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> Result<T, Refusal> {
    let failed = |error| Refusal::transient("The SuperNode cannot use its object files at the moment.", error);
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(failed),
        Err(error) => Err(failed(std::io::Error::other(error))),
    }
}
