//! The front ends of the SuperLink: gRPC (Flower 1.25 to 1.39) and HTTP (1.35 to 1.42), on every port.
//!
//! `rpc` finds a call in its table, `sender` finds from the headers who sends it, `door` lets it in, its handler in `api`
//! reads it, and the answer is framed as the transport wants it. What differs between versions of Flower is in `dialect`, what differs between transports is in
//! `trellis_front`.

mod call;
mod connection;
mod door;
mod login;
mod objects;
mod pages;
mod refusal;
pub mod rpc;
mod sender;

pub use connection::{Front, Port};
