//! How a server of the control plane is reached: the one that is given, or the one of this machine's home.
//!
//! The rule for TLS: a token leaves this machine without TLS only with a flag that says so.

use std::path::PathBuf;

use clap::Args;
use trellis_api::{CallError, Client, Detail, Problem};
use trellis_client::{Patience, Security, Target, Trust};
use trellis_server::Refusal;
use trellis_wire::token::Token;

use super::secret::token_from;
use super::trouble::{Trouble, explain};
use crate::address::{Address, Host};
use crate::home::{Home, Serving};

const TOKEN_VARIABLE: &str = "TRELLIS_SERVER_TOKEN";
const DEFAULT_PORT: u16 = 7766;
const HTTP: &str = "http://";
const HTTPS: &str = "https://";

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// URL of the server to call [default: the server of this machine]
    #[arg(long, value_name = "URL", env = "TRELLIS_SERVER", hide_env_values = true)]
    server: Option<String>,

    /// File with a token for the server, or - for standard input [default: the admin token of this machine's server]
    ///
    /// Without it, the token itself may be in the environment variable TRELLIS_SERVER_TOKEN.
    #[arg(long, value_name = "FILE", env = "TRELLIS_SERVER_TOKEN_FILE", hide_env_values = true)]
    server_token_file: Option<PathBuf>,

    /// PEM file with the authorities that may have signed the server's certificate [default: those of the system]
    #[arg(long, value_name = "FILE", env = "TRELLIS_SERVER_ROOT_CERTIFICATES", hide_env_values = true)]
    server_root_certificates: Option<PathBuf>,

    /// Call a server that is not on this machine without TLS, too
    ///
    /// Everybody on the way can read and change what is sent, the token too.
    #[arg(long)]
    server_allow_insecure_network: bool,
}

/// A server, and whose it is.
pub struct Found {
    pub client: Client,
    pub url: String,
    /// It is the one of this home.
    pub home: Option<Home>,
}

impl ServerArgs {
    pub fn is_given(&self) -> bool {
        self.server.is_some()
    }

    /// The server that is given, or the one that serves on this machine; `None`: there is none.
    pub fn find(&self) -> Result<Option<Found>, Trouble> {
        if let Some(url) = &self.server {
            return self.named(url).map(Some);
        }
        let Some(home) = Home::find(None) else { return Ok(None) };
        home.serving().map(|serving| self.of_home(&home, &serving)).transpose()
    }

    /// The same, for those who cannot do without.
    pub fn found(&self) -> Result<Found, Trouble> {
        self.find()?.ok_or_else(no_server)
    }

    pub fn client(&self) -> Result<Client, Trouble> {
        self.found().map(|found| found.client)
    }

    fn named(&self, url: &str) -> Result<Found, Trouble> {
        let token = token_from(self.server_token_file.as_deref(), TOKEN_VARIABLE);
        let place = self.place(url);
        let ((host, port, security), token) = match (place, token) {
            (Ok(place), Ok(token)) => (place, token),
            (Err(trouble), Err(more)) => return Err(trouble.and(more)),
            (Err(trouble), _) | (_, Err(trouble)) => return Err(trouble),
        };
        let token = token.ok_or_else(|| {
            let what = format!("there is no token for {url}");
            Trouble::usage(what, "give one with --server-token-file FILE, or in TRELLIS_SERVER_TOKEN")
        })?;
        let target = Target { host, port, security, token: Some(token) };
        Ok(Found { client: Client::new(target), url: url.trim_end_matches('/').to_owned(), home: None })
    }

    fn place(&self, url: &str) -> Result<(String, u16, Security), Trouble> {
        let wrong = |why: &str| {
            let what = format!("--server cannot be {url:?}: {why}");
            Trouble::usage(what, "give its URL, as in https://trellis.example.org:7766")
        };
        let (rest, secure) = match (url.strip_prefix(HTTPS), url.strip_prefix(HTTP)) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => return Err(wrong("it begins with neither https:// nor http://")),
        };
        let rest = rest.trim_end_matches('/');
        let alone = Host::parse(rest).map(|host| Address { host, port: if secure { 443 } else { 80 } });
        let address = alone.or_else(|_| Address::parse(rest)).map_err(|why| wrong(&why))?;
        let security = match secure {
            true => self.trust(self.server_root_certificates.clone())?,
            false if address.host.is_loopback() || self.server_allow_insecure_network => Security::Plaintext,
            false => {
                let what = format!("{url} is not on this machine, and the token could be read on the way");
                let advice = "use https; where the whole network is trusted, add --server-allow-insecure-network";
                return Err(Trouble::usage(what, advice));
            }
        };
        Ok((address.host.to_string(), address.port, security))
    }

    fn trust(&self, bundle: Option<PathBuf>) -> Result<Security, Trouble> {
        let advice = "give a PEM file with the authorities that you trust: --server-root-certificates FILE";
        let trust = match bundle {
            Some(path) => Trust::bundle(&path),
            None => Trust::system(),
        };
        trust.map(Security::Tls).map_err(|error| Trouble::usage(explain(&error), advice))
    }

    /// The server that has said that it serves this home.
    pub fn of_home(&self, home: &Home, serving: &Serving) -> Result<Found, Trouble> {
        let ours = Some(home.admin_token()).filter(|path| path.is_file());
        let file = self.server_token_file.clone().or(ours);
        let token = token_from(file.as_deref(), TOKEN_VARIABLE)?.ok_or_else(|| {
            let what = format!("the server of {} has no admin token there", home.directory().display());
            Trouble::failed(what, Some("give one with --server-token-file, or restart the server: it makes a new one"))
        })?;
        let client = self.client_of(serving, token)?;
        Ok(Found { client, url: serving.url.clone(), home: Some(home.clone()) })
    }

    fn client_of(&self, serving: &Serving, token: Token) -> Result<Client, Trouble> {
        let (rest, secure) = match serving.url.strip_prefix(HTTPS) {
            Some(rest) => (rest, true),
            None => (serving.url.trim_start_matches(HTTP), false),
        };
        let address = Address::parse(rest).map_err(|why| {
            Trouble::failed(format!("the server says that it is at {:?}: {why}", serving.url), Some("restart it"))
        })?;
        let bundle = self.server_root_certificates.clone().or_else(|| serving.root_certificates.clone());
        let security = if secure { self.trust(bundle)? } else { Security::Plaintext };
        let target = Target { host: address.host.to_string(), port: address.port, security, token: Some(token) };
        Ok(Client::patient(target, Patience::default()))
    }
}

