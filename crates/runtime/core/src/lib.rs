//! The core of the SuperLink: its decisions, without transports and storage.
//!
//! There are two layers. State machines ([`node`], [`run`], [`token`], [`message`], [`object`], [`account`],
//! [`secret`]) define the legal transitions. Transactions ([`fleet`], [`app`], [`control`], [`access`], [`upkeep`], and
//! those of [`account`] and [`report`]) apply them to the rows of a [`port::Tx`]. Each transaction is atomic and
//! idempotent, so it may be retried after a crash. [`audit`] records changes of nodes, accounts and secrets.
//!
//! The core knows nothing of tokio, sockets, files, clocks or protobuf. Time and randomness are arguments.
//!
//! # Invariants
//! - A node that is removed and an account that is disabled have no rights from that commit on: held calls wake and
//!   check again.
//! - An object lives exactly as long as a parent or a message refers to it. An announcement of objects counts in its
//!   scope (run, sender); content is shared between scopes, and defines the children of an object.
//! - A change of nodes, accounts or secrets and its audit entry are one commit. Refused calls never evict other audit
//!   entries.
//! - Secrets are known by their SHA-256 only. A caller with an invalid secret gets the same answer whatever the
//!   reason; the reason is in the source of the error, for the audit log.
//! - An instruction has one reply: the first complete one. A message is delivered only when every object below it is
//!   stored.
//! - Confirmations are the only writes that are not waited for: a lost one costs a redelivery, never a message.

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

/// A transition that a state machine does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not possible while {state}")]
pub struct IllegalTransition {
    pub state: &'static str,
    pub event: &'static str,
}
