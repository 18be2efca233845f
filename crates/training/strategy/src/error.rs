//! Why the replies of a round cannot be aggregated.

use std::fmt;
use std::io;

use trellis_core::id::NodeId;

use crate::model::Layout;
use crate::source::ReadError;

#[derive(Debug, thiserror::Error)]
pub enum AggregateError {
    #[error("array '{array}' of {sender} cannot be read")]
    Read {
        sender: Sender,
        array: String,
        #[source]
        source: io::Error,
    },
    #[error("the arrays of {sender} do not match those of the model: {difference}")]
    Layout { sender: Sender, difference: String },
    #[error("no replies to aggregate")]
    NoReplies,
    #[error("{strategy} needs {needed} replies to tolerate the configured number of malicious nodes, and got {got}")]
    TooFew { strategy: &'static str, needed: usize, got: usize },
    #[error("{sender} has the weight {weight}; weights must be finite and non-negative")]
    Weight { sender: Sender, weight: f64 },
    #[error("the weights of all replies are 0: there is nothing to average")]
    NoWeight,
    #[error("{sender} did not report its training loss, which {strategy} needs")]
    NoLoss { sender: Sender, strategy: &'static str },
    #[error("{sender} reported the training loss {loss}; a finite, non-negative number is required")]
    Loss { sender: Sender, loss: f64 },
    #[error("the state of the strategy does not match the model: {0}")]
    State(String),
    #[error("the trees of {sender} are not one array of uint8: {difference}")]
    Trees { sender: Sender, difference: String },
    #[error("the trees cannot be joined: {0}")]
    Bagging(String),
    #[error("a reply of this round was read only partially: the round must be repeated")]
    Aborted,
}

impl AggregateError {
    pub(crate) fn read(error: ReadError, layout: &Layout, sender: impl Fn(usize) -> Sender) -> Self {
        let array = layout.0[error.array].name.clone();
        Self::Read { sender: sender(error.reply), array, source: error.error }
    }
}

/// The sender of a reply, or its position if the sender is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Node(NodeId),
    Reply(usize),
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Reply(place) => write!(f, "reply {place}"),
        }
    }
}
