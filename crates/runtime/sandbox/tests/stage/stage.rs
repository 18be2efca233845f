//! A program that enters the sandbox, as `trellis` does.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    trellis_sandbox::enter(&words)
}
