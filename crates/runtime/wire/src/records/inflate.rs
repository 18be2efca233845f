//! Converts objects to records.

use std::collections::HashMap;

use bytes::Bytes;
use trellis_core::id::ObjectId;

use super::{Array, Arrays, Record, Records};
use crate::object::{self, Entries, Object, ObjectError, ObjectKind};

/// Maximum array data of records. Few objects can refer to one chunk very often, so the size of the objects is no
/// limit.
pub const MAX_INFLATED_BYTES: usize = 16 * 1024 * 1024 * 1024;

/// Why an object could not be fetched.
pub type FetchError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the bytes of an object, verified against its id.
pub type Fetch<'a> = dyn FnMut(ObjectId) -> Result<Bytes, FetchError> + 'a;

#[derive(Debug, thiserror::Error)]
pub enum InflateError {
    /// The source failed, not the content.
    #[error("object {id} could not be fetched")]
    Fetch {
        id: ObjectId,
        #[source]
        source: FetchError,
    },
    #[error("object {id} cannot be read")]
    Object {
        id: ObjectId,
        #[source]
        source: ObjectError,
    },
    #[error("object {id} is a {actual}, where {expected} was expected")]
    Kind { id: ObjectId, expected: &'static str, actual: ObjectKind },
    #[error("the arrays hold more than {MAX_INFLATED_BYTES} bytes")]
    TooLarge,
}

/// Reads the content of a message. `root` is the RecordDict or the message.
pub fn inflate(root: ObjectId, fetch: &mut Fetch<'_>) -> Result<Records, InflateError> {
    let mut inflation = Inflation { fetch, room: MAX_INFLATED_BYTES };
    match inflation.object(root)? {
        Object::RecordDict(dict) => inflation.records(&dict),
        Object::Message(object::Message { payload: object::Payload::Content(content), .. }) => {
            match inflation.object(content)? {
                Object::RecordDict(dict) => inflation.records(&dict),
                other => Err(unexpected(content, "a RecordDict", &other)),
            }
        }
        other => Err(unexpected(root, "a message with content", &other)),
    }
}

struct Inflation<'a, 'f> {
    fetch: &'a mut Fetch<'f>,
    /// Remaining limit of array data.
    room: usize,
}

impl Inflation<'_, '_> {
    fn object(&mut self, id: ObjectId) -> Result<Object, InflateError> {
        let bytes = (self.fetch)(id).map_err(|source| InflateError::Fetch { id, source })?;
        Object::decode(&bytes).map_err(|source| InflateError::Object { id, source })
    }

    fn records(&mut self, dict: &object::RecordDict) -> Result<Records, InflateError> {
        let mut records = Vec::with_capacity(dict.0.len());
        for (name, id) in &dict.0 {
            let record = match self.object(*id)? {
                Object::ArrayRecord(names) => Record::Arrays(self.arrays(&names)?),
                Object::MetricRecord(metrics) => Record::Metrics(metrics),
                Object::ConfigRecord(config) => Record::Config(config),
                other => return Err(unexpected(*id, "a record", &other)),
            };
            records.push((name.clone(), record));
        }
        Ok(distinct(records))
    }

    fn arrays(&mut self, names: &object::ArrayRecord) -> Result<Arrays, InflateError> {
        let mut arrays = Vec::with_capacity(names.0.len());
        for (name, id) in &names.0 {
            let array = match self.object(*id)? {
                Object::Array(array) => self.array(array)?,
                other => return Err(unexpected(*id, "an Array", &other)),
            };
            arrays.push((name.clone(), array));
        }
        Ok(distinct(arrays))
    }

    fn array(&mut self, described: object::Array) -> Result<Array, InflateError> {
        let object::Array { dtype, shape, stype, chunks } = described;
        let data = match chunks[..] {
            // One chunk needs no copy.
            [only] => self.chunk(only, 1)?,
            _ => self.joined(&chunks)?,
        };
        Ok(Array { dtype, shape, stype, data })
    }

    /// Joins chunks. Fetches a repeated chunk once, and counts all repetitions before it copies.
    fn joined(&mut self, chunks: &[ObjectId]) -> Result<Bytes, InflateError> {
        let mut mentions: HashMap<ObjectId, usize> = HashMap::new();
        for id in chunks {
            *mentions.entry(*id).or_default() += 1;
        }
        let mut repeated: HashMap<ObjectId, Bytes> = HashMap::new();
        let mut data = Vec::new();
        for id in chunks {
            if let Some(chunk) = repeated.get(id) {
                data.extend_from_slice(chunk);
                continue;
            }
            let chunk = self.chunk(*id, mentions[id])?;
            data.extend_from_slice(&chunk);
            if mentions[id] > 1 {
                repeated.insert(*id, chunk);
            }
        }
        Ok(data.into())
    }

    fn chunk(&mut self, id: ObjectId, mentions: usize) -> Result<Bytes, InflateError> {
        match self.object(id)? {
            Object::ArrayChunk(chunk) => {
                let bytes = chunk.data.len().saturating_mul(mentions);
                self.room = self.room.checked_sub(bytes).ok_or(InflateError::TooLarge)?;
                Ok(chunk.data)
            }
            other => Err(unexpected(id, "an ArrayChunk", &other)),
        }
    }
}

fn distinct<V>(entries: Vec<(String, V)>) -> Entries<V> {
    Entries::new(entries).expect("the names come from entries")
}

fn unexpected(id: ObjectId, expected: &'static str, actual: &Object) -> InflateError {
    InflateError::Kind { id, expected, actual: actual.kind() }
}
