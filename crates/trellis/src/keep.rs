//! `trellis keep`: starts a server in the background and restarts it when it dies. The server restarts its keeper in the same
//! way, so both run until both are killed at once or a stop is requested. Each detects the other by the lock that it holds.
//!
//! Knows no federations, and needs almost no memory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process, setsid};
use tokio::process::{Child, Command};
use trellis_api::{Home, Lock, Serving};

use crate::private_dir;
use crate::process::{MEMORY_AS_NEEDED, OWN_PROGRAM, StopSignals};

/// The backoff between restarts.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A process that ran for this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Limit for the stop of a server.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for the first start of a server.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A larger log is rotated at the next start; one backup is kept.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// Lines of the log in the error of a failed start.
const LAST_LINES: usize = 12;

/// Keep a server of this machine running
#[derive(Debug, Args)]
pub struct KeepArgs {
    #[arg(long)]
    home: PathBuf,
}

pub fn run(args: &KeepArgs) -> ExitCode {
    // Detaches from the terminal and its Ctrl-C. Fails if the process leads a session already, which is as good.
    let _ = setsid();
    let Some(home) = Home::find(Some(&args.home)) else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(keep(&home))) {
        Ok(code) => code,
        Err(error) => {
            log(&format!("the keeper failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// How a server ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// A stop was requested.
    Stopped,
    Died,
    /// It failed before it served, so a restart would fail, too.
    NeverServed,
}

async fn keep(home: &Home) -> io::Result<ExitCode> {
    let Ok(_lock) = Lock::take(&home.keeper_lock())? else { return Ok(ExitCode::SUCCESS) };
    let mut signals = StopSignals::listen()?;
    let mut backoff = MIN_BACKOFF;
    let mut served = home.serving().is_some();
    loop {
        let began = Instant::now();
        let end = tokio::select! {
            end = run_once(home, served) => end?,
            _ = signals.next() => return stop(home).await,
        };
        match end {
            End::Stopped => return Ok(ExitCode::SUCCESS),
            End::NeverServed => return Ok(ExitCode::FAILURE),
            End::Died => served = true,
        }
        backoff = if began.elapsed() > STABLE_AFTER { MIN_BACKOFF } else { backoff };
        log(&format!("the server died; restarting it in {} ms", backoff.as_millis()));
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            _ = signals.next() => return stop(home).await,
        }
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// Waits for the end of the running server, or of a new one.
async fn run_once(home: &Home, served: bool) -> io::Result<End> {
    if Lock::holder(&home.server_lock())?.is_some() {
        Lock::wait(&home.server_lock())?.ended().await?;
        return Ok(if home.last_serving().is_none() { End::Stopped } else { End::Died });
    }
    let mut server = start_server(home)?;
    let pid = server.id();
    let status = server.wait().await?;
    let served = served || home.last_serving().is_some_and(|last| Some(last.pid) == pid);
    Ok(end_of(status, served))
}

fn end_of(status: ExitStatus, served: bool) -> End {
    match (status.success(), served) {
        (true, _) => End::Stopped,
        (false, true) => End::Died,
        (false, false) => End::NeverServed,
    }
}

fn start_server(home: &Home) -> io::Result<Child> {
    rotate(&home.log());
    let mut command = own_program(home)?;
    command.arg("server").arg("--home").arg(home.directory()).arg("--kept").spawn()
}

fn start_keeper(home: &Home) -> io::Result<Child> {
    let mut command = own_program(home)?;
    command.arg("keep").arg("--home").arg(home.directory()).spawn()
}

/// This program, with its output in the server's log and the home as working directory.
fn own_program(home: &Home) -> io::Result<Command> {
    let log = log_file(&home.log())?;
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("trellis").current_dir(home.directory()).env(MEMORY_AS_NEEDED.0, MEMORY_AS_NEEDED.1);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

fn log_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn rotate(log: &Path) {
    if log.metadata().is_ok_and(|metadata| metadata.len() > MAX_LOG_BYTES) {
        // If the rename fails, the log continues to grow, which is no reason not to serve.
        let _ = fs::rename(log, log.with_extension("log.1"));
    }
}

/// Stops the server and waits for its end.
async fn stop(home: &Home) -> io::Result<ExitCode> {
    if let Some(server) = Lock::holder(&home.server_lock())? {
        terminate(server)?;
        let gone = Lock::wait(&home.server_lock())?.ended();
        if tokio::time::timeout(STOP_TIMEOUT, gone).await.is_err() {
            log(&format!("the server, process {server}, has not stopped within {} s", STOP_TIMEOUT.as_secs()));
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn terminate(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match pid.map(|pid| kill_process(pid, Signal::TERM)) {
        // It ended in the meantime, or has not written its process id yet: the wait below decides.
        None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Logs to stderr, which is the log of the server.
fn log(text: &str) {
    trellis_terminal::remark(&format!("keeper: {text}"));
}

/// Called by the server: starts a keeper whenever there is none, until the future is dropped.
pub async fn hold(home: Home) {
    let mut backoff = MIN_BACKOFF;
    loop {
        let began = Instant::now();
        match Lock::wait(&home.keeper_lock()) {
            Ok(waiting) => drop(waiting.ended().await),
            Err(error) => tracing::warn!(%error, "cannot wait for the keeper"),
        }
        match start_keeper(&home) {
            Ok(mut keeper) => {
                tracing::info!("started a keeper: none was running");
                // A child process must be waited for; the lock is released with its end.
                let _ = keeper.wait().await;
            }
            Err(error) => tracing::warn!(%error, "cannot start a keeper"),
        }
        backoff = if began.elapsed() > STABLE_AFTER { MIN_BACKOFF } else { (backoff * 2).min(MAX_BACKOFF) };
        tokio::time::sleep(backoff).await;
    }
}

/// Starts a server in the background, and waits until it serves.
pub async fn start(home: &Home) -> Result<Serving, String> {
    let unusable = |error: io::Error| format!("{} cannot be used: {error}", home.directory().display());
    private_dir::claim(home.directory()).map_err(|error| error.to_string())?;
    let mut keeper = start_keeper(home).map_err(|error| format!("the server cannot be started: {error}"))?;
    let began = Instant::now();
    loop {
        if let Some(serving) = home.serving().filter(|_| home.admin_token().is_file()) {
            return Ok(serving);
        }
        let gone = keeper.try_wait().map_err(unusable)?;
        // Another process may have started a keeper at the same moment: then ours exits with success.
        if gone.is_some_and(|status| !status.success()) || began.elapsed() > START_TIMEOUT {
            return Err(format!(
                "the server did not start; the end of {}:\n{}",
                home.log().display(),
                tail(&home.log())
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Stops keeper and server if they were started in the background. Returns `false` if the server has no keeper.
pub async fn end(home: &Home) -> Result<bool, String> {
    let failed = |error: io::Error| format!("the server cannot be stopped: {error}");
    let Some(keeper) = Lock::holder(&home.keeper_lock()).map_err(failed)? else { return Ok(false) };
    terminate(keeper).map_err(failed)?;
    let gone = Lock::wait(&home.keeper_lock()).map_err(failed)?.ended();
    match tokio::time::timeout(STOP_TIMEOUT, gone).await {
        Ok(ended) => ended.map(|()| true).map_err(failed),
        Err(_) => {
            Err(format!("the server has not stopped within {} s; see {}", STOP_TIMEOUT.as_secs(), home.log().display()))
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_server_that_served_is_restarted() {
        let (good, bad, killed) = (0, 1 << 8, 9);
        for (status, served, expected) in [
            (good, true, End::Stopped),
            (good, false, End::Stopped),
            (bad, true, End::Died),
            (killed, true, End::Died),
            (bad, false, End::NeverServed),
            (killed, false, End::NeverServed),
        ] {
            assert_eq!(end_of(ExitStatus::from_raw(status), served), expected, "{status} {served}");
        }
    }

    #[test]
    fn a_large_log_is_rotated() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("server.log");
        fs::write(&log, "small").expect("written");
        rotate(&log);
        assert!(log.is_file());
        log_file(&log).expect("opened").set_len(MAX_LOG_BYTES + 1).expect("grown");
        rotate(&log);
        assert!(!log.is_file() && directory.path().join("server.log.1").is_file());
    }
}
