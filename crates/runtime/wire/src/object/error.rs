//! Errors of objects. The front end maps them to reply codes.

use trellis_core::id::ObjectId;

use super::header::{MAX_HEADER_BYTES, ObjectKind};

/// Why an object is refused. The two cases have different answers on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The bytes do not have the expected id.
    #[error("object {expected} was expected, but the content is that of {actual}")]
    HashMismatch { expected: ObjectId, actual: ObjectId },
    /// The bytes are not a valid object.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// What is wrong with the bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the header of an object does not end within {MAX_HEADER_BYTES} bytes")]
    HeaderTooLong,
    #[error("the object ends within its header")]
    HeaderCutOff,
    #[error("the header of an object is not of the form `kind children length`")]
    HeaderForm,
    #[error("unknown kind of object {0:?}")]
    UnknownKind(String),
    #[error("child {index} in the header of an object is not an object id")]
    ChildId { index: usize },
    #[error("child {0} is named twice in the header of an object")]
    RepeatedChild(ObjectId),
    #[error("the body length in the header of an object is not a plain decimal number")]
    BodyLength,
    #[error("the body of the object is longer than the {announced} bytes announced")]
    BodyTooLong { announced: u64 },
    #[error("the body of the object has {received} bytes where {announced} were announced")]
    BodyTooShort { announced: u64, received: u64 },
    #[error("the object is of kind {actual} where {expected} was expected")]
    WrongKind { expected: ObjectKind, actual: ObjectKind },
    #[error("the body of the {kind} is wrong: {reason}")]
    Body { kind: ObjectKind, reason: String },
}

impl Malformed {
    pub(super) fn body(kind: ObjectKind, reason: impl ToString) -> ObjectError {
        Self::Body { kind, reason: reason.to_string() }.into()
    }
}
