//! The interface between the node and the runners of apps: warm workers, official app processes, and apps in Rust. Runners know
//! nothing of links, retries or the delivery of replies.

use std::path::PathBuf;

use trellis_wire::error_reply::ErrorCode;
use trellis_wire::proto;

/// One instruction to execute.
#[derive(Debug, Clone)]
pub struct Job {
    pub run: proto::Run,
    /// With its id in the metadata; its content is in the object files.
    pub instruction: proto::Message,
    pub tree: proto::ObjectTree,
    /// The state of the run on this node, with both configurations.
    pub context: proto::Context,
    /// `None` if the app is part of this program.
    pub app: Option<InstalledApp>,
}

impl Job {
    pub fn metadata(&self) -> &proto::Metadata {
        self.instruction.metadata.as_ref().expect("the intake refuses instructions without metadata")
    }
}

/// An app that was verified and unpacked.
#[derive(Debug, Clone, PartialEq)]
pub struct InstalledApp {
    /// SHA-256 of the bundle it came in, hexadecimal.
    pub hash: String,
    /// `publisher/name`.
    pub id: String,
    pub version: String,
    /// The directory with its files.
    pub directory: PathBuf,
    /// The bundle for official app processes, which unpack it themselves.
    pub bundle: PathBuf,
    /// `module:attribute`.
    pub client_app: String,
}

/// The result of an instruction. If the future is dropped, the app and all its child processes are killed.
#[derive(Debug)]
pub enum Outcome {
    Replied(Box<Reply>),
    /// The instruction is answered with this error.
    Failed {
        code: ErrorCode,
        reason: String,
    },
    /// The node is stopping, or the app cannot be started now: the instruction is retried later.
    Postponed {
        reason: String,
    },
}

/// A reply whose objects are all stored.
#[derive(Debug)]
pub struct Reply {
    /// With its id in the metadata, as it is sent.
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    /// The state for the next instruction of the run.
    pub context: proto::Context,
    /// The time that the app needed.
    pub runtime_s: f64,
}
