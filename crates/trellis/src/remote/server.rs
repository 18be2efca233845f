//! Flags for the connection to a server of the control plane: a named one, or that of this machine's home.
//!
//! The rule for TLS: a token leaves this machine without TLS only with a flag that says so.

use std::path::PathBuf;

use clap::Args;
use trellis_api::{CallError, Client, Detail, Problem};
use trellis_api::{Home, Serving};
use trellis_client::{Security, Target, Timeouts, Trust};
use trellis_diagnostic::Diagnostic;
use trellis_server::Refusal;
use trellis_wire::token::Token;

use super::error::CommandError;
use super::secret::token_from;
use super::session::Session;
use super::url::HttpUrl;
use trellis_terminal::explain;

const TOKEN_VARIABLE: &str = "TRELLIS_SERVER_TOKEN";
const DEFAULT_PORT: u16 = 7766;

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
    /// All machines on the path can read and change the traffic, including the token.
    #[arg(long)]
    server_allow_insecure_network: bool,
}

/// A server and its origin.
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

    /// The named server, or the running one of this machine; `None` if there is neither.
    pub fn find(&self) -> Result<Option<Found>, CommandError> {
        if let Some(url) = &self.server {
            return self.named(url).map(Some);
        }
        let Some(home) = Home::find(None) else { return Ok(None) };
        home.serving().map(|serving| self.of_home(&home, &serving)).transpose()
    }

    /// Like `find`, but an error if there is no server.
    pub fn found(&self) -> Result<Found, CommandError> {
        self.find()?.ok_or_else(no_server)
    }

    pub fn client(&self) -> Result<Client, CommandError> {
        self.found().map(|found| found.client)
    }

    fn named(&self, url: &str) -> Result<Found, CommandError> {
        let token = token_from(self.server_token_file.as_deref(), TOKEN_VARIABLE);
        let place = self.place(url);
        let ((host, port, security), token) = match (place, token) {
            (Ok(place), Ok(token)) => (place, token),
            (Err(failure), Err(more)) => return Err(failure.and(more)),
            (Err(failure), _) | (_, Err(failure)) => return Err(failure),
        };
        let token = token.or_else(|| Session::of(url)?.token());
        let token = token.ok_or_else(|| {
            let what = format!("there is no token for {url}");
            let advice =
                "give one with --server-token-file FILE or in TRELLIS_SERVER_TOKEN, or sign in: trellis login --oidc";
            CommandError::usage(what, advice)
        })?;
        let target = Target { host, port, security, token: Some(token) };
        Ok(Found { client: Client::new(target), url: url.trim_end_matches('/').to_owned(), home: None })
    }

    /// The server without a token, and where the token of a login is kept.
    pub fn to_sign_in(&self) -> Result<(Client, String, Session), CommandError> {
        let home = || Home::find(None)?.serving();
        let (url, target) = match &self.server {
            Some(url) => {
                let (host, port, security) = self.place(url)?;
                (url.clone(), Target { host, port, security, token: None })
            }
            None => {
                let serving = home().ok_or_else(no_server)?;
                (serving.url.clone(), self.target_of(&serving, None)?)
            }
        };
        let session = Session::of(&url).ok_or_else(|| {
            CommandError::failed("there is no directory for the token", Some("set HOME or TRELLIS_HOME"))
        })?;
        Ok((Client::new(target), url.trim_end_matches('/').to_owned(), session))
    }

    fn place(&self, url: &str) -> Result<(String, u16, Security), CommandError> {
        let wrong = |why: &str| {
            let what = format!("--server cannot be {url:?}: {why}");
            CommandError::usage(what, "give its URL, as in https://trellis.example.org:7766")
        };
        let HttpUrl { address, path, secure } = HttpUrl::parse(url).map_err(|why| wrong(&why))?;
        if !path.is_empty() {
            return Err(wrong("it has a path"));
        }
        let security = match secure {
            true => self.trust(self.server_root_certificates.clone())?,
            false if address.host.is_loopback() || self.server_allow_insecure_network => Security::Plaintext,
            false => {
                let what = format!("{url} is not on this machine, so the token could be read on the way");
                let advice = "use https; where the whole network is trusted, add --server-allow-insecure-network";
                return Err(CommandError::usage(what, advice));
            }
        };
        Ok((address.host.to_string(), address.port, security))
    }

    fn trust(&self, bundle: Option<PathBuf>) -> Result<Security, CommandError> {
        let advice = "give a PEM file with the authorities that you trust: --server-root-certificates FILE";
        let trust = match bundle {
            Some(path) => Trust::bundle(&path),
            None => Trust::system(),
        };
        trust.map(Security::Tls).map_err(|error| CommandError::usage(explain(&error), advice))
    }

    /// The running server of this home.
    pub fn of_home(&self, home: &Home, serving: &Serving) -> Result<Found, CommandError> {
        let ours = Some(home.admin_token()).filter(|path| path.is_file());
        let file = self.server_token_file.clone().or(ours);
        let token = token_from(file.as_deref(), TOKEN_VARIABLE)?.ok_or_else(|| {
            let what = format!("the server of {} has no admin token there", home.directory().display());
            CommandError::failed(
                what,
                Some("give one with --server-token-file, or restart the server, which creates a new one"),
            )
        })?;
        let client = Client::with_timeouts(self.target_of(serving, Some(token))?, Timeouts::default());
        Ok(Found { client, url: serving.url.clone(), home: Some(home.clone()) })
    }

    fn target_of(&self, serving: &Serving, token: Option<Token>) -> Result<Target, CommandError> {
        let HttpUrl { address, secure, .. } = HttpUrl::parse(&serving.url).map_err(|why| {
            CommandError::failed(format!("the server announces the URL {:?}: {why}", serving.url), Some("restart it"))
        })?;
        let bundle = self.server_root_certificates.clone().or_else(|| serving.root_certificates.clone());
        let security = if secure { self.trust(bundle)? } else { Security::Plaintext };
        Ok(Target { host: address.host.to_string(), port: address.port, security, token })
    }
}

