//! One instruction and its reply over the pipes of a worker. Objects go from file to pipe and from pipe to file, a few at a
//! time. What becomes of the worker afterwards is not known here.

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

use super::frame::{self, Heard, Said};
use super::process::Worker;
use crate::app::{InstalledApp, Job, Reply};
use crate::objects::Objects;

/// Objects between file and pipe; they are up to 5 MiB each unless an app was told otherwise.
const OBJECTS_AHEAD: usize = 2;

/// What a worker made of an instruction.
pub enum Answer {
    Replied {
        reply: Box<Reply>,
        loaded: bool,
    },
    Failed {
        reason: String,
    },
    /// Its process ends.
    Exit {
        reason: String,
    },
}

/// Why there is no answer. The worker is of no use after any of them.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("the worker is gone")]
    Gone(#[source] io::Error),
    #[error("the worker sends what it must not: {0}")]
    Nonsense(String),
    #[error("object {0} of the instruction is not here, or damaged")]
    Missing(ObjectId),
    #[error("objects cannot be read or kept")]
    Disk(#[source] io::Error),
}

impl Trouble {
    fn of_pipe(error: io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::InvalidData => Trouble::Nonsense(error.to_string()),
            _ => Trouble::Gone(error),
        }
    }
}

impl From<JoinError> for Trouble {
    fn from(error: JoinError) -> Trouble {
        Trouble::Disk(io::Error::other(error))
    }
}

impl From<InvalidObjectId> for Trouble {
    fn from(error: InvalidObjectId) -> Trouble {
        Trouble::Nonsense(error.to_string())
    }
}

pub async fn carry_out(
    worker: &mut Worker,
    job: &Job,
    app: &InstalledApp,
    objects: &Objects,
) -> Result<Answer, Trouble> {
    send(worker, job, app, objects).await?;
    let (keep, kept) = mpsc::channel(OBJECTS_AHEAD);
    let objects = objects.clone();
    let keeping = spawn_blocking(move || keep_all(&objects, kept));
    let heard = receive(worker, &keep).await;
    drop(keep);
    // If nothing more could be kept, that is the reason of everything else.
    let kept = keeping.await??;
    match heard? {
        (Heard::Reply { loaded, runtime_s }, parts) => {
            let reply = checked(job, &parts, &kept, runtime_s)?;
            Ok(Answer::Replied { reply: Box::new(reply), loaded })
        }
        (Heard::Failed { reason }, _) => Ok(Answer::Failed { reason }),
        (Heard::Exit { reason }, _) => Ok(Answer::Exit { reason }),
        (other, _) => Err(Trouble::Nonsense(format!("{other:?}"))),
    }
}

async fn send(worker: &mut Worker, job: &Job, app: &InstalledApp, objects: &Objects) -> Result<(), Trouble> {
    let mut order = Vec::new();
    children_first(&job.tree, &mut HashSet::new(), &mut order)?;
    let directory = worker.app_directory(app).await.map_err(Trouble::Disk)?;
    let directory = directory.to_str().ok_or_else(|| {
        Trouble::Disk(io::Error::other(format!("{} is not a path that Python can be told", directory.display())))
    })?;
    let said = Said::Instruction { directory, client_app: &app.client_app, objects: order.len() };
    let parts: [&[u8]; 2] = [&job.context.encode_to_vec(), &job.tree.encode_to_vec()];
    frame::write(&mut worker.to, said, &parts).await.map_err(Trouble::of_pipe)?;
    let (fetch, mut fetched) = mpsc::channel(OBJECTS_AHEAD);
    let objects = objects.clone();
    let fetching = spawn_blocking(move || fetch_all(&objects, &order, &fetch));
    while let Some((id, bytes)) = fetched.recv().await {
        let said = Said::Object { id: id.to_string() };
        frame::write(&mut worker.to, said, &[&bytes]).await.map_err(Trouble::of_pipe)?;
    }
    fetching.await??;
    worker.to.flush().await.map_err(Trouble::of_pipe)
}

/// Takes what the worker says up to the end of its answer; objects are handed on.
async fn receive(worker: &mut Worker, keep: &mpsc::Sender<(ObjectId, Bytes)>) -> Result<(Heard, Vec<Bytes>), Trouble> {
    loop {
        match frame::read(&mut worker.from).await.map_err(Trouble::of_pipe)? {
            (Heard::Object { id }, mut parts) if parts.len() == 1 => {
                let object = (id.parse()?, parts.remove(0));
                if keep.send(object).await.is_err() {
                    return Err(Trouble::Disk(io::Error::other("nothing more can be kept")));
                }
            }
            last => return Ok(last),
        }
    }
}

fn fetch_all(objects: &Objects, ids: &[ObjectId], to: &mpsc::Sender<(ObjectId, Bytes)>) -> Result<(), Trouble> {
    for id in ids {
        let bytes = objects.read(*id).map_err(Trouble::Disk)?.ok_or(Trouble::Missing(*id))?;
        if to.blocking_send((*id, bytes)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Keeps objects whose names are right; apps share a process with the worker, so what it says is not to be trusted.
fn keep_all(objects: &Objects, mut from: mpsc::Receiver<(ObjectId, Bytes)>) -> Result<HashSet<ObjectId>, Trouble> {
    let mut kept = HashSet::new();
    while let Some((id, bytes)) = from.blocking_recv() {
        if object_id(&bytes) != id {
            return Err(Trouble::Nonsense(format!("object {id} has another content")));
        }
        objects.put(id, &bytes).map_err(Trouble::Disk)?;
        kept.insert(id);
    }
    Ok(kept)
}

/// The ids of a tree, each once, children before parents.
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

/// The reply, if it is one to this instruction and complete.
fn checked(job: &Job, parts: &[Bytes], kept: &HashSet<ObjectId>, runtime_s: f64) -> Result<Reply, Trouble> {
    let nonsense = |what: &str| Trouble::Nonsense(what.to_owned());
    let [message, tree, context] = parts else { return Err(nonsense("a reply that is not of three parts")) };
    let malformed = |error: prost::DecodeError| Trouble::Nonsense(error.to_string());
    let message = proto::Message::decode(message.clone()).map_err(malformed)?;
    let tree = proto::ObjectTree::decode(tree.clone()).map_err(malformed)?;
    let context = proto::Context::decode(context.clone()).map_err(malformed)?;
    let metadata = message.metadata.as_ref().ok_or_else(|| nonsense("a reply without metadata"))?;
    if metadata.reply_to_message_id != job.metadata().message_id {
        return Err(nonsense("the app returned a message that is not a reply to the instruction"));
    }
    let mut ids = Vec::new();
    children_first(&tree, &mut HashSet::new(), &mut ids)?;
    if metadata.message_id != tree.object_id || ids.iter().any(|id| !kept.contains(id)) {
        return Err(nonsense("a reply without all of its objects"));
    }
    Ok(Reply { message, tree, context, runtime_s })
}
