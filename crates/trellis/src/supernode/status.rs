//! `trellis supernode status`: prints the status of a running node, read through the socket in its state directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use trellis_clock::now_s;
use trellis_node::watch::{AskError, Gpu, Link, SOCKET, Status, ask};

use trellis_terminal::size::rounded as amount;
use trellis_terminal::{Cell, Column, Format, OutputArgs, Table, Tone, age, clean, explain, print, print_as, remark};

const NOT_RUNNING: u8 = 1;
const NOT_CONNECTED: u8 = 3;

const AFTER_HELP: &str = "\
Examples:
  trellis supernode status                            the node with the default state directory
  trellis supernode status --state-dir ~/nodes/second
  trellis supernode status -o json | jq -r .link.state

Exit codes:
  0 it is connected; 1 no node runs there, or it does not answer; 2 refused arguments;
  3 it runs, but is not connected to its SuperLink.
";

/// Show how the SuperNode on this machine is: its link, runs, apps, and replies that wait
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StatusArgs {
    /// State directory of the node [default: ~/.local/state/trellis/supernode]
    #[arg(long, value_name = "DIR", env = "TRELLIS_STATE_DIR", hide_env_values = true)]
    pub state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Queries the node with this state directory.
pub fn run(called: &str, state_dir: &Path, format: Format) -> ExitCode {
    let socket = state_dir.join(SOCKET);
    let asked = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
        let status = runtime.block_on(ask(&socket));
        status.map_err(|error| (explain(&error), advice(&error)))
    });
    let status = asked.unwrap_or_else(|error| Err((format!("no async runtime: {error}"), "try again")));
    match status {
        Err((what, advice)) => {
            remark(&format!("{called}: {}\n  to do: {advice}", clean(&what)));
            ExitCode::from(NOT_RUNNING)
        }
        Ok(status) => {
            match format {
                Format::Json | Format::Yaml => print_as(format, &status),
                Format::Table => show(&status, now_s()),
            }
            match status.link {
                Link::Connected { .. } => ExitCode::SUCCESS,
                _ => ExitCode::from(NOT_CONNECTED),
            }
        }
    }
}

/// Advice for each error of the query.
pub fn advice(error: &AskError) -> &'static str {
    match error {
        AskError::NotRunning { .. } => "start one with `trellis supernode`, or name its directory with --state-dir",
        AskError::Closed { .. } => "ask as the user that runs the node",
        AskError::Silent { .. } => "see its log; if it hangs, restart it: no data is lost",
        AskError::Strange { .. } => "ask with the trellis that runs the node",
    }
}

fn show(status: &Status, now: f64) {
    print(&facts(status, now).iter().map(|(title, text)| format!("{title:<13}{}\n", clean(text))).collect::<String>());
    if !status.runs.is_empty() {
        print("\n");
        runs(status, now).print();
    }
    if !status.apps.is_empty() {
        print("\n");
        apps(status, now).print();
    }
}

/// One line each.
fn facts(status: &Status, now: f64) -> Vec<(&'static str, String)> {
    let name = status.node_name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let node = status.node_id.map_or_else(|| "not known to the SuperLink yet".to_owned(), |id| format!("{id}{name}"));
    let started = age(now, status.started_at);
    let replies = match (status.replies.waiting, status.replies.oldest_at) {
        (0, _) => "none waiting".to_owned(),
        (waiting, oldest) => {
            let oldest = oldest.map(|oldest| format!(", the oldest for {}", age(now, oldest))).unwrap_or_default();
            format!("{waiting} waiting ({}){oldest}", amount(status.replies.bytes))
        }
    };
    let drained = if status.draining { "; draining" } else { "" };
    let instructions = format!("{} under way{drained}", status.instructions_under_way);
    let disk = &status.disk;
    let mut facts = vec![
        ("Node", node),
        ("SuperLink", status.superlink.clone()),
        ("Link", link(&status.link, now)),
        ("Instructions", instructions),
        ("Replies", replies),
    ];
    match &status.gpu {
        Gpu::NotAsked => {}
        Gpu::Ready { devices } => facts.push(("GPU", devices.join(", "))),
        Gpu::Missing { why } => facts.push(("GPU", format!("missing: {why}"))),
    }
    if let Some(sandbox) = &status.sandbox {
        let missing: String =
            sandbox.missing.iter().map(|missing| format!("; the kernel does not have {missing}")).collect();
        facts.push(("Sandbox", format!("{}, network {}{missing}", sandbox.level.word(), sandbox.network.word())));
    }
    if disk.limit_bytes > 0 {
        facts.push(("Disk", format!("{} of {}", amount(disk.used_bytes), amount(disk.limit_bytes))));
    }
    facts.push(("State", status.state_dir.display().to_string()));
    facts.push(("Process", format!("{}, up {started}, trellis {}", status.pid, status.version)));
    facts
}

