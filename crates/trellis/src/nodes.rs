//! `trellis nodes`: nodes, their status and their releases of Flower. For a federation of a server as the plan knows them, for
//! a named SuperLink as that knows them.

use std::process::ExitCode;

use clap::Args;
use trellis_api::Node as Planned;
use trellis_clock::now_s;
use trellis_terminal::{Cell, Column, Format, Listing, OutputArgs, Table, Tone, age, print_as, remark};
use trellis_wire::call::{ListNodes, Node};

use crate::remote::{self, CallerArgs, CommandError, Destination as _, FederationArgs, Found};

const AFTER_HELP: &str = "\
Examples:
  trellis nodes                                      of the only federation of the server
  trellis nodes lab
  trellis nodes --superlink link.example.org:8000 --root-certificates ca.crt --token-file my.token
  trellis nodes -o json | jq -r '.nodes[] | select(.status == \"online\") | .id'

Without --superlink (TRELLIS_SUPERLINK) it lists nodes of a federation of the server; if no server runs,
those of a SuperLink at 127.0.0.1:8000. For a federation, SHARD is the part of the data of the node, and WHY
the reason of its status. POOL is \"(joined)\" for nodes that joined from elsewhere; `trellis node drain` and
`trellis node revoke` take their names.

For a SuperLink, CLIENT is the transport and the Flower release of the node (\"grpc\" alone if the release is
unknown), SINCE the time in its status. -o json also has location,
times, and the fingerprint of its key.
";

/// Show the nodes, their status, and the version of Flower that each of them speaks
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct NodesArgs {
    /// Show nodes that were revoked or have left, too; with --superlink
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: FederationArgs,
    #[command(flatten)]
    caller: CallerArgs,
}

pub fn run(args: &NodesArgs) -> ExitCode {
    remote::run("trellis nodes", list(args))
}

async fn list(args: &NodesArgs) -> Result<(), CommandError> {
    match args.place.unless_superlink(args.caller.names_superlink()).await? {
        Some((found, federation)) => list_planned(args, &found, &federation).await,
        None => list_known(args).await,
    }
}

async fn list_planned(args: &NodesArgs, found: &Found, federation: &str) -> Result<(), CommandError> {
    let nodes = found.client.nodes(federation).await?;
    args.output.print(&Listing { items: &nodes }, || match nodes.is_empty() {
        true => remark(&format!("{federation} has no nodes.")),
        false => planned(&nodes).print(),
    });
    Ok(())
}

fn planned(nodes: &[Planned]) -> Table {
    let mut table = Table::new([
        Column::whole("NODE"),
        Column::cut("POOL"),
        Column::cut("SITE"),
        Column::whole("PHASE"),
        Column::whole("BUSY"),
        Column::whole("SHARD"),
        Column::cut("VERSION"),
        Column::whole("SINCE"),
        Column::whole("ID"),
        Column::cut("WHY"),
    ]);
    let now = now_s();
    for node in nodes {
        let tone = match node.phase.as_str() {
            "ready" => Tone::Good,
            "failed" | "unknown" => Tone::Bad,
            "absent" | "stopping" => Tone::Quiet,
            _ => Tone::Plain,
        };
        let busy = match (node.draining, node.busy) {
            (true, _) => "draining",
            (false, Some(true)) => "yes",
            (false, Some(false)) => "no",
            (false, None) => "",
        };
        let since = node.since_ms.map(|since_ms| age(now, since_ms as f64 / 1000.0));
        table.row([
            node.name.as_str().into(),
            if node.joined { "(joined)" } else { node.pool.as_str() }.into(),
            node.site.as_str().into(),
            Cell::new(&node.phase, tone),
            busy.into(),
            node.shard.map(|shard| shard.to_string()).unwrap_or_default().into(),
            node.version.as_deref().unwrap_or_default().into(),
            since.unwrap_or_default().into(),
            node.id.as_deref().unwrap_or_default().into(),
            node.why.as_deref().unwrap_or_default().into(),
        ]);
    }
    table
}

async fn list_known(args: &NodesArgs) -> Result<(), CommandError> {
    let mut answer = args.caller.superlink()?.call(&ListNodes {}).await?;
    let known = answer.nodes.len();
    answer.nodes.retain(|node| args.all || node.status != "unregistered");
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => print_as(format, &answer),
        Format::Table if answer.nodes.is_empty() && known > 0 => {
            remark(&format!("No nodes; {known} were revoked or have left (--all shows them)."));
        }
        Format::Table if answer.nodes.is_empty() => remark("No nodes yet."),
        Format::Table => table(&answer.nodes, answer.now).print(),
    }
    Ok(())
}

fn table(nodes: &[Node], now: f64) -> Table {
    let mut table = Table::new([
        Column::whole("ID"),
        Column::cut("NAME"),
        Column::whole("STATUS"),
        Column::cut("CLIENT"),
        Column::cut("OWNER"),
        Column::whole("SINCE"),
    ]);
    for node in nodes {
        let status = if node.draining { "draining" } else { &node.status };
        let tone = match status {
            "online" => Tone::Good,
            "offline" => Tone::Bad,
            "unregistered" => Tone::Quiet,
            _ => Tone::Plain,
        };
        table.row([
            node.id.as_str().into(),
            node.name.as_str().into(),
            Cell::new(status, tone),
            node.client.as_str().into(),
            node.owner.as_str().into(),
            since(node).map_or_else(String::new, |then| age(now, then)).into(),
        ]);
    }
    table
}

/// Since when the node has its status, if known.
fn since(node: &Node) -> Option<f64> {
    match node.status.as_str() {
        "online" => node.last_activated_at,
        // The node said goodbye, or its heartbeat expired.
        "offline" if node.last_deactivated_at >= node.last_activated_at => node.last_deactivated_at,
        "offline" => node.online_until,
        "registered" => Some(node.registered_at),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_as_old_as_what_led_to_it() {
        for (status, activated, deactivated, until, expected) in [
            ("registered", None, None, None, Some(10.0)),
            ("online", Some(20.0), None, Some(90.0), Some(20.0)),
            ("online", Some(40.0), Some(30.0), Some(90.0), Some(40.0)),
            ("offline", Some(20.0), Some(30.0), Some(90.0), Some(30.0)),
            ("offline", Some(20.0), None, Some(60.0), Some(60.0)),
            ("offline", Some(40.0), Some(30.0), Some(60.0), Some(60.0)),
            ("unregistered", Some(40.0), Some(30.0), None, None),
        ] {
            let node = Node {
                id: "1".to_owned(),
                name: String::new(),
                location: String::new(),
                status: status.to_owned(),
                draining: false,
                asks_for_shard: false,
                client: String::new(),
                owner: String::new(),
                registered_at: 10.0,
                last_activated_at: activated,
                last_deactivated_at: deactivated,
                online_until: until,
                key_fingerprint: String::new(),
            };
            assert_eq!(since(&node), expected, "{node:?}");
        }
    }
}
