//! The link core: what a SuperLink decides, without saying how it is asked or where it is kept.
//!
//! Two layers. The machines ([`node`], [`run`], [`token`], [`message`], [`object`], [`account`], [`secret`]) say which
//! step may follow which. The transactions ([`fleet`], [`app`], [`control`], [`access`], [`upkeep`], and those of
//! [`account`] and [`report`]) apply them to what a [`port::Tx`] holds; each of them is one atomic change, and each may be
//! asked again after a crash without harm. What they change about who is who, they tell [`audit`].
//!
//! Nothing here knows of tokio, sockets, files, clocks or protobuf. Time and randomness arrive as arguments.

pub mod access;
pub mod account;
pub mod app;
pub mod audit;
pub mod awaited;
pub mod census;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod control;
pub mod fleet;
pub mod id;
pub mod message;
pub mod node;
pub mod object;
pub mod port;
pub mod refusal;
pub mod report;
pub mod run;
pub mod secret;
pub mod token;
pub mod upkeep;

/// Seconds since the Unix epoch, as Flower counts them.
pub type Seconds = f64;

/// A step that a machine does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not possible while {state}")]
pub struct Illegal {
    pub state: &'static str,
    pub event: &'static str,
}
