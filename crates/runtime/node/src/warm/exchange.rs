//! Sends one instruction to a worker and receives its reply. Objects are streamed between files and pipes, a few at a time. The
//! caller decides what happens to the worker afterwards.

use std::collections::HashSet;
use std::io;

use bytes::Bytes;
use prost::Message as _;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};
use trellis_core::id::{InvalidObjectId, ObjectId};
use trellis_wire::object::object_id;
use trellis_wire::proto;

use super::frame::{self, Request, Response};
use super::process::Worker;
use crate::app::{InstalledApp, Job, Reply};
use crate::objects::Objects;

/// Objects in transfer between file and pipe; an object has up to 5 MiB by default.
const OBJECTS_AHEAD: usize = 2;

/// The answer of a worker.
pub enum Answer {
    Replied {
        reply: Box<Reply>,
        loaded: bool,
    },
    Failed {
        reason: String,
    },
    /// The app ends its process.
    Exit {
        reason: String,
    },
}

/// EndReason there is no answer. The worker is unusable afterwards.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("the worker has exited")]
    Gone(#[source] io::Error),
    #[error("the worker violates the protocol: {0}")]
    Protocol(String),
    #[error("object {0} of the instruction is missing or damaged")]
    Missing(ObjectId),
    #[error("objects cannot be read or stored")]
    Disk(#[source] io::Error),
}

impl ExchangeError {
    fn of_pipe(error: io::Error) -> ExchangeError {
        match error.kind() {
            io::ErrorKind::InvalidData => ExchangeError::Protocol(error.to_string()),
            _ => ExchangeError::Gone(error),
        }
    }
}

impl From<JoinError> for ExchangeError {
    fn from(error: JoinError) -> ExchangeError {
        ExchangeError::Disk(io::Error::other(error))
    }
}

impl From<InvalidObjectId> for ExchangeError {
    fn from(error: InvalidObjectId) -> ExchangeError {
        ExchangeError::Protocol(error.to_string())
    }
}

pub async fn execute(
    worker: &mut Worker,
    job: &Job,
    app: &InstalledApp,
    objects: &Objects,
) -> Result<Answer, ExchangeError> {
    send(worker, job, app, objects).await?;
    let (keep, kept) = mpsc::channel(OBJECTS_AHEAD);
    let objects = objects.clone();
    let keeping = spawn_blocking(move || store_all(&objects, kept));
    let response = receive(worker, &keep).await;
    drop(keep);
    // A failure to store objects is the cause of all other errors.
    let kept = keeping.await??;
    match response? {
        (Response::Reply { loaded, runtime_s }, parts) => {
            let reply = checked(job, &parts, &kept, runtime_s)?;
            Ok(Answer::Replied { reply: Box::new(reply), loaded })
        }
        (Response::Failed { reason }, _) => Ok(Answer::Failed { reason }),
        (Response::Exit { reason }, _) => Ok(Answer::Exit { reason }),
        (other, _) => Err(ExchangeError::Protocol(format!("{other:?}"))),
    }
}

async fn send(worker: &mut Worker, job: &Job, app: &InstalledApp, objects: &Objects) -> Result<(), ExchangeError> {
    let mut order = Vec::new();
    children_first(&job.tree, &mut HashSet::new(), &mut order)?;
    let directory = worker.app_directory(app).await.map_err(ExchangeError::Disk)?;
    let directory = directory.to_str().ok_or_else(|| {
        ExchangeError::Disk(io::Error::other(format!(
            "the path {} is not UTF-8, which Python requires",
            directory.display()
        )))
    })?;
    let said = Request::Instruction { directory, client_app: &app.client_app, objects: order.len() };
    let parts: [&[u8]; 2] = [&job.context.encode_to_vec(), &job.tree.encode_to_vec()];
    frame::write(&mut worker.to, said, &parts).await.map_err(ExchangeError::of_pipe)?;
    let (fetch, mut fetched) = mpsc::channel(OBJECTS_AHEAD);
    let objects = objects.clone();
    let fetching = spawn_blocking(move || fetch_all(&objects, &order, &fetch));
    while let Some((id, bytes)) = fetched.recv().await {
        let said = Request::Object { id: id.to_string() };
        frame::write(&mut worker.to, said, &[&bytes]).await.map_err(ExchangeError::of_pipe)?;
    }
    fetching.await??;
    worker.to.flush().await.map_err(ExchangeError::of_pipe)
}

/// Reads frames up to the end of the answer; passes objects on.
async fn receive(
    worker: &mut Worker,
    keep: &mpsc::Sender<(ObjectId, Bytes)>,
) -> Result<(Response, Vec<Bytes>), ExchangeError> {
    loop {
        match frame::read(&mut worker.from).await.map_err(ExchangeError::of_pipe)? {
            (Response::Object { id }, mut parts) if parts.len() == 1 => {
                let object = (id.parse()?, parts.remove(0));
                if keep.send(object).await.is_err() {
                    return Err(ExchangeError::Disk(io::Error::other("objects cannot be stored any more")));
                }
            }
            last => return Ok(last),
        }
    }
}

fn fetch_all(objects: &Objects, ids: &[ObjectId], to: &mpsc::Sender<(ObjectId, Bytes)>) -> Result<(), ExchangeError> {
    for id in ids {
        let bytes = objects.read(*id).map_err(ExchangeError::Disk)?.ok_or(ExchangeError::Missing(*id))?;
        if to.blocking_send((*id, bytes)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Stores objects with verified ids: apps share a process with the worker, so its messages are not trusted.
fn store_all(
    objects: &Objects,
    mut from: mpsc::Receiver<(ObjectId, Bytes)>,
) -> Result<HashSet<ObjectId>, ExchangeError> {
    let mut kept = HashSet::new();
    while let Some((id, bytes)) = from.blocking_recv() {
        if object_id(&bytes) != id {
            return Err(ExchangeError::Protocol(format!("object {id} has other content")));
        }
        objects.put(id, &bytes).map_err(ExchangeError::Disk)?;
        kept.insert(id);
    }
    Ok(kept)
}

/// The distinct ids of a tree, children before parents.
fn children_first(
    tree: &proto::ObjectTree,
    seen: &mut HashSet<ObjectId>,
    order: &mut Vec<ObjectId>,
) -> Result<(), InvalidObjectId> {
    let id = tree.object_id.parse()?;
    if !seen.insert(id) {
        return Ok(());
    }
    for child in &tree.children {
        children_first(child, seen, order)?;
    }
    order.push(id);
    Ok(())
}

/// Verifies that the reply answers this instruction and is complete.
fn checked(job: &Job, parts: &[Bytes], kept: &HashSet<ObjectId>, runtime_s: f64) -> Result<Reply, ExchangeError> {
    let violation = |what: &str| ExchangeError::Protocol(what.to_owned());
    let [message, tree, context] = parts else { return Err(violation("a reply without three parts")) };
    let malformed = |error: prost::DecodeError| ExchangeError::Protocol(error.to_string());
    let message = proto::Message::decode(message.clone()).map_err(malformed)?;
    let tree = proto::ObjectTree::decode(tree.clone()).map_err(malformed)?;
    let context = proto::Context::decode(context.clone()).map_err(malformed)?;
    let metadata = message.metadata.as_ref().ok_or_else(|| violation("a reply without metadata"))?;
    if metadata.reply_to_message_id != job.metadata().message_id {
        return Err(violation("the app returned a message that is not a reply to the instruction"));
    }
    let mut ids = Vec::new();
    children_first(&tree, &mut HashSet::new(), &mut ids)?;
    if metadata.message_id != tree.object_id || ids.iter().any(|id| !kept.contains(id)) {
        return Err(violation("a reply without all of its objects"));
    }
    Ok(Reply { message, tree, context, runtime_s })
}
