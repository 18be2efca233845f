//! `trellis appliance held -- PROGRAM ARGUMENTS`: ends with whoever started it, however that ends, and becomes that program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, set_parent_process_death_signal};

/// As shells have it for what cannot be executed.
const NOT_EXECUTED: u8 = 126;

pub fn run(words: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else { return ExitCode::from(NOT_EXECUTED) };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        eprintln!("trellis appliance: a program cannot be tied to its parent: {error}");
        return ExitCode::from(NOT_EXECUTED);
    }
    // A parent that ended before that was said has sent nothing.
    if rustix::process::getppid().is_none_or(|parent| parent.is_init()) {
        return ExitCode::from(NOT_EXECUTED);
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("trellis appliance: {} cannot be started: {error}", program.to_string_lossy());
    ExitCode::from(NOT_EXECUTED)
}
