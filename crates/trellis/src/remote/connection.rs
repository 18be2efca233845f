//! How a SuperLink is reached: the flags, and what they mean together.
//!
//! The rule for TLS: a token goes over a connection without TLS only with `--insecure`, and leaves this machine without
//! TLS only with a second flag. Without a token, a SuperLink on this machine is called without TLS: then there is nothing
//! to steal, and `trellis superlink --insecure` works with no flags at all.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::BoolishValueParser;
use trellis_client::{Security, SuperLink, Target, Trust};
use trellis_wire::token::Token;

use super::federation::{OfFederationArgs, Place};
use super::output::remark;
use super::secret::token_from;
use super::server::Found;
use super::trouble::{Trouble, explain};
use crate::address::{Address, Host};

const DEFAULT_SUPERLINK: &str = "127.0.0.1:8000";
const DEFAULT_PORT: u16 = 8000;
const TOKEN_VARIABLE: &str = "TRELLIS_TOKEN";

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// The SuperLink to call: host and port of its HTTP API [default: 127.0.0.1:8000]
    #[arg(long, value_name = "HOST:PORT", env = "TRELLIS_SUPERLINK", hide_env_values = true)]
    superlink: Option<String>,

    /// PEM file with the authorities that may have signed the SuperLink's certificate [default: those of the system]
    #[arg(long, value_name = "FILE", env = "TRELLIS_ROOT_CERTIFICATES", hide_env_values = true)]
    root_certificates: Option<PathBuf>,

    /// Call without TLS
    ///
    /// Needed where a token is sent without TLS. A SuperLink on this machine is called without TLS by itself as long as
    /// there is no token and no --root-certificates; all others are called with TLS.
    #[arg(long, value_name = "BOOL", env = "TRELLIS_INSECURE", hide_env_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true, hide_default_value = true)]
    insecure: bool,

    /// Call without TLS over a network: with --insecure, for a SuperLink that is not on this machine
    ///
    /// Everybody on the way can read and change what is sent, tokens too.
    #[arg(long, value_name = "BOOL", env = "TRELLIS_ALLOW_INSECURE_NETWORK", hide_env_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true, hide_default_value = true)]
    allow_insecure_network: bool,
}

/// The connection, and the account that calls.
#[derive(Debug, Args)]
pub struct CallerArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// File with the token of your account, or - for standard input
    ///
    /// Without it, the token itself may be in the environment variable TRELLIS_TOKEN. Not needed while the SuperLink has
    /// accounts turned off.
    #[arg(long, value_name = "FILE", env = "TRELLIS_TOKEN_FILE", hide_env_values = true)]
    #[arg(help_heading = "Connection")]
    token_file: Option<PathBuf>,
}

/// The SuperLink to call: one that is named, or that of a federation of the server.
#[derive(Debug, Args)]
pub struct SuperlinkArgs<P: Args = OfFederationArgs> {
    #[command(flatten)]
    place: P,
    #[command(flatten)]
    caller: CallerArgs,
}

impl<P: Args + Place> SuperlinkArgs<P> {
    pub async fn superlink(&self) -> Result<SuperLink, Trouble> {
        match self.place.unless_superlink(self.caller.names_superlink()).await? {
            Some((found, federation)) => self.caller.superlink_of(&found, &federation).await,
            None => self.caller.superlink(),
        }
    }
}

