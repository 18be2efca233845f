//! Errors as codes of the two transports. Official clients act on the code: they retry UNAVAILABLE and 503 for ever,
//! PERMISSION_DENIED and 403 mean that the run is over, UNAUTHENTICATED and 401 end a node, any other code fails the
//! call for good. A transient error must therefore always be UNAVAILABLE or 503.

use std::error::Error as _;

use http::StatusCode;
use trellis_core::refusal::{Kind, Refusal};

use crate::Transport;

/// The gRPC codes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum GrpcCode {
    InvalidArgument = 3,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

pub fn grpc_code(kind: Kind) -> GrpcCode {
    match kind {
        Kind::Transient => GrpcCode::Unavailable,
        Kind::RunOver | Kind::Denied => GrpcCode::PermissionDenied,
        Kind::Unauthenticated => GrpcCode::Unauthenticated,
        Kind::Invalid => GrpcCode::InvalidArgument,
        Kind::Precondition => GrpcCode::FailedPrecondition,
        Kind::NotFound => GrpcCode::NotFound,
        Kind::Unimplemented => GrpcCode::Unimplemented,
        Kind::TooLarge => GrpcCode::ResourceExhausted,
    }
}

pub fn http_status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Transient => StatusCode::SERVICE_UNAVAILABLE,
        Kind::RunOver | Kind::Denied => StatusCode::FORBIDDEN,
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Precondition => StatusCode::PRECONDITION_FAILED,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

impl GrpcCode {
    pub fn name(self) -> &'static str {
        match self {
            GrpcCode::InvalidArgument => "INVALID_ARGUMENT",
            GrpcCode::NotFound => "NOT_FOUND",
            GrpcCode::PermissionDenied => "PERMISSION_DENIED",
            GrpcCode::ResourceExhausted => "RESOURCE_EXHAUSTED",
            GrpcCode::FailedPrecondition => "FAILED_PRECONDITION",
            GrpcCode::Unimplemented => "UNIMPLEMENTED",
            GrpcCode::Unavailable => "UNAVAILABLE",
            GrpcCode::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// Returns the outcome of a call as its transport names it, for metrics.
pub fn code_name(transport: Transport, kind: Option<Kind>) -> &'static str {
    match (transport, kind) {
        (Transport::Grpc, None) => "OK",
        (Transport::Grpc, Some(kind)) => grpc_code(kind).name(),
        (Transport::Http, None) => "200",
        (Transport::Http, Some(kind)) => match kind {
            Kind::Transient => "503",
            Kind::RunOver | Kind::Denied => "403",
            Kind::Unauthenticated => "401",
            Kind::Invalid => "400",
            Kind::Precondition => "412",
            Kind::NotFound => "404",
            Kind::Unimplemented => "501",
            Kind::TooLarge => "413",
        },
    }
}

/// Logs an error once: errors of the server, malformed calls, and failed authentication as warnings.
pub fn log(refusal: &Refusal, method: &str, is_about_identity: bool) {
    match refusal.kind {
        Kind::Transient => {
            let cause = refusal.source().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(method, error = %refusal, cause, "call refused temporarily");
        }
        Kind::Invalid | Kind::TooLarge => tracing::warn!(method, error = %refusal, "call refused"),
        _ if is_about_identity => tracing::warn!(method, error = %refusal, "call refused"),
        _ => tracing::debug!(method, error = %refusal, "call refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let expected = [
            (GrpcCode::Unavailable, 503),
            (GrpcCode::PermissionDenied, 403),
            (GrpcCode::PermissionDenied, 403),
            (GrpcCode::Unauthenticated, 401),
            (GrpcCode::InvalidArgument, 400),
            (GrpcCode::FailedPrecondition, 412),
            (GrpcCode::NotFound, 404),
            (GrpcCode::Unimplemented, 501),
            (GrpcCode::ResourceExhausted, 413),
        ];
        for (kind, (grpc, http)) in Kind::ALL.into_iter().zip(expected) {
            assert_eq!((grpc_code(kind), http_status(kind).as_u16()), (grpc, http), "{kind:?}");
            assert_eq!(code_name(Transport::Http, Some(kind)), http.to_string());
        }
    }
}
