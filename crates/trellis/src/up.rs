//! `trellis up`: starts a federation on this machine, waits until it is ready and prints how to use it. Then it shows events
//! and deletes the federation when it is interrupted, or exits and leaves it running.

mod chart;
mod demo;
mod document;
pub mod flwr;
mod follow;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use trellis_api::Home;
use trellis_api::{Client, Connection, Expected, FederationSummary};
use trellis_flwr::Installation;
use trellis_spec::{Federation, to_yaml};
use trellis_terminal::{Format, OutputArgs, print, remark};

use crate::browser;
use crate::down;
use crate::keep;
use crate::process::StopSignals;
use crate::progress::Progress;
use crate::remote::{CommandError, FederationFlag, Found, ServerArgs};
use crate::run::{by_signal, listen};
use crate::settle::{TimeoutArgs, until_ready};

const CALLED: &str = "trellis up";
/// Lines of the log of a failed part.
const LAST_LINES: usize = 12;

const AFTER_HELP: &str = "\
Examples:
  trellis up                                         a SuperLink and 4 nodes, until Ctrl-C
  flwr run . local                                   then, in another terminal: any Flower app
  trellis up --demo                                  show a training, and exit
  trellis up --nodes 8 --detach                      keep it running; trellis down deletes it
  trellis up -f federation.yaml                      from a document
  trellis up --python ~/venv/bin/python              with the packages of a virtual environment

If no server runs, one is started in the background. Without --detach, Ctrl-C deletes the federation
that this command created; an existing one is not changed.

Exit codes: 0 it was ready (with --demo: and learned); 1 it did not become ready, or an error occurred;
2 mistakes in the arguments, nothing was done; 130 interrupted before it was ready.
";

/// Start a federation on this machine: SuperLink, nodes, page
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct UpArgs {
    /// Name of the federation, also as --federation [default: local]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// The same as NAME
    #[arg(long = "name", value_name = "NAME", conflicts_with = "name", hide = true)]
    name_flag: Option<String>,

    #[command(flatten)]
    federation: FederationFlag,

    /// Nodes to start [default: 4]
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,

    /// Train on it: a network learns digits that are spread unevenly over the nodes; then take it down
    #[arg(long, conflicts_with = "detach")]
    demo: bool,

    /// Leave it there, and do not stay to watch
    #[arg(short, long)]
    detach: bool,

    /// File with one Federation document, in the place of --nodes and --python
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with_all = ["nodes", "python"])]
    file: Option<PathBuf>,

    /// Python that has the packages of apps [default: that of the flwr on PATH]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,

    /// Show the page in a browser
    #[arg(long)]
    open: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// A federation that is up.
struct Up<'a> {
    client: &'a Client,
    name: String,
    url: String,
    /// Whether this command created the federation.
    ours: bool,
}

/// For programs.
#[derive(Serialize)]
struct Shown<'a> {
    federation: &'a FederationSummary,
    url: &'a str,
    connection: &'a Connection,
}

pub fn run(args: &UpArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return CommandError::failed(format!("no async runtime: {error}"), None).report(CALLED),
    };
    runtime.block_on(up(args)).unwrap_or_else(|failure| failure.report(CALLED))
}

async fn up(args: &UpArgs) -> Result<ExitCode, CommandError> {
    let document = document::document(args)?;
    // Before anything changes: a federation that is up would be restarted with it.
    if let Some(python) = &args.python
        && let Some(why) = Installation::problem_of(python).await
    {
        let what = format!("--python: {} cannot be used: {why}", python.display());
        return Err(CommandError::usage(
            what,
            "give the interpreter of an environment that has flwr, as in ~/venv/bin/python",
        ));
    }
    let mut signals = listen()?;
    let found = tokio::select! {
        found = server(&args.server) => found?,
        (_, number) = signals.next() => {
            // The terminal is closed.
            if let Some(home) = Home::find(None).filter(|_| !args.server.is_given()) {
                keep::end(&home).await.map_err(|why| CommandError::failed(why, None))?;
            }
            return Ok(by_signal(number));
        }
    };
    let (client, home, name) = (&found.client, found.home.as_ref(), document.name.as_str());
    let known = client.federations().await?;
    let ours = !known.iter().any(|federation| federation.name == name);
    let up = Up { client, name: name.to_owned(), url: found.url.clone(), ours };
    let made = tokio::select! {
        made = make(args, &up, &document) => made.map(|()| None),
        (_, number) = signals.next() => Ok(Some(by_signal(number))),
    };
    let outcome = match made {
        Ok(None) if args.detach => return print_usage(args, &up, home.is_some()).await.map(|()| ExitCode::SUCCESS),
        Ok(None) => stay(args, &up, home.is_some(), &mut signals).await,
        Ok(Some(interrupted)) => Ok(interrupted),
        Err(failure) => {
            print_logs(&up).await;
            Err(failure)
        }
    };
    if ours {
        // A second signal: exits without waiting.
        tokio::select! {
            () = down::quietly(client, name, home) => {}
            _ = signals.next() => {}
        }
    } else {
        remark(&format!("{name} was there before, and stays; `trellis down {name}` ends it"));
    }
    outcome
}

