//! Error codes and messages of oned.

use super::Id;

pub const AUTHENTICATION: i32 = 256;
pub const AUTHORIZATION: i32 = 512;
pub const NO_EXISTS: i32 = 1024;
pub const ACTION: i32 = 2048;
pub const RPC_API: i32 = 4096;
pub const INTERNAL: i32 = 8192;
pub const ALLOCATE: i32 = 16384;

/// The message follows the name of the method, which only the caller knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub code: i32,
    pub message: String,
    pub object: Id,
}

impl Refused {
    pub fn new(code: i32, message: impl Into<String>) -> Refused {
        Refused { code, message: message.into(), object: -1 }
    }

    pub fn missing(kind: &str, id: Id) -> Refused {
        Refused { code: NO_EXISTS, message: format!("Error getting {kind} [{id}]."), object: id }
    }

    pub fn allocate(kind: &str, why: &str) -> Refused {
        Refused::new(ALLOCATE, format!("Error allocating a new {kind}. {why}"))
    }

    pub fn unauthorised(uid: Id, why: &str) -> Refused {
        Refused::new(AUTHORIZATION, format!("User [{uid}] : {why}."))
    }
}
