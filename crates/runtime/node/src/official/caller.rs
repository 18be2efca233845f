//! Who sends a call. Its checks are the only way to a job.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{Line, Transport};

use super::assignment::Assignment;
use super::rpc::Rpc;
use super::service::Server;

/// The headers that the token of an app comes in: 1.30 and later, 1.28 and 1.29.
const TASK_TOKEN: &str = "flwr-task-token";
const APP_TOKEN: &str = "flwr-app-token";

pub struct Caller {
    pub server: Arc<Server>,
    pub rpc: &'static Rpc,
    pub transport: Transport,
    pub headers: HeaderMap,
    pub line: Line,
}

impl Caller {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the sender speaks the dialect of 1.30 and later.
    pub fn is_task(&self) -> bool {
        self.transport == Transport::Http || self.headers.contains_key(TASK_TOKEN)
    }

    /// The task of the token in the headers; `None` where a dialect has none there.
    pub fn task_by_header(&self) -> Result<Option<u64>, Refusal> {
        match self.header(TASK_TOKEN).or_else(|| self.header(APP_TOKEN)) {
            Some(token) => match self.server.board.by_token(token) {
                Some(task) => Ok(Some(task)),
                None => Err(Refusal::new(Kind::Unauthenticated, "the task token is not, or no longer, good")),
            },
            None if self.transport == Transport::Grpc => Ok(None),
            None => Err(Refusal::new(Kind::Unauthenticated, "the task token is missing")),
        }
    }

    /// The task whose app calls. Up to 1.27 the token comes with the message alone.
    pub fn task(&self, token: &str) -> Result<u64, Refusal> {
        match self.task_by_header()? {
            Some(task) => Ok(task),
            None => self.server.board.by_token(token).ok_or_else(invalid_token),
        }
    }

    /// The tasks that a call for an object may be about: the one of the token, or those of the run that the message names.
    pub fn tasks(&self, run: u64) -> Result<Vec<u64>, Refusal> {
        match self.task_by_header()? {
            Some(task) => Ok(vec![task]),
            None => Ok(self.server.board.by_name(run)),
        }
    }

    /// Does something with the assignment of a task.
    pub fn with<T>(&self, task: u64, act: impl FnOnce(&mut Assignment, f64) -> T) -> Result<T, Refusal> {
        self.server.board.with(task, act).ok_or_else(invalid_token)
    }

    /// Whether the sender may take jobs: anybody who reaches this port, unless there is a secret to know.
    pub fn check_launcher(&self, body: &Bytes) -> Result<(), Refusal> {
        match &self.server.secret {
            // The name is the same whatever the transport, and whatever the service was called before.
            Some(secret) => secret.check(&self.headers, &["Runtime", "ClientAppIo"], self.rpc.name, body),
            None => Ok(()),
        }
    }
}

fn invalid_token() -> Refusal {
    Refusal::new(Kind::Denied, "Invalid token.")
}
