//! Objects between the SuperLink and the object files: several at once, none twice, each in memory only while it is under
//! way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use trellis_client::fleet::PulledObject;
use trellis_core::id::{ObjectId, RunId};
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::proto;

use super::Engine;
use super::carry::{Trouble, ask};
use crate::store::{Store, StoreError, objects_of};
use crate::watch::Direction;

/// An object that was announced and has not come to the SuperLink yet is asked for again after this, longer each time.
const NOT_HERE_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_NOT_HERE_PAUSE: Duration = Duration::from_secs(10);

async fn missing(engine: &Engine, tree: &proto::ObjectTree) -> Result<Vec<ObjectId>, Trouble> {
    let wanted = objects_of(tree).map_err(|_| Trouble::Disk(StoreError::Damaged("a tree of objects without names")))?;
    let missing = |store: &Store| Ok(wanted.into_iter().filter(|id| !store.objects().has(*id)).collect());
    Ok(engine.disk(missing).await?)
}

/// Whether all objects of a tree are here.
pub async fn is_here(engine: &Engine, tree: &proto::ObjectTree) -> Result<bool, Trouble> {
    Ok(missing(engine, tree).await?.is_empty())
}

/// Brings all objects of a tree here that are not here.
pub async fn fetch(engine: &Arc<Engine>, run: RunId, tree: &proto::ObjectTree) -> Result<(), Trouble> {
    let missing = missing(engine, tree).await?;
    let engine = Arc::clone(engine);
    each(missing, engine.config.limits.parallel_objects, move |id| fetch_one(Arc::clone(&engine), run, id)).await
}

async fn fetch_one(engine: Arc<Engine>, run: RunId, id: ObjectId) -> Result<(), Trouble> {
    let bytes = match &engine.config.temporary {
        Some(pulled) => pulled.get(id, || pull(&engine, run, id)).await?,
        None => pull(&engine, run, id).await?,
    };
    engine.disk(move |store| Ok(store.objects().put(id, &bytes)?)).await?;
    Ok(())
}

async fn pull(engine: &Engine, run: RunId, id: ObjectId) -> Result<Bytes, Trouble> {
    let mut pause = NOT_HERE_PAUSE;
    loop {
        match ask(engine, run, |fleet, node| async move { fleet.pull_object(node, run, id).await }).await? {
            PulledObject::Here(bytes) => {
                engine.watch.transferred(Direction::Received, bytes.len() as u64);
                return Ok(bytes);
            }
            PulledObject::NotHere => {
                engine.pause(pause).await.ok_or(Trouble::Stopping)?;
                pause = (pause * 2).min(LONGEST_NOT_HERE_PAUSE);
            }
            PulledObject::NotFound => {
                let reason = format!("The SuperLink does not have the object {id} of the instruction any more.");
                return Err(Trouble::Failed { code: ErrorCode::Unknown, reason });
            }
        }
    }
}

/// How sending went.
pub enum Sent {
    All,
    /// An object is not here: lost, or damaged.
    Lost,
    /// The SuperLink does not take an object: it forgot the announcement.
    Unwanted,
}

/// Sends objects.
pub async fn send(engine: &Arc<Engine>, run: RunId, objects: Vec<ObjectId>, session: &str) -> Result<Sent, Trouble> {
    let parallel = engine.config.limits.parallel_objects;
    let (engine, session): (_, Arc<str>) = (Arc::clone(engine), session.into());
    let sending = each(objects, parallel, move |id| {
        let (engine, session) = (Arc::clone(&engine), Arc::clone(&session));
        async move {
            let read = engine.disk(move |store| Ok(store.objects().read(id)?)).await;
            let Some(bytes) = read.map_err(Stop::from)? else { return Err(Stop::Lost) };
            match send_one(&engine, run, id, bytes, &session).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Stop::Unwanted),
                Err(trouble) => Err(Stop::Trouble(trouble)),
            }
        }
    });
    match sending.await {
        Ok(()) => Ok(Sent::All),
        Err(Stop::Lost) => Ok(Sent::Lost),
        Err(Stop::Unwanted) => Ok(Sent::Unwanted),
        Err(Stop::Trouble(trouble)) => Err(trouble),
    }
}

enum Stop {
    Lost,
    Unwanted,
    Trouble(Trouble),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Trouble(error.into())
    }
}

async fn send_one(engine: &Engine, run: RunId, id: ObjectId, bytes: Bytes, session: &str) -> Result<bool, Trouble> {
    let stored = ask(engine, run, |fleet, node| {
        let (bytes, session) = (bytes.clone(), session.to_owned());
        async move { fleet.push_object(node, run, id, bytes, &session).await }
    })
    .await?;
    engine.watch.transferred(Direction::Sent, bytes.len() as u64);
    Ok(stored)
}

/// Does something with each object, some at once; ends with the first that fails.
async fn each<E: Send + 'static, F>(
    objects: Vec<ObjectId>,
    parallel: usize,
    act: impl Fn(ObjectId) -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<(), E>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(parallel));
    let mut acts = JoinSet::new();
    for id in objects {
        let (act, places) = (act(id), Arc::clone(&places));
        acts.spawn(async move {
            let _place = places.acquire_owned().await;
            act.await
        });
    }
    while let Some(done) = acts.join_next().await {
        match done {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    Ok(())
}
