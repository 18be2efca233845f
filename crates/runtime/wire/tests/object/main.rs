//! The object encoding against what the official package made, against all spellings that must be refused, and against
//! itself.

mod bodies;
mod error_reply;
mod header;
mod vectors;
mod verifier;

use trellis_core::id::ObjectId;
use trellis_wire::object::{Malformed, ObjectError};

/// The reason an object was found malformed. Anything else fails the test.
fn malformed<T: std::fmt::Debug>(result: Result<T, ObjectError>) -> Malformed {
    match result {
        Err(ObjectError::Malformed(why)) => why,
        other => panic!("expected a malformed object, got {other:?}"),
    }
}

fn id(byte: u8) -> ObjectId {
    ObjectId::new([byte; 32])
}
