//! `trellis top`: federations, nodes and runs, live. What is shown (`view`), how it looks (`draw`), where it comes from
//! (`feed`) and the terminal (`live`) are apart.

mod draw;
mod feed;
mod live;
#[cfg(test)]
mod scene;
mod view;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_api::Client;

use self::draw::Palette;
use self::view::{Contact, News, View, Wish};
use crate::remote::{self, FederationArgs, Format, Listing, OutputArgs, Place as _, Trouble, colours, print};

const CALLED: &str = "trellis top";
/// Of a federation, with -o json.
const NEWEST_RUNS: usize = 100;

const AFTER_HELP: &str = "\
Examples:
  trellis top                       everything, until q is pressed
  trellis top lab                   one federation
  trellis top --once                how it is now, as text; also in a pipe: trellis top | less
  trellis top -o json               the same for a program

Keys: tab goes to the next list, arrows (or j and k) to another line, enter shows all about it,
esc goes back, q ends. The line among federations chooses whose nodes and runs are shown.
";

/// Watch federations, nodes and runs live
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, mut_arg("federation", |arg| arg.short('f')))]
pub struct TopArgs {
    #[command(flatten)]
    federation: FederationArgs,

    /// Print how it is now and end; so it is in a pipe
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &TopArgs) -> ExitCode {
    let only = match args.federation.named() {
        Ok(named) => named.map(str::to_owned),
        Err(trouble) => return trouble.tell(CALLED),
    };
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let mut found = None;
    let first = remote::run(CALLED, async {
        let client = args.federation.server.client()?;
        if args.output.format != Format::Table {
            return print_all(&client, only.as_deref(), args.output.format).await;
        }
        if args.once || !terminal {
            print(&draw::plain(&now(&client, only.as_deref()).await?));
            return Ok(());
        }
        // Better to say what is wrong before the screen is taken.
        feed::federations(&client, only.as_deref()).await?;
        found = Some(client);
        Ok(())
    });
    let Some(client) = found else { return first };
    match live::live(client, only, Palette { colours: colours() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Trouble::failed(format!("the terminal cannot be used: {error}"), Some("use --once")).tell(CALLED),
    }
}

/// For programs: everything at this moment.
async fn print_all(client: &Client, only: Option<&str>, format: Format) -> Result<(), Trouble> {
    let mut items = Vec::new();
    for federation in feed::federations(client, only).await? {
        let nodes = client.nodes(&federation.name).await?;
        // A SuperLink that does not answer yet has none to tell of.
        let runs = client.newest_runs(&federation.name, NEWEST_RUNS).await.unwrap_or_default();
        items.push(json!({"federation": federation, "nodes": nodes, "runs": runs}));
    }
    remote::print_as(format, &Listing { items: &items });
    Ok(())
}

/// How everything is at this moment.
async fn now(client: &Client, only: Option<&str>) -> Result<View, Trouble> {
    let mut view = View::new(client.endpoint());
    view.hear(News::Contact(Contact::Live));
    if let Wish::Show(name) = view.hear(News::Federations(feed::federations(client, only).await?)) {
        view.hear(News::Shown(feed::look(client, &name, &mut BTreeMap::new()).await?));
    }
    Ok(view)
}
