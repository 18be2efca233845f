//! `trellis audit`: the audit log of a SuperLink: changes by callers, and refused calls.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};
use trellis_client::{Error, SuperLink};
use trellis_terminal::{Column, Format, Listing, OutputArgs, Table, clean, explain, moment, print, print_as, remark};
use trellis_wire::call::{AuditEntry, ListAudit};

use crate::remote::{self, CommandError, FederationArgs, SuperlinkArgs};

/// Poll interval of a followed log.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// A followed SuperLink may be unreachable for this long, as during an upgrade.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Entries per response of a SuperLink.
const PAGE: u32 = 1000;

const AFTER_HELP: &str = "\
Examples:
  trellis audit                      the newest entries
  trellis audit --follow             and new ones as they appear
  trellis audit --after 120 -o json  all after number 120, as JSON
  trellis audit --of-server          logins at the server, and its tokens

With --follow -o json each entry is a line.
";

/// Show the audit log: joins, revocations, accounts, tokens, refusals
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct AuditArgs {
    /// Maximum number of entries, 1 to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE)))]
    limit: u32,
    /// Show the entries after this number, oldest first, instead of the newest
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Follow the log until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Show the log of the server itself: logins with an identity, refused calls, its tokens
    #[arg(long, conflicts_with_all = ["follow", "name"])]
    of_server: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    caller: SuperlinkArgs<FederationArgs>,
}

pub fn run(args: &AuditArgs) -> ExitCode {
    remote::run("trellis audit", show(args))
}

async fn show(args: &AuditArgs) -> Result<(), CommandError> {
    if args.of_server {
        let entries = args.caller.server().client()?.audit(args.after, args.limit).await?;
        args.output.print(&Listing { items: &entries }, || match entries.is_empty() {
            true => remark("No entries."),
            false => table(&entries).print(),
        });
        return Ok(());
    }
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

/// Prints entries as they appear, until the SuperLink refuses the call or is unreachable for too long.
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
                Format::Json | Format::Yaml => print(&trellis_terminal::entry(format, entry)),
                Format::Table => print(&line(entry)),
            }
        }
        entries = next_entries(superlink, seen).await?;
    }
}

/// Waits for entries after `seen`.
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

/// One entry as a line. The next entries are unknown, so there are no columns.
fn line(entry: &AuditEntry) -> String {
    let AuditEntry { seq, at, event, actor, subject, detail } = entry;
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { clean(text) };
    let (actor, subject) = (or_dash(actor), or_dash(subject));
    format!("{seq}  {}  {}  {actor}  {subject}  {}\n", moment(*at), clean(event), clean(detail))
}

fn table(entries: &[AuditEntry]) -> Table {
    let mut table = Table::new([
        Column::whole("NUMBER"),
        Column::whole("TIME"),
        Column::whole("EVENT"),
        Column::cut("ACTOR"),
        Column::cut("SUBJECT"),
        Column::cut("DETAIL"),
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
