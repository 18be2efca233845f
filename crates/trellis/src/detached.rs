//! `trellis detached PROGRAM ARGUMENTS`: leaves the session of whoever started it, and becomes that program. What the local
//! driver starts outlives it so, and its terminal.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use trellis_driver_local::STARTED;

/// As shells have it for what cannot be executed.
const NOT_EXECUTED: u8 = 126;

pub fn run(words: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else {
        eprintln!("trellis detached: there is no program to become");
        return ExitCode::from(NOT_EXECUTED);
    };
    if let Err(error) = rustix::process::setsid() {
        eprintln!("trellis detached: the session cannot be left: {error}");
        return ExitCode::from(NOT_EXECUTED);
    }
    // It keeps this number: by it the program is told from those that it starts.
    let error = Command::new(program).args(arguments).env(STARTED, std::process::id().to_string()).exec();
    eprintln!("trellis detached: {} cannot be started: {error}", program.to_string_lossy());
    ExitCode::from(NOT_EXECUTED)
}
