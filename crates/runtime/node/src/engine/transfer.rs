//! Transfers objects between the SuperLink and the object files: several at once, none twice, each in memory only during its
//! transfer.

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
use super::execution::{StepError, ask};
use crate::store::{Store, StoreError, objects_of};
use crate::watch::Direction;

/// The delay before an announced object that is not at the SuperLink yet is pulled again; it grows with each attempt.
const MISSING_RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_MISSING_RETRY_DELAY: Duration = Duration::from_secs(10);

async fn missing(engine: &Engine, tree: &proto::ObjectTree) -> Result<Vec<ObjectId>, StepError> {
    let all = objects_of(tree).map_err(|_| StepError::Disk(StoreError::Damaged("an object tree with invalid ids")))?;
    let missing = |store: &Store| Ok(all.into_iter().filter(|id| !store.objects().has(*id)).collect());
    Ok(engine.disk(missing).await?)
}

/// Whether all objects of a tree are stored.
pub async fn is_complete(engine: &Engine, tree: &proto::ObjectTree) -> Result<bool, StepError> {
    Ok(missing(engine, tree).await?.is_empty())
}

/// Fetches all missing objects of a tree.
pub async fn fetch(engine: &Arc<Engine>, run: RunId, tree: &proto::ObjectTree) -> Result<(), StepError> {
    let missing = missing(engine, tree).await?;
    let engine = Arc::clone(engine);
    each(missing, engine.config.limits.parallel_objects, move |id| fetch_one(Arc::clone(&engine), run, id)).await
}

async fn fetch_one(engine: Arc<Engine>, run: RunId, id: ObjectId) -> Result<(), StepError> {
    let bytes = match &engine.config.temporary {
        Some(pulled) => pulled.get(id, || pull(&engine, run, id)).await?,
        None => pull(&engine, run, id).await?,
    };
    engine.disk(move |store| Ok(store.objects().put(id, &bytes)?)).await?;
    Ok(())
}

async fn pull(engine: &Engine, run: RunId, id: ObjectId) -> Result<Bytes, StepError> {
    let mut pause = MISSING_RETRY_DELAY;
    loop {
        match ask(engine, run, |fleet, node| async move { fleet.pull_object(node, run, id).await }).await? {
            PulledObject::Here(bytes) => {
                engine.watch.transferred(Direction::Received, bytes.len() as u64);
                return Ok(bytes);
            }
            PulledObject::NotHere => {
                engine.pause(pause).await.ok_or(StepError::Stopping)?;
                pause = (pause * 2).min(MAX_MISSING_RETRY_DELAY);
            }
            PulledObject::NotFound => {
                let reason = format!("The SuperLink no longer has the object {id} of the instruction.");
                return Err(StepError::Failed { code: ErrorCode::Unknown, reason });
            }
        }
    }
}

/// The result of sending objects.
pub enum Sent {
    All,
    /// An object is missing or damaged.
    Lost,
    /// The SuperLink refuses an object, because it forgot the announcement.
    Refused,
}

/// Sends objects.
pub async fn send(engine: &Arc<Engine>, run: RunId, objects: Vec<ObjectId>, session: &str) -> Result<Sent, StepError> {
    let parallel = engine.config.limits.parallel_objects;
    let (engine, session): (_, Arc<str>) = (Arc::clone(engine), session.into());
    let sending = each(objects, parallel, move |id| {
        let (engine, session) = (Arc::clone(&engine), Arc::clone(&session));
        async move {
            let read = engine.disk(move |store| Ok(store.objects().read(id)?)).await;
            let Some(bytes) = read.map_err(Stop::from)? else { return Err(Stop::Lost) };
            match send_one(&engine, run, id, bytes, &session).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Stop::Refused),
                Err(error) => Err(Stop::Error(error)),
            }
        }
    });
    match sending.await {
        Ok(()) => Ok(Sent::All),
        Err(Stop::Lost) => Ok(Sent::Lost),
        Err(Stop::Refused) => Ok(Sent::Refused),
        Err(Stop::Error(error)) => Err(error),
    }
}

enum Stop {
    Lost,
    Refused,
    Error(StepError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Error(error.into())
    }
}

async fn send_one(engine: &Engine, run: RunId, id: ObjectId, bytes: Bytes, session: &str) -> Result<bool, StepError> {
    let stored = ask(engine, run, |fleet, node| {
        let (bytes, session) = (bytes.clone(), session.to_owned());
        async move { fleet.push_object(node, run, id, bytes, &session).await }
    })
    .await?;
    engine.watch.transferred(Direction::Sent, bytes.len() as u64);
    Ok(stored)
}

/// Runs a task per object, several at once; returns the first error.
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
