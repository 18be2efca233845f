//! systemd keeps the programs, each as a unit that is enabled: they come back with the VM, whether the agent does or not.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::process::Command;
use tokio::sync::Notify;

use super::{Change, Sight};
use crate::disk;
use crate::place::Place;
use crate::recipe::{Recipe, unit};
use crate::trouble::{Code, Trouble};

const PATIENCE: Duration = Duration::from_secs(90);
/// All that a recipe can have; those that it does not have are taken away.
const OURS: [&str; 4] = ["superlink", "supernode", "superexec", "dcgm"];
/// Starts in a row after which it is trouble.
const MOST_RESTARTS: u64 = 3;

#[derive(Debug, Default)]
pub struct Systemd {
    /// The process of the first program, as it was seen last.
    main: Mutex<Option<i32>>,
    ended: Arc<Notify>,
}

impl Systemd {
    pub async fn change(&self, recipe: &Recipe, place: &Place) -> Change {
        let Ok(units) = unit::all(recipe, place) else { return Change::Restart };
        let mut change = Change::Nothing;
        for ((path, text), program) in units.iter().zip(&recipe.programs) {
            let shown = show(&unit::name(program)).await;
            let is_active = shown.value("ActiveState").is_some_and(|state| state == "active" || state == "activating");
            let is_current = std::fs::read_to_string(path).is_ok_and(|found| found == *text)
                && shown.value("NeedDaemonReload") != Some("yes");
            change = match (is_active, is_current) {
                (true, true) => change,
                (true, false) => return Change::Restart,
                (false, _) => Change::Start,
            };
        }
        change
    }

    pub async fn apply(&self, recipe: &Recipe, place: &Place) -> Result<(), Trouble> {
        let failed = |why: String| Trouble::new(Code::StartFailed, why);
        let units = unit::all(recipe, place).map_err(|error| failed(error.to_string()))?;
        let mut changed = Vec::new();
        for ((path, text), program) in units.iter().zip(&recipe.programs) {
            let is_new = disk::write(path, text.as_bytes(), 0o644, None).map_err(|error| failed(error.to_string()))?;
            let name = unit::name(program);
            if is_new || show(&name).await.value("NeedDaemonReload") == Some("yes") {
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
        for name in OURS.iter().filter(|name| !recipe.programs.iter().any(|program| program.name == **name)) {
            let unit = format!("trellis-{name}.service");
            let path = place.units().join(&unit);
            if path.exists() {
                let _ = systemctl(&["disable", "--now", &unit]).await;
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    pub async fn restart(&self, recipe: &Recipe) -> Result<(), Trouble> {
        for program in &recipe.programs {
            let restarted = systemctl(&["restart", &unit::name(program)]).await;
            restarted.map_err(|why| Trouble::new(Code::StartFailed, why))?;
        }
        Ok(())
    }

    pub async fn sight(&self, recipe: &Recipe) -> Sight {
        let Some(first) = recipe.programs.first() else { return Sight::default() };
        let shown = show(&unit::name(first)).await;
        let runs = shown.value("ActiveState") == Some("active");
        self.watch(shown.value("MainPID").and_then(|text| text.parse().ok()));
        let number = |hex: &str| u64::from_str_radix(hex.get(..16)?, 16).ok();
        let instance = shown.value("InvocationID").filter(|_| runs).and_then(number).map(|number| number.to_string());
        let restarts = shown.value("NRestarts").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let failing = (!runs && restarts >= MOST_RESTARTS).then(|| {
            let result = shown.value("Result").unwrap_or("unknown");
            format!("{} was started {restarts} times and ended each time ({result})", first.name)
        });
        Sight { instance, failing }
    }

    /// A thread waits for the end of each process that is seen: systemd itself is asked only now and then.
    fn watch(&self, pid: Option<i32>) {
        let mut main = self.main.lock().expect("nobody panics while holding it");
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

/// Properties of a unit, `NAME=value` in lines.
struct Shown(String);

impl Shown {
    fn value(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }
}

async fn show(unit: &str) -> Shown {
    let properties = "--property=ActiveState,NeedDaemonReload,InvocationID,NRestarts,Result,MainPID";
    Shown(systemctl(&["show", properties, unit]).await.unwrap_or_default())
}

/// What it prints, or what it has to say about why not.
pub async fn systemctl(args: &[&str]) -> Result<String, String> {
    run("systemctl", args).await
}

/// Runs a program of the system to its end.
pub async fn run(program: impl AsRef<Path>, args: &[&str]) -> Result<String, String> {
    let program = program.as_ref();
    let told = || format!("{} {}", program.display(), args.join(" "));
    let run = Command::new(program).args(args).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, run).await.map_err(|_| format!("{} takes too long", told()))?;
    let output = output.map_err(|error| format!("{} cannot be run: {error}", told()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} failed: {}", told(), said.trim()))
}
