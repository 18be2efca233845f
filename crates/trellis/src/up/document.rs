//! The document of `trellis up`: a federation from a file, or one that the arguments describe.

use std::path::Path;

use serde_json::{Value, json};
use trellis_diagnostic::Diagnostic;
use trellis_spec::Federation;

use super::UpArgs;
use crate::documents;
use crate::remote::CommandError;

const NAME: &str = "local";
const NODES: u32 = 4;

pub fn document(args: &UpArgs) -> Result<Federation, CommandError> {
    let named = args.federation.or_position(args.name.as_deref().or(args.name_flag.as_deref()))?;
    match &args.file {
        Some(file) => of_file(file, named),
        None => described(args, named.unwrap_or(NAME)),
    }
}

/// The one of this name; without a name, the only one.
fn of_file(file: &Path, named: Option<&str>) -> Result<Federation, CommandError> {
    let federations = documents::read(&[file.to_owned()])?;
    let known: Vec<&str> = federations.iter().map(|federation| federation.name.as_str()).collect();
    let advice = format!("name one of them: {}; `trellis apply -f` applies all", known.join(", "));
    let fits = |federation: &&Federation| named.is_none_or(|name| federation.name.as_str() == name);
    let fitting: Vec<&Federation> = federations.iter().filter(fits).collect();
    match (&fitting[..], named) {
        ([federation], _) => Ok((*federation).clone()),
        (_, Some(name)) => Err(CommandError::usage(format!("{} has no federation {name:?}", file.display()), &advice)),
        (many, None) => Err(CommandError::usage(format!("{} has {} federations", file.display(), many.len()), &advice)),
    }
}

fn described(args: &UpArgs, name: &str) -> Result<Federation, CommandError> {
    // A name alone is a program on PATH.
    let python = args.python.as_ref().map(|path| match path.components().count() {
        1 => path.clone(),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
    });
    let mut coordinator = json!({});
    let mut pool = json!({"name": "nodes", "count": args.nodes.unwrap_or(NODES)});
    if let Some(python) = python {
        let path = Value::String(python.display().to_string());
        coordinator["python"] = path.clone();
        pool["python"] = path;
    }
    let document = json!({
        "apiVersion": "trellis.dev/v1",
        "kind": "Federation",
        "metadata": {"name": name},
        "spec": {"coordinator": coordinator, "pools": [pool]},
    });
    // The same checks as for a document from a file.
    let read = trellis_spec::read(&document.to_string(), "the arguments");
    read.map(|mut federations| federations.remove(0)).map_err(|problems| {
        // The arguments have no lines.
        let named = |it: trellis_spec::Diagnostic| Diagnostic::error(it.place.field, it.what, it.advice);
        CommandError::from(problems.0.into_iter().map(named).collect::<Vec<Diagnostic>>())
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: UpArgs,
    }

    fn planned(arguments: &[&str]) -> Result<Federation, CommandError> {
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
