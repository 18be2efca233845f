//! A call: its message and its sender.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderValue};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::secret::SecretId;
use trellis_digest::sha256;
use trellis_front::{ConnectionHandle, MessageReader, Source, Transport, decode};
use trellis_wire::footprint::Shaped;

use super::Port;
use super::rpc::{Access, Rpc};
use super::sender::{ACCESS_TOKEN, Sender, TASK_TOKEN, shown_token};
use crate::api::account::{CallerAccount, LastingRight, Tokens};
use crate::api::fleet::Caller as NodeCaller;
use crate::api::trellis::fingerprint;
use crate::dialect::Client;
use crate::dialect::app::Caller as AppCaller;
use crate::identity::decode_key;
use crate::link::Link;

/// A call with a known sender.
pub struct Call {
    pub link: Arc<Link>,
    pub rpc: &'static Rpc,
    pub client: Client,
    pub headers: HeaderMap,
    pub port: Port,
    pub remote: SocketAddr,
    pub connection: ConnectionHandle,
    pub sender: Sender,
    pub body: MessageReader,
    /// The host name in the request, over HTTP/2.
    pub authority: Option<String>,
    /// The port of the HTTP API.
    pub http_port: u16,
    /// New tokens of the sender, to be returned with the answer.
    pub renewed: Arc<OnceLock<Tokens>>,
}

impl Call {
    /// Reads the message.
    pub async fn read<R: prost::Message + Default + Shaped>(&mut self) -> Result<R, Refusal> {
        self.body.message().await
    }

    /// Reads the message of a JSON call; an empty body is an empty message.
    pub async fn read_json<R: serde::de::DeserializeOwned>(&mut self) -> Result<R, Refusal> {
        let body = self.body.whole().await?;
        let body = if body.is_empty() { &b"{}"[..] } else { &body };
        serde_json::from_slice(body)
            .map_err(|error| Refusal::new(Kind::Invalid, format!("the request cannot be read: {error}")))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn source(&self) -> Source {
        self.remote.ip().into()
    }

    /// Returns whether the sender is a ServerApp of 1.30 or later, whose messages name no run.
    pub fn is_task(&self) -> bool {
        self.client.transport == Transport::Http || self.headers.contains_key(TASK_TOKEN)
    }

    /// Returns the calling node.
    pub fn node(&self) -> Result<NodeCaller, Refusal> {
        if let Sender::Node(caller) = &self.sender { Ok(caller.clone()) } else { Err(for_others()) }
    }

    /// Returns the calling ServerApp.
    pub fn app(&self) -> Result<AppCaller, Refusal> {
        if let Sender::App(caller) = self.sender { Ok(caller) } else { Err(for_others()) }
    }

    /// Returns the calling account.
    pub fn account(&self) -> Result<CallerAccount, Refusal> {
        if let Sender::Account(who) = &self.sender { Ok(who.clone()) } else { Err(for_others()) }
    }

    /// Reads the message of a SuperExec and checks it against the signed hash if SuperExecs have a secret.
    pub async fn read_signed<R: prost::Message + Default + Shaped>(&mut self) -> Result<R, Refusal> {
        let body = self.body.whole().await?;
        if let Sender::Launcher(Some(signed)) = &self.sender {
            signed.check(&body)?;
        }
        decode(body)
    }

    /// Returns the permission that a long-running call rechecks after [`Call::account`] has admitted it.
    pub fn lasting_right(&self) -> LastingRight {
        let token = self.renewed.get().map(|tokens| tokens.access.as_str()).or_else(|| shown_token(&self.headers));
        let shown = match self.rpc.access {
            Access::Account(permission) if self.link.accounts => {
                Some((token.unwrap_or_default().to_owned(), permission))
            }
            _ => None,
        };
        LastingRight { shown, since: self.link.now() }
    }

    /// Returns the page on which users approve a login: on the HTTP API, with the host name of the request.
    pub fn login_page(&self) -> String {
        let scheme = if self.link.tls.is_some() { "https" } else { "http" };
        let reached = self.authority.as_deref().or_else(|| self.header("host")).unwrap_or("localhost");
        let host = match reached.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
            _ => reached,
        };
        format!("{scheme}://{host}:{}/login", self.http_port)
    }
}

/// The table of calls and the handler disagree about the kind of sender.
fn for_others() -> Refusal {
    Refusal::new(Kind::Denied, "this call is for other senders")
}

/// The credentials of a call, kept for the audit log and parsed only if the call is refused.
pub struct Shown {
    token: Option<HeaderValue>,
    key: Option<HeaderValue>,
}

impl Shown {
    pub fn by(headers: &HeaderMap) -> Shown {
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| headers.get(name)).cloned();
        Shown { token: first(["authorization", ACCESS_TOKEN]), key: first(["flwr-public-key", "flwr-public-key-bin"]) }
    }

    /// Returns the form in the audit log; empty without credentials.
    pub fn describe(&self) -> String {
        if let Some(token) = self.token.as_ref().and_then(|token| token.to_str().ok()) {
            let token = token.strip_prefix("Bearer ").unwrap_or(token);
            return format!("token {}", SecretId::of(&sha256(token.as_bytes())));
        }
        let key = self.key.as_ref().and_then(|key| decode_key(key.to_str().ok()?));
        key.map(|key| format!("key {}", fingerprint(&key))).unwrap_or_default()
    }
}
