//! Checks of the programs that execute instructions.

use trellis_flower::Isolation;
use trellis_node::config::AppMode;

use super::{AppSettings, Checker, Machine};
use crate::settings::kind::Executable;

/// Prefix of the names of built-in apps.
const NATIVE: &str = "native:";
const PYTHON: &str = "python3";

const LIFECYCLE: &[&str] = &["app-lifecycle"];
pub const OF_WARM_APPS: &[&str] = &["app-idle-timeout", "app-recycle-memory", "max-idle-apps", "app-spare"];
const OF_PROCESSES: &[&str] = &["python", "allow-runtime-dependency-installation", "app-cpus", "app-memory"];
const OF_GPUS: &[&str] = &["gpus", "cuda-visible-devices", "gpu-memory-fraction"];
pub const OF_SANDBOX: &[&str] = &["sandbox", "app-network", "app-data", "app-env"];
const OF_SUPEREXECS: &[&str] = &["superexec-auth-secret-file"];
const OF_NATIVE_APPS: &[&str] = &["client-app-setting"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    Warm,
    PerMessage,
}

impl Checker<'_> {
    pub(super) fn apps(&mut self, machine: &Machine<'_>) {
        self.checked.config.apps.mode = self.mode(machine);
        self.python(machine);
        if self.checked.config.apps.mode == AppMode::Process {
            self.checked.config.apps.superexec_secret =
                self.file("superexec-auth-secret-file", "give the path of a readable file that holds the secret");
        }
    }

    fn mode(&mut self, machine: &Machine<'_>) -> AppMode {
        let native = self.native_app(machine);
        match (native, self.checked.isolation, self.checked.lifecycle) {
            (Some(_), Isolation::Process, _) => {
                let what = "--client-app contradicts --isolation process: the app is built in";
                self.refuse(&["client-app", "isolation"], what, "leave one of them out");
                AppMode::Process
            }
            (Some(native), ..) => native,
            (None, Isolation::Process, _) => AppMode::Process,
            (None, _, Lifecycle::Warm) => AppMode::Warm(self.checked.warm.clone()),
            (None, _, Lifecycle::PerMessage) => AppMode::PerMessage,
        }
    }

    fn native_app(&mut self, machine: &Machine<'_>) -> Option<AppMode> {
        let settings = self.native_settings();
        let given = self.text("client-app")?;
        match given.strip_prefix(NATIVE) {
            Some(name) => {
                for problem in (machine.native)(name, &settings) {
                    let what = format!("--client-app {given}: {}: {}", problem.place, problem.what);
                    self.refuse(&["client-app", "client-app-setting"], what, problem.advice);
                }
                Some(AppMode::Native { name: name.to_owned(), settings })
            }
            None => {
                let what = format!("--client-app: {given:?} is not a built-in app");
                let advice = "write it like native:mlp; apps of a run come with the run, and need no flag";
                self.refuse(&["client-app"], what, advice);
                None
            }
        }
    }

    fn native_settings(&mut self) -> AppSettings {
        let name = "client-app-setting";
        let mut settings: Vec<(&str, String)> = Vec::new();
        for text in self.given.list(name) {
            match (text.split_once('='), settings.last_mut()) {
                (Some((key, value)), _) if !key.is_empty() => settings.push((key, value.to_owned())),
                // Commas separate settings, but occur in values, too.
                (None, Some((_, value))) => *value = format!("{value},{text}"),
                _ => self.refuse(&[name], format!("--{name}: {text:?} is no NAME=VALUE"), "write it like rounds=3"),
            }
        }
        let mut found = AppSettings::new();
        for (key, value) in settings {
            if found.insert(key.to_owned(), value).is_some() {
                self.refuse(&[name], format!("--{name}: {key:?} is set twice"), "keep one of them");
            }
        }
        found
    }

    fn python(&mut self, machine: &Machine<'_>) {
        let given = self.read("python", &Executable("give the path of a Python interpreter"));
        self.checked.config.apps.python_required = given.is_some();
        let needed = matches!(self.checked.config.apps.mode, AppMode::Warm(_) | AppMode::PerMessage);
        let python = given.or_else(|| (machine.python)().filter(|_| needed));
        if python.is_none() && needed {
            self.warn(format!(
                "flwr-clientapp is not on PATH: apps in Python are run by {PYTHON}, which must have flwr"
            ));
        }
        self.checked.config.apps.python = python.unwrap_or_else(|| PYTHON.into());
    }

    /// Warns about given flags without effect.
    pub(super) fn without_effect(&mut self) {
        let (why, flags): (_, &[&[&str]]) = match self.checked.config.apps.mode {
            AppMode::Warm(_) => ("with --isolation subprocess", &[OF_SUPEREXECS, OF_NATIVE_APPS]),
            AppMode::PerMessage => ("with --app-lifecycle per-message", &[OF_WARM_APPS, OF_SUPEREXECS, OF_NATIVE_APPS]),
            AppMode::Process => (
                "with --isolation process: a flower-superexec starts the apps",
                &[LIFECYCLE, OF_WARM_APPS, OF_PROCESSES, OF_SANDBOX, OF_GPUS, OF_NATIVE_APPS],
            ),
            AppMode::Native { .. } => (
                "with --client-app: the app is part of this program",
                &[LIFECYCLE, OF_WARM_APPS, OF_PROCESSES, OF_SANDBOX, OF_GPUS, OF_SUPEREXECS],
            ),
        };
        for name in flags.iter().flat_map(|group| group.iter()) {
            if self.is_given(name) {
                self.warn(format!("--{name} has no effect {why}"));
            }
        }
    }
}
