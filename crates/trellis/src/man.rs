//! `trellis man`: the manual pages of all commands, for the packages that `make dist` builds.

use std::path::Path;
use std::process::ExitCode;

use trellis_terminal::explain;

use crate::commands;
use crate::remote::CommandError;

pub fn run(directory: &Path) -> ExitCode {
    let commands = commands::declared().disable_help_subcommand(true);
    let written = std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(commands, directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let what = format!("the manual pages cannot be written to {}: {}", directory.display(), explain(&error));
            CommandError::failed(what, Some("name a directory that you can write to")).report("trellis man")
        }
    }
}
