//! `trellis keep`: starts a server in the background, and again when it dies. The server does the same for its keeper, so that
//! only who ends both at once, or asks for the end, ends them. Each knows that the other lives by the lock that it holds.
//!
//! Decides nothing about federations, and holds almost no memory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process, setsid};
use tokio::process::{Child, Command};

use crate::home::{Home, Lock, Serving};
use crate::process::{MEMORY_AS_NEEDED, OWN_PROGRAM, StopSignals};

/// Between two starts of what dies again and again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Who lived for so long did not die at once.
const LIVED: Duration = Duration::from_secs(60);
/// How long a server may take to stop before it is no longer waited for.
const STOPPING: Duration = Duration::from_secs(30);
/// How long the first start of a server may take.
const STARTING: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(10);
/// A larger log is put aside at the next start; one is kept.
const LARGEST_LOG_BYTES: u64 = 16 << 20;
/// How much of a log tells why a start failed.
const LAST_LINES: usize = 12;

/// Keep a server of this machine alive
#[derive(Debug, Args)]
pub struct KeepArgs {
    #[arg(long)]
    home: PathBuf,
}

pub fn run(args: &KeepArgs) -> ExitCode {
    // Nobody's terminal, and nobody's Ctrl-C. Who leads a session already has none to leave.
    let _ = setsid();
    let Some(home) = Home::find(Some(&args.home)) else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(keep(&home))) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("the server is not kept any longer: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// How a server ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It was asked to.
    Stopped,
    Died,
    /// It never served, and will not the next time either.
    NeverServed,
}

