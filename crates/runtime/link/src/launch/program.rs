//! The programs of ServerApps, and which kinds of runs this SuperLink starts. All programs are started, watched and
//! ended in the same way.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trellis_core::run::ServerApp;
use trellis_sandbox::Sandbox;

use super::python::{NoPython, Python};
use crate::config::{Config, Isolation, NativeApp};
use crate::state::State;

/// The name of native ServerApps in process lists, whatever their path.
const NATIVE_NAME: &str = "trellis";

/// Default directory of models, in the state directory.
const MODELS: &str = "models";

/// Variables for Trellis' own programs, in addition to those of every app.
const OWN_VARIABLES: &[&str] = &["HOME", "TMPDIR", "RUST_LOG", "RUST_BACKTRACE"];

/// Directory below the state directory: output and directories of ServerApps.
pub const OUTPUTS: &str = "apps";

/// A program that can be started for a run.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// `argv[0]`, if it is not the path.
    pub name: Option<OsString>,
    pub args: Vec<OsString>,
    /// In addition to the variables of every ServerApp.
    pub environment: Vec<(&'static str, OsString)>,
    /// Directory with a subdirectory per run, created at the start: it tells a run without models from an unknown run.
    pub keeps: Option<PathBuf>,
    pub restricted: Restricted,
}

/// The restrictions of a program.
#[derive(Debug, Clone)]
pub enum Restricted {
    /// For programs that run code of a user.
    Sandbox(Arc<Sandbox>),
    /// For Trellis' own programs: the environment has only the listed variables and these.
    Environment(Vec<String>),
    Nothing,
}

impl Program {
    /// Runs the ServerApp of a FAB, which may install its dependencies if `installs`.
    pub fn python(python: &Python, installs: bool, sandbox: Sandbox) -> Program {
        Program {
            restricted: Restricted::Sandbox(Arc::new(sandbox)),
            path: python.path().to_owned(),
            name: None,
            args: ["-u", "-c", Python::program()].map(OsString::from).into(),
            environment: vec![("TRELLIS_APP_INSTALLS", if installs { "1" } else { "" }.into())],
            keeps: None,
        }
    }

    /// Runs the native ServerApp, which stores models in `models`.
    pub fn native(app: &NativeApp, models: &Path, settings: &trellis_sandbox::Settings) -> Program {
        let named = OWN_VARIABLES.iter().map(ToString::to_string).chain(settings.variables.iter().cloned());
        Program {
            restricted: match settings.mode {
                trellis_sandbox::Mode::Off => Restricted::Nothing,
                _ => Restricted::Environment(named.collect()),
            },
            path: app.program.clone(),
            name: Some(NATIVE_NAME.into()),
            args: app.args.clone(),
            environment: vec![("TRELLIS_MODELS", models.into())],
            keeps: Some(models.to_owned()),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// How ServerApps of a kind are started.
#[derive(Debug, Clone)]
pub enum Starts {
    Here(Program),
    /// This SuperLink should start them but cannot, for this reason.
    Nowhere(String),
    /// Another launcher starts them.
    Elsewhere,
}

impl Starts {
    /// Without Python, a SuperLink with native runs starts only those, unless an interpreter was configured.
    fn unless_missing(python: Result<Program, NoPython>, trains: bool) -> Result<Starts, NoPython> {
        match python {
            Ok(python) => Ok(Starts::Here(python)),
            Err(missing @ NoPython::NotOnPath { .. }) if trains => {
                tracing::warn!("only native runs can be started: {missing}");
                Ok(Starts::Nowhere(missing.to_string()))
            }
            Err(missing) => Err(missing),
        }
    }
}

/// How each kind of run is started.
#[derive(Debug, Clone)]
pub struct Programs {
    python: Starts,
    native: Starts,
}

impl Programs {
    /// Finds the programs; `path` is the PATH of the environment.
    pub fn find(config: &Config, state: &State, path: Option<&OsStr>) -> Result<Programs, NoPython> {
        let native = match &config.native_app {
            Some(app) => {
                let models = app.models.clone().unwrap_or_else(|| state.path().join(MODELS));
                Starts::Here(Program::native(app, &models, &config.sandbox))
            }
            None => Starts::Elsewhere,
        };
        let python = match config.isolation {
            Isolation::Subprocess => {
                let found = Python::find(config.python.as_deref(), path);
                let found = found.and_then(|python| {
                    let sandbox = sandbox(config, state, &python)?;
                    Ok(Program::python(&python, config.dependency_installation, sandbox))
                });
                Starts::unless_missing(found, config.native_app.is_some())?
            }
            Isolation::Process => Starts::Elsewhere,
        };
        Ok(Programs { python, native })
    }

    /// The sandbox of Python ServerApps; `None` if none is started here.
    pub fn sandbox(&self) -> Option<Arc<Sandbox>> {
        match &self.python {
            Starts::Here(Program { restricted: Restricted::Sandbox(sandbox), .. }) => Some(Arc::clone(sandbox)),
            _ => None,
        }
    }

    pub fn of(&self, server_app: ServerApp) -> &Starts {
        match server_app {
            ServerApp::Flower => &self.python,
            ServerApp::Native => &self.native,
        }
    }

    /// Returns whether this SuperLink starts runs of this kind.
    pub fn start(&self, server_app: ServerApp) -> bool {
        !matches!(self.of(server_app), Starts::Elsewhere)
    }

    /// Returns whether this SuperLink starts any runs.
    pub fn are_any(&self) -> bool {
        self.start(ServerApp::Flower) || self.start(ServerApp::Native)
    }
}

/// The sandbox of ServerApps. It protects the state and the secrets of this SuperLink, wherever they are stored.
fn sandbox(config: &Config, state: &State, python: &Python) -> Result<Sandbox, NoPython> {
    let sandbox =
        Sandbox::new(config.sandbox.clone(), python.path().to_owned(), state.path().to_owned(), OUTPUTS, true)?;
    let key = config.tls.as_ref().map(|tls| tls.key.clone());
    let secrets = [state.database.clone(), key, config.admin_token.clone(), config.superexec_secret.clone()];
    Ok(sandbox.protect(secrets.into_iter().flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_is_required_without_native_runs_or_if_it_was_configured() {
        let program = |python: Python| Program::python(&python, false, Sandbox::off(python.path().to_owned()));
        let nowhere = || Python::find(None, Some("/nowhere".as_ref())).map(program);
        assert!(
            matches!(Starts::unless_missing(nowhere(), true), Ok(Starts::Nowhere(why)) if why.contains("pip install"))
        );
        assert!(Starts::unless_missing(nowhere(), false).is_err());
        let named = Python::find(Some(Path::new("/no/python")), None).map(program);
        assert!(Starts::unless_missing(named, true).is_err());
    }

    #[test]
    fn the_program_defines_the_differences_of_the_kinds() {
        let app = NativeApp { program: "/proc/self/exe".into(), args: vec!["serverapp".into()], models: None };
        let native = Program::native(&app, Path::new("state/models"), &trellis_sandbox::Settings::default());
        assert_eq!((native.to_string().as_str(), native.args.len()), ("/proc/self/exe", 1));
        assert_eq!(native.name.as_deref(), Some("trellis".as_ref()), "not by the path it was started by");
        assert_eq!(native.environment, [("TRELLIS_MODELS", "state/models".into())]);
    }
}
