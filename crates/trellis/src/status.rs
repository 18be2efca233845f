//! `trellis status`: federations in a line each, or one of them with its coordinator, its pools, and why it is not ready.

use std::process::ExitCode;

use clap::Args;
use trellis_api::{FederationDetail, FederationSummary, State, Status};
use trellis_clock::now_s;
use trellis_terminal::{Cell, Column, Listing, OutputArgs, Table, Tone, age, clean, print, remark};

use crate::remote::{self, CommandError, Destination as _, FederationArgs};

const AFTER_HELP: &str = "\
Examples:
  trellis status                                     all federations of the server
  trellis status lab                                 one of them: coordinator, pools, and reasons
  trellis status -o json | jq -r '.items[] | select(.state != \"ready\") | .name'

NODES is the number of ready and of desired nodes, and after a plus the number of joined ones.

Exit codes: 0; 1 there is no server, or no such federation.
";

/// Show federations and how they are
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StatusArgs {
    #[command(flatten)]
    federation: FederationArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &StatusArgs) -> ExitCode {
    remote::run("trellis status", show(args))
}

async fn show(args: &StatusArgs) -> Result<(), CommandError> {
    let named = args.federation.named()?;
    let client = args.federation.server.client()?;
    match named {
        Some(name) => {
            let detail = client.federation(name).await?;
            args.output.print(&detail, || show_one(&detail));
        }
        None => {
            let all = client.federations().await?;
            args.output.print(&Listing { items: &all }, || match all.is_empty() {
                true => remark("No federations. `trellis up` starts one."),
                false => table(&all).print(),
            });
        }
    }
    Ok(())
}

pub fn word(state: State) -> (&'static str, Tone) {
    match state {
        State::New => ("new", Tone::Plain),
        State::Ready => ("ready", Tone::Good),
        State::Reconciling => ("reconciling", Tone::Plain),
        State::Stalled => ("stalled", Tone::Bad),
        State::Leaving => ("leaving", Tone::Quiet),
    }
}

fn table(federations: &[FederationSummary]) -> Table {
    let mut table = Table::new([
        Column::whole("FEDERATION"),
        Column::whole("STATE"),
        Column::whole("NODES"),
        Column::whole("RUNS"),
        Column::cut("RUNTIME"),
        Column::whole("CHANGED"),
        Column::cut("WHY"),
    ]);
    let now = now_s();
    for federation in federations {
        let (state, tone) = word(federation.state);
        let mut nodes = format!("{}/{}", federation.nodes.ready, federation.nodes.wanted);
        if federation.nodes.joined > 0 {
            nodes += &format!(" +{}", federation.nodes.joined);
        }
        let runs = federation.active_runs.map_or_else(|| "?".to_owned(), |runs| runs.to_string());
        table.row([
            federation.name.as_str().into(),
            Cell::new(state, tone),
            nodes.into(),
            runs.into(),
            federation.runtime.as_str().into(),
            age(now, federation.changed_at).into(),
            federation.message.as_str().into(),
        ]);
    }
    table
}

fn show_one(detail: &FederationDetail) {
    let summary = &detail.summary;
    print(&format!("{}: {}\n", summary.name, clean(&format!("{}; {}", word(summary.state).0, summary.message))));
    let Some(status) = &detail.status else { return };
    print(&coordinator_line(status));
    print("\n");
    pools(status).print();
    match detail.summary.nodes.joined {
        0 => {}
        1 => print("1 node that joined from elsewhere is online\n"),
        joined => print(&format!("{joined} nodes that joined from elsewhere are online\n")),
    }
    let unreachable = status.sites.iter().filter(|site| !site.reachable);
    for site in unreachable {
        print(&clean(&format!("site {}: {}", site.name, site.why.as_deref().unwrap_or("not observed"))));
        print("\n");
    }
    if !status.messages.is_empty() {
        print("\nWhy not more:\n");
        status.messages.iter().for_each(|why| {
            print(&format!("  {}\n", clean(&format!("{} {}: {}", why.weight.word(), why.about, why.text))))
        });
    }
}

fn coordinator_line(status: &Status) -> String {
    let coordinator = &status.coordinator;
    let mut line = format!("  coordinator {} at {}", coordinator.phase, coordinator.site);
    let addresses = &coordinator.addresses;
    let known = [("control", &addresses.control), ("http", &addresses.http), ("fleet", &addresses.fleet)];
    for (name, address) in known {
        if let Some(address) = address {
            line += &format!(", {name} {address}");
        }
    }
    clean(&line) + "\n"
}

fn pools(status: &Status) -> Table {
    let mut table = Table::new([
        Column::whole("POOL"),
        Column::cut("SITE"),
        Column::whole("WANTED"),
        Column::whole("READY"),
        Column::whole("BUSY"),
        Column::whole("UPDATED"),
    ]);
    for pool in &status.pools {
        let tone = if pool.ready >= pool.wanted { Tone::Good } else { Tone::Bad };
        table.row([
            pool.name.as_str().into(),
            pool.site.as_str().into(),
            pool.wanted.to_string().into(),
            Cell::new(&pool.ready.to_string(), tone),
            pool.busy.to_string().into(),
            pool.updated.to_string().into(),
        ]);
    }
    table
}
