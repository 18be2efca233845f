//! What an app is: it carries out instructions. It knows nothing of messages, objects or who sent what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trellis_wire::proto::Scalar;
use trellis_wire::records::Records;

/// An app in Rust. One value serves all instructions of a node, also several at a time; what must outlive an instruction
/// belongs into [`Context::state`].
pub trait ClientApp: Send + Sync {
    /// Carries out one instruction. May take as long as the work takes, and should look at [`Instruction::stop`] often.
    fn handle(&self, instruction: Instruction<'_>, context: &mut Context) -> Result<Records, AppError>;
}

#[derive(Debug, Clone, Copy)]
pub struct Instruction<'a> {
    pub kind: MessageKind,
    /// What comes after the dot in `query.init`.
    pub action: Option<&'a str>,
    pub records: &'a Records,
    /// The round of training, where the instruction says so.
    pub round: Option<u64>,
    pub stop: &'a Stop,
}

/// What an instruction is for: the part before the dot of Flower's message type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Train,
    Evaluate,
    Query,
}

impl MessageKind {
    /// Splits a message type into kind and action; `None` if it is none that apps get.
    pub fn split(message_type: &str) -> Option<(Self, Option<&str>)> {
        let (kind, action) = match message_type.split_once('.') {
            Some((kind, action)) => (kind, Some(action)),
            None => (message_type, None),
        };
        let kind = match kind {
            "train" => Self::Train,
            "evaluate" => Self::Evaluate,
            "query" => Self::Query,
            _ => return None,
        };
        Some((kind, action))
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Evaluate => "evaluate",
            Self::Query => "query",
        }
    }
}

/// Where and for what the app works.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Context {
    pub node_config: BTreeMap<String, Scalar>,
    pub run_config: BTreeMap<String, Scalar>,
    /// Kept between the instructions of a run, unless one fails: then it is as it was before. Changes of the
    /// configurations are not kept.
    pub state: Records,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppError {
    /// The instruction is answered with this reason.
    #[error("{0}")]
    Failed(String),
    /// The app was told to stop, and did; the instruction is not answered by it.
    #[error("stopped")]
    Stopped,
}

impl AppError {
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }
}

/// Tells an app that nobody waits for it any more: a deadline has passed, or the node stops. Copies tell the same.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// To be asked within long loops: `instruction.stop.check()?`.
    pub fn check(&self) -> Result<(), AppError> {
        if self.is_stopped() { Err(AppError::Stopped) } else { Ok(()) }
    }
}
