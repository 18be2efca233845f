//! Brings a reply here: its records, and its arrays chunk by chunk into the spool, some chunks under way at once and none
//! kept. What is wrong with a reply is told apart from what is wrong with the link.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::task::AbortOnDropHandle;
use trellis_client::app::{App, AppError};
use trellis_core::id::ObjectId;
use trellis_strategy::Layout;
use trellis_wire::object::{self, ArrayChunk, ArrayRecord, MetricRecord, Object, ObjectError, RecordDict};
use trellis_wire::proto;

use crate::error::TrainError;
use crate::exchange::{Parts, Speech, parts};
use crate::spool::{Draft, Spool, SpoolError, Spooled};

/// Objects of one reply under way at once.
const OBJECTS_AHEAD: usize = 2;
/// Longer pieces are looked at on a thread that may take its time.
const QUICK_BYTES: usize = 64 << 10;

/// A reply that is here.
#[derive(Debug)]
pub struct Received {
    pub metrics: MetricRecord,
    /// Where arrays were asked for.
    pub numbers: Option<Spooled>,
}

/// What is wanted of a reply.
#[derive(Clone)]
pub enum Wanted {
    Metrics,
    /// The arrays of a model; with `any_type` in all but their types.
    Model {
        layout: Arc<Layout>,
        any_type: bool,
    },
    /// Whatever arrays there are.
    AnyModel,
}

#[derive(Debug)]
pub enum NotReceived {
    /// The reply cannot be used.
    Unfit(String),
    NotFinite(String),
    /// It says that the node failed.
    Refused(proto::Error),
    /// It is not the reply's fault.
    Trouble(TrainError),
}

impl From<SpoolError> for NotReceived {
    fn from(error: SpoolError) -> NotReceived {
        match error {
            SpoolError::Unfit(why) => NotReceived::Unfit(why),
            SpoolError::NotFinite(why) => NotReceived::NotFinite(why),
            error @ SpoolError::Disk { .. } => NotReceived::Trouble(error.into()),
        }
    }
}

impl From<AppError> for NotReceived {
    fn from(error: AppError) -> NotReceived {
        match error {
            // An object that is gone is gone for this reply alone.
            AppError::Refused { why, .. } => NotReceived::Unfit(why),
            error => NotReceived::Trouble(error.into()),
        }
    }
}

impl From<ObjectError> for NotReceived {
    fn from(error: ObjectError) -> NotReceived {
        NotReceived::Unfit(format!("it is not made of sound objects: {error}"))
    }
}

/// How replies are received.
#[derive(Clone)]
pub struct Receiver {
    pub app: App,
    pub spool: Spool,
    pub weighted_by: String,
}

impl Receiver {
    /// Brings a reply here; `tree` is that of its message.
    pub async fn receive(
        &self,
        tree: &proto::ObjectTree,
        speech: Speech,
        wanted: &Wanted,
    ) -> Result<Received, NotReceived> {
        let content = tree.children.first().and_then(|content| content.object_id.parse().ok());
        let content: ObjectId = content.ok_or_else(|| NotReceived::Unfit("it has no content".to_owned()))?;
        let dict = RecordDict::decode(&self.app.pull_object(content).await?)?;
        let Parts { arrays, metrics } =
            parts(speech, self.records(&dict).await?, &self.weighted_by).map_err(NotReceived::Unfit)?;
        let draft = match wanted {
            Wanted::Metrics => return Ok(Received { metrics, numbers: None }),
            Wanted::AnyModel => self.spool.free_draft(),
            Wanted::Model { layout, any_type } => {
                let (spool, layout, any_type) = (self.spool.clone(), Arc::clone(layout), *any_type);
                blocking(move || spool.draft(&layout, any_type)).await??
            }
        };
        let arrays = arrays.ok_or_else(|| NotReceived::Unfit("it has no ArrayRecord with a model".to_owned()))?;
        let names = match (speech, wanted) {
            (Speech::Legacy, Wanted::Model { layout, .. }) => names_by_position(&arrays, layout),
            _ => arrays.0.names().map(str::to_owned).collect(),
        };
        let numbers = self.arrays(draft, names, &arrays).await?;
        Ok(Received { metrics, numbers: Some(numbers) })
    }