/// The usual port, of servers that are given none.
pub fn default_port() -> u16 {
    DEFAULT_PORT
}

fn no_server() -> Trouble {
    let what = match Home::find(None) {
        Some(home) => format!("no server runs on this machine (for {})", home.directory().display()),
        None => "no server runs on this machine, and none is given".to_owned(),
    };
    let advice = "start a federation with `trellis up`, a server with `trellis server`, or name one with --server URL";
    Trouble::failed(what, Some(advice))
}

/// The federation that is meant: the one that is named, or the only one there is.
pub async fn meant(client: &Client, named: Option<&str>) -> Result<String, Trouble> {
    if let Some(name) = named {
        return Ok(name.to_owned());
    }
    let names: Vec<String> = client.federations().await?.into_iter().map(|federation| federation.name).collect();
    only(&names)
}

/// The only one of these federations.
pub fn only(names: &[String]) -> Result<String, Trouble> {
    match names {
        [name] => Ok(name.clone()),
        [] => Err(Trouble::failed("there is no federation", Some("start one with `trellis up`"))),
        many => {
            let what = format!("there are {} federations: {}", many.len(), many.join(", "));
            Err(Trouble::usage(what, "name one with --federation NAME"))
        }
    }
}

/// A call that went wrong.
impl From<CallError> for Trouble {
    fn from(error: CallError) -> Trouble {
        match &error {
            CallError::Unreached(_) => {
                let advice = "is the server running? `trellis doctor` looks; --server (TRELLIS_SERVER) names another";
                Trouble::failed(explain(&error), Some(advice))
            }
            CallError::Unexpected { .. } => {
                Trouble::failed(explain(&error), Some("is that a Trellis server, as new as this program?"))
            }
            CallError::Refused { problem, status, .. } => refused(problem, *status),
        }
    }
}

/// A plan without a server that was refused.
impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Trouble {
        let problems = if let Refusal::Invalid { problems, .. } = &refusal { problems.as_slice() } else { &[] };
        each(problems).unwrap_or_else(|| Trouble::failed(refusal.to_string(), None))
    }
}

fn each(problems: &[Detail]) -> Option<Trouble> {
    let each = problems.iter().map(|detail| {
        let what =
            if detail.path.is_empty() { detail.what.clone() } else { format!("{}: {}", detail.path, detail.what) };
        Trouble::failed(what, Some(detail.advice.as_str()).filter(|advice| !advice.is_empty()))
    });
    each.reduce(Trouble::and)
}

/// Everything that the server found wrong.
fn refused(problem: &Problem, status: u16) -> Trouble {
    let said = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    let advice = match status {
        401 => Some("give a token that counts: --server-token-file FILE, or TRELLIS_SERVER_TOKEN"),
        403 => Some("ask an admin of the server for a token with another role"),
        _ => None,
    };
    each(&problem.problems).unwrap_or_else(|| Trouble::failed(said.clone(), advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(server: &str) -> ServerArgs {
        ServerArgs {
            server: Some(server.to_owned()),
            server_token_file: None,
            server_root_certificates: None,
            server_allow_insecure_network: false,
        }
    }

    #[test]
    fn a_token_leaves_this_machine_only_with_tls() {
        let place = |url: &str| args(url).place(url).map(|(host, port, _)| format!("{host} {port}"));
        assert_eq!(place("http://127.0.0.1:7766").as_deref(), Ok("127.0.0.1 7766"));
        assert_eq!(place("http://localhost/").as_deref(), Ok("localhost 80"));
        for (url, why) in [
            ("http://example.org:7766", "could be read on the way"),
            ("example.org", "begins with neither"),
            ("https://a b", "--server cannot be"),
            ("http://127.0.0.1:7766/api", "--server cannot be"),
        ] {
            let trouble = format!("{:?}", place(url).expect_err(url));
            assert!(trouble.contains(why), "{trouble}");
        }
        let allowed = ServerArgs { server_allow_insecure_network: true, ..args("http://example.org") };
        assert!(allowed.place("http://example.org").is_ok());
    }
}
