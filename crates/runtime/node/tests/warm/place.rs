//! The environment of tests: interpreters with official Flower, a directory with warm apps, and processes to wait for.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use trellis_node::app::{InstalledApp, Outcome, Reply};
use trellis_node::app_log::AppLog;
use trellis_node::config::{Spare, WarmSettings};
use trellis_node::objects::Objects;
use trellis_node::resources::Confinement;
use trellis_node::warm::{Setup, WarmApps};
use trellis_node::watch::{About, Watch};
use trellis_wire::error_reply::ErrorCode;

use crate::instruction::{Content, Instruction};

/// Longer than any test takes.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// An installed release of official Flower.
#[derive(Debug, Clone)]
pub struct Release {
    pub version: String,
    pub python: PathBuf,
}

impl Release {
    /// The minor version, for differences between releases.
    pub fn minor(&self) -> u32 {
        self.version.split('.').nth(1).unwrap().parse().unwrap()
    }
}

/// The oldest and the newest release, or those in TRELLIS_TEST_RELEASES, if they are installed.
pub fn releases() -> Vec<Release> {
    let versions = std::env::var("TRELLIS_TEST_RELEASES").unwrap_or("1.25 1.42".to_owned());
    let cache = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/trellis-test"));
    let found = versions.split_whitespace().filter_map(|version| {
        let python = cache.join(format!("flwr-{version}/bin/python"));
        if python.exists() {
            return Some(Release { version: version.to_owned(), python });
        }
        let what = "warm apps with it were not tested (tests/provision.py installs it)";
        let _ = writeln!(std::io::stderr(), "SKIP: official Flower {version} is not installed, {what}");
        None
    });
    found.collect()
}

pub struct Place {
    pub directory: tempfile::TempDir,
    pub objects: Objects,
    pub apps: Arc<WarmApps>,
}

pub fn lasting() -> WarmSettings {
    WarmSettings { idle: TIMEOUT, recycle_bytes: None, max_idle: 8, spare: Spare::None }
}

impl Place {
    pub fn new(python: &Path, settings: WarmSettings) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::open(&directory.path().join("objects")).unwrap();
        let home = directory.path().join("flwr");
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let setup = Setup {
            python: python.to_owned(),
            settings,
            assets: directory.path().join("assets"),
            directory: directory.path().to_owned(),
            environment: vec![
                variable("FLWR_TELEMETRY_ENABLED", "0"),
                variable("FLWR_DISABLE_UPDATE_CHECK", "1"),
                variable("TRELLIS_TEST_VARIABLE", "set"),
                variable("TRELLIS_GPU_MEMORY_FRACTION", "0.25"),
                ("FLWR_HOME".into(), home.into()),
            ],
            confinement: Arc::new(Confinement::none()),
            sandbox: Arc::new(trellis_sandbox::Sandbox::off(python.to_owned())),
            objects: objects.clone(),
            watch: Watch::new(About {
                version: "0".to_owned(),
                superlink: "nowhere:1".to_owned(),
                state_dir: directory.path().to_owned(),
            }),
            log: AppLog::default(),
        };
        let apps = Arc::new(WarmApps::new(setup).unwrap());
        Place { directory, objects, apps }
    }

    pub async fn execute(&self, instruction: Instruction) -> Outcome {
        self.execute_with(instruction, behaving()).await
    }

    pub async fn execute_with(&self, instruction: Instruction, app: InstalledApp) -> Outcome {
        let job = instruction.job(&self.objects, app);
        tokio::time::timeout(TIMEOUT, self.apps.execute(job)).await.expect("it takes too long")
    }

    pub async fn reply(&self, instruction: Instruction) -> Reply {
        replied(self.execute(instruction).await)
    }

    pub async fn content(&self, instruction: Instruction) -> Content {
        Content::of(&self.reply(instruction).await, &self.objects)
    }

    /// Executes a harmless action; returns the process id of the worker.
    pub async fn pid_of(&self, run: u64) -> u32 {
        self.content(Instruction::new(run, "count")).await.number("pid") as u32
    }

    /// The runs with an idle worker.
    pub fn resting(&self) -> Vec<u64> {
        self.apps.status().iter().filter(|it| !it.busy).filter_map(|it| it.run).map(|run| run.0).collect()
    }
}

pub fn behaving() -> InstalledApp {
    app("behaving:app")
}

pub fn app(reference: &str) -> InstalledApp {
    InstalledApp {
        hash: "0".repeat(64),
        id: "tests/behaving".to_owned(),
        version: "1.0.0".to_owned(),
        directory: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/warm/app"),
        bundle: PathBuf::new(),
        client_app: reference.to_owned(),
    }
}

pub fn replied(outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Replied(reply) => *reply,
        other => panic!("no reply: {other:?}"),
    }
}

/// The reason of a crash.
pub fn crashed(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed { code: ErrorCode::ClientAppCrashed, reason } => reason,
        other => panic!("no crash: {other:?}"),
    }
}

/// Waits for the end of a process.
pub async fn ended(pid: u32) {
    let Ok(descriptor) = pidfd_open(Pid::from_raw(pid as i32).unwrap(), PidfdFlags::NONBLOCK) else { return };
    let seen = tokio::task::spawn_blocking(move || {
        let patience = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience)).unwrap()
    });
    assert_eq!(seen.await.unwrap(), 1, "process {pid} does not end");
}

/// A file that an app writes once, and that a test waits for.
pub struct PidFile(PathBuf);

impl PidFile {
    pub fn new(place: &Path) -> PidFile {
        let path = place.join("pids");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        PidFile(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub async fn pids(&self) -> Vec<u32> {
        let pids = tokio::time::timeout(TIMEOUT, tokio::fs::read_to_string(&self.0)).await;
        pids.expect("no pids were written").unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }
}
