//! `trellis serverapp`: the native ServerApp of one run, started by a SuperLink. Wiring only: the training is `trellis_train`.
//! All input comes from the environment, because only the owner of a process can read its token there.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Builder;
use tokio::sync::watch;
use trellis_client::Address;
use trellis_client::app::App;
use trellis_client::{Security, Target};
use trellis_logging::{LogFormat, LogSettings};
use trellis_terminal::explain;
use trellis_train::{Finished, Options, TrainError};
use trellis_wire::fab::Config;
use trellis_wire::token::Token;

use crate::process::StopSignals;
use crate::remote::CommandError;
use crate::run_defaults;

const CALLED: &str = "trellis serverapp";
const TOKEN: &str = "TRELLIS_APP_TOKEN";
const ADDRESS: &str = "TRELLIS_APP_ADDRESS";
const MODELS: &str = "TRELLIS_MODELS";
/// The state directory of the SuperLink that started this process.
const STATE: &str = "TRELLIS_APP_OF";
/// Replies that wait for their turn. Its files have no names, and go with the process.
const SPOOL: &str = ".spool";
/// Limit for blocking tasks after the run has ended.
const LEFTOVERS: Duration = Duration::from_secs(2);
/// A SuperLink that is unreachable for this long is given up.
const MAX_AWAY: Duration = Duration::from_secs(3600);
/// Poll interval of an unreachable SuperLink.
const AWAY_INTERVAL: Duration = Duration::from_secs(5);
/// Shells add this to the number of a signal.
const BY_SIGNAL: u8 = 128;

const AFTER_HELP: &str = "\
A SuperLink starts this for each run whose app names the ServerApp trellis:native (trellis run sends
such runs). It cannot be started by hand: only one process gets the token of a run.

Environment:
  TRELLIS_APP_ADDRESS  host and port of the SuperLink for ServerApps; without TLS
  TRELLIS_APP_TOKEN    the token of the run
  TRELLIS_MODELS       directory for checkpoints

It tolerates an unreachable SuperLink for an hour, or until the state of the SuperLink is deleted.

Exit codes: 0 the run completed, or was stopped; 1 it failed; 2 the environment is invalid; 128 and
the number of the signal that ended it. The SuperLink then ends the run.
";

/// Train for one run, started by a SuperLink
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ServerappArgs {
    /// Run defaults of the SuperLink (TOML)
    #[arg(long, value_name = "FILE")]
    run_defaults: Option<PathBuf>,
}

/// Values of the environment.
struct Assignment {
    target: Target,
    token: Token,
    models: PathBuf,
    defaults: Config,
}

pub fn run(args: &ServerappArgs) -> ExitCode {
    let given =
        defaults(args.run_defaults.as_deref()).and_then(|defaults| assignment(&|name| env::var(name).ok(), defaults));
    let assignment = match given {
        Ok(assignment) => assignment,
        Err(failure) => return failure.report(CALLED),
    };
    let log = LogSettings { format: LogFormat::Text, level: "info".to_owned(), file: None };
    let started =
        trellis_logging::start("serverapp", &log, None).and_then(|()| Builder::new_multi_thread().enable_all().build());
    let runtime = match started {
        Ok(runtime) => runtime,
        Err(error) => return CommandError::failed(format!("no async runtime: {error}"), None).report(CALLED),
    };
    let code = runtime.block_on(train(assignment));
    runtime.shutdown_timeout(LEFTOVERS);
    code
}

async fn train(assignment: Assignment) -> ExitCode {
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => return CommandError::failed(format!("no signal handlers: {error}"), None).report(CALLED),
    };
    let app = App::new(assignment.target, assignment.token);
    let away = app.away();
    // Beside the models: both may be large, and the SuperLink has checked this disk.
    let options = Options {
        spool_dir: assignment.models.join(SPOOL),
        models_dir: assignment.models,
        defaults: assignment.defaults,
        echo: true,
        any_path: false,
    };
    tokio::select! {
        outcome = trellis_train::run(app, options) => exit_code(outcome),
        () = deserted(away, env::var_os(STATE).map(PathBuf::from)) => {
            tracing::error!("the SuperLink stays unreachable: stopping the training");
            ExitCode::FAILURE
        }
        (name, number) = signals.next() => {
            tracing::info!(signal = name, "stopping the training");
            ExitCode::from(BY_SIGNAL.saturating_add(u8::try_from(number).unwrap_or(0)))
        }
    }
}

/// Returns when the SuperLink is unreachable for too long. A restart of its process is tolerated.
async fn deserted(mut away: watch::Receiver<Option<String>>, state: Option<PathBuf>) {
    loop {
        if away.wait_for(Option::is_some).await.is_err() {
            return std::future::pending().await;
        }
        let since = Instant::now();
        while away.borrow().is_some() {
            if since.elapsed() > MAX_AWAY || state.as_deref().is_some_and(|state| !state.exists()) {
                return;
            }
            tokio::time::sleep(AWAY_INTERVAL).await;
        }
    }
}

fn exit_code(outcome: Result<Finished, TrainError>) -> ExitCode {
    match outcome {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn defaults(path: Option<&Path>) -> Result<Config, CommandError> {
    let Some(path) = path else { return Ok(Config::new()) };
    let unusable = |why: String| {
        CommandError::failed(
            format!("--run-defaults: {} cannot be used: {why}", path.display()),
            Some("restart the SuperLink"),
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    run_defaults::parse(&text).map_err(|problems| unusable(problems.join("; ")))
}

/// Reads the environment, and reports all problems.
fn assignment(variable: &dyn Fn(&str) -> Option<String>, defaults: Config) -> Result<Assignment, CommandError> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty()).ok_or_else(|| missing(name));
    let address = given(ADDRESS).and_then(|text| {
        Address::parse(&text).map_err(|why| wrong(ADDRESS, &format!("{text:?} is no host and port: {why}")))
    });
    // Without the text: it may be a secret in the wrong variable.
    let token = given(TOKEN).and_then(|text| Token::parse(&text).map_err(|why| wrong(TOKEN, &why.to_string())));
    let models = given(MODELS).map(PathBuf::from);
    match (address, token, models) {
        (Ok(Address { host, port }), Ok(token), Ok(models)) => {
            let target = Target { host: host.to_string(), port, security: Security::Plaintext, token: None };
            Ok(Assignment { target, token, models, defaults })
        }
        (address, token, models) => {
            let failures = [address.err(), token.err(), models.err()].into_iter().flatten();
            Err(failures.reduce(CommandError::and).expect("at least one problem"))
        }
    }
}

fn missing(name: &str) -> CommandError {
    wrong(name, "it is not set")
}

fn wrong(name: &str, what: &str) -> CommandError {
    CommandError::usage(
        format!("environment variable {name}: {what}"),
        "let a SuperLink start it; trellis run sends a run there",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_training_is_given_up_when_its_superlink_and_the_state_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (here, gone) = (directory.path().to_owned(), directory.path().join("gone"));
        let (tell, away) = watch::channel(None);
        let ends = async |state: &PathBuf| {
            let limit = Duration::from_millis(100);
            tokio::time::timeout(limit, deserted(away.clone(), Some(state.clone()))).await.is_ok()
        };
        assert_eq!([ends(&here).await, ends(&gone).await], [false, false], "the SuperLink answers");
        tell.send_replace(Some("connection refused".to_owned()));
        assert_eq!(
            [ends(&here).await, ends(&gone).await],
            [false, true],
            "another SuperLink may be started with this state"
        );
    }
}
