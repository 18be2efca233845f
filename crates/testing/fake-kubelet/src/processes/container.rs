//! One container as a process: starts it in its namespaces, signals it, and runs commands in it.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::command::run;
use super::plan::Plan;

/// Timeout for the first process of the container.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Test harnesses find processes of a test by this variable.
const MARK: &str = "LC_MARK_OF_TRELLIS_TEST";
/// Exit codes of signals, as in shells and Kubernetes.
const SIGNAL_CODES: i32 = 128;

pub(super) struct Running {
    /// PID of the supervising process, which ends the container when it ends.
    outer: u32,
    plan: Plan,
}

impl Running {
    /// `network`: a process in the network namespace of the pod. Output is appended to the log.
    pub fn start(mut plan: Plan, network: u32, scratch: &Path, log: &Path) -> Result<(Child, Running), String> {
        std::fs::create_dir_all(scratch).map_err(|why| format!("{}: {why}", scratch.display()))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(|why| format!("{}: {why}", log.display()))?;
        if let Ok(mark) = std::env::var(MARK) {
            plan.env.insert(MARK.to_owned(), mark);
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", "--target", &network.to_string(), "--net", "--uts"]);
        command.args([
            "unshare",
            "--mount",
            "--pid",
            "--ipc",
            "--fork",
            "--kill-child=KILL",
            "--propagation",
            "private",
        ]);
        command.args(["sh", "-c", &plan.script(scratch)]);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|why| why.to_string())?)
            .stderr(log)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|why| format!("the container's process: {why}"))?;
        let outer = child.id().unwrap_or_default();
        Ok((child, Running { outer, plan }))
    }

    /// PID of the first process of the container, on this machine.
    async fn first(&self) -> Option<i32> {
        let outer = self.outer;
        loop {
            let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
            if let Some(first) = children.split_whitespace().next() {
                return first.parse().ok();
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub async fn terminate(&self) {
        if let Some(pid) = self.first().await.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Runs a command in the container, as the same user.
    pub async fn execute(&self, argv: &[String]) -> Result<(), String> {
        let first = self.first().await.ok_or("the container does not run")?.to_string();
        let script = format!("exec {}", self.plan.program(argv));
        let within = ["--target", &first, "--mount", "--net", "--pid", "--uts", "--ipc", "--root", "sh", "-c", &script];
        run("nsenter", &within).await.map(drop)
    }
}

pub(super) fn exit_code(status: std::io::Result<ExitStatus>) -> i32 {
    let of = |status: ExitStatus| status.code().or_else(|| status.signal().map(|signal| SIGNAL_CODES + signal));
    status.ok().and_then(of).unwrap_or(-1)
}
