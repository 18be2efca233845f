//! What clap knows about the flags of a program, as questions the readers of command line, environment and file can ask.
//! Knows no values.

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, Command, FromArgMatches};

/// Shorter words resemble too many flags.
const SHORTEST_GUESS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On or off: `--insecure`.
    Switch,
    /// `--database FILE`.
    Value,
    /// `--endpoint HOST`, as often as wanted. Its values are written with commas between them.
    List,
}

/// A program that is set up by flags.
pub struct Program {
    /// In help texts `{called}` stands for the name the user knows the program by.
    pub after_help: &'static str,
    /// Flags that say what to do instead of serving. They are no settings: neither the environment nor a file has them.
    pub actions: &'static [&'static str],
    /// Flower's own variables, for the settings where its users expect them to count.
    pub flower_variables: &'static [(&'static str, &'static str)],
}

pub struct Flags {
    command: Command,
    program: &'static Program,
}

impl Flags {
    /// The flags `A` of a program. `called` is how the user called it: `trellis superlink`, or `flower-superlink`.
    pub fn new<A: Args>(called: &str, program: &'static Program) -> Self {
        let command = Command::new("trellis").bin_name(called).version(crate::VERSION);
        let command = A::augment_args(command).after_long_help(program.after_help.replace("{called}", called));
        Self { command: crate::help::fitted_to_terminal(command), program }
    }

    pub fn kind(&self, name: &str) -> Option<Kind> {
        let flag = self.command.get_arguments().find(|flag| flag.get_long() == Some(name))?;
        Some(match flag.get_action() {
            ArgAction::SetTrue => Kind::Switch,
            ArgAction::Append => Kind::List,
            _ => Kind::Value,
        })
    }

    /// The flags that environment variables can set.
    pub fn settings(&self) -> impl Iterator<Item = &str> {
        self.command
            .get_arguments()
            .filter_map(|flag| flag.get_long())
            .filter(|name| !self.program.actions.contains(name))
    }

    /// Variables of Flower that set a flag, and the flag.
    pub fn flower_variables(&self) -> &'static [(&'static str, &'static str)] {
        self.program.flower_variables
    }

    /// The flag that `word` was probably meant to be, without its dashes.
    pub fn suggest(&self, word: &str) -> Option<String> {
        if let Some(name) = self.exact(word) {
            return Some(name);
        }
        let word = plain(word);
        if word.len() < SHORTEST_GUESS {
            return None;
        }
        // clap has the search built in, and gives its finding with the refusal.
        let refusal = self.command.clone().try_get_matches_from(["trellis", &format!("--{word}")]).err()?;
        match refusal.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(flag)) => Some(plain(flag)).filter(|name| !self.is_of_no_use(name)),
            _ => None,
        }
    }

    /// The flag that `word` names, but for dashes, underscores and case.
    pub fn exact(&self, word: &str) -> Option<String> {
        Some(plain(word)).filter(|name| self.kind(name).is_some())
    }

    /// Whether it is kept for compatibility only, and advice to use it would be bad advice.
    fn is_of_no_use(&self, name: &str) -> bool {
        self.command.get_arguments().any(|flag| flag.get_long() == Some(name) && flag.is_hide_short_help_set())
    }

    /// Lets clap read arguments that are known to be well-formed, or show help or version.
    pub fn parse<A: FromArgMatches>(&self, arguments: impl IntoIterator<Item = String>) -> Result<A, clap::Error> {
        let arguments = std::iter::once("trellis".to_owned()).chain(arguments);
        A::from_arg_matches(&self.command.clone().try_get_matches_from(arguments)?)
    }

    /// What `--help` or `--version` shows.
    pub fn show(&self, flag: String) -> Option<clap::Error> {
        self.command.clone().try_get_matches_from(["trellis".to_owned(), flag]).err()
    }
}

fn plain(word: &str) -> String {
    word.trim_start_matches('-').to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use crate::settings::sample;

    #[test]
    fn suggestions() {
        let flags = sample::flags();
        for (typed, meant) in [
            ("--flet-api-address", Some("fleet-api-address")),
            ("--ssl-certfil", Some("ssl-certfile")),
            ("--fleet-api-addr", Some("fleet-api-address")),
            ("-insecure", Some("insecure")),
            ("fleet_api_address", Some("fleet-api-address")),
            ("STATE_DIR", Some("state-dir")),
            ("--zzz", None),
            ("--x", None),
            ("--executr", None),
            ("--", None),
        ] {
            assert_eq!(flags.suggest(typed).as_deref(), meant, "{typed}");
        }
    }
}
