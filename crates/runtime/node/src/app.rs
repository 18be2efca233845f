//! What the node asks of those who carry out instructions, whichever they are: warm workers, official app processes, or
//! apps in Rust. They know nothing of links, retries or what becomes of the reply.

use std::path::PathBuf;

use trellis_wire::error_reply::ErrorCode;
use trellis_wire::proto;

/// One instruction to carry out.
#[derive(Debug, Clone)]
pub struct Job {
    pub run: proto::Run,
    /// As it came, with its id in the metadata; the content lies in the object files.
    pub instruction: proto::Message,
    pub tree: proto::ObjectTree,
    /// The run's state on this node, with both configurations filled in.
    pub context: proto::Context,
    /// `None` where the app is part of this program.
    pub app: Option<InstalledApp>,
}

impl Job {
    pub fn metadata(&self) -> &proto::Metadata {
        self.instruction.metadata.as_ref().expect("instructions without metadata are not taken")
    }
}

/// An app that was unpacked and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct InstalledApp {
    /// SHA-256 of the bundle it came in, hexadecimal.
    pub hash: String,
    /// `publisher/name`.
    pub id: String,
    pub version: String,
    /// Where its files are.
    pub directory: PathBuf,
    /// The bundle itself, for official apps: they unpack it themselves.
    pub bundle: PathBuf,
    /// `module:attribute`.
    pub client_app: String,
}

/// How it went. An app that is given up (the future is dropped) is ended, with everything it started.
#[derive(Debug)]
pub enum Outcome {
    Replied(Box<Reply>),
    /// The instruction is answered with an error.
    Failed {
        code: ErrorCode,
        reason: String,
    },
    /// The node is stopping, or the app could not be started just now: the instruction is carried out later, again.
    Postponed {
        reason: String,
    },
}

/// A reply whose objects are all among the object files.
#[derive(Debug)]
pub struct Reply {
    /// With its id in the metadata, as it goes over the wire.
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    /// To be kept for the next instruction of the run.
    pub context: proto::Context,
    /// Seconds that the app worked.
    pub runtime_s: f64,
}
