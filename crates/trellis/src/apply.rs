//! `trellis plan`, `trellis apply` and `trellis delete`: previews, creates, updates and deletes federations from documents.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use trellis_api::{CallError, Client, Expected, PlanReport, Role};
use trellis_spec::{Federation, to_yaml};
use trellis_terminal::{Format, Listing, OutputArgs, clean, entry, print, remark};

use crate::documents::{self, DocumentArgs};
use crate::down::{self, Gone};
use crate::progress::Progress;
use crate::remote::{self, CommandError, Destination as _, OfFederationArgs, ServerArgs};
use crate::run_source::offline;
use crate::settle::{TimeoutArgs, until_gone, until_ready};
use crate::up::{flwr, server};

const PLAN_HELP: &str = "\
Examples:
  trellis plan -f federation.yaml                    the changes, and reasons for postponed ones
  trellis plan -f federations/ -o json
  trellis plan -f federation.yaml --templates        and the templates for each site

Nothing is changed. Without a server the plan is made in this process: no site is observed, and nothing is
written. Exit codes: 0; 1 refused; 2 problems in the documents, which are all reported with line
and column.
";

/// Show what `trellis apply` would do with documents, and the reasons for anything it would postpone
#[derive(Debug, Args)]
#[command(after_help = PLAN_HELP)]
pub struct PlanArgs {
    #[command(flatten)]
    documents: DocumentArgs,

    /// Show also the templates that would be sent to each site
    #[arg(long)]
    templates: bool,

    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: ServerArgs,
}

const APPLY_HELP: &str = "\
Examples:
  trellis apply -f federation.yaml                   and wait until it is ready
  trellis apply -f federations/ --no-wait
  cat federation.yaml | trellis apply -f -
  trellis apply -f federation.yaml --dry-run         the same as trellis plan

If no server runs, one is started in the background. Relative paths in a document are relative to its file.
Nothing is sent unless all documents are valid. When a federation is ready, `flwr run . NAME` finds it.

Exit codes: 0 ready (--no-wait: accepted); 1 refused, stalled, or not ready in time; 2 problems in the documents,
which are all reported with line and column.
";

/// Create or update federations from documents, and wait until they are ready
#[derive(Debug, Args)]
#[command(after_help = APPLY_HELP)]
pub struct ApplyArgs {
    #[command(flatten)]
    documents: DocumentArgs,

    /// Wait until all parts are ready (the default)
    #[arg(long, conflicts_with = "no_wait", hide_short_help = true)]
    wait: bool,

    /// Do not wait until it is so
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,

    /// Show the plan and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: ServerArgs,
}

const DELETE_HELP: &str = "\
Examples:
  trellis delete lab
  trellis delete -f federation.yaml --no-wait
  trellis delete lab --purge                         and the history of its runs, also of a deleted one

Nodes finish their work first, for as long as the document's drainTimeout allows; `trellis down` stops
runs before. Models are kept; so is the history of runs, which `trellis runs` shows, unless --purge is given.

Exit codes: 0 deleted; 1 refused, or not deleted in time; 2 mistakes in the arguments.
";

/// Delete federations
#[derive(Debug, Args)]
#[command(after_help = DELETE_HELP)]
pub struct DeleteArgs {
    /// Federations to delete
    #[arg(value_name = "NAME", required_unless_present_any = ["files", "federation"])]
    names: Vec<String>,

    /// File or directory with the documents of the federations to delete, or - for standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "names")]
    files: Vec<std::path::PathBuf>,

    /// Do not wait until all parts are removed
    #[arg(long)]
    no_wait: bool,

    /// Delete the history of their runs, too
    #[arg(long)]
    purge: bool,

    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    place: OfFederationArgs,
}

pub fn run_plan(args: &PlanArgs) -> ExitCode {
    remote::run("trellis plan", async {
        let federations = documents::read(&args.documents.files)?;
        plan(&args.server, &federations, args.output.format, args.templates).await
    })
}

pub fn run_apply(args: &ApplyArgs) -> ExitCode {
    remote::run("trellis apply", apply(args))
}

pub fn run_delete(args: &DeleteArgs) -> ExitCode {
    remote::run("trellis delete", delete(args))
}

async fn plan(
    server: &ServerArgs,
    federations: &[Federation],
    format: Format,
    templates: bool,
) -> Result<(), CommandError> {
    let found = server.find()?;
    let mut reports = Vec::new();
    match found {
        Some(found) => {
            for federation in federations {
                reports.push(found.client.dry_run(federation.name.as_str(), &to_yaml(federation)).await?);
            }
        }
        None => {
            let platform = offline().await?;
            for federation in federations {
                let name = federation.name.as_str();
                reports.push(platform.plan(&to_yaml(federation), name, Role::Admin).await?);
            }
        }
    }
    match format {
        Format::Table => reports.iter().for_each(|report| show_plan(report, templates)),
        format => {
            for mut report in reports {
                // Templates are long, and only some readers need them.
                report.templates.retain(|_| templates);
                print(&entry(format, &report));
            }
        }
    }
    Ok(())
}