fn link(link: &Link, now: f64) -> String {
    match link {
        Link::Connecting { since } => format!("connecting, for {}", age(now, *since)),
        Link::Connected { since, transport } => {
            format!("connected over {}, for {}", transport.word(), age(now, *since))
        }
        Link::Disconnected { since, why, retry_at } => {
            let next = match retry_at - now {
                pause if pause > 0.0 => format!("retrying in {}s", pause.ceil()),
                _ => "retrying now".to_owned(),
            };
            format!("not connected, for {}, {next}: {why}", age(now, *since))
        }
    }
}

fn runs(status: &Status, now: f64) -> Table {
    let mut table = Table::new(["RUN", "UNDER WAY", "REPLIED", "FAILED", "LAST"].map(Column::whole));
    for run in &status.runs {
        let failed = Cell::new(&run.failed.to_string(), if run.failed > 0 { Tone::Bad } else { Tone::Plain });
        table.row([
            run.run_id.to_string().into(),
            run.under_way.to_string().into(),
            run.replied.to_string().into(),
            failed,
            age(now, run.heard_at).into(),
        ]);
    }
    table
}

fn apps(status: &Status, now: f64) -> Table {
    let mut table = Table::new(["APP (PID)", "RUN", "MEMORY", "STATE", "UP"].map(Column::whole));
    for app in &status.apps {
        table.row([
            app.pid.map(|pid| pid.to_string()).unwrap_or_default().into(),
            app.run_id.to_string().into(),
            app.rss_bytes.map(amount).unwrap_or_default().into(),
            Cell::from(app.state.word()),
            age(now, app.since).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use trellis_node::watch::{Disk, Replies, Transport};

    use super::*;

    fn status(link: Link) -> Status {
        Status {
            version: "0.1.0".into(),
            pid: 42,
            started_at: 40.0,
            state_dir: "/state".into(),
            superlink: "link:9092".into(),
            node_id: None,
            node_name: None,
            link,
            draining: true,
            asking: false,
            instructions_under_way: 1,
            runs: Vec::new(),
            replies: Replies { waiting: 2, bytes: 3 << 19, oldest_at: Some(70.0) },
            apps: Vec::new(),
            sandbox: None,
            gpu: Gpu::Missing { why: "asked for 1, found none".into() },
            disk: Disk { used_bytes: 100, limit_bytes: 20 << 30 },
        }
    }

    #[test]
    fn a_node_that_waits_for_its_link_says_why_and_until_when() {
        let lost = Link::Disconnected { since: 70.0, why: "connection refused".into(), retry_at: 112.5 };
        let text: Vec<String> =
            facts(&status(lost), 100.0).into_iter().map(|(title, text)| format!("{title}: {text}")).collect();
        assert_eq!(
            text,
            [
                "Node: not known to the SuperLink yet",
                "SuperLink: link:9092",
                "Link: not connected, for 30s, retrying in 13s: connection refused",
                "Instructions: 1 under way; draining",
                "Replies: 2 waiting (1.5 MiB), the oldest for 30s",
                "GPU: missing: asked for 1, found none",
                "Disk: 100 B of 20.0 GiB",
                "State: /state",
                "Process: 42, up 1m, trellis 0.1.0",
            ]
        );
    }

    #[test]
    fn links() {
        for (state, expected) in [
            (Link::Connecting { since: 99.0 }, "connecting, for 1s"),
            (Link::Connected { since: 40.0, transport: Transport::Http }, "connected over http, for 1m"),
            (
                Link::Disconnected { since: 90.0, why: "reset".into(), retry_at: 99.0 },
                "not connected, for 10s, retrying now: reset",
            ),
        ] {
            assert_eq!(link(&state, 100.0), expected);
        }
    }
}
