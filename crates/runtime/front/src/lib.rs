//! Calls over gRPC (Flower 1.25 to 1.39) and HTTP (1.35 to 1.42) on one port. The first bytes tell them apart. This
//! crate handles connections, requests, answers and errors.
//!
//! A [`Service`] defines which calls exist, what they mean and who may send them.

pub mod answer;
pub mod grpc;
pub mod hosts;
pub mod http;
pub mod listen;
pub mod object;
pub mod reader;
pub mod refusal;
pub mod serve;
pub mod sources;
pub mod superexec;
pub mod tls;

pub use answer::{Answer, Payload, Rest};
pub use hosts::{HostError, Hosts};
pub use listen::{ConnectionHandle, ConnectionId, Keepalive, Listener};
pub use reader::{MessageReader, decode, malformed};
pub use serve::{Peer, Service, serve};
pub use sources::{Allowance, Rate, Share, Source};
pub use superexec::{SignedBody, SuperexecSecret};
pub use tls::{TlsError, TlsSettings};

/// The transport of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    Grpc,
    Http,
}

impl Transport {
    pub fn of(headers: &::http::HeaderMap) -> Transport {
        if grpc::is_grpc(headers) { Transport::Grpc } else { Transport::Http }
    }

    pub fn name(self) -> &'static str {
        match self {
            Transport::Grpc => "grpc",
            Transport::Http => "http",
        }
    }
}
