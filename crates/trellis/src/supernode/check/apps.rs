//! Checks of who carries out instructions, and how.

use std::path::PathBuf;
use std::time::Duration;

use trellis_node::config::{AppMode, Apps, Spare, WarmSettings};
use trellis_sandbox::Network;

use super::{AppSettings, Checker, MIB, Machine};

const IDLE: Duration = Duration::from_secs(600);
const LONGEST_IDLE: Duration = Duration::from_secs(24 * 3600);
const LONGEST_WORK: Duration = Duration::from_secs(30 * 24 * 3600);
/// Python with numpy takes more; below this an app would be replaced after each instruction.
const SMALLEST_RECYCLE_BYTES: u64 = 64 * MIB;
const MAX_CONCURRENT: u32 = 1;
const MOST_CONCURRENT: u32 = 1024;
const MAX_IDLE: u32 = 2;
/// What the name of an app begins with that is part of this program.
const NATIVE: &str = "native:";
const PYTHON: &str = "python3";

const LIFECYCLE: &[&str] = &["app-lifecycle"];
const OF_WARM_APPS: &[&str] = &["app-idle-timeout", "app-recycle-memory", "max-idle-apps", "app-spare"];
const OF_PROCESSES: &[&str] = &["python", "allow-runtime-dependency-installation", "app-cpus", "app-memory"];
const OF_GPUS: &[&str] = &["gpus", "cuda-visible-devices", "gpu-memory-fraction"];
const OF_SANDBOX: &[&str] = &["sandbox", "app-network", "app-data", "app-env"];
const OF_SUPEREXECS: &[&str] = &["superexec-auth-secret-file"];
const OF_NATIVE_APPS: &[&str] = &["client-app-setting"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Isolation {
    Subprocess,
    Process,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifecycle {
    Warm,
    PerMessage,
}

impl Checker<'_> {
    pub(super) fn apps(&mut self, machine: &Machine<'_>) -> Apps {
        let args = &self.raw.args.apps;
        let isolation = [("subprocess", Isolation::Subprocess), ("process", Isolation::Process)];
        let isolation = self.choice("isolation", args.isolation.as_deref(), &isolation);
        let mode = self.mode(isolation, machine);
        let concurrent = args.max_concurrent_apps.as_deref();
        let concurrent = self.count("max-concurrent-apps", concurrent, MAX_CONCURRENT, MOST_CONCURRENT);
        Apps {
            max_concurrent: concurrent as usize,
            address: self.app_address(mode == AppMode::Process),
            python: self.python(&mode, machine),
            python_required: args.python.is_some(),
            flwr_home: args.flwr_dir.as_deref().map(|path| self.resolve("flwr-dir", path)),
            timeout: self.duration("app-timeout", args.app_timeout.as_deref(), LONGEST_WORK),
            allow_dependency_installation: args.allow_runtime_dependency_installation,
            sandbox: self.node_sandbox(),
            superexec_secret: self.superexec_secret(&mode),
            mode,
        }
    }

    fn node_sandbox(&mut self) -> trellis_sandbox::Settings {
        let args = &self.raw.args;
        let network = self.choice("app-network", args.apps.app_network.as_deref(), &Network::ALL);
        trellis_sandbox::Settings { network, ..self.sandbox(&args.sandbox) }
    }

    fn mode(&mut self, isolation: Isolation, machine: &Machine<'_>) -> AppMode {
        let native = self.native_app(machine);
        let lifecycle = [("warm", Lifecycle::Warm), ("per-message", Lifecycle::PerMessage)];
        let lifecycle = self.choice("app-lifecycle", self.raw.args.apps.app_lifecycle.as_deref(), &lifecycle);
        let warm = self.warm();
        match (native, isolation, lifecycle) {
            (Some(_), Isolation::Process, _) => {
                let what = "--client-app contradicts --isolation process: the app is part of this program";
                self.refuse(&["client-app", "isolation"], what, "leave one of them out");
                AppMode::Process
            }
            (Some(native), ..) => native,
            (None, Isolation::Process, _) => AppMode::Process,
            (None, _, Lifecycle::Warm) => AppMode::Warm(warm),
            (None, _, Lifecycle::PerMessage) => AppMode::PerMessage,
        }
    }

    fn warm(&mut self) -> WarmSettings {
        let args = &self.raw.args.warm;
        let recycle = args.app_recycle_memory.as_deref();
        WarmSettings {
            idle: self.duration("app-idle-timeout", args.app_idle_timeout.as_deref(), LONGEST_IDLE).unwrap_or(IDLE),
            recycle_bytes: self.size("app-recycle-memory", recycle, SMALLEST_RECYCLE_BYTES, u64::MAX),
            max_idle: self.count("max-idle-apps", args.max_idle_apps.as_deref(), MAX_IDLE, MOST_CONCURRENT) as usize,
            spare: self.choice(
                "app-spare",
                args.app_spare.as_deref(),
                &[("on", Spare::EveryRun), ("off", Spare::None)],
            ),
        }
    }

    fn native_app(&mut self, machine: &Machine<'_>) -> Option<AppMode> {
        let settings = self.native_settings();
        let given = self.raw.args.apps.client_app.as_deref()?;
        match given.strip_prefix(NATIVE) {
            Some(name) => {
                for problem in (machine.native)(name, &settings) {
                    let what = format!("--client-app {given}: {}: {}", problem.place, problem.what);
                    self.refuse(&["client-app", "client-app-setting"], what, problem.advice);
                }
                Some(AppMode::Native { name: name.to_owned(), settings })
            }
            None => {
                let what = format!("--client-app: {given:?} is no app of this program");
                let advice = "write it like native:mlp; apps of a run come with it, and need no flag";
                self.refuse(&["client-app"], what, advice);
                None
            }
        }
    }

    fn native_settings(&mut self) -> AppSettings {
        let name = "client-app-setting";
        let mut settings: Vec<(&str, String)> = Vec::new();
        for text in &self.raw.args.apps.client_app_setting {
            match (text.split_once('='), settings.last_mut()) {
                (Some((key, value)), _) if !key.is_empty() => settings.push((key, value.to_owned())),
                // A comma stands between settings, and within a value too.
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

    fn python(&mut self, mode: &AppMode, machine: &Machine<'_>) -> PathBuf {
        let given = self.raw.args.apps.python.as_deref();
        if let Some(python) = self.executable("python", given, "give the path of a Python interpreter") {
            return python;
        }
        let needed = matches!(mode, AppMode::Warm(_) | AppMode::PerMessage);
        match (machine.python)().filter(|_| needed) {
            Some(python) => python,
            None => {
                if needed {
                    self.warn(format!(
                        "flwr-clientapp is not on PATH: apps in Python are run by {PYTHON}, which must have flwr"
                    ));
                }
                PYTHON.into()
            }
        }
    }

    fn superexec_secret(&mut self, mode: &AppMode) -> Option<PathBuf> {
        let given = self.raw.args.addresses.superexec_auth_secret_file.as_deref().filter(|_| *mode == AppMode::Process);
        self.file("superexec-auth-secret-file", given, "give the path of a readable file that holds the secret")
    }

    /// Says which of the given flags change nothing.
    pub(super) fn without_effect(&mut self, mode: &AppMode) {
        let (why, flags): (_, &[&[&str]]) = match mode {
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