/// The named server, the server of this machine, or a new one in the background.
pub async fn server(args: &ServerArgs) -> Result<Found, CommandError> {
    if let Some(found) = args.find()? {
        return Ok(found);
    }
    let Some(home) = Home::find(None) else {
        return Err(CommandError::usage("there is no directory for a server's home", "set HOME or TRELLIS_HOME"));
    };
    remark("starting a server in the background");
    let serving = keep::start(&home).await.map_err(|why| CommandError::failed(why, Some("run `trellis doctor`")))?;
    args.of_home(&home, &serving)
}

/// Applies the document and waits until it is ready. An existing federation is only changed if a flag says so.
async fn make(args: &UpArgs, up: &Up<'_>, document: &Federation) -> Result<(), CommandError> {
    if up.ours || args.nodes.is_some() || args.file.is_some() || args.python.is_some() {
        up.client.apply(&up.name, &to_yaml(document), Expected::Anything).await?;
    }
    until_ready(up.client, &up.name, args.timeout.timeout, &mut Progress::new()).await.map(drop)
}

/// The end of the log of a failed part, which is deleted with the federation.
async fn print_logs(up: &Up<'_>) {
    let nodes = up.client.nodes(&up.name).await.unwrap_or_default();
    let failed = nodes.iter().find(|node| node.phase == "failed").map_or("coordinator", |node| node.name.as_str());
    let Ok(log) = up.client.part_log(&up.name, failed, None, false).await else { return };
    let lines: Vec<&str> = log.text.lines().collect();
    remark(&format!("the end of the log of {failed}:"));
    lines[lines.len().saturating_sub(LAST_LINES)..]
        .iter()
        .for_each(|line| remark(&format!("    {}", trellis_terminal::plain(line))));
}

/// How to use the federation.
async fn print_usage(args: &UpArgs, up: &Up<'_>, here: bool) -> Result<(), CommandError> {
    let detail = up.client.federation(&up.name).await?;
    let connection = up.client.connection(&up.name).await?;
    let written = if args.demo { Vec::new() } else { flwr::connect_in_words(&up.name, &connection, here).await };
    let page = page(up, args.open || std::io::IsTerminal::is_terminal(&std::io::stdout()));
    let result = Shown { federation: &detail.summary, url: &up.url, connection: &connection };
    match args.output.format {
        Format::Table => print(&words(up, &detail.summary, &connection, &page, &written, args)),
        format => trellis_terminal::print_as(format, &result),
    }
    if args.open {
        browser::open(&page).await;
    }
    Ok(())
}

fn words(
    up: &Up<'_>,
    summary: &FederationSummary,
    connection: &Connection,
    page: &str,
    written: &[String],
    args: &UpArgs,
) -> String {
    let name = &up.name;
    let tls = if connection.insecure { "without TLS" } else { "with TLS" };
    let mut lines = vec![format!("{name} is up: {} nodes, {tls}", summary.nodes.ready), format!("  page    {page}")];
    if !args.demo {
        lines.push(format!("  submit  flwr run . {name}    any Flower app; or: trellis run APP"));
        lines.extend(written.iter().map(|line| format!("          {line}")));
        lines.push(format!("  look    trellis status {name}, trellis top, trellis logs -f"));
    }
    if args.detach {
        lines.push(format!("  end     trellis down {name}"));
    } else if !args.demo {
        lines.push("  end     Ctrl-C".to_owned());
    }
    lines.iter().map(|line| trellis_terminal::clean(line) + "\n").collect()
}

/// The URL of the page, including the token.
fn page(up: &Up<'_>, with_token: bool) -> String {
    match up.client.target().token.as_ref().filter(|_| with_token) {
        Some(token) => format!("{}/#token={}", up.url, token.reveal()),
        None => format!("{}/", up.url),
    }
}

async fn stay(args: &UpArgs, up: &Up<'_>, here: bool, signals: &mut StopSignals) -> Result<ExitCode, CommandError> {
    print_usage(args, up, here).await?;
    match args.demo {
        true => demo::train(up.client, &up.name, signals).await,
        false => {
            follow::follow(up.client, &up.name, signals).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
