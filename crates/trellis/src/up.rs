//! `trellis up`: a federation on this machine, from nothing to ready, with everything somebody needs to use it. It stays to show
//! what happens, and takes down what it brought up; or goes, and leaves it there.

mod chart;
mod demo;
pub mod flwr;
mod follow;

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use clap::Args;
use serde::Serialize;
use trellis_api::{Client, Connection, Expected, FederationSummary};
use trellis_spec::{Federation, to_yaml};

use crate::documents;
use crate::down;
use crate::home::Home;
use crate::keep;
use crate::process::StopSignals;
use crate::progress::Progress;
use crate::remote::{self, Format, Found, OutputArgs, ServerArgs, Trouble, print, remark};
use crate::run::{by_signal, listen};
use crate::settle::until_ready;

const CALLED: &str = "trellis up";
const DEFAULT_NAME: &str = "local";
const DEFAULT_NODES: u32 = 4;

const AFTER_HELP: &str = "\
Examples:
  trellis up                                         a SuperLink and 4 nodes, until Ctrl-C
  flwr run . local                                   then, in another terminal: any Flower app
  trellis up --demo                                  see one train, and end
  trellis up --nodes 8 --detach                      leave it there; trellis down ends it
  trellis up -f federation.yaml                      as a document says
  trellis up --python ~/venv/bin/python              with the packages of a virtual environment

A server is started in the background where none runs. Without --detach, Ctrl-C takes down what this
command brought up; a federation that was there before is left alone.

Exit codes: 0 it was up (with --demo: and learned); 1 it did not become ready, or something failed;
2 mistakes in the arguments, nothing was done; 130 interrupted before it was ready.
";

/// Start a federation on this machine: SuperLink, nodes, page
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct UpArgs {
    /// What it is called [default: local]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// The same as NAME
    #[arg(long = "name", value_name = "NAME", conflicts_with = "name", hide_short_help = true)]
    name_flag: Option<String>,

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
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// A federation that is up.
struct Up<'a> {
    client: &'a Client,
    name: String,
    url: String,
    /// This command made it.
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
        Err(error) => return Trouble::failed(format!("the system gives no runtime: {error}"), None).tell(CALLED),
    };
    runtime.block_on(up(args)).unwrap_or_else(|trouble| trouble.tell(CALLED))
}

async fn up(args: &UpArgs) -> Result<ExitCode, Trouble> {
    let document = document(args)?;
    let mut signals = listen()?;
    let found = server(&args.server).await?;
    let (client, home) = (&found.client, found.home.as_ref());
    let outcome = tokio::select! {
        made = make(args, &found, &document) => made,
        (_, number) = signals.next() => {
            down::quietly(client, document.name.as_str(), home).await;
            return Ok(by_signal(number));
        }
    };
    let up = match outcome {
        Ok(up) => up,
        Err(trouble) => {
            down::stop_unused(client, home).await;
            return Err(trouble);
        }
    };
    if args.detach {
        tell(args, &up, found.home.is_some()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = stay(args, &up, found.home.is_some(), &mut signals).await;
    if up.ours {
        // Who has no patience even for that: it goes all the same, and the server with it.
        tokio::select! {
            () = down::quietly(client, &up.name, home) => {}
            _ = signals.next() => {}
        }
    } else {
        remark(&format!("{} was there before, and stays; `trellis down {}` ends it", up.name, up.name));
    }
    outcome
}

/// What shall be there.
fn document(args: &UpArgs) -> Result<Federation, Trouble> {
    let named = args.name.as_deref().or(args.name_flag.as_deref());
    if let Some(file) = &args.file {
        let federations = documents::read(std::slice::from_ref(file))?;
        let known: Vec<&str> = federations.iter().map(|federation| federation.name.as_str()).collect();
        let advice = format!("name one of them: {}; `trellis apply -f` takes all", known.join(", "));
        let mut fitting: Vec<Federation> =
            federations.iter().filter(|it| named.is_none_or(|name| it.name.as_str() == name)).cloned().collect();
        return match (fitting.len(), named) {
            (1, _) => Ok(fitting.remove(0)),
            (_, Some(name)) => Err(Trouble::usage(format!("{} has no federation {name:?}", file.display()), &advice)),
            (many, None) => Err(Trouble::usage(format!("{} has {many} federations", file.display()), &advice)),
        };
    }
    let python = args.python.as_ref().map(|path| match path.components().count() {
        1 => path.clone(),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
    });
    let python = python.map(|path| path.display().to_string());
    let text = serde_json::json!({
        "apiVersion": "trellis.dev/v1",
        "kind": "Federation",
        "metadata": {"name": named.unwrap_or(DEFAULT_NAME)},
        "spec": {
            "coordinator": python.as_ref().map_or(serde_json::json!({}), |python| serde_json::json!({"python": python})),
            "pools": [match &python {
                Some(python) => serde_json::json!({"name": "nodes", "count": args.nodes.unwrap_or(DEFAULT_NODES), "python": python}),
                None => serde_json::json!({"name": "nodes", "count": args.nodes.unwrap_or(DEFAULT_NODES)}),
            }],
        },
    });
    let read = trellis_spec::read(&text.to_string(), "the arguments");
    read.map(|mut federations| federations.remove(0)).map_err(|problems| {
        let each = problems.0.into_iter().map(|it| Trouble::usage(format!("{}: {}", it.path, it.what), &it.advice));
        each.reduce(Trouble::and).expect("who refuses says why")
    })
}

/// The server that is given or serves here; or else one that is started in the background.
pub async fn server(args: &ServerArgs) -> Result<Found, Trouble> {
    if let Some(found) = args.find()? {
        return Ok(found);
    }
    let Some(home) = Home::find(None) else {
        return Err(Trouble::usage("there is no place for a server's home", "set HOME or TRELLIS_HOME"));
    };
    remark("starting a server in the background");
    let serving =
        keep::start(&home).await.map_err(|why| Trouble::failed(why, Some("`trellis doctor` looks for reasons")))?;
    args.of_home(&home, &serving)
}

/// Sends the document, and waits until it is so.
async fn make<'a>(args: &UpArgs, found: &'a Found, document: &Federation) -> Result<Up<'a>, Trouble> {
    let (client, name) = (&found.client, document.name.to_string());
    let is_known = client.federations().await?.iter().any(|federation| federation.name == name);
    let says_something = args.nodes.is_some() || args.file.is_some() || args.python.is_some();
    if !is_known || says_something {
        client.apply(&name, &to_yaml(document), Expected::Anything).await?;
    }
    let mut progress = Progress::new();
    match until_ready(client, &name, &mut progress).await {
        Ok(_) => Ok(Up { client, name, url: found.url.clone(), ours: !is_known }),
        Err(trouble) => {
            // Nothing half-done is left; its logs are told before they go.
            if !is_known && !args.detach {
                down::quietly(client, &name, None).await;
            }
            Err(trouble)
        }
    }
}

