//! Identifies the sender of a call from its headers alone. Before that, no part of the body is read, and no capacity or
//! memory is reserved. The table of calls defines the required proof.

use std::net::SocketAddr;
use std::sync::OnceLock;

use http::HeaderMap;
use trellis_core::access::Rejected;
use trellis_core::account::Permission;
use trellis_core::id::{NodeId, RunId};
use trellis_core::refusal::{Kind, Refusal};
use trellis_digest::sha256;
use trellis_front::{ConnectionHandle, SignedBody, Source};

use super::Port;
use super::rpc::{Access, Rpc};
use crate::api::account::{self, CallerAccount, Tokens};
use crate::api::fleet::Caller as NodeCaller;
use crate::app_trust::{self, Unproven};
use crate::dialect::Client;
use crate::dialect::app::Caller as AppCaller;
use crate::link::Link;

/// The headers with a ServerApp's token: 1.30 and later; 1.28 and 1.29.
pub const TASK_TOKEN: &str = "flwr-task-token";
const APP_TOKEN: &str = "flwr-app-token";
/// The headers with an account's tokens up to 1.36; later releases use the standard header.
pub const ACCESS_TOKEN: &str = "flwr-oidc-access-token";
pub const REFRESH_TOKEN: &str = "flwr-oidc-refresh-token";

/// A sender that has given the proof that the call requires.
pub enum Sender {
    /// No proof is required.
    Anyone,
    Node(NodeCaller),
    App(AppCaller),
    Account(CallerAccount),
    /// The signed hash of the body, if SuperExecs have a secret.
    Launcher(Option<SignedBody>),
}

/// The key under which a call is counted in limits per sender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    Node(NodeId),
    App(RunId),
    Account(String),
    /// A caller that is trusted because of its address.
    Source(Source),
}

/// The headers of a call, and the port and connection it came in on.
pub struct Head<'a> {
    pub link: &'a Link,
    pub rpc: &'a Rpc,
    pub client: &'a Client,
    pub headers: &'a HeaderMap,
    pub port: Port,
    pub remote: SocketAddr,
    pub connection: &'a ConnectionHandle,
    /// Receives the tokens that replace the sender's expired tokens.
    pub renewed: &'a OnceLock<Tokens>,
}

impl Sender {
    /// `None` if the sender has not proved an identity.
    pub fn identity(&self, source: Source) -> Option<Identity> {
        match self {
            Sender::Anyone => None,
            Sender::Node(caller) => caller.node().map(Identity::Node),
            Sender::App(AppCaller::Token { run, .. }) => Some(Identity::App(*run)),
            Sender::Account(who) => Some(Identity::Account(who.id.clone())),
            Sender::App(AppCaller::Named) | Sender::Launcher(_) => Some(Identity::Source(source)),
        }
    }
}

impl Head<'_> {
    pub async fn sender(&self) -> Result<Sender, Refusal> {
        Ok(match self.rpc.access {
            Access::Open => Sender::Anyone,
            Access::Node => Sender::Node(self.node()?),
            Access::App => Sender::App(self.app()?),
            Access::Account(permission) => Sender::Account(self.account(permission).await?),
            Access::Launcher => Sender::Launcher(self.launcher()?),
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn node(&self) -> Result<NodeCaller, Refusal> {
        NodeCaller::verify(self.link, self.client, self.headers, self.remote, self.rpc.for_unknown_senders)
    }

    fn app(&self) -> Result<AppCaller, Refusal> {
        let Some(token) = self.header(TASK_TOKEN).or_else(|| self.header(APP_TOKEN)) else {
            return app_trust::check_app(self.link, &self.unproven()).map(|()| AppCaller::Named);
        };
        let hash = sha256(token.as_bytes());
        match self.link.read(|view| view.token_by_hash(&hash))? {
            Some(found) => Ok(AppCaller::Token { run: found.run, hash }),
            None => Err(Refusal::new(Kind::Unauthenticated, "the task token is not, or no longer, good")),
        }
    }

    async fn account(&self, permission: Permission) -> Result<CallerAccount, Refusal> {
        if !self.link.accounts {
            return Ok(CallerAccount::built_in());
        }
        let Some(token) = shown_token(self.headers) else {
            let text = "This SuperLink requires an account: run `flwr login`, or send the token of an account.";
            return Err(Refusal::new(Kind::Unauthenticated, text));
        };
        match account::authenticate(self.link, token, permission) {
            // Command lines up to 1.36 send both tokens, and read renewed tokens from the headers of the response.
            Err(refusal) if Rejected::of(&refusal) == Some(Rejected::Expired) => {
                let refresh = self.header(REFRESH_TOKEN).ok_or(refusal)?;
                let tokens = account::renew(self.link, refresh).await?;
                let who = account::authenticate(self.link, &tokens.access, permission)?;
                let _ = self.renewed.set(tokens);
                Ok(who)
            }
            decided => decided,
        }
    }

    /// Checks that the sender may take runs and start their ServerApps: with the secret, or by `app_trust`.
    fn launcher(&self) -> Result<Option<SignedBody>, Refusal> {
        if let Some(secret) = &self.link.superexec_secret {
            // The signed method name does not depend on the transport. The service has had two names.
            return secret.check_headers(self.headers, &["Runtime", "ServerAppIo"], self.rpc.name).map(Some);
        }
        app_trust::check_launcher(self.link, &self.unproven()).map(|()| None)
    }

    fn unproven(&self) -> Unproven<'_> {
        Unproven {
            client: self.client,
            on_app_port: self.port == Port::App,
            connection: self.connection,
            remote: self.remote,
            headers: self.headers,
        }
    }
}

/// Returns the token of an account from the header of any release.
pub fn shown_token(headers: &HeaderMap) -> Option<&str> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    header("authorization").and_then(|value| value.strip_prefix("Bearer ")).or_else(|| header(ACCESS_TOKEN))
}
