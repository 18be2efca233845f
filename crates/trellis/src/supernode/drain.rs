//! `trellis supernode drain`: tells a running node to take no new work, through the socket in its state directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use trellis_node::watch::{AskError, Link, SOCKET, ask, drain};

use super::status::advice;
use crate::duration;
use crate::remote::{clean, explain, print, remark};

const NOT_RUNNING: u8 = 1;
const STILL_AT_WORK: u8 = 3;
const UNREACHABLE: u8 = 4;
/// Between two looks at a node that is still at work.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The longest that is waited for a node. What takes longer is looked at by somebody.
const WAIT_LIMIT: Duration = Duration::from_secs(24 * 3600);

const AFTER_HELP: &str = "\
Examples:
  trellis supernode drain --wait && systemctl stop trellis-supernode
  trellis supernode drain --undo

Exit codes:
  0 it takes no new work (with --wait: and has none left; with --undo: it takes work again);
  1 no node runs there, or it does not answer; 2 refused arguments; 3 it was still at work after a day;
  4 the SuperLink was unreachable for the time of --superlink-timeout.
";

/// Let the SuperNode on this machine take no new work, and finish what it has
///
/// It stays connected, and a SuperLink of Trellis chooses it for no new round. A restart of the node ends it.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DrainArgs {
    /// State directory of the node [default: ~/.local/state/trellis/supernode]
    #[arg(long, value_name = "DIR", env = "TRELLIS_STATE_DIR", hide_env_values = true)]
    pub state_dir: Option<PathBuf>,
    /// Return when nothing is under way and all replies are delivered
    #[arg(long, conflicts_with = "undo")]
    pub wait: bool,
    /// With --wait: stop waiting if the SuperLink is unreachable for this long, e.g. 30s [default: a day]
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = parse_time)]
    pub superlink_timeout: Option<Duration>,
    /// Take work again
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

/// Tells the node with this state directory.
pub fn run(called: &str, state_dir: &Path, args: &DrainArgs) -> ExitCode {
    let socket = state_dir.join(SOCKET);
    let told = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(tell(&socket, args)),
        Err(error) => {
            remark(&format!("{called}: the system gives no runtime: {error}\n  to do: try again"));
            return ExitCode::from(NOT_RUNNING);
        }
    };
    match told {
        Ok(Waited::Drained) => ExitCode::SUCCESS,
        Ok(Waited::Unreachable) => {
            let advice = "its replies stay in the state directory; start the node again once the SuperLink is back";
            remark(&format!("{called}: the SuperLink is unreachable, the node keeps its replies\n  to do: {advice}"));
            ExitCode::from(UNREACHABLE)
        }
        Ok(Waited::StillAtWork) => {
            remark(&format!("{called}: it is still at work\n  to do: look at it with `trellis supernode status`"));
            ExitCode::from(STILL_AT_WORK)
        }
        Err(error) => {
            remark(&format!("{called}: {}\n  to do: {}", clean(&explain(&error)), advice(&error)));
            ExitCode::from(NOT_RUNNING)
        }
    }
}

/// Tells the node, and with `--wait` waits for it.
async fn tell(socket: &Path, args: &DrainArgs) -> Result<Waited, AskError> {
    if !drain(socket, !args.undo).await? {
        print("The node takes new work.\n");
        return Ok(Waited::Drained);
    }
    if !args.wait {
        print("The node takes no new work, and finishes what it has.\n");
        return Ok(Waited::Drained);
    }
    let since = Instant::now();
    let mut last_connected = since;
    loop {
        let status = ask(socket).await?;
        if status.is_drained() {
            print("The node takes no new work, and has none left.\n");
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
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
