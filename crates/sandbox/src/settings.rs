//! What the operator chooses about the sandbox. Values are checked by the command line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How much of the sandbox must be there for an app to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// No app starts unless the kernel enforces the file rules, the system call filter and the chosen network rule.
    Required,
    /// Apps start with what the kernel has; what is missing is reported.
    #[default]
    BestEffort,
    /// Apps have the rights and the environment of the process that starts them.
    Off,
}

impl Mode {
    pub const ALL: [(&'static str, Mode); 3] =
        [("best-effort", Mode::BestEffort), ("required", Mode::Required), ("off", Mode::Off)];

    pub fn word(self) -> &'static str {
        Mode::ALL.into_iter().find_map(|(word, mode)| (mode == self).then_some(word)).expect("every mode has a word")
    }
}

/// What an app may reach over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Everything that the machine reaches. The default: many apps download their data sets.
    #[default]
    All,
    /// Nothing but the port that the app gets its messages from, if it needs one.
    None,
}

impl Network {
    pub const ALL: [(&'static str, Network); 2] = [("all", Network::All), ("none", Network::None)];

    pub fn word(self) -> &'static str {
        match self {
            Network::All => "all",
            Network::None => "none",
        }
    }
}

/// A file or directory that apps may use beside their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPath {
    pub path: PathBuf,
    pub writable: bool,
}

/// What follows a path that apps may write to.
const WRITABLE: &str = ":rw";

impl DataPath {
    /// Splits `PATH` or `PATH:rw`; the path is not resolved.
    pub fn parse(text: &str) -> (&str, bool) {
        match text.strip_suffix(WRITABLE) {
            Some(path) => (path, true),
            None => (text, false),
        }
    }

    /// As [`DataPath::parse`] reads it.
    pub fn text(&self) -> String {
        format!("{}{}", self.path.display(), if self.writable { WRITABLE } else { "" })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub mode: Mode,
    pub network: Network,
    pub data: Vec<DataPath>,
    /// Names of variables that apps get in addition to the listed ones.
    pub variables: Vec<String>,
    /// The program that calls [`crate::enter`] when its first argument is [`crate::SUB_COMMAND`].
    pub helper: PathBuf,
}

impl Settings {
    /// Apps are started as they are.
    pub fn off() -> Settings {
        Settings { mode: Mode::Off, ..Settings::default() }
    }
}