/// What somebody needs to use it.
async fn tell(args: &UpArgs, up: &Up<'_>, here: bool) -> Result<(), Trouble> {
    let detail = up.client.federation(&up.name).await?;
    let connection = up.client.connection(&up.name).await?;
    let written = if args.demo { Vec::new() } else { flwr::connect(&up.name, &connection, here).await };
    let page = page(up, args.open || std::io::IsTerminal::is_terminal(&std::io::stdout()));
    let result = Shown { federation: &detail.summary, url: &up.url, connection: &connection };
    match args.output.format {
        Format::Table => print(&words(up, &detail.summary, &connection, &page, &written, args)),
        format => remote::print_as(format, &result),
    }
    if args.open {
        open(&page).await;
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
    lines.iter().map(|line| remote::clean(line) + "\n").collect()
}

/// Where the page is; with the token, so that it need not be typed.
fn page(up: &Up<'_>, with_token: bool) -> String {
    match up.client.target().token.as_ref().filter(|_| with_token) {
        Some(token) => format!("{}/#token={}", up.url, token.reveal()),
        None => format!("{}/", up.url),
    }
}

async fn open(page: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = tokio::process::Command::new(program);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status().await {
        Ok(status) if status.success() => {}
        _ => remark(&format!("no browser could be started with {program}: open the page yourself")),
    }
}

async fn stay(args: &UpArgs, up: &Up<'_>, here: bool, signals: &mut StopSignals) -> Result<ExitCode, Trouble> {
    tell(args, up, here).await?;
    match args.demo {
        true => demo::train(up.client, &up.name, signals).await,
        false => {
            follow::follow(up.client, &up.name, signals).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: UpArgs,
    }

    fn planned(arguments: &[&str]) -> Result<Federation, Trouble> {
        document(&Line::parse_from([&["up"], arguments].concat()).args)
    }

    #[test]
    fn a_federation_needs_no_arguments() {
        let usual = planned(&[]).expect("a document");
        assert_eq!((usual.name.as_str(), usual.pools[0].count), ("local", 4));
        let other = planned(&["lab", "--nodes", "9", "--python", "/opt/venv/bin/python"]).expect("a document");
        assert_eq!((other.name.as_str(), other.pools[0].count), ("lab", 9));
        let python = Some(PathBuf::from("/opt/venv/bin/python"));
        assert_eq!((&other.coordinator.python, &other.pools[0].python), (&python, &python));
        assert!(format!("{:?}", planned(&["Lab!"]).expect_err("no name")).contains("metadata.name"));
    }
}
