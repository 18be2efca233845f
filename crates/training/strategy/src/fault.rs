//! Why a round gives no model.

use std::fmt;
use std::io;

use trellis_core::id::NodeId;

use crate::model::Layout;
use crate::source::Unread;

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("array '{array}' of {whose} cannot be read")]
    Read {
        whose: Whose,
        array: String,
        #[source]
        source: io::Error,
    },
    #[error("the arrays of {whose} are not those of the model: {difference}")]
    Layout { whose: Whose, difference: String },
    #[error("no replies to aggregate")]
    NoReplies,
    #[error("{strategy} needs {needed} replies for the malicious nodes it shall withstand, and got {got}")]
    TooFew { strategy: &'static str, needed: usize, got: usize },
    #[error("{whose} has the weight {weight}; weights are finite and not negative")]
    Weight { whose: Whose, weight: f64 },
    #[error("the weights of all replies are 0: there is nothing to average")]
    NoWeight,
    #[error("{whose} does not tell its training loss, which {strategy} needs")]
    NoLoss { whose: Whose, strategy: &'static str },
    #[error("{whose} tells the training loss {loss}, which is not a finite number from 0 up")]
    Loss { whose: Whose, loss: f64 },
    #[error("what the strategy remembers does not fit the model: {0}")]
    State(String),
    #[error("the trees of {whose} are not one array of uint8: {difference}")]
    Trees { whose: Whose, difference: String },
    #[error("trees cannot be put together: {0}")]
    Bagging(String),
    #[error("a reply of this round could be read only in part: the round must be begun again")]
    Spoiled,
}

impl Fault {
    pub(crate) fn unread(unread: Unread, layout: &Layout, whose: impl Fn(usize) -> Whose) -> Self {
        let array = layout.0[unread.array].name.clone();
        Self::Read { whose: whose(unread.reply), array, source: unread.error }
    }
}

/// Who sent a reply, or, where that is not known, which one it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Node(NodeId),
    Reply(usize),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Reply(place) => write!(f, "reply {place}"),
        }
    }
}
