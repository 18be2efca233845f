//! The status of a node. Its JSON is a contract with scripts (docs/supernode.md): ids are strings, because many readers support
//! only 53-bit numbers, and times are Unix times in seconds.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trellis_core::Seconds;
use trellis_core::id::{NodeId, RunId};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub started_at: Seconds,
    pub state_dir: PathBuf,
    /// `host:port`
    pub superlink: String,
    /// `None` until the SuperLink has assigned it.
    #[serde(with = "as_text::node")]
    pub node_id: Option<NodeId>,
    pub node_name: Option<String>,
    pub link: Link,
    /// The node takes no new work.
    #[serde(default)]
    pub draining: bool,
    /// A pull is open, so new work may still arrive.
    #[serde(default)]
    pub asking: bool,
    pub instructions_under_way: u64,
    pub runs: Vec<RunStatus>,
    pub replies: Replies,
    pub apps: Vec<AppStatus>,
    pub gpu: Gpu,
    /// Restrictions of the apps that the node starts; `None` if it starts none.
    #[serde(default)]
    pub sandbox: Option<trellis_sandbox::Level>,
    pub disk: Disk,
}

impl Status {
    /// Whether no instruction is active or may arrive, and all replies are delivered.
    pub fn is_drained(&self) -> bool {
        self.draining && !self.asking && self.instructions_under_way == 0 && self.replies.waiting == 0
    }
}

/// The request body of `/drain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    pub drain: bool,
}

/// The answer of `/drain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    pub draining: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Link {
    /// The first attempt is in progress.
    Connecting {
        since: Seconds,
    },
    Connected {
        since: Seconds,
        transport: Transport,
    },
    Disconnected {
        since: Seconds,
        /// The error of the last attempt.
        why: String,
        retry_at: Seconds,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Grpc,
    Http,
}

impl Transport {
    pub fn word(self) -> &'static str {
        match self {
            Transport::Grpc => "grpc",
            Transport::Http => "http",
        }
    }
}

/// The work of the node for a run since its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    #[serde(with = "as_text::run")]
    pub run_id: RunId,
    pub under_way: u64,
    pub replied: u64,
    pub failed: u64,
    /// The time of the last event.
    pub heard_at: Seconds,
}

/// The undelivered replies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Replies {
    pub waiting: u64,
    pub bytes: u64,
    pub oldest_at: Option<Seconds>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppStatus {
    /// `None` if the app is part of the node, or runs on another machine.
    pub pid: Option<u32>,
    #[serde(with = "as_text::run")]
    pub run_id: RunId,
    pub rss_bytes: Option<u64>,
    pub state: AppState,
    /// The time of its start.
    pub since: Seconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppState {
    Starting,
    Idle,
    Working,
}

impl AppState {
    pub const ALL: [AppState; 3] = [AppState::Starting, AppState::Idle, AppState::Working];

    pub fn word(self) -> &'static str {
        match self {
            AppState::Starting => "starting",
            AppState::Idle => "idle",
            AppState::Working => "working",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Gpu {
    /// Determined by the environment of the node.
    NotAsked,
    /// Apps see these devices, named as in CUDA_VISIBLE_DEVICES.
    Ready { devices: Vec<String> },
    /// Requested GPUs are missing.
    Missing { why: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Disk {
    pub used_bytes: u64,
    pub limit_bytes: u64,
}

/// Ids as strings.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer};

    fn number<'de, D: Deserializer<'de>>(text: &str) -> Result<u64, D::Error> {
        text.parse().map_err(|_| D::Error::custom("an id must be a number, as text"))
    }

    pub mod run {
        use serde::Serializer;

        use super::*;
        use crate::watch::RunId;

        pub fn serialize<S: Serializer>(id: &RunId, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(id)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunId, D::Error> {
            number::<D>(&String::deserialize(deserializer)?).map(RunId)
        }
    }

    pub mod node {
        use serde::{Serialize, Serializer};

        use super::*;
        use crate::watch::NodeId;

        pub fn serialize<S: Serializer>(id: &Option<NodeId>, serializer: S) -> Result<S::Ok, S::Error> {
            id.map(|id| id.to_string()).serialize(serializer)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NodeId>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| number::<D>(&text).map(NodeId)).transpose()
        }
    }
}
