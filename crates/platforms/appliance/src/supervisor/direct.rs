//! This process keeps the programs: each in a process group of its own, started again when it ends, and ended with us.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use trellis_clock::now_ms;

use super::{Change, Sight};
use crate::place::Place;
use crate::recipe::{Program, Recipe};
use crate::trouble::{Code, Trouble};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Who lived so long had started well.
const STARTED_WELL: Duration = Duration::from_secs(30);
/// Ends in a row after which it is trouble.
const MOST_FAILURES: u32 = 3;
/// For a program to end by itself; then it is killed.
const FAREWELL: Duration = Duration::from_secs(10);
const BEFORE: Duration = Duration::from_secs(60);
/// What programs see of our environment; the rest may hold secrets of the context.
const KEPT: [&str; 8] = ["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"];

#[derive(Default)]
pub struct Direct {
    kept: BTreeMap<String, Kept>,
    first: Option<String>,
    digest: u64,
    ended: Arc<Notify>,
}

struct Kept {
    program: Program,
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    instance: Option<String>,
    failures: u32,
    ending: String,
}

impl Direct {
    pub fn change(&self, recipe: &Recipe) -> Change {
        if self.kept.is_empty() {
            return if recipe.programs.is_empty() { Change::Nothing } else { Change::Start };
        }
        let same = recipe.programs.len() == self.kept.len()
            && recipe
                .programs
                .iter()
                .all(|program| self.kept.get(&program.name).is_some_and(|kept| kept.program == *program));
        if same && self.digest == recipe.digest() { Change::Nothing } else { Change::Restart }
    }

    pub async fn apply(&mut self, recipe: &Recipe, place: &Place) -> Result<(), Trouble> {
        if self.change(recipe) == Change::Nothing {
            return Ok(());
        }
        self.stop().await;
        for program in &recipe.programs {
            if !program.path.exists() {
                return Err(Trouble::new(Code::StartFailed, format!("{} is not there", program.path.display())));
            }
        }
        for program in &recipe.programs {
            self.kept.insert(program.name.clone(), keep(program.clone(), place.clone(), Arc::clone(&self.ended)));
        }
        self.first = recipe.programs.first().map(|program| program.name.clone());
        self.digest = recipe.digest();
        Ok(())
    }

    pub fn sight(&self) -> Sight {
        let Some(kept) = self.first.as_ref().and_then(|name| self.kept.get(name)) else { return Sight::default() };
        let state = kept.state.lock().expect("nobody panics while holding it");
        let failing = (state.failures >= MOST_FAILURES).then(|| format!("{} {}", kept.program.name, state.ending));
        Sight { instance: state.instance.clone(), failing }
    }

    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    pub async fn stop(&mut self) {
        let mut tasks = Vec::new();
        for (_, mut kept) in std::mem::take(&mut self.kept) {
            if let Some(stop) = kept.stop.take() {
                let _ = stop.send(());
            }
            tasks.push(kept.task);
        }
        for task in tasks {
            let _ = task.await;
        }
        self.first = None;
    }
}

fn keep(program: Program, place: Place, ended: Arc<Notify>) -> Kept {
    let state = Arc::new(Mutex::new(State::default()));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(life(program.clone(), place, Arc::clone(&state), ended, stopped));
    Kept { program, state, stop: Some(stop), task }
}

/// From the first start to the word that it shall end.
async fn life(
    program: Program,
    place: Place,
    state: Arc<Mutex<State>>,
    ended: Arc<Notify>,
    mut stopped: oneshot::Receiver<()>,
) {
    let note = |change: &dyn Fn(&mut State)| change(&mut state.lock().expect("nobody panics while holding it"));
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        let ending = match start(&program, &place).await {
            Err(error) => format!("cannot be started: {error}"),
            Ok(mut child) => {
                let instance = now_ms().to_string();
                note(&|state| state.instance = Some(instance.clone()));
                tokio::select! {
                    status = child.wait() => told(status),
                    _ = &mut stopped => return end(child).await,
                }
            }
        };
        let well = began.elapsed() >= STARTED_WELL;
        note(&|state| {
            state.instance = None;
            state.failures = if well { 1 } else { state.failures + 1 };
            state.ending.clone_from(&ending);
        });
        tracing::warn!(program = %program.name, "{ending}; it is started again");
        ended.notify_one();
        pause = if well { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = &mut stopped => return,
        }
    }
}

async fn start(program: &Program, place: &Place) -> std::io::Result<Child> {
    for command in &program.before {
        let Some((path, args)) = command.split_first() else { continue };
        let run = Command::new(path).args(args).stdin(Stdio::null()).kill_on_drop(true).status();
        let _ = tokio::time::timeout(BEFORE, run).await;
    }
    let mut command = Command::new(&place.program);
    // Our own program first: it sees to it that this one ends with us, however we end.
    command.args(["appliance", "held", "--"]).arg(&program.path).args(&program.args);
    command.env_clear().envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.env("HOME", place.state()).envs(&program.env).current_dir(place.root());
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    if let Some(log) = &program.log {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(log)?;
        command.stdout(file.try_clone()?).stderr(file);
    }
    command.spawn()
}

/// Asks the whole group to end, and ends it.
async fn end(mut child: Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(group) = group else { return };
    let _ = kill_process_group(group, Signal::TERM);
    if tokio::time::timeout(FAREWELL, child.wait()).await.is_err() {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait().await;
    }
}

fn told(status: std::io::Result<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => format!("exited with code {code}"),
        Ok((None, Some(signal))) => format!("was killed by signal {signal}"),
        _ => "has ended".to_owned(),
    }
}
