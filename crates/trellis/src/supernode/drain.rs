//! `trellis supernode drain`: stops a running node from taking work, through the socket in its state directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use trellis_node::watch::{AskError, Link, SOCKET, ask, drain};
use trellis_terminal::duration;
use trellis_terminal::{clean, explain, print, remark};

use super::status::advice;

const NOT_RUNNING: u8 = 1;
const STILL_AT_WORK: u8 = 3;
const UNREACHABLE: u8 = 4;
/// Poll interval of a node with unfinished work.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Limit of --wait.
const WAIT_LIMIT: Duration = Duration::from_secs(24 * 3600);

const AFTER_HELP: &str = "\
Examples:
  trellis supernode drain --wait && systemctl stop trellis-supernode
  trellis supernode drain --undo

Exit codes:
  0 it takes no new work (with --wait: and has no unfinished work; with --undo: it takes work again);
  1 no node runs there, or it does not answer; 2 refused arguments; 3 it was still working after a day;
  4 the SuperLink was unreachable for the time of --superlink-timeout.
";

/// Stop taking new work on the SuperNode of this machine, and finish the current work
///
/// It stays connected, and a SuperLink of Trellis does not select it for new rounds. A restart of the node resets this.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DrainArgs {
    /// State directory of the node [default: ~/.local/state/trellis/supernode]
    #[arg(long, value_name = "DIR", env = "TRELLIS_STATE_DIR", hide_env_values = true)]
    pub state_dir: Option<PathBuf>,
    /// Return when all instructions are finished and all replies are delivered
    #[arg(long, conflicts_with = "undo")]
    pub wait: bool,
    /// With --wait: stop waiting if the SuperLink is unreachable for this long, e.g. 30s [default: a day]
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = parse_time)]
    pub superlink_timeout: Option<Duration>,
    /// Resume taking work
    #[arg(long)]
    pub undo: bool,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .ok_or_else(|| format!("{text:?} is no length of time: give a number and a unit, e.g. 30s or 5m"))
}

/// Why waiting ended.
enum Waited {
    Drained,
    StillAtWork,
    Unreachable,
}

/// Drains the node with this state directory.
pub fn run(called: &str, state_dir: &Path, args: &DrainArgs) -> ExitCode {
    let socket = state_dir.join(SOCKET);
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(request(&socket, args)),
        Err(error) => {
            remark(&format!("{called}: no async runtime: {error}\n  to do: try again"));
            return ExitCode::from(NOT_RUNNING);
        }
    };
    match outcome {
        Ok(Waited::Drained) => ExitCode::SUCCESS,
        Ok(Waited::Unreachable) => {
            let advice = "its replies stay in the state directory; start the node again once the SuperLink is back";
            remark(&format!("{called}: the SuperLink is unreachable, the node keeps its replies\n  to do: {advice}"));
            ExitCode::from(UNREACHABLE)
        }
        Ok(Waited::StillAtWork) => {
            remark(&format!("{called}: it is still working\n  to do: check it with `trellis supernode status`"));
            ExitCode::from(STILL_AT_WORK)
        }
        Err(error) => {
            remark(&format!("{called}: {}\n  to do: {}", clean(&explain(&error)), advice(&error)));
            ExitCode::from(NOT_RUNNING)
        }
    }
}

/// Sends the request, and with `--wait` polls the node.
async fn request(socket: &Path, args: &DrainArgs) -> Result<Waited, AskError> {
    if !drain(socket, !args.undo).await? {
        print("The node takes new work.\n");
        return Ok(Waited::Drained);
    }
    if !args.wait {
        print("The node takes no new work, and finishes its current work.\n");
        return Ok(Waited::Drained);
    }
    let since = Instant::now();
    let mut last_connected = since;
    loop {
        let status = ask(socket).await?;
        if status.is_drained() {
            print("The node takes no new work, and has no unfinished work.\n");
            return Ok(Waited::Drained);
        }
        if matches!(status.link, Link::Connected { .. }) {
            last_connected = Instant::now();
        }
        if args.superlink_timeout.is_some_and(|limit| last_connected.elapsed() >= limit) {
            return Ok(Waited::Unreachable);
        }
        if since.elapsed() >= WAIT_LIMIT {
            return Ok(Waited::StillAtWork);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
