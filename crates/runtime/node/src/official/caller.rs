//! The sender of a call. Its checks are the only access to jobs.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{ConnectionHandle, Transport};

use super::assignment::Assignment;
use super::rpc::Rpc;
use super::service::Server;

/// The headers with the token of an app: from 1.30, and in 1.28 and 1.29.
const TASK_TOKEN: &str = "flwr-task-token";
const APP_TOKEN: &str = "flwr-app-token";

pub struct Caller {
    pub server: Arc<Server>,
    pub rpc: &'static Rpc,
    pub transport: Transport,
    pub headers: HeaderMap,
    pub connection: ConnectionHandle,
}

impl Caller {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the sender uses the dialect of 1.30 and later.
    pub fn is_task(&self) -> bool {
        self.transport == Transport::Http || self.headers.contains_key(TASK_TOKEN)
    }

    /// The task of the token in the headers; `None` if the dialect has none there.
    pub fn task_by_header(&self) -> Result<Option<u64>, Refusal> {
        match self.header(TASK_TOKEN).or_else(|| self.header(APP_TOKEN)) {
            Some(token) => match self.server.queue.by_token(token) {
                Some(task) => Ok(Some(task)),
                None => Err(Refusal::new(Kind::Unauthenticated, "the task token is invalid or has expired")),
            },
            None if self.transport == Transport::Grpc => Ok(None),
            None => Err(Refusal::new(Kind::Unauthenticated, "the task token is missing")),
        }
    }

    /// The task of the calling app. Up to 1.27 the token is only in the message.
    pub fn task(&self, token: &str) -> Result<u64, Refusal> {
        match self.task_by_header()? {
            Some(task) => Ok(task),
            None => self.server.queue.by_token(token).ok_or_else(invalid_token),
        }
    }

    /// The tasks that a call for an object may refer to: that of the token, or those of the run in the message.
    pub fn tasks(&self, run: u64) -> Result<Vec<u64>, Refusal> {
        match self.task_by_header()? {
            Some(task) => Ok(vec![task]),
            None => Ok(self.server.queue.by_name(run)),
        }
    }

    /// Calls a function with the assignment of a task.
    pub fn with<T>(&self, task: u64, act: impl FnOnce(&mut Assignment, f64) -> T) -> Result<T, Refusal> {
        self.server.queue.with(task, act).ok_or_else(invalid_token)
    }

    /// Whether the sender may take jobs: any client that reaches this port, unless a secret is configured.
    pub fn check_launcher(&self, body: &Bytes) -> Result<(), Refusal> {
        match &self.server.secret {
            // The signed name is the same for all transports and service names.
            Some(secret) => secret.check(&self.headers, &["Runtime", "ClientAppIo"], self.rpc.name, body),
            None => Ok(()),
        }
    }
}

fn invalid_token() -> Refusal {
    Refusal::new(Kind::Denied, "Invalid token.")
}
