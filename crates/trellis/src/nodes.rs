//! `trellis nodes`: which nodes there are, what they do, and which Flower each of them speaks.

use std::process::ExitCode;

use clap::Args;
use trellis_client::{ListNodes, Node};

use crate::remote::{
    self, CallerArgs, Cell, Column, Format, OutputArgs, Table, Tone, Trouble, age, print_json, remark,
};

const AFTER_HELP: &str = "\
Examples:
  trellis nodes                                      those of a SuperLink on this machine
  trellis nodes --superlink link.example.org:8000 --root-certificates ca.crt --token-file my.token
  trellis nodes -o json | jq -r '.nodes[] | select(.status == \"online\") | .id'

CLIENT is the transport and the version of Flower that the node speaks (\"grpc\" alone: it did not
say which version), SINCE how long it has its status. With -o json there are also its location,
times, and the fingerprint of its key.
";

/// Show the nodes, their status, and the version of Flower that each of them speaks
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct NodesArgs {
    /// Show nodes that were revoked or have left, too
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    caller: CallerArgs,
}

pub fn run(args: &NodesArgs) -> ExitCode {
    remote::run("trellis nodes", list(args))
}

async fn list(args: &NodesArgs) -> Result<(), Trouble> {
    let mut answer = args.caller.superlink()?.call(&ListNodes {}).await?;
    let known = answer.nodes.len();
    answer.nodes.retain(|node| args.all || node.status != "unregistered");
    match args.output.format {
        Format::Json => print_json(&answer),
        Format::Table if answer.nodes.is_empty() && known > 0 => {
            remark(&format!("No nodes; {known} were revoked or have left (--all shows them)."));
        }
        Format::Table if answer.nodes.is_empty() => remark("No nodes yet."),
        Format::Table => table(&answer.nodes, answer.now).print(),
    }
    Ok(())
}

fn table(nodes: &[Node], now: f64) -> Table {
    let column = |title, may_be_cut| Column { title, may_be_cut };
    let mut table = Table::new([
        column("ID", false),
        column("NAME", true),
        column("STATUS", false),
        column("CLIENT", true),
        column("OWNER", true),
        column("SINCE", false),
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

/// When the node got its status, where that is known.
fn since(node: &Node) -> Option<f64> {
    match node.status.as_str() {
        "online" => node.last_activated_at,
        // It said goodbye, or was not heard of until its promise ran out.
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
