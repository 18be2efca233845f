//! Why a command did not do what it was asked: what is wrong, what to do, and the code it exits with.

use std::fmt::Write as _;
use std::process::ExitCode;

use trellis_client::{Distrust, Error};

use super::output::remark;
use super::table::clean;

const FAILED: u8 = 1;
/// The code that clap uses for arguments it refuses itself.
const USAGE: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
pub struct Trouble {
    code: u8,
    problems: Vec<Problem>,
}

#[derive(Debug, PartialEq, Eq)]
struct Problem {
    what: String,
    advice: Option<String>,
}

impl Trouble {
    /// Nobody is to blame in the arguments: it was refused, or went wrong.
    pub fn failed(what: impl Into<String>, advice: Option<&str>) -> Trouble {
        Trouble { code: FAILED, problems: vec![Problem { what: what.into(), advice: advice.map(str::to_owned) }] }
    }

    /// The arguments cannot be used.
    pub fn usage(what: impl Into<String>, advice: &str) -> Trouble {
        Trouble { code: USAGE, problems: vec![Problem { what: what.into(), advice: Some(advice.to_owned()) }] }
    }

    /// All problems of both.
    pub fn and(mut self, mut other: Trouble) -> Trouble {
        self.problems.append(&mut other.problems);
        self
    }

    /// Tells it on stderr; what to exit with.
    pub fn tell(&self, called: &str) -> ExitCode {
        remark(&self.text(called));
        ExitCode::from(self.code)
    }

    fn text(&self, called: &str) -> String {
        // Writing to a String cannot fail.
        let mut text = format!("{called}: ");
        match self.problems.as_slice() {
            [Problem { what, advice }] => {
                let _ = write!(text, "{}", clean(what));
                if let Some(advice) = advice {
                    let _ = write!(text, "\n  to do: {advice}");
                }
            }
            many => {
                let whose = if self.code == USAGE { " with the arguments" } else { "" };
                let _ = writeln!(text, "{} problems{whose}, nothing was done", many.len());
                for (index, Problem { what, advice }) in many.iter().enumerate() {
                    let _ = write!(text, "\n{:>3}. {}", index + 1, clean(what));
                    if let Some(advice) = advice {
                        let _ = write!(text, "\n     to do: {advice}");
                    }
                }
            }
        }
        text
    }
}

/// A call that went wrong.
impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::failed(explain(&error), advice(&error))
    }
}

/// The error with its causes, in one line.
pub fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
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
        Error::TooSlow { .. } => "try again; if it stays so, look at the SuperLink's log and at the network between",
        Error::Refused { status: 401, .. } => "give the token of an account: --token-file FILE, or TRELLIS_TOKEN",
        Error::Refused { status: 403, .. } => "ask an admin for another role; trellis whoami shows yours",
        Error::Refused { status: 503, .. } => "try again later; the SuperLink's log tells what is wrong",
        Error::Unexpected { .. } => "is that the HTTP API of a Trellis SuperLink, as new as this program?",
        Error::Refused { .. } => return None,
    })
}

fn distrust_advice(why: &Distrust) -> Option<&'static str> {
    match why {
        Distrust::UnknownAuthority { .. } => Some("give the certificate of its authority: --root-certificates FILE"),
        Distrust::OtherName { .. } => Some("call it by a name that its certificate is for, or issue one for this name"),
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
        let one = Trouble::failed("no\u{1b}[2J", Some("try again"));
        assert_eq!(one.text("trellis nodes"), "trellis nodes: no\u{fffd}[2J\n  to do: try again");
        let many = Trouble::usage("a is wrong", "change a").and(Trouble::usage("b is wrong", "change b"));
        let expected = "\
trellis nodes: 2 problems with the arguments, nothing was done

  1. a is wrong
     to do: change a
  2. b is wrong
     to do: change b";
        assert_eq!(many.text("trellis nodes"), expected);
    }
}
