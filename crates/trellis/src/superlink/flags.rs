//! What clap knows about the flags of `trellis superlink`, as questions the readers of command line, environment and
//! file can ask. Knows no values.

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, Command};

use super::args::{AFTER_HELP, SuperlinkArgs};

/// Flags that say what to do instead of serving. They are no settings: neither the environment nor a file has them.
const ACTIONS: [&str; 3] = ["check-state", "print-config", "list-crash-points"];
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

pub struct Flags {
    command: Command,
}

impl Flags {
    /// `called` is how the user called us: `trellis superlink`, or `flower-superlink`.
    pub fn new(called: &str) -> Self {
        let command = Command::new("superlink")
            .bin_name(called)
            .display_name("trellis")
            .version(crate::VERSION)
            .max_term_width(crate::HELP_WIDTH);
        let command = SuperlinkArgs::augment_args(command).after_long_help(AFTER_HELP.replace("{called}", called));
        Self { command }
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
        self.command.get_arguments().filter_map(|flag| flag.get_long()).filter(|name| !ACTIONS.contains(name))
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
        let refusal = self.command.clone().try_get_matches_from(["superlink", &format!("--{word}")]).err()?;
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
    pub fn parse(&self, arguments: impl IntoIterator<Item = String>) -> Result<SuperlinkArgs, clap::Error> {
        let arguments = std::iter::once("superlink".to_owned()).chain(arguments);
        let matches = self.command.clone().try_get_matches_from(arguments)?;
        clap::FromArgMatches::from_arg_matches(&matches)
    }
}

fn plain(word: &str) -> String {
    word.trim_start_matches('-').to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_flower_superlink_from_1_25_to_1_42_is_known() {
        let switches = [
            "insecure",
            "enable-supernode-auth",
            "simulation",
            "allow-runtime-dependency-installation",
            "disable-runtime-dependency-installation",
        ];
        let values = [
            "flwr-dir",
            "ssl-certfile",
            "ssl-keyfile",
            "ssl-ca-certfile",
            "isolation",
            "database",
            "storage-dir",
            "auth-list-public-keys",
            "serverappio-api-address",
            "fleet-api-type",
            "fleet-api-address",
            "fleet-api-num-workers",
            "control-api-address",
            "exec-api-address",
            "executor",
            "executor-dir",
            "executor-config",
            "simulationio-api-address",
            "health-server-address",
            "host",
            "port",
            "runtime-api-address",
            "appio-ssl-certfile",
            "appio-ssl-keyfile",
            "appio-ssl-ca-certfile",
            "log-file",
            "log-rotation-interval-hours",
            "log-rotation-backup-count",
            "superexec-auth-secret-file",
        ];
        let flags = Flags::new("flower-superlink");
        for name in switches {
            assert_eq!(flags.kind(name), Some(Kind::Switch), "{name}");
        }
        for name in values {
            assert_eq!(flags.kind(name), Some(Kind::Value), "{name}");
        }
    }

    #[test]
    fn suggestions() {
        let flags = Flags::new("trellis superlink");
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
