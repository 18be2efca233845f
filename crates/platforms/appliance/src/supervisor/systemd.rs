//! systemd supervisor: each program is an enabled unit, so it starts with the VM even without the agent.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::process::Command;
use tokio::sync::Notify;

use super::{Change, ProgramStatus};
use crate::disk;
use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::recipe::{Recipe, unit};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(90);
/// All programs that a recipe can have. Units of programs that a recipe lacks are removed.
const PROGRAMS: [&str; 4] = ["superlink", "supernode", "superexec", "dcgm"];
/// After this many consecutive starts, the supervisor reports a failure.
const MAX_RESTARTS: u64 = 3;

#[derive(Debug, Default)]
pub struct Systemd {
    /// Process of the first program at the last observation.
    main: Mutex<Option<i32>>,
    ended: Arc<Notify>,
}

impl Systemd {
    pub async fn change(&self, recipe: &Recipe, place: &Place) -> Change {
        let Ok(units) = unit::all(recipe, place) else { return Change::Restart };
        let mut change = Change::Nothing;
        for ((path, text), program) in units.iter().zip(&recipe.programs) {
            let properties = properties_of(&unit::name(program)).await;
            let is_active =
                properties.value("ActiveState").is_some_and(|state| state == "active" || state == "activating");
            let is_current = std::fs::read_to_string(path).is_ok_and(|found| found == *text)
                && properties.value("NeedDaemonReload") != Some("yes");
            change = match (is_active, is_current) {
                (true, true) => change,
                (true, false) => return Change::Restart,
                (false, _) => Change::Start,
            };
        }
        change
    }

    pub async fn apply(&self, recipe: &Recipe, place: &Place) -> Result<(), Failure> {
        let failed = |why: String| Failure::new(Code::StartFailed, why);
        let units = unit::all(recipe, place).map_err(|error| failed(error.to_string()))?;
        let mut changed = Vec::new();
        for ((path, text), program) in units.iter().zip(&recipe.programs) {
            let is_new = disk::write(path, text.as_bytes(), 0o644, None).map_err(|error| failed(error.to_string()))?;
            let name = unit::name(program);
            if is_new || properties_of(&name).await.value("NeedDaemonReload") == Some("yes") {
                changed.push(name);
            }
        }
        self.remove_others(recipe, place).await;
        systemctl(&["daemon-reload"]).await.map_err(failed)?;
        for program in &recipe.programs {
            let name = unit::name(program);
            let verb = if changed.contains(&name) { "restart" } else { "start" };
            systemctl(&["enable", &name]).await.map_err(failed)?;
            systemctl(&[verb, &name]).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn remove_others(&self, recipe: &Recipe, place: &Place) {
        for name in PROGRAMS.iter().filter(|name| !recipe.programs.iter().any(|program| program.name == **name)) {
            let unit = format!("trellis-{name}.service");
            let path = place.units().join(&unit);
            if path.exists() {
                let _ = systemctl(&["disable", "--now", &unit]).await;
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    pub async fn restart(&self, recipe: &Recipe) -> Result<(), Failure> {
        for program in &recipe.programs {
            let restarted = systemctl(&["restart", &unit::name(program)]).await;
            restarted.map_err(|why| Failure::new(Code::StartFailed, why))?;
        }
        Ok(())
    }

    pub async fn status(&self, recipe: &Recipe) -> ProgramStatus {
        let Some(first) = recipe.programs.first() else { return ProgramStatus::default() };
        let properties = properties_of(&unit::name(first)).await;
        let runs = properties.value("ActiveState") == Some("active");
        self.watch(properties.value("MainPID").and_then(|text| text.parse().ok()));
        let number = |hex: &str| u64::from_str_radix(hex.get(..16)?, 16).ok();
        let instance =
            properties.value("InvocationID").filter(|_| runs).and_then(number).map(|number| number.to_string());
        let restarts = properties.value("NRestarts").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let failing = (!runs && restarts >= MAX_RESTARTS).then(|| {
            let result = properties.value("Result").unwrap_or("unknown");
            format!("{} was started {restarts} times and ended each time ({result})", first.name)
        });
        ProgramStatus { instance, failing }
    }

    /// A thread waits for the end of each observed process, because polling systemd costs more.
    fn watch(&self, pid: Option<i32>) {
        let mut main = self.main.lock().expect("no holder of the lock panics");
        if *main == pid {
            return;
        }
        *main = pid;
        let opened = pid.and_then(Pid::from_raw).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(process) = opened else { return };
        let ended = Arc::clone(&self.ended);
        std::thread::spawn(move || {
            let mut waited = [PollFd::new(&process, PollFlags::IN)];
            while let Err(Errno::INTR) = poll(&mut waited, None) {}
            ended.notify_one();
        });
    }

    /// Resolves when the first program has ended.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }
}

/// Parses the properties of a unit: lines `NAME=value`.
struct Properties(String);

impl Properties {
    fn value(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }
}

async fn properties_of(unit: &str) -> Properties {
    let properties = "--property=ActiveState,NeedDaemonReload,InvocationID,NRestarts,Result,MainPID";
    Properties(systemctl(&["show", properties, unit]).await.unwrap_or_default())
}

/// Output of the command, or the reason of its failure.
pub async fn systemctl(args: &[&str]) -> Result<String, String> {
    run("systemctl", args).await
}

/// Runs a system command until it ends.
pub async fn run(program: impl AsRef<Path>, args: &[&str]) -> Result<String, String> {
    let program = program.as_ref();
    let command = || format!("{} {}", program.display(), args.join(" "));
    let run = Command::new(program).args(args).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(COMMAND_TIMEOUT, run).await.map_err(|_| format!("{} timed out", command()))?;
    let output = output.map_err(|error| format!("{} cannot be run: {error}", command()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} failed: {}", command(), stderr.trim()))
}