fn show_plan(report: &PlanReport, templates: bool) {
    let mut text: String = report.text.lines().map(|line| clean(line) + "\n").collect();
    for template in report.templates.iter().filter(|_| templates) {
        text += &format!("\n{}\n", clean(&format!("template at {}: {}", template.site, template.title)));
        text.extend(template.text.lines().map(|line| clean(line) + "\n"));
    }
    if templates && report.templates.is_empty() {
        text += "\nno site of this federation takes templates\n";
    }
    print(&text);
}

/// For programs.
#[derive(Serialize)]
struct Taken<'a> {
    federation: &'a str,
    /// `created`, `changed` or `unchanged`.
    outcome: &'a str,
    revision: u64,
}

async fn apply(args: &ApplyArgs) -> Result<(), CommandError> {
    let federations = documents::read(&args.documents.files)?;
    if args.dry_run {
        return plan(&args.server, &federations, args.output.format, false).await;
    }
    let found = server(&args.server).await?;
    let client = &found.client;
    let sent = send(client, &federations, args.output.format).await;
    if sent.is_err() {
        down::stop_unused(client, found.home.as_ref()).await;
    }
    sent?;
    if args.no_wait {
        return Ok(());
    }
    for federation in &federations {
        let mut progress = Progress::new();
        let detail = until_ready(client, federation.name.as_str(), args.timeout.timeout, &mut progress).await?;
        progress.clear();
        if args.output.format == Format::Table {
            remark(&format!("{} is ready: {} nodes", federation.name, detail.summary.nodes.ready));
        }
        // A federation without an address has no connection to write.
        let Ok(connection) = client.connection(federation.name.as_str()).await else { continue };
        let lines = flwr::connect_in_words(federation.name.as_str(), &connection, found.home.is_some()).await;
        lines
            .iter()
            .filter(|_| args.output.format == Format::Table)
            .for_each(|line| remark(&format!("  {}", clean(line))));
    }
    Ok(())
}

async fn send(client: &Client, federations: &[Federation], format: Format) -> Result<(), CommandError> {
    for federation in federations {
        let name = federation.name.as_str();
        let before = match client.federation(name).await {
            Ok(detail) => Some(detail.summary.revision),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let applied = client.apply(name, &to_yaml(federation), Expected::Anything).await?;
        let revision = applied.detail.summary.revision;
        let outcome = match before {
            _ if applied.created => "created",
            Some(before) if before == revision => "unchanged",
            _ => "changed",
        };
        match format {
            Format::Table => print(&format!("{name} {outcome}\n")),
            format => print(&entry(format, &Taken { federation: name, outcome, revision })),
        }
    }
    Ok(())
}

async fn delete(args: &DeleteArgs) -> Result<(), CommandError> {
    let names = match args.files.is_empty() {
        true if args.names.is_empty() => args.place.named()?.map(str::to_owned).into_iter().collect(),
        true => args.names.clone(),
        false => documents::read(&args.files)?.iter().map(|federation| federation.name.to_string()).collect(),
    };
    // The history of runs is there without a server, too.
    let found = if args.purge { server(&args.place.server).await? } else { args.place.server.found()? };
    let client = &found.client;
    let mut failures = Vec::new();
    let mut trusted = Vec::new();
    for name in &names {
        trusted.push(flwr::trust(client, name).await);
        match if args.purge { client.purge(name).await } else { client.delete(name).await } {
            Ok(()) => {}
            // The federation does not exist, which is the desired state.
            Err(error) if CallError::is_not_found(&error) && !args.files.is_empty() => {}
            Err(error) => failures.push(CommandError::from(error)),
        }
    }
    if let Some(failure) = failures.into_iter().reduce(CommandError::and) {
        if args.purge {
            down::stop_unused(client, found.home.as_ref()).await;
        }
        return Err(failure);
    }
    for (name, trust) in names.iter().zip(&trusted) {
        flwr::disconnect(name, trust.as_deref());
        if !args.no_wait {
            until_gone(client, name, &mut Progress::new()).await?;
            if args.output.format == Format::Table {
                print(&format!("{name} deleted\n"));
            }
        }
    }
    let gone: Vec<Gone<'_>> = names.iter().map(|federation| Gone { federation, deleted: !args.no_wait }).collect();
    args.output.print(&Listing { items: &gone }, || {});
    if !args.no_wait {
        down::stop_unused(client, found.home.as_ref()).await;
    }
    Ok(())
}
