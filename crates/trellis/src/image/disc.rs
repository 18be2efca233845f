//! `trellis image disc`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use trellis_appliance::disc;
use trellis_terminal::explain;

use crate::remote::CommandError;

/// Write the disc by which a hypervisor hands over a context (label CONTEXT)
#[derive(Debug, Args)]
pub struct DiscArgs {
    /// The disc
    #[arg(short, long, value_name = "FILE.iso")]
    output: PathBuf,
    /// Its files: context.sh, token.txt
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub fn run(args: &DiscArgs) -> Result<(), CommandError> {
    let mut files = BTreeMap::new();
    for path in &args.files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = std::fs::read(path).map_err(|error| at(path, &error))?;
        files.insert(name, content);
    }
    let disc = disc::write(&files).map_err(|error| CommandError::failed(explain(&error), None))?;
    std::fs::write(&args.output, disc).map_err(|error| at(&args.output, &error))
}

fn at(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("{}: {error}", path.display()), None)
}
