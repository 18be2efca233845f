//! Checks of how ServerApps are started.

use std::path::PathBuf;

use trellis_link::config::{AppTrust, Isolation};
use trellis_wire::fab::Config;

use super::Checker;
use crate::run_defaults;

const ALLOW: &str = "allow-runtime-dependency-installation";
const DISABLE: &str = "disable-runtime-dependency-installation";

#[derive(Debug)]
pub(super) struct Apps {
    pub isolation: Isolation,
    pub python: Option<PathBuf>,
    pub dependency_installation: bool,
    pub sandbox: trellis_sandbox::Settings,
    pub superexec_secret: Option<PathBuf>,
    pub trust: AppTrust,
}

impl Checker<'_> {
    pub(super) fn apps(&mut self) -> Apps {
        let isolation = self.isolation();
        Apps {
            isolation,
            python: self.python(isolation),
            dependency_installation: self.dependency_installation(isolation),
            sandbox: self.sandbox(&self.raw.args.sandbox),
            superexec_secret: self.superexec_secret(isolation),
            trust: self.trust(isolation),
        }
    }

    fn isolation(&mut self) -> Isolation {
        match self.raw.args.apps.isolation.as_deref() {
            None | Some("subprocess") => Isolation::Subprocess,
            Some("process") => Isolation::Process,
            Some(other) => {
                let what = format!("--isolation cannot be {other:?}");
                self.refuse(&["isolation"], what, "use subprocess or process");
                Isolation::Subprocess
            }
        }
    }

    fn python(&mut self, isolation: Isolation) -> Option<PathBuf> {
        let given = self.raw.args.apps.python.as_deref()?;
        if isolation == Isolation::Process {
            self.warn("--python has no effect with --isolation process: a flower-superexec starts the ServerApps");
        }
        self.executable("python", Some(given), "give the path of a Python interpreter")
    }

    pub(super) fn models(&mut self) -> Option<PathBuf> {
        let given = self.raw.args.apps.models_dir.as_deref()?;
        Some(self.resolve("models-dir", given))
    }

    pub(super) fn run_defaults(&mut self) -> Option<(PathBuf, Config)> {
        let name = "run-defaults";
        let given = self.raw.args.apps.run_defaults.as_deref();
        let (path, seen) = self.content(name, given, "give the path of a readable TOML file")?;
        match run_defaults::parse(&seen.text) {
            Ok(defaults) => Some((path, defaults)),
            Err(problems) => {
                for problem in problems {
                    let what = format!("--{name}: {}: {problem}", path.display());
                    self.refuse(&[name], what, "correct it in that file, or leave it out there");
                }
                None
            }
        }
    }

    fn dependency_installation(&mut self, isolation: Isolation) -> bool {
        let args = &self.raw.args.apps;
        let allowed = args.allow_runtime_dependency_installation;
        if allowed && args.disable_runtime_dependency_installation {
            let what = format!("--{ALLOW} contradicts --{DISABLE}");
            self.refuse(
                &[ALLOW, DISABLE],
                what,
                format!("keep one of them; --{ALLOW}=false overrides the environment and the file"),
            );
        } else if allowed && isolation == Isolation::Process {
            self.warn(format!("--{ALLOW} has no effect with --isolation process: give it to flower-superexec"));
        }
        allowed
    }

    fn trust(&mut self, isolation: Isolation) -> AppTrust {
        let name = "serverappio-trust";
        let Some(given) = self.raw.args.apps.serverappio_trust.as_deref() else { return AppTrust::User };
        if isolation == Isolation::Subprocess {
            self.warn(format!(
                "--{name} has no effect without --isolation process: ServerApps that are started here have tokens"
            ));
        }
        match given {
            "user" => AppTrust::User,
            "machine" => AppTrust::Machine,
            "network" => AppTrust::Network,
            other => {
                self.refuse(&[name], format!("--{name} cannot be {other:?}"), "use user, machine or network");
                AppTrust::User
            }
        }
    }

    fn superexec_secret(&mut self, isolation: Isolation) -> Option<PathBuf> {
        let name = "superexec-auth-secret-file";
        let given = self.raw.args.apps.superexec_auth_secret_file.as_deref()?;
        if isolation == Isolation::Subprocess {
            self.warn(format!(
                "--{name} has no effect without --isolation process: no SuperExec is asked for anything"
            ));
            return None;
        }
        self.file(name, Some(given), "give the path of a readable file that holds the secret")
    }
}