impl CallerArgs {
    /// The SuperLink of a federation. Its token is on this machine if the server is, and is given otherwise.
    pub async fn superlink_of(&self, found: &Found, federation: &str) -> Result<SuperLink, Trouble> {
        let connection = found.client.connection(federation).await?;
        let unusable =
            |why: String| Trouble::failed(format!("the SuperLink of {federation} cannot be called: {why}"), None);
        let address = connection.http.as_deref().ok_or_else(|| unusable("it has no HTTP API".to_owned()))?;
        let Address { host, port } = Address::parse(address).map_err(unusable)?;
        let given = token_from(self.token_file.as_deref(), TOKEN_VARIABLE)?;
        let kept = connection.token_path.as_ref().filter(|_| given.is_none() && found.home.is_some());
        let token = match kept {
            Some(path) => token_from(Some(Path::new(path)), TOKEN_VARIABLE)?,
            None => given,
        };
        let security = match (&connection.root_certificates, connection.insecure) {
            (_, true) if host.is_loopback() || self.connection.allow_insecure_network || token.is_none() => {
                Security::Plaintext
            }
            (_, true) => {
                let what = format!("the SuperLink of {federation} has no TLS, and the token could be read on the way");
                return Err(Trouble::usage(what, "where the whole network is trusted, add --allow-insecure-network"));
            }
            (Some(pem), false) => {
                Security::Tls(Trust::pem(federation, pem.as_bytes()).map_err(|error| unusable(explain(&error)))?)
            }
            (None, false) => system_trust()?,
        };
        Ok(SuperLink::new(Target { host: host.to_string(), port, security, token }))
    }

    /// Whether a SuperLink was named at all.
    pub fn names_superlink(&self) -> bool {
        self.connection.superlink.is_some()
    }

    pub fn superlink(&self) -> Result<SuperLink, Trouble> {
        if !self.names_superlink() {
            remark(&format!("no federation of a server here: calling the SuperLink at {DEFAULT_SUPERLINK}"));
        }
        match token_from(self.token_file.as_deref(), TOKEN_VARIABLE) {
            Ok(token) => self.connection.superlink(token),
            Err(trouble) => Err(match self.connection.superlink(None) {
                Ok(_) => trouble,
                Err(more) => trouble.and(more),
            }),
        }
    }
}

impl ConnectionArgs {
    /// The SuperLink, called with this token. Nothing is connected yet.
    pub fn superlink(&self, token: Option<Token>) -> Result<SuperLink, Trouble> {
        let address = self.address();
        let security = self.security(address.as_ref().ok(), token.is_some());
        match (address, security) {
            (Ok(Address { host, port }), Ok(security)) => {
                Ok(SuperLink::new(Target { host: host.to_string(), port, security, token }))
            }
            (Err(trouble), Err(more)) => Err(trouble.and(more)),
            (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
        }
    }

    fn named(&self) -> &str {
        self.superlink.as_deref().unwrap_or(DEFAULT_SUPERLINK)
    }

    fn address(&self) -> Result<Address, Trouble> {
        let text = self.named();
        let alone = Host::parse(text).map(|host| Address { host, port: DEFAULT_PORT });
        alone.or_else(|_| Address::parse(text)).map_err(|why| {
            let what = format!("--superlink cannot be {text:?}: {why}");
            Trouble::usage(what, "give host and port of the HTTP API, as in link.example.org:8000")
        })
    }

    fn security(&self, address: Option<&Address>, token: bool) -> Result<Security, Trouble> {
        let here = address.is_none_or(|address| address.host.is_loopback());
        match (&self.root_certificates, self.insecure) {
            (Some(_), true) => Err(Trouble::usage(
                "--insecure contradicts --root-certificates",
                "keep one of them; --insecure=false overrides the environment variable TRELLIS_INSECURE",
            )),
            (None, true) if !here && !self.allow_insecure_network => Err(Trouble::usage(
                format!("--insecure: {} is not on this machine, and all could be read on the way", self.named()),
                "remove --insecure; where the whole network is trusted, add --allow-insecure-network",
            )),
            (None, true) => Ok(Security::Plaintext),
            (None, false) if here && !token => Ok(Security::Plaintext),
            (None, false) => system_trust(),
            (Some(path), false) => Trust::bundle(path).map(Security::Tls).map_err(|error| {
                let advice = "give a PEM file with the certificates of the authorities that you trust";
                Trouble::usage(format!("--root-certificates: {}", explain(&error)), advice)
            }),
        }
    }
}

fn system_trust() -> Result<Security, Trouble> {
    let advice = "give some with --root-certificates FILE; if the SuperLink has no TLS on purpose, add --insecure";
    let untrusting = |error| Trouble::usage(explain(&error), advice);
    Trust::system().map(Security::Tls).map_err(untrusting)
}

#[cfg(test)]
mod tests;
