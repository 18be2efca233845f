//! Receives a reply: its records, and its arrays chunk by chunk into the spool. A few chunks are in transfer at once, and none
//! is kept in memory. Errors of the reply and errors of the link are distinct.

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
use crate::exchange::{MessageFormat, Parts, parts};
use crate::spool::{Draft, Spool, SpoolError, Spooled};

/// Concurrent transfers for one reply.
const OBJECTS_AHEAD: usize = 2;
/// Longer chunks are checked on a thread that may block.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// A received reply.
#[derive(Debug)]
pub struct Received {
    pub metrics: MetricRecord,
    /// Present if arrays were expected.
    pub numbers: Option<Spooled>,
}

/// The expected content of a reply.
#[derive(Clone)]
pub enum Expected {
    Metrics,
    /// The arrays of a model; with `any_type`, element types may differ.
    Model {
        layout: Arc<Layout>,
        any_type: bool,
    },
    /// Any arrays.
    AnyModel,
}

#[derive(Debug)]
pub enum NotReceived {
    /// The reply cannot be used.
    Unusable(String),
    NonFinite(String),
    /// The node reported an error.
    Refused(proto::Error),
    /// A failure that the reply did not cause.
    Failure(TrainError),
}

impl From<SpoolError> for NotReceived {
    fn from(error: SpoolError) -> NotReceived {
        match error {
            SpoolError::Unusable(reason) => NotReceived::Unusable(reason),
            SpoolError::NonFinite(reason) => NotReceived::NonFinite(reason),
            error @ SpoolError::Disk { .. } => NotReceived::Failure(error.into()),
        }
    }
}

impl From<AppError> for NotReceived {
    fn from(error: AppError) -> NotReceived {
        match error {
            // A missing object affects this reply only.
            AppError::Refused { why, .. } => NotReceived::Unusable(why),
            error => NotReceived::Failure(error.into()),
        }
    }
}

impl From<ObjectError> for NotReceived {
    fn from(error: ObjectError) -> NotReceived {
        NotReceived::Unusable(format!("an object of it is invalid: {error}"))
    }
}

/// The parameters of all receptions.
#[derive(Clone)]
pub struct Receiver {
    pub app: App,
    pub spool: Spool,
    pub weighted_by: String,
}

impl Receiver {
    /// Receives a reply with this object tree.
    pub async fn receive(
        &self,
        tree: &proto::ObjectTree,
        message_format: MessageFormat,
        expected: &Expected,
    ) -> Result<Received, NotReceived> {
        let content = tree.children.first().and_then(|content| content.object_id.parse().ok());
        let content: ObjectId = content.ok_or_else(|| NotReceived::Unusable("it has no content".to_owned()))?;
        let dict = RecordDict::decode(&self.app.pull_object(content).await?)?;
        let Parts { arrays, metrics } =
            parts(message_format, self.records(&dict).await?, &self.weighted_by).map_err(NotReceived::Unusable)?;
        let draft = match expected {
            Expected::Metrics => return Ok(Received { metrics, numbers: None }),
            Expected::AnyModel => self.spool.free_draft(),
            Expected::Model { layout, any_type } => {
                let (spool, layout, any_type) = (self.spool.clone(), Arc::clone(layout), *any_type);
                blocking(move || spool.draft(&layout, any_type)).await??
            }
        };
        let arrays = arrays.ok_or_else(|| NotReceived::Unusable("it has no ArrayRecord with a model".to_owned()))?;
        let names = match (message_format, expected) {
            (MessageFormat::Legacy, Expected::Model { layout, .. }) => names_by_position(&arrays, layout),
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

/// Apps with a `client_fn` send arrays by position. If their number matches, they get the names of the model.
fn names_by_position(arrays: &ArrayRecord, layout: &Layout) -> Vec<String> {
    let is_numbered = arrays.0.names().enumerate().all(|(index, name)| name == index.to_string());
    match is_numbered && arrays.0.len() == layout.0.len() {
        true => layout.0.iter().map(|slot| slot.name.clone()).collect(),
        false => arrays.0.names().map(str::to_owned).collect(),
    }
}

async fn take(mut draft: Draft, piece: Bytes) -> Result<Draft, NotReceived> {
    if piece.len() <= MAX_INLINE_BYTES {
        draft.take(&piece)?;
        return Ok(draft);
    }
    let taken = move || draft.take(&piece).map(|()| draft);
    Ok(blocking(taken).await??)
}

/// Runs work that may block on a separate thread.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, TrainError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| TrainError::Internal(error.to_string()))
}

impl From<TrainError> for NotReceived {
    fn from(error: TrainError) -> NotReceived {
        NotReceived::Failure(error)
    }
}

/// Fetches objects in order, a few ahead.
struct Pipeline {
    app: App,
    expected: VecDeque<ObjectId>,
    under_way: VecDeque<AbortOnDropHandle<Result<Bytes, AppError>>>,
}

impl Pipeline {
    fn new(app: &App, expected: Vec<ObjectId>) -> Pipeline {
        Pipeline { app: app.clone(), expected: expected.into(), under_way: VecDeque::new() }
    }

    async fn next(&mut self) -> Result<Bytes, NotReceived> {
        while self.under_way.len() < OBJECTS_AHEAD
            && let Some(id) = self.expected.pop_front()
        {
            let app = self.app.clone();
            let fetching = tokio::spawn(async move { app.pull_object(id).await });
            self.under_way.push_back(AbortOnDropHandle::new(fetching));
        }
        let first = self.under_way.pop_front().expect("next is called once per object");
        match first.await {
            Ok(fetched) => Ok(fetched?),
            Err(error) => Err(NotReceived::Failure(TrainError::Internal(error.to_string()))),
        }
    }
}
