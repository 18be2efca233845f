//! The object of a message. Its id is the id of the message, so the message does not hold its own id.

use bytes::Bytes;
use prost::Message as _;
use trellis_core::id::ObjectId;

use super::error::{Malformed, ObjectError};
use super::header::ObjectKind;
use super::{decode_kind, encode};
use crate::proto;

/// A message: its metadata, and either its content (a RecordDict object) or an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// `message_id` is not part of the object: `encode` ignores it, `decode` leaves it empty.
    pub metadata: proto::Metadata,
    pub payload: Payload,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    Content(ObjectId),
    Error(proto::Error),
}

impl Message {
    pub fn encode(&self) -> Bytes {
        let metadata = proto::Metadata { message_id: String::new(), ..self.metadata.clone() };
        let (children, error) = match &self.payload {
            Payload::Content(id) => (vec![*id], None),
            Payload::Error(error) => (Vec::new(), Some(error.clone())),
        };
        let body = proto::Message { metadata: Some(metadata), content: None, error };
        encode(ObjectKind::Message, &children, &body.encode_to_vec())
    }

    pub fn decode(object: &Bytes) -> Result<Self, ObjectError> {
        let wrong = |reason: &str| Malformed::body(ObjectKind::Message, reason);
        let (children, body) = decode_kind(object, ObjectKind::Message)?;
        let body = proto::Message::decode(body).map_err(|why| Malformed::body(ObjectKind::Message, why))?;
        let metadata = body.metadata.ok_or_else(|| wrong("no metadata"))?;
        if !metadata.message_id.is_empty() {
            return Err(wrong("it holds its own id"));
        }
        if body.content.is_some() {
            return Err(wrong("the content is inside it instead of a child"));
        }
        let payload = match (&children[..], body.error) {
            ([content], None) => Payload::Content(*content),
            ([], Some(error)) => Payload::Error(error),
            _ => return Err(wrong("neither one child nor an error alone")),
        };
        Ok(Self { metadata, payload })
    }
}
