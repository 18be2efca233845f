//! Whether a directory is a Flower app whose `pyproject.toml` the official command reads connections from.

use std::path::{Path, PathBuf};

use toml::{Table, Value};
use trellis_flower::Release;
use trellis_flower::changes::CLI_READS_HOME;

use super::block::{self, Entry};
use super::{DEFAULT, file};

const TOOL: [&str; 2] = ["tool", "flwr"];
const FEDERATIONS: &str = "federations";
const CONNECTIONS: [&str; 3] = ["tool", "flwr", FEDERATIONS];
pub const PYPROJECT: &str = "pyproject.toml";

/// Whether this release reads connections from its own configuration file.
pub fn reads_own_file(release: Release) -> bool {
    release >= CLI_READS_HOME
}

/// The directory, if this release of `flwr` reads connections from its app. If the release is unknown: if the app has
/// connections already.
pub fn app_here(directory: &Path, release: Option<Release>) -> Option<PathBuf> {
    let flwr = settings(directory)?;
    let wanted = match release {
        Some(release) => !reads_own_file(release),
        None => flwr.get("federations").is_some_and(Value::is_table),
    };
    wanted.then(|| directory.to_owned())
}

/// Whether there is a Flower app in this directory.
pub fn is_app(directory: &Path) -> bool {
    settings(directory).is_some()
}

/// The `tool.flwr` table of an app.
fn settings(directory: &Path) -> Option<Table> {
    let text = file::read(&directory.join(PYPROJECT)).ok()??;
    let project: Table = text.parse().ok()?;
    let flwr = project.get("tool")?.get("flwr")?.as_table()?;
    flwr.contains_key("app").then(|| flwr.clone())
}

/// The entry for a connection. If the app has no connections, we write the whole table of connections, with this one as the
/// default: Flower from 1.26 on does not migrate connections without a default, and then refuses to run the app.
pub fn entry<'a>(pyproject: &Path, name: &'a str, values: Table) -> Entry<'a> {
    let text = file::read(pyproject).ok().flatten().unwrap_or_default();
    let project: Table = text.parse().unwrap_or_default();
    let existing = TOOL.iter().try_fold(&project, |table, part| table.get(*part)?.as_table());
    let existing = existing.and_then(|flwr| flwr.get(FEDERATIONS));
    let only_this = |table: &Table| table.keys().all(|key| key == DEFAULT || key == name);
    let ours = || block::is_marked(&text, &TOOL, FEDERATIONS);
    match existing.map(Value::as_table) {
        Some(Some(table)) if !only_this(table) || !ours() => Entry { parent: &CONNECTIONS, name, values },
        Some(None) => Entry { parent: &CONNECTIONS, name, values },
        None | Some(Some(_)) => {
            let default = (DEFAULT.to_owned(), Value::String(name.to_owned()));
            let all = Table::from_iter([default, (name.to_owned(), Value::Table(values))]);
            Entry { parent: &TOOL, name: FEDERATIONS, values: all }
        }
    }
}