/// The default port of servers.
pub fn default_port() -> u16 {
    DEFAULT_PORT
}

fn no_server() -> CommandError {
    let what = match Home::find(None) {
        Some(home) => format!("no server runs on this machine (for {})", home.directory().display()),
        None => "no server runs on this machine, and none is named".to_owned(),
    };
    let advice = "start a federation with `trellis up`, a server with `trellis server`, or name one with --server URL";
    CommandError::failed(what, Some(advice))
}

/// The named federation, or the only one.
pub async fn resolve_federation(client: &Client, named: Option<&str>) -> Result<String, CommandError> {
    if let Some(name) = named {
        return Ok(name.to_owned());
    }
    let names: Vec<String> = client.federations().await?.into_iter().map(|federation| federation.name).collect();
    only(&names)
}

/// The only one of these federations.
pub fn only(names: &[String]) -> Result<String, CommandError> {
    match names {
        [name] => Ok(name.clone()),
        [] => Err(CommandError::failed("there is no federation", Some("start one with `trellis up`"))),
        many => {
            let what = format!("there are {} federations: {}", many.len(), many.join(", "));
            Err(CommandError::usage(what, "name one with --federation NAME"))
        }
    }
}

/// A call that went wrong.
impl From<CallError> for CommandError {
    fn from(error: CallError) -> CommandError {
        match &error {
            CallError::Unreached(_) => {
                let advice = "is the server running? see `trellis doctor`; --server (TRELLIS_SERVER) selects another";
                CommandError::failed(explain(&error), Some(advice))
            }
            CallError::Unexpected { .. } => {
                CommandError::failed(explain(&error), Some("is that a Trellis server, as new as this program?"))
            }
            CallError::Refused { problem, status, .. } => refused(problem, *status),
        }
    }
}

/// A plan without a server that was refused.
impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> CommandError {
        let problems = if let Refusal::Invalid { problems, .. } = &refusal { problems.as_slice() } else { &[] };
        each(problems).unwrap_or_else(|| CommandError::failed(refusal.to_string(), None))
    }
}

fn each(problems: &[Detail]) -> Option<CommandError> {
    CommandError::failures(problems.iter().map(|it| Diagnostic::error(&it.path, &it.what, &it.advice)).collect())
}

/// Everything that the server found wrong.
fn refused(problem: &Problem, status: u16) -> CommandError {
    let said = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    let advice = match status {
        401 => {
            Some("give a token that counts: --server-token-file FILE, or TRELLIS_SERVER_TOKEN; or trellis login --oidc")
        }
        403 => Some("ask an admin of the server for a token with another role"),
        _ => None,
    };
    each(&problem.problems).unwrap_or_else(|| CommandError::failed(said.clone(), advice))
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
            let failure = format!("{:?}", place(url).expect_err(url));
            assert!(failure.contains(why), "{failure}");
        }
        let allowed = ServerArgs { server_allow_insecure_network: true, ..args("http://example.org") };
        assert!(allowed.place("http://example.org").is_ok());
    }
}
