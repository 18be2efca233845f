//! The interface of an app, which handles instructions. It knows nothing of messages, objects or senders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trellis_wire::proto::Scalar;
use trellis_wire::records::Records;

/// An app in Rust. One value serves all instructions of a node, possibly several at a time. State that must outlive an
/// instruction belongs into [`Context::state`].
pub trait ClientApp: Send + Sync {
    /// Handles one instruction. May take any time, and should check [`Instruction::stop`] often.
    fn handle(&self, instruction: Instruction<'_>, context: &mut Context) -> Result<Records, AppError>;
}

#[derive(Debug, Clone, Copy)]
pub struct Instruction<'a> {
    pub kind: MessageKind,
    /// The part after the dot in `query.init`.
    pub action: Option<&'a str>,
    pub records: &'a Records,
    /// The round of training, if the instruction has one.
    pub round: Option<u64>,
    pub stop: &'a Stop,
}

/// The purpose of an instruction: the part before the dot of Flower's message type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Train,
    Evaluate,
    Query,
}

impl MessageKind {
    /// Splits a message type into kind and action; `None` if the type is not addressed to apps.
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

/// The configurations and the state that an instruction is handled with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Context {
    pub node_config: BTreeMap<String, Scalar>,
    pub run_config: BTreeMap<String, Scalar>,
    /// Preserved between the instructions of a run. If the app fails, changes of the state are discarded; changes of the
    /// configurations always are.
    pub state: Records,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppError {
    /// The instruction is answered with an error reply that has this reason.
    #[error("{0}")]
    Failed(String),
    /// The app was asked to stop; it sends no reply.
    #[error("stopped")]
    Stopped,
}

impl AppError {
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }
}

/// Asks an app to stop, because a deadline has passed or the node stops. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For long loops: `instruction.stop.check()?`.
    pub fn check(&self) -> Result<(), AppError> {
        if self.is_stopped() { Err(AppError::Stopped) } else { Ok(()) }
    }
}
