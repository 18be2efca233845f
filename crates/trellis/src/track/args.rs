//! Where the metrics of a run shall go: the flags, and what they mean. Everything is checked before anything is sent.

use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{Access, access};
use trellis_client::{Security, Trust};
use trellis_terminal::explain;
use trellis_tracking::{Credentials, Mlflow, Sinks, TensorBoard, Tracker, Until};
use trellis_wire::token::Token;

use super::Origin;
use crate::remote::{CommandError, HttpUrl};

const TOKEN: &str = "MLFLOW_TRACKING_TOKEN";
const USER: &str = "MLFLOW_TRACKING_USERNAME";
const PASSWORD: &str = "MLFLOW_TRACKING_PASSWORD";

#[derive(Debug, Args)]
#[command(next_help_heading = "Tracking")]
pub struct SinkArgs {
    /// Write TensorBoard event files of the run to a directory of its own in DIR
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,

    /// Send parameters, metrics and the last model of the run to an MLflow server, as http://127.0.0.1:5000
    ///
    /// A server that is down does not delay the run. Credentials are read from MLFLOW_TRACKING_TOKEN, or from
    /// MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
    #[arg(long, value_name = "URI")]
    mlflow: Option<String>,

    /// Experiment of MLflow; made if there is none
    #[arg(
        long,
        value_name = "NAME",
        env = "MLFLOW_EXPERIMENT_NAME",
        hide_env_values = true,
        default_value = "trellis"
    )]
    mlflow_experiment: String,

    /// Send credentials to an MLflow server on another machine without TLS, too
    ///
    /// Everybody on the way can read them.
    #[arg(long)]
    mlflow_allow_insecure_network: bool,
}

impl SinkArgs {
    pub fn is_given(&self) -> bool {
        self.tensorboard.is_some() || self.mlflow.is_some()
    }

    /// The sinks, or all that is wrong with the flags.
    pub fn sinks(&self) -> Result<Sinks, CommandError> {
        let tensorboard = self.tensorboard.as_deref().map(writable).transpose();
        let credentials = || credentials([USER, PASSWORD, TOKEN].map(|name| std::env::var(name).unwrap_or_default()));
        let mlflow = self.mlflow.as_deref().map(|uri| self.server(uri, credentials)).transpose();
        match (tensorboard, mlflow) {
            (Ok(tensorboard), Ok(mlflow)) => Ok(Sinks { tensorboard: tensorboard.map(TensorBoard::new), mlflow }),
            (Err(failure), Err(more)) => Err(failure.and(more)),
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        }
    }

    /// Begins to track a run that `trellis run` follows; `None`: no sink is given.
    pub fn start(&self, origin: Origin) -> Result<Option<Tracker>, CommandError> {
        let start = || Ok(Tracker::start(origin, self.sinks()?, Until::Told, None));
        self.is_given().then(start).transpose()
    }

    fn server(
        &self,
        uri: &str,
        credentials: impl Fn() -> Result<Credentials, CommandError>,
    ) -> Result<Mlflow, CommandError> {
        let (place, credentials) = match (place(uri), credentials()) {
            (Ok(place), Ok(credentials)) => (place, credentials),
            (Err(failure), Err(more)) => return Err(failure.and(more)),
            (Err(failure), _) | (_, Err(failure)) => return Err(failure),
        };
        let HttpUrl { address, path: prefix, secure } = place;
        let may_be_read = !address.host.is_loopback() && !matches!(credentials, Credentials::None);
        let security = match secure {
            true => Trust::system().map(Security::Tls).map_err(|error| {
                CommandError::usage(
                    format!("--mlflow: {}", explain(&error)),
                    "name a file with authorities in SSL_CERT_FILE",
                )
            })?,
            false if may_be_read && !self.mlflow_allow_insecure_network => {
                let what =
                    format!("--mlflow: {uri} is not on this machine, and the credentials could be read on the way");
                let advice = "use https; where the whole network is trusted, add --mlflow-allow-insecure-network";
                return Err(CommandError::usage(what, advice));
            }
            false => Security::Plaintext,
        };
        let place = (address.host.to_string(), address.port, prefix);
        Ok(Mlflow::new(uri.trim_end_matches('/'), place, security, credentials, &self.mlflow_experiment))
    }
}

