//! One process: identity, start and end. A pid alone identifies no process, since the kernel reuses pids.

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

/// Command of our own program: starts a new session, then executes another program.
const DETACHED: &str = "detached";
/// Prefix of the variables of the control plane. Parts must not inherit them.
const OWN_VARIABLES_PREFIX: &str = "TRELLIS_";

/// Identifies a process, even after its pid is reused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub started: u64,
    /// Differs for each boot of the machine.
    pub boot: String,
}

impl Identity {
    /// `None` if there is no such process, or only a zombie.
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name of the program in brackets, with arbitrary content.
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

/// The exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// The process is not a child of this one, so the kernel does not report its exit status.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Exit::Unknown => f.write_str("has ended"),
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unknown,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Process {
    pub identity: Identity,
    descriptor: Arc<AsyncFd<OwnedFd>>,
    /// Of a child: its exit status.
    reaped: Option<watch::Receiver<Option<Exit>>>,
}

impl Process {
    /// Opens a process by its identity. `None` if it has ended.
    pub fn find(identity: Identity) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(identity.pid).ok()?)?;
        let descriptor = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
        // Checked after the descriptor was opened: from now on, the descriptor cannot refer to another process.
        identity.is_alive().then_some(())?;
        let descriptor = Arc::new(async_descriptor(descriptor).ok()?);
        Some(Process { identity, descriptor, reaped: None })
    }

    /// Starts a program in a session of its own, so that it outlives this process. `ours` is our own program.
    pub fn start(ours: &Path, program: &Program, mark: &Mark, log: &Path) -> io::Result<Process> {
        let output = logs::open(log)?;
        let mut command = Command::new(ours);
        // Not the directory in which this process was started.
        command.current_dir(log.parent().unwrap_or(Path::new("/")));
        command.arg(DETACHED).arg(&program.path).args(&program.args);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_own_variable(name)) {
            command.env_remove(name);
        }
        command.envs(&program.env).env(MARK, mark.to_string());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(false);
        let mut child = command.spawn()?;
        let identity = child.id().and_then(Identity::of);
        let process = identity.and_then(Process::find);
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            let _ = sender.send(Some(child.wait().await.map_or(Exit::Unknown, Exit::from)));
        });
        let process = process.ok_or_else(|| io::Error::other("it exited immediately"))?;
        Ok(Process { reaped: Some(receiver), ..process })
    }

    /// Resolves when the process has ended, also if it is not a child.
    pub async fn ended(&self) -> Exit {
        match &self.reaped {
            Some(receiver) => {
                let mut receiver = receiver.clone();
                let exit = receiver.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
                exit.unwrap_or(Exit::Unknown)
            }
            None => {
                // The descriptor is readable when the process has ended; so is an error.
                let _ = self.descriptor.readable().await;
                Exit::Unknown
            }
        }
    }

    pub fn is_alive(&self) -> bool {
        self.identity.is_alive()
    }

    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // An error means that the process has ended already.
        let _ = pidfd_send_signal(self.descriptor.get_ref().as_fd(), signal);
    }
}

/// Becomes readable when the process ends. The replacement of the deprecated call is unsafe, because a borrowed descriptor may be
/// closed by its owner; this one is owned.
#[allow(deprecated)]
fn async_descriptor(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

fn is_own_variable(name: &OsString) -> bool {
    name.as_encoded_bytes().starts_with(OWN_VARIABLES_PREFIX.as_bytes())
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
    async fn a_zombie_has_no_identity() {
        let mut child = std::process::Command::new("true").spawn().expect("a program");
        let pid = Pid::from_child(&child);
        let descriptor =
            async_descriptor(pidfd_open(pid, PidfdFlags::NONBLOCK).expect("it is there")).expect("a descriptor");
        let _ = descriptor.readable().await.expect("it ends");
        assert_eq!(Identity::of(child.id()), None);
        child.wait().expect("it has ended");
    }
}
