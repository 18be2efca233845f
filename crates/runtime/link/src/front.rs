//! The front ends of the SuperLink: gRPC (Flower 1.25 to 1.39) and HTTP (1.35 to 1.42), on every port.
//!
//! `rpc` finds a call in its table, `sender` identifies the sender from the headers, `admission` admits the call, its
//! handler in `api` processes it, and the transport frames the response. Differences between releases of Flower are in
//! `dialect`, differences between transports in `trellis_front`.

mod admission;
mod call;
mod connection;
mod login;
mod objects;
mod pages;
mod refusal;
pub mod rpc;
mod sender;

pub use connection::{Front, Port};
