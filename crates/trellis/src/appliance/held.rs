//! `trellis appliance held -- PROGRAM ARGUMENTS`: executes the program, which the kernel ends together with its parent.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, set_parent_process_death_signal};

/// The exit code of shells for programs that cannot be executed.
const NOT_EXECUTED: u8 = 126;

pub fn run(words: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else { return ExitCode::from(NOT_EXECUTED) };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        eprintln!("trellis appliance: a program cannot be tied to its parent: {error}");
        return ExitCode::from(NOT_EXECUTED);
    }
    // If the parent ended before this call, the kernel sends no signal.
    if rustix::process::getppid().is_none_or(|parent| parent.is_init()) {
        return ExitCode::from(NOT_EXECUTED);
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("trellis appliance: {} cannot be started: {error}", program.to_string_lossy());
    ExitCode::from(NOT_EXECUTED)
}
