//! Who sends a call, found from its headers alone: nothing of its body is read, and no place or memory taken, before
//! that is known. The table of calls says what a sender must show.

use std::net::SocketAddr;
use std::sync::OnceLock;

use http::HeaderMap;
use trellis_core::access::Rejected;
use trellis_core::account::Permission;
use trellis_core::id::{NodeId, RunId};
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{Line, SignedBody, Source};

use super::Port;
use super::rpc::{Access, Rpc};
use crate::api::account::{self, Tokens, Who};
use crate::api::fleet::Caller as NodeCaller;
use crate::api::sha256;
use crate::app_trust::{self, Unproven};
use crate::dialect::Client;
use crate::dialect::app::Caller as AppCaller;
use crate::link::Link;

/// The headers that a ServerApp's token comes in: 1.30 and later, 1.28 and 1.29.
pub const TASK_TOKEN: &str = "flwr-task-token";
const APP_TOKEN: &str = "flwr-app-token";
/// The headers of accounts up to 1.36; later ones use the standard header.
pub const ACCESS_TOKEN: &str = "flwr-oidc-access-token";
pub const REFRESH_TOKEN: &str = "flwr-oidc-refresh-token";

/// A sender who has shown what the call asks for.
pub enum Sender {
    /// Nothing is asked for.
    Anyone,
    Node(NodeCaller),
    App(AppCaller),
    Account(Who),
    /// What it signed of the body, where there is a secret to sign with.
    Launcher(Option<SignedBody>),
}

/// Whose share of what all senders have in common a call uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    Node(NodeId),
    App(RunId),
    Account(String),
    /// Who is trusted for where they are.
    Source(Source),
}

/// The headers of a call, and where it came in.
pub struct Head<'a> {
    pub link: &'a Link,
    pub rpc: &'a Rpc,
    pub client: &'a Client,
    pub headers: &'a HeaderMap,
    pub port: Port,
    pub remote: SocketAddr,
    pub line: &'a Line,
    /// Gets the tokens that replace those the sender used.
    pub renewed: &'a OnceLock<Tokens>,
}

impl Sender {
    /// `None`: nothing is known of the sender that others could not show as well.
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
        NodeCaller::verify(self.link, self.client, self.headers, self.remote, self.rpc.for_strangers)
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

    async fn account(&self, permission: Permission) -> Result<Who, Refusal> {
        if !self.link.accounts {
            return Ok(Who::nobody());
        }
        let Some(token) = shown_token(self.headers) else {
            let text = "This SuperLink asks who calls: run `flwr login`, or send the token of an account.";
            return Err(Refusal::new(Kind::Unauthenticated, text));
        };
        match account::authenticate(self.link, token, permission) {
            // Command lines up to 1.36 send both tokens, and take new ones from the headers of an answer.
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

    /// Whether the sender may take runs, to start their ServerApps: it knows the secret, or `app_trust` decides.
    fn launcher(&self) -> Result<Option<SignedBody>, Refusal> {
        if let Some(secret) = &self.link.superexec_secret {
            // The name is the same whatever the transport, and whatever the service was called before.
            return secret.check_headers(self.headers, &["Runtime", "ServerAppIo"], self.rpc.name).map(Some);
        }
        app_trust::check_launcher(self.link, &self.unproven()).map(|()| None)
    }

    fn unproven(&self) -> Unproven<'_> {
        Unproven {
            client: self.client,
            on_app_port: self.port == Port::App,
            line: self.line,
            remote: self.remote,
            headers: self.headers,
        }
    }
}

/// The token of an account, in the header of any release.
pub fn shown_token(headers: &HeaderMap) -> Option<&str> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    header("authorization").and_then(|value| value.strip_prefix("Bearer ")).or_else(|| header(ACCESS_TOKEN))
}
