//! Direct supervisor: runs each program in its own process group, restarts it when it ends, and stops it with the agent.

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

use super::{Change, ProgramStatus};
use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::recipe::{Program, Recipe};

const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A program that ran for this long started successfully.
const MIN_UPTIME: Duration = Duration::from_secs(30);
/// After this many consecutive ends, the supervisor reports a failure.
const MAX_FAILURES: u32 = 3;
/// Time for a program to end by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const BEFORE_TIMEOUT: Duration = Duration::from_secs(60);
/// Environment variables that programs inherit; the others may hold secrets of the context.
const INHERITED: [&str; 8] =
    ["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"];

#[derive(Default)]
pub struct Direct {
    supervised: BTreeMap<String, Supervised>,
    first: Option<String>,
    digest: u64,
    ended: Arc<Notify>,
}

struct Supervised {
    program: Program,
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    instance: Option<String>,
    failures: u32,
    exit: String,
}

impl Direct {
    pub fn change(&self, recipe: &Recipe) -> Change {
        if self.supervised.is_empty() {
            return if recipe.programs.is_empty() { Change::Nothing } else { Change::Start };
        }
        let same = recipe.programs.len() == self.supervised.len()
            && recipe.programs.iter().all(|program| {
                self.supervised.get(&program.name).is_some_and(|supervised| supervised.program == *program)
            });
        if same && self.digest == recipe.digest() { Change::Nothing } else { Change::Restart }
    }

    pub async fn apply(&mut self, recipe: &Recipe, place: &Place) -> Result<(), Failure> {
        if self.change(recipe) == Change::Nothing {
            return Ok(());
        }
        self.stop().await;
        for program in &recipe.programs {
            if !program.path.exists() {
                return Err(Failure::new(Code::StartFailed, format!("{} does not exist", program.path.display())));
            }
        }
        for program in &recipe.programs {
            self.supervised
                .insert(program.name.clone(), supervise(program.clone(), place.clone(), Arc::clone(&self.ended)));
        }
        self.first = recipe.programs.first().map(|program| program.name.clone());
        self.digest = recipe.digest();
        Ok(())
    }

    pub fn status(&self) -> ProgramStatus {
        let Some(supervised) = self.first.as_ref().and_then(|name| self.supervised.get(name)) else {
            return ProgramStatus::default();
        };
        let state = supervised.state.lock().expect("no holder of the lock panics");
        let failing = (state.failures >= MAX_FAILURES).then(|| format!("{} {}", supervised.program.name, state.exit));
        ProgramStatus { instance: state.instance.clone(), failing }
    }

    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    pub async fn stop(&mut self) {
        let mut tasks = Vec::new();
        for (_, mut supervised) in std::mem::take(&mut self.supervised) {
            if let Some(stop) = supervised.stop.take() {
                let _ = stop.send(());
            }
            tasks.push(supervised.task);
        }
        for task in tasks {
            let _ = task.await;
        }
        self.first = None;
    }
}

fn supervise(program: Program, place: Place, ended: Arc<Notify>) -> Supervised {
    let state = Arc::new(Mutex::new(State::default()));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(run(program.clone(), place, Arc::clone(&state), ended, stopped));
    Supervised { program, state, stop: Some(stop), task }
}

/// Runs and restarts the program until `stopped` resolves.
async fn run(
    program: Program,
    place: Place,
    state: Arc<Mutex<State>>,
    ended: Arc<Notify>,
    mut stopped: oneshot::Receiver<()>,
) {
    let note = |change: &dyn Fn(&mut State)| change(&mut state.lock().expect("no holder of the lock panics"));
    let mut pause = MIN_BACKOFF;
    loop {
        let began = Instant::now();
        let exit = match start(&program, &place).await {
            Err(error) => format!("could not be started: {error}"),
            Ok(mut child) => {
                let instance = now_ms().to_string();
                note(&|state| state.instance = Some(instance.clone()));
                tokio::select! {
                    status = child.wait() => describe_exit(status),
                    _ = &mut stopped => return end(child).await,
                }
            }
        };
        let ran_long = began.elapsed() >= MIN_UPTIME;
        note(&|state| {
            state.instance = None;
            state.failures = if ran_long { 1 } else { state.failures + 1 };
            state.exit.clone_from(&exit);
        });
        tracing::warn!(program = %program.name, "{exit}; restarting");
        ended.notify_one();
        pause = if ran_long { MIN_BACKOFF } else { (pause * 2).min(MAX_BACKOFF) };
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
        let _ = tokio::time::timeout(BEFORE_TIMEOUT, run).await;
    }
    let mut command = Command::new(&place.program);
    // The wrapper ends the program if this process dies, even by SIGKILL.
    command.args(["appliance", "held", "--"]).arg(&program.path).args(&program.args);
    command.env_clear().envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.env("HOME", place.state()).envs(&program.env).current_dir(place.root());
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    if let Some(log) = &program.log {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(log)?;
        command.stdout(file.try_clone()?).stderr(file);
    }
    command.spawn()
}

/// Terminates the whole process group, and kills it after a timeout.
async fn end(mut child: Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(group) = group else { return };
    let _ = kill_process_group(group, Signal::TERM);
    if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait().await;
    }
}

fn describe_exit(status: std::io::Result<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => format!("exited with code {code}"),
        Ok((None, Some(signal))) => format!("was killed by signal {signal}"),
        _ => "has ended".to_owned(),
    }
}
