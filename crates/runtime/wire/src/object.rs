//! Flower's objects: the encoding of models, metrics and messages.
//!
//! An object is a header, a NUL byte and a body. Its id is the SHA-256 of all three. Equal content has equal bytes:
//! every encoder produces the same bytes as the official Python package.
//!
//! The SuperLink needs only the header and the hash ([`Header`], [`Verifier`]). Typed objects are for programs that
//! make and read content. This module knows nothing of stores, runs or connections.
//!
//! Decoders allocate memory in proportion to the object, so the caller must limit the size of objects.

mod array;
mod entries;
mod error;
mod header;
mod json;
mod message;
mod record;
mod value;
mod verifier;

pub use array::{Array, ArrayChunk, MAX_ARRAY_CHUNKS, MAX_ARRAY_DIMENSIONS, MAX_CHUNK_BYTES};
pub use entries::{Entries, RepeatedName};
pub use error::{Malformed, ObjectError};
pub use header::{Header, MAX_HEADER_BYTES, ObjectKind};
pub use message::{Message, Payload};
pub use record::{ArrayRecord, RecordDict};
pub use value::{ConfigRecord, ConfigValue, MetricRecord, MetricValue};
pub use verifier::{Verifier, verify};

use bytes::Bytes;
use trellis_core::id::ObjectId;

/// Returns the id of an object: the SHA-256 of all its bytes.
pub fn object_id(bytes: &[u8]) -> ObjectId {
    ObjectId::new(trellis_digest::sha256(bytes))
}

/// Puts a header before the body. The children must be distinct, in the order of their first mention.
pub fn encode(kind: ObjectKind, children: &[ObjectId], body: &[u8]) -> Bytes {
    let mut object = Vec::with_capacity(header::encoded_len(children.len()) + body.len());
    header::write(&mut object, kind, children, body.len() as u64);
    object.extend_from_slice(body);
    object.into()
}

/// Splits an object into header and body without copying the body. Does not check the hash.
pub fn decode(object: &Bytes) -> Result<(Header, Bytes), ObjectError> {
    let (header, header_bytes) = Header::split(object)?.ok_or(Malformed::HeaderCutOff)?;
    let body = object.slice(header_bytes..);
    header.check_body_len(body.len() as u64)?;
    Ok((header, body))
}

/// Like [`decode`], for an expected kind. Returns the children and the body.
fn decode_kind(object: &Bytes, expected: ObjectKind) -> Result<(Vec<ObjectId>, Bytes), ObjectError> {
    let (header, body) = decode(object)?;
    if header.kind != expected {
        return Err(Malformed::WrongKind { expected, actual: header.kind }.into());
    }
    Ok((header.children, body))
}

/// A typed object.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    ArrayChunk(ArrayChunk),
    Array(Array),
    ArrayRecord(ArrayRecord),
    ConfigRecord(ConfigRecord),
    MetricRecord(MetricRecord),
    RecordDict(RecordDict),
    Message(Message),
}

impl Object {
    pub fn decode(object: &Bytes) -> Result<Self, ObjectError> {
        let (header, _) = Header::split(object)?.ok_or(Malformed::HeaderCutOff)?;
        Ok(match header.kind {
            ObjectKind::ArrayChunk => Self::ArrayChunk(ArrayChunk::decode(object)?),
            ObjectKind::Array => Self::Array(Array::decode(object)?),
            ObjectKind::ArrayRecord => Self::ArrayRecord(ArrayRecord::decode(object)?),
            ObjectKind::ConfigRecord => Self::ConfigRecord(ConfigRecord::decode(object)?),
            ObjectKind::MetricRecord => Self::MetricRecord(MetricRecord::decode(object)?),
            ObjectKind::RecordDict => Self::RecordDict(RecordDict::decode(object)?),
            ObjectKind::Message => Self::Message(Message::decode(object)?),
        })
    }

    pub const fn kind(&self) -> ObjectKind {
        match self {
            Self::ArrayChunk(_) => ObjectKind::ArrayChunk,
            Self::Array(_) => ObjectKind::Array,
            Self::ArrayRecord(_) => ObjectKind::ArrayRecord,
            Self::ConfigRecord(_) => ObjectKind::ConfigRecord,
            Self::MetricRecord(_) => ObjectKind::MetricRecord,
            Self::RecordDict(_) => ObjectKind::RecordDict,
            Self::Message(_) => ObjectKind::Message,
        }
    }

    pub fn encode(&self) -> Bytes {
        match self {
            Self::ArrayChunk(chunk) => chunk.encode(),
            Self::Array(array) => array.encode(),
            Self::ArrayRecord(record) => record.encode(),
            Self::ConfigRecord(record) => record.encode(),
            Self::MetricRecord(record) => record.encode(),
            Self::RecordDict(records) => records.encode(),
            Self::Message(message) => message.encode(),
        }
    }
}