    async fn records(&self, dict: &RecordDict) -> Result<Vec<(String, Object)>, NotReceived> {
        let mut objects = Pipeline::new(&self.app, dict.0.iter().map(|(_, id)| *id).collect());
        let mut records = Vec::with_capacity(dict.0.len());
        for (name, _) in &dict.0 {
            records.push((name.clone(), Object::decode(&objects.next().await?)?));
        }
        Ok(records)
    }

    async fn arrays(&self, mut draft: Draft, names: Vec<String>, record: &ArrayRecord) -> Result<Spooled, NotReceived> {
        draft.check_names(names.iter().map(String::as_str))?;
        let mut described = Vec::with_capacity(names.len());
        let mut objects = Pipeline::new(&self.app, record.0.iter().map(|(_, id)| *id).collect());
        for _ in &names {
            described.push(object::Array::decode(&objects.next().await?)?);
        }
        let chunks = described.iter().flat_map(|array| array.chunks.iter().copied()).collect();
        let mut objects = Pipeline::new(&self.app, chunks);
        for (name, array) in names.iter().zip(&described) {
            draft.begin(name, array)?;
            for _ in &array.chunks {
                let chunk = ArrayChunk::decode(&objects.next().await?)?.data;
                draft = take(draft, chunk).await?;
            }
            draft.end()?;
        }
        Ok(draft.finish()?)
    }
}

/// Apps with a `client_fn` know positions only: the names are those of the model, where the number of arrays is.
fn names_by_position(arrays: &ArrayRecord, layout: &Layout) -> Vec<String> {
    let is_numbered = arrays.0.names().enumerate().all(|(index, name)| name == index.to_string());
    match is_numbered && arrays.0.len() == layout.0.len() {
        true => layout.0.iter().map(|slot| slot.name.clone()).collect(),
        false => arrays.0.names().map(str::to_owned).collect(),
    }
}

async fn take(mut draft: Draft, piece: Bytes) -> Result<Draft, NotReceived> {
    if piece.len() <= QUICK_BYTES {
        draft.take(&piece)?;
        return Ok(draft);
    }
    let taken = move || draft.take(&piece).map(|()| draft);
    Ok(blocking(taken).await??)
}

/// Work that may wait for a disk, on a thread of its own.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, TrainError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| TrainError::Broken(error.to_string()))
}

impl From<TrainError> for NotReceived {
    fn from(error: TrainError) -> NotReceived {
        NotReceived::Trouble(error)
    }
}

/// Objects in the order in which they are wanted, fetched a little ahead.
struct Pipeline {
    app: App,
    wanted: VecDeque<ObjectId>,
    under_way: VecDeque<AbortOnDropHandle<Result<Bytes, AppError>>>,
}

impl Pipeline {
    fn new(app: &App, wanted: Vec<ObjectId>) -> Pipeline {
        Pipeline { app: app.clone(), wanted: wanted.into(), under_way: VecDeque::new() }
    }

    async fn next(&mut self) -> Result<Bytes, NotReceived> {
        while self.under_way.len() < OBJECTS_AHEAD
            && let Some(id) = self.wanted.pop_front()
        {
            let app = self.app.clone();
            let fetching = tokio::spawn(async move { app.pull_object(id).await });
            self.under_way.push_back(AbortOnDropHandle::new(fetching));
        }
        let first = self.under_way.pop_front().expect("no more is asked for than is wanted");
        match first.await {
            Ok(fetched) => Ok(fetched?),
            Err(error) => Err(NotReceived::Trouble(TrainError::Broken(error.to_string()))),
        }
    }
}
