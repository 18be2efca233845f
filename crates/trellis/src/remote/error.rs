//! The error of a command: problems with their advice, and the exit code.

use std::fmt::{Display, Write as _};
use std::process::ExitCode;

use trellis_client::{Distrust, Error};
use trellis_diagnostic::Diagnostic;
use trellis_terminal::{clean, explain, remark};

const FAILED: u8 = 1;
/// The code that clap uses for arguments it refuses itself.
const USAGE: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
pub struct CommandError {
    code: u8,
    problems: Vec<Diagnostic>,
}

impl CommandError {
    /// The command was refused, or failed; the arguments are correct.
    pub fn failed(what: impl Into<String>, advice: Option<&str>) -> CommandError {
        CommandError { code: FAILED, problems: vec![Diagnostic::error("", what, advice.unwrap_or_default())] }
    }

    /// The arguments cannot be used.
    pub fn usage(what: impl Into<String>, advice: &str) -> CommandError {
        CommandError { code: USAGE, problems: vec![Diagnostic::error("", what, advice)] }
    }

    /// Like [`CommandError::failed`] with several problems; `None` without a problem.
    pub fn failures(problems: Vec<Diagnostic>) -> Option<CommandError> {
        (!problems.is_empty()).then_some(CommandError { code: FAILED, problems })
    }

    /// All problems of both.
    pub fn and(mut self, mut other: CommandError) -> CommandError {
        self.problems.append(&mut other.problems);
        self
    }

    /// Prints the error to stderr, and returns the exit code.
    pub fn report(&self, called: &str) -> ExitCode {
        remark(&self.text(called));
        ExitCode::from(self.code)
    }

    fn text(&self, called: &str) -> String {
        // Writing to a String cannot fail.
        let mut text = format!("{called}: ");
        match self.problems.as_slice() {
            [one] => text.push_str(&item(one, "\n  to do: ")),
            many => {
                let about = if self.code == USAGE { " with the arguments" } else { "" };
                let _ = writeln!(text, "{} problems{about}, nothing was done", many.len());
                for (index, one) in many.iter().enumerate() {
                    let _ = write!(text, "\n{:>3}. {}", index + 1, item(one, "\n     to do: "));
                }
            }
        }
        text
    }
}

fn item(problem: &Diagnostic, to_do: &str) -> String {
    let what = clean(&problem.finding());
    match problem.advice.as_str() {
        "" => what,
        advice => format!("{what}{to_do}{advice}"),
    }
}

/// The arguments cannot be used.
impl<P: Display> From<Vec<Diagnostic<P>>> for CommandError {
    fn from(problems: Vec<Diagnostic<P>>) -> CommandError {
        let named = |it: Diagnostic<P>| Diagnostic::error(it.place.to_string(), it.what, it.advice);
        CommandError { code: USAGE, problems: problems.into_iter().map(named).collect() }
    }
}

/// A failed call.
impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError::failed(explain(&error), advice(&error))
    }
}

fn advice(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Lookup { .. } => "check --superlink (TRELLIS_SUPERLINK)",
        Error::Connect { .. } => "is the SuperLink running, and is that the port of its HTTP API (its flag --port)?",
        Error::Distrusted { why, .. } => distrust_advice(why)?,
        Error::NotTls { .. } => "if it serves without TLS on purpose, add --insecure",
        Error::NotHttp { .. } => {
            "if it serves with TLS, give the certificate of its authority: --root-certificates FILE"
        }
        Error::Tls { .. } | Error::Broken { .. } => "is that the port of the SuperLink's HTTP API (its flag --port)?",
        Error::TooSlow { .. } => "try again; if that does not help, check the SuperLink's log and the network",
        Error::Refused { status: 401, .. } => "give the token of an account: --token-file FILE, or TRELLIS_TOKEN",
        Error::Refused { status: 403, .. } => "ask an admin for another role; trellis whoami shows yours",
        Error::Refused { status: 503, .. } => "try again later; see the SuperLink's log for the reason",
        Error::Unexpected { .. } => "is that the HTTP API of a Trellis SuperLink, as new as this program?",
        Error::Refused { .. } => return None,
    })
}

fn distrust_advice(why: &Distrust) -> Option<&'static str> {
    match why {
        Distrust::UnknownAuthority { .. } => Some("give the certificate of its authority: --root-certificates FILE"),
        Distrust::OtherName { .. } => Some("call it by a name in its certificate, or issue one for this name"),
        Distrust::Expired => Some("renew the certificate of the SuperLink, or set the clock of this machine"),
        Distrust::NotYetValid => Some("set the clock of this machine"),
        Distrust::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_is_a_sentence_and_many_are_a_list() {
        let one = CommandError::failed("no\u{1b}[2J", Some("try again"));
        assert_eq!(one.text("trellis nodes"), "trellis nodes: no\u{fffd}[2J\n  to do: try again");
        let many = CommandError::usage("a is wrong", "change a").and(CommandError::usage("b is wrong", "change b"));
        let expected = "\
trellis nodes: 2 problems with the arguments, nothing was done

  1. a is wrong
     to do: change a
  2. b is wrong
     to do: change b";
        assert_eq!(many.text("trellis nodes"), expected);
    }
}
