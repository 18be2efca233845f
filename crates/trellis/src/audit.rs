//! `trellis audit`: who did what, and what was refused to whom.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};
use trellis_client::{Error, SuperLink};
use trellis_wire::call::{AuditEntry, ListAudit};

use crate::remote::{
    self, Column, FederationArgs, Format, OutputArgs, SuperlinkArgs, Table, Trouble, clean, explain, moment, print,
    print_as, remark,
};

/// How often a log that is followed is asked for more.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long a SuperLink that is followed may be away, as during an upgrade, before it is given up.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Entries that a SuperLink gives at once.
const PAGE: u32 = 1000;

const AFTER_HELP: &str = "\
Examples:
  trellis audit                      the newest entries
  trellis audit --follow             and each new one as it happens
  trellis audit --after 120 -o json  all after number 120, for a program

With --follow -o json each entry is a line of its own.
";

/// Show who did what: joins, revocations, accounts, tokens, refusals
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct AuditArgs {
    /// How many entries at most, 1 to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE)))]
    limit: u32,
    /// Those after this number, oldest first, instead of the newest
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Go on showing new entries until interrupted
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    caller: SuperlinkArgs<FederationArgs>,
}

pub fn run(args: &AuditArgs) -> ExitCode {
    remote::run("trellis audit", show(args))
}

async fn show(args: &AuditArgs) -> Result<(), Trouble> {
    let superlink = args.caller.superlink().await?;
    let answer = superlink.call(&ListAudit { after: args.after, limit: Some(args.limit.into()) }).await?;
    match (args.follow, args.output.format) {
        (true, format) => follow(&superlink, format, args.after.unwrap_or(0), answer.entries).await?,
        (false, format @ (Format::Json | Format::Yaml)) => print_as(format, &answer),
        (false, Format::Table) if answer.entries.is_empty() => remark("No entries."),
        (false, Format::Table) => table(&answer.entries).print(),
    }
    Ok(())
}

/// Shows entries, and those that come after them, until the SuperLink is gone for too long or says no.
async fn follow(
    superlink: &SuperLink,
    format: Format,
    mut seen: u64,
    mut entries: Vec<AuditEntry>,
) -> Result<(), Error> {
    loop {
        for entry in &entries {
            seen = seen.max(entry.seq);
            match format {
                Format::Json | Format::Yaml => print(&remote::entry(format, entry)),
                Format::Table => print(&line(entry)),
            }
        }
        entries = next_entries(superlink, seen).await?;
    }
}

/// Waits until there are entries after `seen`.
async fn next_entries(superlink: &SuperLink, seen: u64) -> Result<Vec<AuditEntry>, Error> {
    let mut away_since = None;
    loop {
        match superlink.call(&ListAudit { after: Some(seen), limit: Some(PAGE.into()) }).await {
            Ok(answer) if !answer.entries.is_empty() => return Ok(answer.entries),
            Ok(_) => away_since = None,
            Err(error) if error.may_pass() => {
                if away_since.is_none() {
                    remark(&format!("waiting: {}", clean(&explain(&error))));
                }
                if away_since.get_or_insert_with(Instant::now).elapsed() > FOLLOW_PATIENCE {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// An entry alone: what comes next is not known, so there are no columns to fit to.
fn line(entry: &AuditEntry) -> String {
    let AuditEntry { seq, at, event, actor, subject, detail } = entry;
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { clean(text) };
    let (actor, subject) = (or_dash(actor), or_dash(subject));
    format!("{seq}  {}  {}  {actor}  {subject}  {}\n", moment(*at), clean(event), clean(detail))
}

fn table(entries: &[AuditEntry]) -> Table {
    let column = |title, may_be_cut| Column { title, may_be_cut };
    let mut table = Table::new([
        column("NUMBER", false),
        column("TIME", false),
        column("EVENT", false),
        column("ACTOR", true),
        column("SUBJECT", true),
        column("DETAIL", true),
    ]);
    for entry in entries {
        table.row([
            entry.seq.to_string().into(),
            moment(entry.at).into(),
            entry.event.as_str().into(),
            entry.actor.as_str().into(),
            entry.subject.as_str().into(),
            entry.detail.as_str().into(),
        ]);
    }
    table
}
