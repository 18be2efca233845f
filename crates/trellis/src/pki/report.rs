//! How `trellis pki` speaks: problems as a numbered list on stderr, results on stdout, exit codes.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use trellis_diagnostic::{Diagnostic, numbered};
use trellis_pki::Error;

const BROKEN: u8 = 1;
const REFUSED: u8 = 2;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    Pki(Error),
    Machine(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Pki(error)
    }
}

impl Failure {
    /// Prints it, and returns the exit code.
    pub fn report(&self, command: &str) -> ExitCode {
        match self {
            Failure::Pki(Error::Refused(problems)) => {
                print_error(&refusal(command, problems));
                ExitCode::from(REFUSED)
            }
            other => {
                print_error(&format!("trellis pki {command}: {}\n", other.line()));
                ExitCode::from(BROKEN)
            }
        }
    }

    /// In one line, with its causes.
    pub fn line(&self) -> String {
        match self {
            Failure::Machine(error) => error.to_string(),
            Failure::Pki(error) => {
                let mut text = error.to_string().replace('\n', "; ");
                let mut cause = error.source();
                while let Some(error) = cause {
                    let _ = write!(text, ": {error}");
                    cause = error.source();
                }
                text
            }
        }
    }
}

fn refusal(command: &str, problems: &[Diagnostic]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    format!("trellis pki {command}: {count}, nothing was changed\n{}", numbered(problems))
}

pub fn warn(problems: &[Diagnostic]) {
    for Diagnostic { place, what, advice, .. } in problems {
        print_error(&format!("warning: {place}: {what}\n         to do: {advice}\n"));
    }
}

/// Prints the result. A closed pipe is not an error.
pub fn print_text(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn print_error(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