/// The place of an MLflow server.
fn place(uri: &str) -> Result<HttpUrl, CommandError> {
    if uri.contains('@') {
        // It may hold a password, and is not repeated.
        let what = "--mlflow: the URI holds a user or a password, which all users of this machine can see";
        return Err(CommandError::usage(what, &format!("put them into {USER} and {PASSWORD}")));
    }
    let advice = "give the URL of an MLflow server, as in http://127.0.0.1:5000 (`mlflow server` starts one)";
    HttpUrl::parse(uri).map_err(|why| CommandError::usage(format!("--mlflow cannot be {uri:?}: {why}"), advice))
}

/// As MLflow's own client: user and password count before a token.
fn credentials([user, password, token]: [String; 3]) -> Result<Credentials, CommandError> {
    let advice = format!("set {USER} and {PASSWORD}, or {TOKEN}");
    match (user.is_empty(), password.is_empty(), token.is_empty()) {
        (false, false, _) => Ok(Credentials::Basic { user, password }),
        (true, true, true) => Ok(Credentials::None),
        (true, true, false) => {
            let unusable = |why| CommandError::usage(format!("there is no token in {TOKEN}: {why}"), &advice);
            Token::parse(&token).map(Credentials::Token).map_err(unusable)
        }
        _ => Err(CommandError::usage(format!("one of {USER} and {PASSWORD} is set, and the other is not"), &advice)),
    }
}

/// A directory that can be made and written, which is not made yet.
fn writable(directory: &Path) -> Result<PathBuf, CommandError> {
    let unusable = |why: String| {
        let what = format!("--tensorboard: {} cannot be written: {why}", directory.display());
        CommandError::usage(what, "name a directory that you may write")
    };
    let absolute = std::path::absolute(directory).map_err(|error| unusable(error.to_string()))?;
    // The first that exists is where the others will be made.
    let there = absolute.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(&absolute);
    if !there.is_dir() {
        return Err(unusable(format!("{} is no directory", there.display())));
    }
    access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| unusable(error.to_string()))?;
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(tensorboard: Option<&Path>, mlflow: Option<&str>) -> SinkArgs {
        SinkArgs {
            tensorboard: tensorboard.map(Path::to_owned),
            mlflow: mlflow.map(str::to_owned),
            mlflow_experiment: "trellis".to_owned(),
            mlflow_allow_insecure_network: false,
        }
    }

    fn texts(texts: [&str; 3]) -> [String; 3] {
        texts.map(str::to_owned)
    }

    #[test]
    fn a_password_in_the_uri_is_refused_and_not_repeated() {
        let failure = format!("{:?}", place("https://me:hush@host").expect_err("a password"));
        assert!(failure.contains(PASSWORD) && !failure.contains("hush"), "{failure}");
    }

    #[test]
    fn credentials_leave_this_machine_only_with_tls() {
        let token = || credentials(texts(["", "", "hush"]));
        let none = || credentials(texts(["", "", ""]));
        let (remote, local) = (args(None, Some("http://example.org")), args(None, None));
        let failure = format!("{:?}", remote.server("http://example.org", token).expect_err("it could be read"));
        assert!(failure.contains("could be read on the way") && !failure.contains("hush"), "{failure}");
        assert!(remote.server("http://example.org", none).is_ok(), "there is nothing to steal");
        assert!(local.server("http://127.0.0.1:5000", token).is_ok());
        let allowed = SinkArgs { mlflow_allow_insecure_network: true, ..remote };
        let sink = allowed.server("http://example.org", token).expect("it is allowed");
        assert!(!format!("{sink:?}").contains("hush"));
    }

    #[test]
    fn half_of_the_credentials_is_a_mistake() {
        for (given, expected) in [
            (["", "", ""], true),
            (["me", "secret", ""], true),
            (["me", "secret", "token"], true),
            (["me", "", ""], false),
            (["", "secret", "token"], false),
            (["", "", "two words"], false),
        ] {
            assert_eq!(credentials(texts(given)).is_ok(), expected, "{given:?}");
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once_and_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let failure = args(Some(&file.join("runs")), Some("ftp://host")).sinks().expect_err("two mistakes");
        let told = format!("{failure:?}");
        assert!(told.contains("is no directory") && told.contains("begins with neither"), "{told}");
        let new = directory.path().join("a/b");
        assert!(args(Some(&new), None).sinks().is_ok() && !new.exists());
    }
}
