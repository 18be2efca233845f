//! Checks of how ServerApps are started.

use trellis_link::config::Isolation;

use super::Checker;
use crate::run_defaults;

const ALLOW: &str = "allow-runtime-dependency-installation";
const DISABLE: &str = "disable-runtime-dependency-installation";
const SECRET: &str = "superexec-auth-secret-file";

impl Checker<'_> {
    /// Settings whose effect depends on --isolation.
    pub(super) fn apps(&mut self) {
        if self.is_on(ALLOW) && self.is_on(DISABLE) {
            let what = format!("--{ALLOW} contradicts --{DISABLE}");
            let advice = format!("keep one of them; --{ALLOW}=false overrides the environment and the file");
            self.refuse(&[ALLOW, DISABLE], what, advice);
        }
        match self.checked.config.isolation {
            Isolation::Subprocess => self.started_here(),
            Isolation::Process => self.started_by_superexecs(),
        }
    }

    fn started_here(&mut self) {
        if self.is_given(SECRET) {
            self.warn(format!("--{SECRET} has no effect without --isolation process: no SuperExec is served"));
        }
        if self.is_given("serverappio-trust") {
            self.warn(
                "--serverappio-trust has no effect without --isolation process: ServerApps that are started here have \
                 tokens",
            );
        }
    }

    fn started_by_superexecs(&mut self) {
        if self.is_given("python") {
            self.warn("--python has no effect with --isolation process: a flower-superexec starts the ServerApps");
        }
        if self.is_on(ALLOW) && !self.is_on(DISABLE) {
            self.warn(format!("--{ALLOW} has no effect with --isolation process: give it to flower-superexec"));
        }
        self.checked.config.superexec_secret =
            self.file(SECRET, "give the path of a readable file that holds the secret");
    }

    pub(in crate::superlink) fn run_defaults(&mut self) {
        let name = "run-defaults";
        let Some((path, seen)) = self.content(name, "give the path of a readable TOML file") else { return };
        match run_defaults::parse(&seen.text) {
            Ok(defaults) => {
                self.checked.config.run_defaults = defaults;
                self.checked.run_defaults = Some(path);
            }
            Err(problems) => {
                for problem in problems {
                    let what = format!("--{name}: {}: {problem}", path.display());
                    self.refuse(&[name], what, "correct the file, or remove the setting from it");
                }
            }
        }
    }
}
