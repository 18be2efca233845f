//! Errors of a node's calls, by what the node can do about them.

use std::io;
use std::time::Duration;

use tokio_rustls::rustls::{self, AlertDescription};

use crate::error::{Error, tls_cause};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The link does not work just now. The same call may work later, without anything being changed.
    #[error("{endpoint} cannot be reached for {call}: {why}")]
    Unreachable { endpoint: String, call: &'static str, why: String },

    /// The SuperLink has no use for this run any more, or never had it.
    #[error("{endpoint} has ended the run ({call}): {why}")]
    RunOver { endpoint: String, call: &'static str, why: String },

    /// The SuperLink does not know this node or its key, or considers it offline.
    #[error("{endpoint} does not know this node ({call}): {why}")]
    NotKnown { endpoint: String, call: &'static str, remedy: Remedy, why: String },

    /// The endpoint is not the expected SuperLink, or not in the expected way. An operator must change an address, a certificate
    /// or a setting.
    #[error("{endpoint} cannot be used: {why}")]
    Misdirected { endpoint: String, call: &'static str, why: String },

    /// Anything else. With `is_fault` the SuperLink itself failed, and may do better next time.
    #[error("{endpoint} refused {call}: {why}")]
    Refused { endpoint: String, call: &'static str, is_fault: bool, why: String },
}

/// How the node becomes known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Activate again, and use the returned id.
    Activate,
    /// The key is unknown: the node registers it if it may, otherwise an operator does. Then activate.
    Register,
    /// The SuperLink considers the node online: another process has the key, or this one was restarted. After at most two
    /// heartbeat intervals without a heartbeat the node can activate.
    Wait,
    /// One of the two before; Flower 1.36 and later do not say which. A registration decides: if it succeeds, the key was
    /// unknown; if the key is in use, wait.
    RegisterOrWait,
    /// The node can do nothing: an operator must register the key, or correct this machine's clock or key.
    Person,
}

impl FleetError {
    /// Whether the same call may succeed later without a change by an operator.
    pub fn may_pass(&self) -> bool {
        matches!(self, FleetError::Unreachable { .. } | FleetError::Refused { is_fault: true, .. })
    }
}

/// Why there is no answer at all.
#[derive(Debug)]
pub(crate) enum Failure {
    Connection(Error),
    /// The connection broke.
    Disconnected(String),
    /// No progress for this long.
    Silent(Duration),
    /// The response is invalid.
    Strange(String),
    /// A message is longer than can be.
    TooLong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Connection(error)
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Failure {
        match error.is_parse() {
            true => Failure::Strange(format!("its answer is not HTTP: {}", chain(&error))),
            false => Failure::Disconnected(chain(&error)),
        }
    }
}

impl Failure {
    fn describe(&self) -> String {
        match self {
            Failure::Connection(Error::Distrusted { why, .. }) => format!("it is not trusted: {why}"),
            Failure::Connection(Error::NotTls { .. }) => "it does not answer with TLS".to_owned(),
            Failure::Connection(error) => chain(error),
            Failure::Disconnected(why) => format!("the connection broke: {why}"),
            Failure::Silent(limit) => format!("no answer within {} s", limit.as_secs_f64()),
            Failure::Strange(what) | Failure::TooLong(what) => what.clone(),
        }
    }

    /// Its meaning for the node.
    pub fn to_error(&self, endpoint: String, call: &'static str) -> FleetError {
        let why = self.describe();
        match self {
            Failure::TooLong(_) => FleetError::Refused { endpoint, call, is_fault: false, why },
            Failure::Strange(_) | Failure::Connection(Error::Distrusted { .. } | Error::NotTls { .. }) => {
                FleetError::Misdirected { endpoint, call, why }
            }
            Failure::Connection(Error::Tls { source, .. }) if is_disagreement(source) => {
                FleetError::Misdirected { endpoint, call, why }
            }
            _ => FleetError::Unreachable { endpoint, call, why },
        }
    }
}

/// Whether the peer supports none of the offered protocols.
fn is_disagreement(error: &io::Error) -> bool {
    matches!(tls_cause(error), Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
}

/// An error with everything that caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        // Some errors include their cause already.
        if !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
}
