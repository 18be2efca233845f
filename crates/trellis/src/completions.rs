//! `trellis completions`.

use std::io::Write as _;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::commands;

pub fn run(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut commands::declared(), "trellis", &mut script);
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}
