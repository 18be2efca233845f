//! Error replies: messages that say why there will be no other reply. The caller decides when to send one and chooses
//! its reason.

use bytes::Bytes;
use trellis_core::id::ObjectId;

use crate::object::{Message, Payload, object_id};
use crate::proto;

/// The error of a message without content. The numbers are Flower's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorCode {
    Unknown = 0,
    LoadClientAppException = 1,
    ClientAppRaisedException = 2,
    MessageUnavailable = 3,
    ReplyMessageUnavailable = 4,
    NodeUnavailable = 5,
    ModFailedPrecondition = 6,
    InvalidFab = 7,
    ClientAppCrashed = 8,
}

impl ErrorCode {
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::LoadClientAppException,
        Self::ClientAppRaisedException,
        Self::MessageUnavailable,
        Self::ReplyMessageUnavailable,
        Self::NodeUnavailable,
        Self::ModFailedPrecondition,
        Self::InvalidFab,
        Self::ClientAppCrashed,
    ];

    pub const fn number(self) -> i64 {
        self as i64
    }
}

/// Makes an error reply: its id, its object, and the wire message with the id. Ignores the id in `metadata`.
pub fn error_message(metadata: proto::Metadata, code: ErrorCode, reason: &str) -> (ObjectId, Bytes, proto::Message) {
    let error = proto::Error { code: code.number(), reason: reason.to_owned() };
    let message = Message { metadata, payload: Payload::Error(error.clone()) };
    let object = message.encode();
    let id = object_id(&object);
    let metadata = proto::Metadata { message_id: id.to_string(), ..message.metadata };
    (id, object, proto::Message { metadata: Some(metadata), content: None, error: Some(error) })
}
