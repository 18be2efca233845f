//! How `trellis pki` speaks: problems as a numbered list on stderr, results on stdout, exit codes.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use trellis_pki::Error;
use trellis_pki::problem::{Problem, Severity};

const BROKEN: u8 = 1;
const REFUSED: u8 = 2;

/// Why a command did not do what it was asked.
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
    /// Tells it, and gives the code to exit with.
    pub fn tell(&self, command: &str) -> ExitCode {
        match self {
            Failure::Pki(Error::Refused(problems)) => {
                complain(&refusal(command, problems));
                ExitCode::from(REFUSED)
            }
            other => {
                complain(&format!("trellis pki {command}: {}\n", other.line()));
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

fn refusal(command: &str, problems: &[Problem]) -> String {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    let mut text = format!("trellis pki {command}: {count}, nothing was changed\n");
    for (index, Problem { severity, place, what, advice }) in problems.iter().enumerate() {
        let number = index + 1;
        let kind = if *severity == Severity::Warning { "(warning) " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{number:>3}. {kind}{what}\n     where: {place}\n     to do: {advice}\n");
    }
    text
}

pub fn warn(problems: &[Problem]) {
    for Problem { place, what, advice, .. } in problems {
        complain(&format!("warning: {place}: {what}\n         to do: {advice}\n"));
    }
}

/// Prints what was asked for. A reader that has gone away is no trouble of ours.
pub fn print_text(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
