//! Refusals as gRPC codes. Official clients act on the code: UNAVAILABLE is tried again for ever, PERMISSION_DENIED
//! means that the run is over, anything else ends a SuperNode's call for good. So a fault that may pass must never
//! leave here as anything but UNAVAILABLE.

use std::error::Error as _;

use tonic::{Code, Status};
use trellis_core::refusal::{Kind, Refusal};

/// The one table.
pub fn code(kind: Kind) -> Code {
    match kind {
        Kind::Transient => Code::Unavailable,
        Kind::RunOver | Kind::Denied => Code::PermissionDenied,
        Kind::Unauthenticated => Code::Unauthenticated,
        Kind::Invalid => Code::InvalidArgument,
        Kind::Precondition => Code::FailedPrecondition,
        Kind::NotFound => Code::NotFound,
        Kind::Unimplemented => Code::Unimplemented,
        Kind::TooLarge => Code::ResourceExhausted,
    }
}

/// The answer to a refused call; faults of ours are logged here, once.
pub fn status(refusal: Refusal) -> Status {
    match refusal.kind {
        Kind::Transient => {
            let cause = refusal.source().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(error = %refusal, cause, "call refused for now");
        }
        Kind::Unauthenticated | Kind::Invalid | Kind::TooLarge => tracing::warn!(error = %refusal, "call refused"),
        _ => tracing::debug!(error = %refusal, "call refused"),
    }
    Status::new(code(refusal.kind), refusal.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let expected = [
            Code::Unavailable,
            Code::PermissionDenied,
            Code::PermissionDenied,
            Code::Unauthenticated,
            Code::InvalidArgument,
            Code::FailedPrecondition,
            Code::NotFound,
            Code::Unimplemented,
            Code::ResourceExhausted,
        ];
        for (kind, want) in Kind::ALL.into_iter().zip(expected) {
            assert_eq!(code(kind), want, "{kind:?}");
            assert!(!matches!(code(kind), Code::Internal | Code::Unknown | Code::Cancelled), "kills official nodes");
        }
    }
}