async fn keep(home: &Home) -> io::Result<ExitCode> {
    let Ok(_lock) = Lock::take(&home.keeper_lock())? else { return Ok(ExitCode::SUCCESS) };
    let mut signals = StopSignals::listen()?;
    let mut pause = FIRST_PAUSE;
    let mut served = home.serving().is_some();
    loop {
        let began = Instant::now();
        let end = tokio::select! {
            end = one_life(home, served) => end?,
            _ = signals.next() => return stop(home).await,
        };
        match end {
            End::Stopped => return Ok(ExitCode::SUCCESS),
            End::NeverServed => return Ok(ExitCode::FAILURE),
            End::Died => served = true,
        }
        pause = if began.elapsed() > LIVED { FIRST_PAUSE } else { pause };
        say(&format!("the server died; it is started again in {} ms", pause.as_millis()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = signals.next() => return stop(home).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// One server, from its start, or from now on where one lives already, to its end.
async fn one_life(home: &Home, served: bool) -> io::Result<End> {
    if Lock::holder(&home.server_lock())?.is_some() {
        Lock::wait(&home.server_lock())?.ended().await?;
        return Ok(if home.last_serving().is_none() { End::Stopped } else { End::Died });
    }
    let mut server = start_server(home)?;
    let pid = server.id();
    let status = server.wait().await?;
    let served = served || home.last_serving().is_some_and(|last| Some(last.pid) == pid);
    Ok(judge(status, served))
}

fn judge(status: ExitStatus, served: bool) -> End {
    match (status.success(), served) {
        (true, _) => End::Stopped,
        (false, true) => End::Died,
        (false, false) => End::NeverServed,
    }
}

fn start_server(home: &Home) -> io::Result<Child> {
    put_aside(&home.log());
    let mut command = own_program(home)?;
    command.arg("server").arg("--home").arg(home.directory()).arg("--kept").spawn()
}

fn start_keeper(home: &Home) -> io::Result<Child> {
    let mut command = own_program(home)?;
    command.arg("keep").arg("--home").arg(home.directory()).spawn()
}

/// This program, with nothing of ours: its output goes to the server's log, and its place is the home.
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

fn put_aside(log: &Path) {
    if log.metadata().is_ok_and(|metadata| metadata.len() > LARGEST_LOG_BYTES) {
        // Where that does not work, the log goes on growing: no reason not to serve.
        let _ = fs::rename(log, log.with_extension("log.1"));
    }
}

/// Asks the server to stop, and waits for it.
async fn stop(home: &Home) -> io::Result<ExitCode> {
    if let Some(server) = Lock::holder(&home.server_lock())? {
        terminate(server)?;
        let gone = Lock::wait(&home.server_lock())?.ended();
        if tokio::time::timeout(STOPPING, gone).await.is_err() {
            say(&format!("the server, process {server}, has not stopped within {} s", STOPPING.as_secs()));
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn terminate(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match pid.map(|pid| kill_process(pid, Signal::TERM)) {
        // It has ended meanwhile, or has not said who it is: waiting finds out.
        None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

/// In the log of the server, which is our stderr.
fn say(text: &str) {
    crate::remote::remark(&format!("keeper: {text}"));
}

/// The server's part: a keeper that dies is followed by another, for as long as this is awaited.
pub async fn hold(home: Home) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        match Lock::wait(&home.keeper_lock()) {
            Ok(waiting) => drop(waiting.ended().await),
            Err(error) => tracing::warn!(%error, "the keeper cannot be watched"),
        }
        match start_keeper(&home) {
            Ok(mut keeper) => {
                tracing::info!("a keeper was started: there was none");
                // It is our child: its end must be heard, and comes with that of the lock.
                let _ = keeper.wait().await;
            }
            Err(error) => tracing::warn!(%error, "a keeper cannot be started"),
        }
        pause = if began.elapsed() > LIVED { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::time::sleep(pause).await;
    }
}

/// Starts a server in the background, and waits until it serves.
pub async fn start(home: &Home) -> Result<Serving, String> {
    let unusable = |error: io::Error| format!("{} cannot be used: {error}", home.directory().display());
    home.make().map_err(|error| error.to_string())?;
    let mut keeper = start_keeper(home).map_err(|error| format!("a server cannot be started: {error}"))?;
    let began = Instant::now();
    loop {
        if let Some(serving) = home.serving().filter(|_| home.admin_token().is_file()) {
            return Ok(serving);
        }
        let gone = keeper.try_wait().map_err(unusable)?;
        // Somebody else may have started one at the same moment: then ours leaves in good order.
        if gone.is_some_and(|status| !status.success()) || began.elapsed() > STARTING {
            return Err(format!(
                "the server did not start; the end of {}:\n{}",
                home.log().display(),
                tail(&home.log())
            ));
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Ends keeper and server, if they were started in the background. `false`: this server is somebody's own.
pub async fn end(home: &Home) -> Result<bool, String> {
    let looked = |error: io::Error| format!("the server cannot be stopped: {error}");
    let Some(keeper) = Lock::holder(&home.keeper_lock()).map_err(looked)? else { return Ok(false) };
    terminate(keeper).map_err(looked)?;
    let gone = Lock::wait(&home.keeper_lock()).map_err(looked)?.ended();
    match tokio::time::timeout(STOPPING, gone).await {
        Ok(ended) => ended.map(|()| true).map_err(looked),
        Err(_) => {
            Err(format!("the server has not stopped within {} s; see {}", STOPPING.as_secs(), home.log().display()))
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
    fn what_died_is_started_again_and_what_never_served_is_not() {
        let (good, bad, killed) = (0, 1 << 8, 9);
        for (status, served, expected) in [
            (good, true, End::Stopped),
            (good, false, End::Stopped),
            (bad, true, End::Died),
            (killed, true, End::Died),
            (bad, false, End::NeverServed),
            (killed, false, End::NeverServed),
        ] {
            assert_eq!(judge(ExitStatus::from_raw(status), served), expected, "{status} {served}");
        }
    }

    #[test]
    fn a_log_that_grew_too_large_is_put_aside_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("server.log");
        fs::write(&log, "small").expect("written");
        put_aside(&log);
        assert!(log.is_file());
        log_file(&log).expect("opened").set_len(LARGEST_LOG_BYTES + 1).expect("grown");
        put_aside(&log);
        assert!(!log.is_file() && directory.path().join("server.log.1").is_file());
    }
}
