//! The front ends: gRPC (Flower 1.25 to 1.39) and HTTP (1.35 to 1.42), on every port, told apart by their first bytes.
//!
//! A call is read, its sender is checked, `rpc` finds its handler in `api`, and the answer is framed as the transport
//! wants it. What differs between versions of Flower is in `dialect`, what differs between transports is here.

mod answer;
mod call;
mod connection;
mod door;
mod grpc;
mod http;
mod listen;
mod login;
mod objects;
mod pages;
mod reader;
mod refusal;
pub mod rpc;
mod tls;

pub use connection::{Front, Port};
pub use listen::Listener;
pub use tls::{TlsError, TlsSettings};
