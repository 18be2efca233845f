//! One call: what it brings, and who it says sent it. Its checks are the only way to a caller's identity.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use trellis_core::refusal::{Kind, Refusal};

use super::Port;
use super::listen::Line;
use super::reader::{MessageReader, malformed};
use super::rpc::{Access, Rpc};
use crate::api::account::Who;
use crate::api::sha256;
use crate::dialect::app::Caller as AppCaller;
use crate::dialect::{Client, Transport};
use crate::link::Link;

/// The headers that a ServerApp's token comes in: 1.30 and later, 1.28 and 1.29.
const TASK_TOKEN: &str = "flwr-task-token";
const APP_TOKEN: &str = "flwr-app-token";

pub struct Call {
    pub link: Arc<Link>,
    pub rpc: &'static Rpc,
    pub client: Client,
    pub headers: HeaderMap,
    pub port: Port,
    pub remote: SocketAddr,
    pub line: Line,
    pub body: MessageReader,
}

impl Call {
    /// The message.
    pub async fn read<R: prost::Message + Default>(&mut self) -> Result<R, Refusal> {
        R::decode(self.body.whole().await?).map_err(|_| malformed("the message cannot be read"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the sender is a ServerApp of 1.30 or later, whose messages name no run.
    pub fn is_task(&self) -> bool {
        self.client.transport == Transport::Http || self.headers.contains_key(TASK_TOKEN)
    }

    /// The ServerApp that calls.
    pub fn app(&self) -> Result<AppCaller, Refusal> {
        let Some(token) = self.header(TASK_TOKEN).or_else(|| self.header(APP_TOKEN)) else {
            return match self.client.transport {
                Transport::Grpc => Ok(AppCaller::Named),
                Transport::Http => Err(Refusal::new(Kind::Unauthenticated, "the task token is missing")),
            };
        };
        let hash = sha256(token.as_bytes());
        match self.link.read(|view| view.token_by_hash(&hash))? {
            Some(found) => Ok(AppCaller::Token { run: found.run, hash }),
            None => Err(Refusal::new(Kind::Unauthenticated, "the task token is not, or no longer, good")),
        }
    }

    /// The account that calls, if it may do this.
    pub fn account(&self) -> Result<Who, Refusal> {
        let Access::Account(_permission) = self.rpc.access else {
            return Err(Refusal::new(Kind::Denied, "this call is not for accounts"));
        };
        Ok(Who::nobody())
    }

    /// Whether the sender may take runs, to start their ServerApps: it knows the secret, or it is near.
    pub fn check_launcher(&self, body: &Bytes) -> Result<(), Refusal> {
        if let Some(secret) = &self.link.superexec_secret {
            // The name is the same whatever the transport, and whatever the service was called before.
            return secret.check(&self.headers, &["Runtime", "ServerAppIo"], self.rpc.name, body);
        }
        if self.port == Port::App || self.remote.ip().is_loopback() {
            return Ok(());
        }
        let text = "runs are given to a SuperExec on another machine only with --superexec-auth-secret-file, or over \
                    --serverappio-api-address";
        Err(Refusal::new(Kind::Unauthenticated, text))
    }
}
