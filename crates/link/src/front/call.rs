//! One call: what it brings, and who it says sent it. Its checks are the only way to a caller's identity.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use trellis_core::access::Rejected;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::secret::SecretId;
use trellis_front::{Line, MessageReader, Transport};

use super::Port;
use super::rpc::{Access, Rpc};
use crate::api::account::{self, LastingRight, Tokens, Who};
use crate::api::fleet::Caller as NodeCaller;
use crate::api::sha256;
use crate::api::trellis::fingerprint;
use crate::app_trust::{self, Unproven};
use crate::dialect::Client;
use crate::dialect::app::Caller as AppCaller;
use crate::identity::decode_key;
use crate::link::Link;

/// The headers that a ServerApp's token comes in: 1.30 and later, 1.28 and 1.29.
const TASK_TOKEN: &str = "flwr-task-token";
const APP_TOKEN: &str = "flwr-app-token";
/// The headers of accounts up to 1.36; later ones use the standard header.
pub const ACCESS_TOKEN: &str = "flwr-oidc-access-token";
pub const REFRESH_TOKEN: &str = "flwr-oidc-refresh-token";

pub struct Call {
    pub link: Arc<Link>,
    pub rpc: &'static Rpc,
    pub client: Client,
    pub headers: HeaderMap,
    pub port: Port,
    pub remote: SocketAddr,
    pub line: Line,
    pub body: MessageReader,
    /// The name by which the sender reached us, over HTTP/2.
    pub authority: Option<String>,
    /// That of the HTTP API.
    pub http_port: u16,
    /// Tokens that replace those the sender used, to be sent with the answer.
    pub renewed: Arc<OnceLock<Tokens>>,
}

impl Call {
    /// The message.
    pub async fn read<R: prost::Message + Default>(&mut self) -> Result<R, Refusal> {
        self.body.message().await
    }

    /// The message of a call of ours; no body is an empty one.
    pub async fn read_json<R: serde::de::DeserializeOwned>(&mut self) -> Result<R, Refusal> {
        let body = self.body.whole().await?;
        let body = if body.is_empty() { &b"{}"[..] } else { &body };
        serde_json::from_slice(body)
            .map_err(|error| Refusal::new(Kind::Invalid, format!("the request cannot be read: {error}")))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the sender is a ServerApp of 1.30 or later, whose messages name no run.
    pub fn is_task(&self) -> bool {
        self.client.transport == Transport::Http || self.headers.contains_key(TASK_TOKEN)
    }

    /// The node that calls.
    pub fn node(&self) -> Result<NodeCaller, Refusal> {
        NodeCaller::verify(&self.link, &self.client, &self.headers, self.remote)
    }

    /// The ServerApp that calls.
    pub fn app(&self) -> Result<AppCaller, Refusal> {
        let Some(token) = self.header(TASK_TOKEN).or_else(|| self.header(APP_TOKEN)) else {
            return app_trust::check_app(&self.link, &self.unproven()).map(|()| AppCaller::Named);
        };
        let hash = sha256(token.as_bytes());
        match self.link.read(|view| view.token_by_hash(&hash))? {
            Some(found) => Ok(AppCaller::Token { run: found.run, hash }),
            None => Err(Refusal::new(Kind::Unauthenticated, "the task token is not, or no longer, good")),
        }
    }

    /// The account that calls, if it may do this.
    pub async fn account(&self) -> Result<Who, Refusal> {
        let Access::Account(permission) = self.rpc.access else {
            return Err(Refusal::new(Kind::Denied, "this call is not for accounts"));
        };
        if !self.link.accounts {
            return Ok(Who::nobody());
        }
        let Some(token) = self.shown_token() else {
            let text = "This SuperLink asks who calls: run `flwr login`, or send the token of an account.";
            return Err(Refusal::new(Kind::Unauthenticated, text));
        };
        match account::authenticate(&self.link, token, permission) {
            // Command lines up to 1.36 send both tokens, and take new ones from the headers of an answer.
            Err(refusal) if Rejected::of(&refusal) == Some(Rejected::Expired) => {
                let refresh = self.header(REFRESH_TOKEN).ok_or(refusal)?;
                let tokens = account::renew(&self.link, refresh).await?;
                let who = account::authenticate(&self.link, &tokens.access, permission)?;
                let _ = self.renewed.set(tokens);
                Ok(who)
            }
            decided => decided,
        }
    }

    fn shown_token(&self) -> Option<&str> {
        let bearer = self.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        bearer.or_else(|| self.header(ACCESS_TOKEN))
    }

    /// What a call that lasts is checked by again, after [`Call::account`] has let it in.
    pub fn lasting_right(&self) -> LastingRight {
        let token = self.renewed.get().map(|tokens| tokens.access.as_str()).or_else(|| self.shown_token());
        let shown = match self.rpc.access {
            Access::Account(permission) if self.link.accounts => {
                Some((token.unwrap_or_default().to_owned(), permission))
            }
            _ => None,
        };
        LastingRight { shown, since: self.link.now() }
    }

    /// Where users approve a login: on the HTTP API, under the name by which they reached us.
    pub fn login_page(&self) -> String {
        let scheme = if self.link.tls.is_some() { "https" } else { "http" };
        let reached = self.authority.as_deref().or_else(|| self.header("host")).unwrap_or("localhost");
        let host = match reached.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
            _ => reached,
        };
        format!("{scheme}://{host}:{}/login", self.http_port)
    }

    fn unproven(&self) -> Unproven<'_> {
        Unproven {
            client: &self.client,
            on_app_port: self.port == Port::App,
            line: &self.line,
            remote: self.remote,
            headers: &self.headers,
        }
    }

    /// Whether the sender may take runs, to start their ServerApps: it knows the secret, or it is believed without.
    pub fn check_launcher(&self, body: &Bytes) -> Result<(), Refusal> {
        if let Some(secret) = &self.link.superexec_secret {
            // The name is the same whatever the transport, and whatever the service was called before.
            return secret.check(&self.headers, &["Runtime", "ServerAppIo"], self.rpc.name, body);
        }
        app_trust::check_launcher(&self.link, &self.unproven())
    }
}

/// What a sender showed of itself. Kept aside for the audit log, and read only if the call is refused.
pub struct Shown {
    token: Option<HeaderValue>,
    key: Option<HeaderValue>,
}

impl Shown {
    pub fn by(headers: &HeaderMap) -> Shown {
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| headers.get(name)).cloned();
        Shown { token: first(["authorization", ACCESS_TOKEN]), key: first(["flwr-public-key", "flwr-public-key-bin"]) }
    }

    /// As the audit log names it; empty: nothing was shown.
    pub fn describe(&self) -> String {
        if let Some(token) = self.token.as_ref().and_then(|token| token.to_str().ok()) {
            let token = token.strip_prefix("Bearer ").unwrap_or(token);
            return format!("token {}", SecretId::of(&sha256(token.as_bytes())));
        }
        let key = self.key.as_ref().and_then(|key| decode_key(key.to_str().ok()?));
        key.map(|key| format!("key {}", fingerprint(&key))).unwrap_or_default()
    }
}
