//! Why a call of a node has no good answer. Each kind asks something else of the node; what it does then is not known here.

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

    /// The SuperLink does not know this node or its key, or not as one that is present.
    #[error("{endpoint} does not know this node ({call}): {why}")]
    NotKnown { endpoint: String, call: &'static str, remedy: Remedy, why: String },

    /// What answers there is not the SuperLink that was meant, or not in the way that was meant. Somebody must change an
    /// address, a certificate or a setting, here or there.
    #[error("{endpoint} cannot be used: {why}")]
    Misdirected { endpoint: String, call: &'static str, why: String },

    /// Anything else. With `is_fault` the SuperLink itself failed, and may do better next time.
    #[error("{endpoint} refused {call}: {why}")]
    Refused { endpoint: String, call: &'static str, is_fault: bool, why: String },
}

/// What makes a node known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The node activates itself again, and keeps the id that it is given then.
    Activate,
    /// The key is not known: the node registers it, where it may, or somebody does. Then it activates itself.
    Register,
    /// The SuperLink believes that the node is present: another process has the key, or this one died lately. After at most
    /// two heartbeat intervals without a heartbeat the node can activate itself.
    Wait,
    /// One of the two before: the SuperLink (Flower 1.36 and later) does not say which. A registration tells: where it
    /// succeeds the key was not known, where the key is in use there is nothing but to wait.
    RegisterOrWait,
    /// The node can do nothing: the key must be registered by somebody, or this machine's clock or key is wrong.
    Person,
}

impl FleetError {
    /// Whether the same call may succeed later, without anything being changed by anybody.
    pub fn may_pass(&self) -> bool {
        matches!(self, FleetError::Unreachable { .. } | FleetError::Refused { is_fault: true, .. })
    }
}

/// Why there is no answer at all.
#[derive(Debug)]
pub(crate) enum Trouble {
    Connection(Error),
    /// The connection broke.
    Hungup(String),
    /// Nothing moved for this long.
    Silent(Duration),
    /// What came is no answer.
    Strange(String),
    /// A message is longer than can be.
    TooLong(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Connection(error)
    }
}

impl From<hyper::Error> for Trouble {
    fn from(error: hyper::Error) -> Trouble {
        match error.is_parse() {
            true => Trouble::Strange(format!("its answer is no HTTP: {}", chain(&error))),
            false => Trouble::Hungup(chain(&error)),
        }
    }
}

impl Trouble {
    fn describe(&self) -> String {
        match self {
            Trouble::Connection(Error::Distrusted { why, .. }) => format!("it is not trusted: {why}"),
            Trouble::Connection(Error::NotTls { .. }) => "it does not answer with TLS".to_owned(),
            Trouble::Connection(error) => chain(error),
            Trouble::Hungup(why) => format!("the connection broke: {why}"),
            Trouble::Silent(limit) => format!("no answer within {} s", limit.as_secs_f64()),
            Trouble::Strange(what) | Trouble::TooLong(what) => what.clone(),
        }
    }

    /// What it means for the node.
    pub fn to_error(&self, endpoint: String, call: &'static str) -> FleetError {
        let why = self.describe();
        match self {
            Trouble::TooLong(_) => FleetError::Refused { endpoint, call, is_fault: false, why },
            Trouble::Strange(_) | Trouble::Connection(Error::Distrusted { .. } | Error::NotTls { .. }) => {
                FleetError::Misdirected { endpoint, call, why }
            }
            Trouble::Connection(Error::Tls { source, .. }) if is_disagreement(source) => {
                FleetError::Misdirected { endpoint, call, why }
            }
            _ => FleetError::Unreachable { endpoint, call, why },
        }
    }
}

/// Whether the other side speaks none of the protocols that were offered.
fn is_disagreement(error: &io::Error) -> bool {
    matches!(tls_cause(error), Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
}

/// An error with everything that caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        // Some errors tell their cause themselves.
        if !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
}
