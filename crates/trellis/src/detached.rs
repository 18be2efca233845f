//! `trellis detached PROGRAM ARGUMENTS`: starts a new session and executes the program. Processes of the local driver thus
//! outlive the driver and its terminal.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use trellis_driver_local::STARTED;

/// The exit code of shells for programs that cannot be executed.
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
    // `exec` keeps the process id. With it the driver distinguishes the program from its children.
    let error = Command::new(program).args(arguments).env(STARTED, std::process::id().to_string()).exec();
    eprintln!("trellis detached: {} cannot be started: {error}", program.to_string_lossy());
    ExitCode::from(NOT_EXECUTED)
}
