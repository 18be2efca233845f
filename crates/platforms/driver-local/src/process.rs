//! One process: who it is, its start, its end. A number alone is nobody: numbers are used again.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::process::Command;
use tokio::sync::watch;

use crate::logs;
use crate::mark::{MARK, Mark};
use crate::recipe::Program;

/// Of our own program: leaves the session of whoever started it, and becomes another program.
const DETACHED: &str = "detached";
/// Settings of the control plane are not those of its parts.
const OWN_VARIABLES: &str = "TRELLIS_";

/// A process, and no other that has its number before or after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// When it started, in ticks since the machine did.
    pub started: u64,
    /// Another for each time that the machine starts.
    pub boot: String,
}

impl Identity {
    /// `None`: there is no such process, or it has ended and waits for its parent to notice.
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program comes second, in brackets, and may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        if matches!(fields.next()?, "Z" | "X" | "x") {
            return None;
        }
        let started = fields.nth(18)?.parse().ok()?;
        Some(Identity { pid, started, boot: boot()?.to_owned() })
    }

    pub fn is_alive(&self) -> bool {
        Identity::of(self.pid).as_ref() == Some(self)
    }
}

fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    let read = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_owned());
    BOOT.get_or_init(read).as_deref()
}

/// How a process ended, as far as anybody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Killed(i32),
    /// Another process had started it: the system does not tell.
    Unseen,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(code) => write!(f, "it exited with code {code}"),
            Ending::Killed(signal) => write!(f, "it was killed by signal {signal}"),
            Ending::Unseen => f.write_str("it has ended"),
        }
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Ending {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exited(code),
            (None, Some(signal)) => Ending::Killed(signal),
            (None, None) => Ending::Unseen,
        }
    }
}

/// A process that is watched.
#[derive(Debug, Clone)]
pub struct Process {
    pub identity: Identity,
    descriptor: Arc<AsyncFd<OwnedFd>>,
    /// Of a child: how it ended.
    reaped: Option<watch::Receiver<Option<Ending>>>,
}

impl Process {
    /// Finds one again. `None`: it has ended.
    pub fn find(identity: Identity) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(identity.pid).ok()?)?;
        let descriptor = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
        // Whoever it is now stays so: asked after the descriptor was opened.
        identity.is_alive().then_some(())?;
        let descriptor = Arc::new(awaited(descriptor).ok()?);
        Some(Process { identity, descriptor, reaped: None })
    }

    /// Starts a program that outlives this one, in a session of its own. `ours` is our own program.
    pub fn start(ours: &Path, program: &Program, mark: &Mark, log: &Path) -> io::Result<Process> {
        let output = logs::open(log)?;
        let mut command = Command::new(ours);
        // Not where whoever started us happened to be.
        command.current_dir(log.parent().unwrap_or(Path::new("/")));
        command.arg(DETACHED).arg(&program.path).args(&program.args);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_own(name)) {
            command.env_remove(name);
        }
        command.envs(&program.env).env(MARK, mark.to_string());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(false);
        let mut child = command.spawn()?;
        let identity = child.id().and_then(Identity::of);
        let process = identity.and_then(Process::find);
        let (tell, told) = watch::channel(None);
        tokio::spawn(async move {
            let _ = tell.send(Some(child.wait().await.map_or(Ending::Unseen, Ending::from)));
        });
        let process = process.ok_or_else(|| io::Error::other("it ended at once"))?;
        Ok(Process { reaped: Some(told), ..process })
    }

    /// Resolves when it has ended, at once and whoever started it.
    pub async fn ended(&self) -> Ending {
        match &self.reaped {
            Some(told) => {
                let mut told = told.clone();
                let ending = told.wait_for(Option::is_some).await.ok().and_then(|ending| *ending);
                ending.unwrap_or(Ending::Unseen)
            }
            None => {
                // A descriptor that cannot be waited for is of no process any more.
                let _ = self.descriptor.readable().await;
                Ending::Unseen
            }
        }
    }

    pub fn is_alive(&self) -> bool {
        self.identity.is_alive()
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // One that has ended needs none.
        let _ = pidfd_send_signal(self.descriptor.get_ref().as_fd(), signal);
    }
}

/// Becomes readable when the process ends. What is to take the place of this call is unsafe, since others may close what
/// they hand over; one who owns a descriptor cannot.
#[allow(deprecated)]
fn awaited(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

fn is_own(name: &OsString) -> bool {
    name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let own = Identity::of(std::process::id()).expect("this process lives");
        assert!(own.is_alive());
        assert!(!Identity { started: own.started - 1, ..own.clone() }.is_alive());
        assert!(!Identity { boot: "another".to_owned(), ..own }.is_alive());
    }

    #[tokio::test]
    async fn who_has_ended_and_was_not_noticed_is_nobody() {
        let mut child = std::process::Command::new("true").spawn().expect("a program");
        let pid = Pid::from_child(&child);
        let descriptor = awaited(pidfd_open(pid, PidfdFlags::NONBLOCK).expect("it is there")).expect("a descriptor");
        let _ = descriptor.readable().await.expect("it ends");
        assert_eq!(Identity::of(child.id()), None);
        child.wait().expect("it has ended");
    }
}
