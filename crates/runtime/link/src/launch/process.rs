//! A ServerApp process: started by this SuperLink, or found after a restart.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::process::Command;
use tokio::sync::watch;
use trellis_core::id::RunId;
use trellis_sandbox::{Scratch, for_apps};

use super::Program;
use super::program::Restricted;

const RUN_VARIABLE: &str = "TRELLIS_RUN_ID";
const MARK_VARIABLE: &str = "TRELLIS_APP_OF";

/// Poll interval for processes that are not children.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How a process ended, if known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Code(i32),
    Signal(i32),
    /// Not a child: the system does not report its exit status.
    Unseen,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Code(code) => write!(f, "exited with code {code}"),
            Ended::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Ended::Unseen => f.write_str("ended"),
        }
    }
}

/// The parameters of a ServerApp process.
pub struct Order<'a> {
    pub run: RunId,
    pub token: &'a str,
    /// `host:port` of the SuperLink, for apps.
    pub address: &'a str,
    /// Identifies the process after a restart of the SuperLink.
    pub mark: &'a str,
    /// The file for its output.
    pub output: &'a Path,
}

/// A ServerApp with its process group.
#[derive(Clone)]
pub struct AppProcess {
    pub run: RunId,
    pid: Pid,
    end: End,
}

#[derive(Clone)]
enum End {
    /// A child: a task reaps it and reports its exit status.
    Child(watch::Receiver<Option<Ended>>),
    /// Found after a restart: the descriptor becomes readable at its end.
    Found(Arc<OwnedFd>),
}

impl AppProcess {
    /// Starts the ServerApp of a run.
    pub fn start(program: &Program, order: &Order<'_>) -> std::io::Result<AppProcess> {
        let run = order.run;
        let output = OpenOptions::new().create(true).append(true).mode(0o600).open(order.output)?;
        if let Some(keeps) = &program.keeps {
            std::fs::create_dir_all(keeps.join(run.to_string()))?;
        }
        let mut command = command(program, run)?;
        if let Some(name) = &program.name {
            command.arg0(name);
        }
        let mut child = command
            .args(&program.args)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .env("TRELLIS_APP_TOKEN", order.token)
            .env("TRELLIS_APP_ADDRESS", order.address)
            .env(RUN_VARIABLE, run.to_string())
            .env(MARK_VARIABLE, order.mark)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .kill_on_drop(false)
            .spawn()?;
        let pid = child
            .id()
            .and_then(|pid| Pid::from_raw(pid as i32))
            .ok_or_else(|| std::io::Error::other("the process ended at once"))?;
        let (tell, reported) = watch::channel(None);
        tokio::spawn(async move {
            let ended = match child.wait().await {
                Ok(status) => {
                    status.code().map_or_else(|| Ended::Signal(status.signal().unwrap_or_default()), Ended::Code)
                }
                Err(_) => Ended::Unseen,
            };
            let _ = tell.send(Some(ended));
        });
        Ok(AppProcess { run, pid, end: End::Child(reported) })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits for the end of the process.
    pub async fn ended(&self) -> Ended {
        match &self.end {
            End::Child(reported) => {
                let mut reported = reported.clone();
                let ended = reported.wait_for(Option::is_some).await;
                ended.ok().and_then(|ended| ended.clone()).unwrap_or(Ended::Unseen)
            }
            End::Found(descriptor) => {
                while !is_readable(descriptor) {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Ended::Unseen
            }
        }
    }

    /// Sends SIGTERM to the group.
    pub fn terminate(&self) {
        let _ = kill_process_group(self.pid, Signal::TERM);
    }

    /// Sends SIGKILL to the group.
    pub fn kill(&self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
    }
}

/// Builds the command of a run's program with its restrictions.
fn command(program: &Program, run: RunId) -> std::io::Result<Command> {
    match &program.restricted {
        Restricted::Sandbox(sandbox) => {
            let scratch = sandbox.scratch(&run.to_string())?;
            // The network of ServerApps is not restricted, so no port is needed.
            sandbox.command(scratch.as_ref(), None).map(Command::from)
        }
        Restricted::Environment(named) => {
            let mut command = Command::new(&program.path);
            command.env_clear().envs(for_apps(std::env::vars_os(), named));
            Ok(command)
        }
        Restricted::Nothing => Ok(Command::new(&program.path)),
    }
}

/// Removes the files that the app of a run left in its directory, except for the log and the results.
pub fn clear(outputs: &Path, run: RunId) {
    if let Err(error) = Scratch::clear(&outputs.join(run.to_string())) {
        tracing::warn!(run = run.0, %error, "cannot remove files of an ended ServerApp");
    }
}

/// Removes such files of all finished runs after a restart.
pub fn clear_ended(outputs: &Path, is_unfinished: impl Fn(RunId) -> bool) {
    let entries = std::fs::read_dir(outputs).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let runs = directories.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(RunId));
    runs.filter(|run| !is_unfinished(*run)).for_each(|run| clear(outputs, run));
}

/// A process descriptor is readable after the end of its process. Returns `false` in doubt.
fn is_readable(descriptor: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

/// Finds apps with this mark among all processes of this user.
pub fn find(mark: &str) -> Vec<AppProcess> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let variable = |name: &str| {
                environment
                    .split(|byte| *byte == 0)
                    .filter_map(|entry| str::from_utf8(entry).ok()?.split_once('='))
                    .find_map(|(key, value)| (key == name).then(|| value.to_owned()))
            };
            if variable(MARK_VARIABLE)? != mark {
                return None;
            }
            let run = RunId(variable(RUN_VARIABLE)?.parse().ok()?);
            let pid = Pid::from_raw(pid)?;
            // Child processes have the mark too; the app is the group leader.
            if rustix::process::getpgid(Some(pid)).ok()? != pid {
                return None;
            }
            let descriptor = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
            Some(AppProcess { run, pid, end: End::Found(Arc::new(descriptor)) })
        })
        .collect()
}

/// Returns the end of a file, from the start of a line.
pub fn tail(path: &Path, limit_bytes: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(limit_bytes)))?;
        let mut bytes = Vec::new();
        file.take(limit_bytes).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(match text.split_once('\n') {
            Some((_, rest)) if size > limit_bytes => rest.to_owned(),
            _ => text,
        })
    };
    read().unwrap_or_default()
}
