//! The names and shapes of a program's flags, for the readers of command line, environment and file. Knows no values.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, Command};

use super::table::{Program, Role, Shape};
use crate::help;

/// Shorter words resemble too many flags.
const MIN_GUESS_CHARS: usize = 4;

pub struct Flags {
    command: Command,
    rows: Vec<(&'static str, Shape, Role)>,
}

impl Flags {
    /// The flags of a program. `called` is how the user called it: `trellis superlink`, or `flower-superlink`.
    pub fn new<C>(called: &str, program: &Program<C>) -> Self {
        let (short, _) = program.about.split_once("\n\n").unwrap_or((program.about, ""));
        let command = Command::new("trellis").bin_name(called).version(crate::version::VERSION);
        let command = command.about(short.trim_end_matches('.').to_owned()).long_about(program.about);
        let command = program.arguments(command).after_long_help(program.after_help.replace("{called}", called));
        let rows = program.settings().map(|setting| (setting.name, setting.shape, setting.role)).collect();
        Self { command: help::fitted_to_terminal(command), rows }
    }

    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.rows.iter().find(|(known, ..)| *known == name).map(|(_, shape, _)| *shape)
    }

    /// The flags that the environment and files can set.
    pub fn settings(&self) -> impl Iterator<Item = &'static str> {
        let rows = self.rows.iter().filter(|(_, _, role)| !matches!(role, Role::Action | Role::HiddenAction));
        rows.map(|(name, ..)| *name)
    }

    /// Variables of Flower that set a flag, and the flag.
    pub fn flower_variables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.rows.iter().filter_map(|(name, _, role)| match role {
            Role::AlsoIn(variable) => Some((*variable, *name)),
            _ => None,
        })
    }

    /// The known flag that is most similar to `word`, without its dashes.
    pub fn suggest(&self, word: &str) -> Option<String> {
        if let Some(name) = self.exact(word) {
            return Some(name);
        }
        let word = plain(word);
        if word.len() < MIN_GUESS_CHARS {
            return None;
        }
        // clap searches similar flags itself, and returns the result with the error.
        let refusal = self.parse([format!("--{word}")]).err()?;
        match refusal.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(flag)) => Some(plain(flag)).filter(|name| !self.is_of_no_use(name)),
            _ => None,
        }
    }

    /// The flag that `word` names, but for dashes, underscores and case.
    pub fn exact(&self, word: &str) -> Option<String> {
        Some(plain(word)).filter(|name| self.shape(name).is_some())
    }

    /// Whether the flag exists for compatibility only, so that no advice should name it.
    fn is_of_no_use(&self, name: &str) -> bool {
        self.rows.iter().any(|(known, _, role)| *known == name && *role == Role::OfFlower)
    }

    /// Lets clap read arguments, or show help or version.
    pub fn parse(&self, arguments: impl IntoIterator<Item = String>) -> Result<ArgMatches, clap::Error> {
        self.command.clone().try_get_matches_from(std::iter::once("trellis".to_owned()).chain(arguments))
    }

    /// Shows `--help` or `--version`.
    pub fn show(&self, flag: String) -> ExitCode {
        self.parse([flag]).map_or_else(|message| help::show(&message), |_| ExitCode::SUCCESS)
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
