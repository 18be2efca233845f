//! Flags for the connection to a SuperLink.
//!
//! The rule for TLS: a token goes over a connection without TLS only with `--insecure`, and leaves this machine without
//! TLS only with a second flag. Without a token, a SuperLink on this machine is called without TLS: there is no secret to
//! protect, and `trellis superlink --insecure` works without further flags.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::BoolishValueParser;
use trellis_client::Address;
use trellis_client::{Security, SuperLink, Target, Trust};
use trellis_terminal::remark;
use trellis_wire::token::Token;

use super::error::CommandError;
use super::federation::{Destination, OfFederationArgs};
use super::secret::token_from;
use super::server::{Found, ServerArgs};
use trellis_terminal::explain;

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
    /// Required to send a token without TLS. Without a token and --root-certificates, a SuperLink on this machine is
    /// called without TLS by default; all others are called with TLS.
    #[arg(long, value_name = "BOOL", env = "TRELLIS_INSECURE", hide_env_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true, hide_default_value = true)]
    insecure: bool,

    /// Call without TLS over a network: with --insecure, for a SuperLink that is not on this machine
    ///
    /// All machines on the path can read and change the traffic, including tokens.
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

/// The SuperLink to call: a named one, or that of a federation of the server.
#[derive(Debug, Args)]
pub struct SuperlinkArgs<P: Args = OfFederationArgs> {
    #[command(flatten)]
    place: P,
    #[command(flatten)]
    caller: CallerArgs,
}

impl<P: Args + Destination> SuperlinkArgs<P> {
    pub async fn superlink(&self) -> Result<SuperLink, CommandError> {
        match self.place.unless_superlink(self.caller.names_superlink()).await? {
            Some((found, federation)) => self.caller.superlink_of(&found, &federation).await,
            None => self.caller.superlink(),
        }
    }

    pub fn server(&self) -> &ServerArgs {
        self.place.server()
    }

    /// The server and the federation, if a server is named and no token of an account: the server's token says who calls.
    pub async fn by_identity(&self) -> Result<Option<(Found, String)>, CommandError> {
        let in_environment = std::env::var_os(TOKEN_VARIABLE).is_some_and(|value| !value.is_empty());
        if self.caller.token_file.is_some() || in_environment || !self.place.server().is_given() {
            return Ok(None);
        }
        self.place.unless_superlink(self.caller.names_superlink()).await
    }
}

impl CallerArgs {
    /// The SuperLink of a federation. Its token is on this machine if the server is; otherwise a flag names it.
    pub async fn superlink_of(&self, found: &Found, federation: &str) -> Result<SuperLink, CommandError> {
        let connection = found.client.connection(federation).await?;
        let unusable =
            |why: String| CommandError::failed(format!("the SuperLink of {federation} cannot be called: {why}"), None);
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
                let what = format!("the SuperLink of {federation} has no TLS, so the token could be read on the way");
                return Err(CommandError::usage(
                    what,
                    "where the whole network is trusted, add --allow-insecure-network",
                ));
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

    pub fn superlink(&self) -> Result<SuperLink, CommandError> {
        if !self.names_superlink() {
            remark(&format!("no federation of a server here: calling the SuperLink at {DEFAULT_SUPERLINK}"));
        }
        match token_from(self.token_file.as_deref(), TOKEN_VARIABLE) {
            Ok(token) => self.connection.superlink(token),
            Err(failure) => Err(match self.connection.superlink(None) {
                Ok(_) => failure,
                Err(more) => failure.and(more),
            }),
        }
    }
}

impl ConnectionArgs {
    /// The SuperLink, with this token. Does not connect.
    pub fn superlink(&self, token: Option<Token>) -> Result<SuperLink, CommandError> {
        let address = self.address();
        let security = self.security(address.as_ref().ok(), token.is_some());
        match (address, security) {
            (Ok(Address { host, port }), Ok(security)) => {
                Ok(SuperLink::new(Target { host: host.to_string(), port, security, token }))
            }
            (Err(failure), Err(more)) => Err(failure.and(more)),
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        }
    }

    fn named(&self) -> &str {
        self.superlink.as_deref().unwrap_or(DEFAULT_SUPERLINK)
    }

    fn address(&self) -> Result<Address, CommandError> {
        let text = self.named();
        Address::parse_or_default_port(text, DEFAULT_PORT).map_err(|why| {
            let what = format!("--superlink cannot be {text:?}: {why}");
            CommandError::usage(what, "give host and port of the HTTP API, as in link.example.org:8000")
        })
    }

    fn security(&self, address: Option<&Address>, token: bool) -> Result<Security, CommandError> {
        let here = address.is_none_or(|address| address.host.is_loopback());
        match (&self.root_certificates, self.insecure) {
            (Some(_), true) => Err(CommandError::usage(
                "--insecure contradicts --root-certificates",
                "keep one of them; --insecure=false overrides the environment variable TRELLIS_INSECURE",
            )),
            (None, true) if !here && !self.allow_insecure_network => Err(CommandError::usage(
                format!("--insecure: {} is not on this machine, and all could be read on the way", self.named()),
                "remove --insecure; where the whole network is trusted, add --allow-insecure-network",
            )),
            (None, true) => Ok(Security::Plaintext),
            (None, false) if here && !token => Ok(Security::Plaintext),
            (None, false) => system_trust(),
            (Some(path), false) => Trust::bundle(path).map(Security::Tls).map_err(|error| {
                let advice = "give a PEM file with the certificates of the authorities that you trust";
                CommandError::usage(format!("--root-certificates: {}", explain(&error)), advice)
            }),
        }
    }
}

fn system_trust() -> Result<Security, CommandError> {
    let advice = "give some with --root-certificates FILE; if the SuperLink has no TLS on purpose, add --insecure";
    let untrusting = |error| CommandError::usage(explain(&error), advice);
    Trust::system().map(Security::Tls).map_err(untrusting)
}

#[cfg(test)]
mod tests;
