//! Settings of the sandbox. The command line validates the values.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which part of the sandbox is mandatory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// No app starts unless the kernel enforces the file rules, the system call filter and the chosen network rule.
    Required,
    /// Apps start with the features that the kernel has; missing features are reported.
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

/// The network access of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Unrestricted. The default: many apps download their data sets.
    #[default]
    All,
    /// Only the port from which the app gets its messages, if it needs one.
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

/// A file or directory that apps may use in addition to their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPath {
    pub path: PathBuf,
    pub writable: bool,
}

/// Suffix of a path that apps may write to.
const WRITABLE: &str = ":rw";

impl DataPath {
    /// Splits `PATH` or `PATH:rw`. Does not resolve the path.
    pub fn parse(text: &str) -> (&str, bool) {
        match text.strip_suffix(WRITABLE) {
            Some(path) => (path, true),
            None => (text, false),
        }
    }

    /// The format that [`DataPath::parse`] reads.
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
    /// Apps start without a sandbox.
    pub fn off() -> Settings {
        Settings { mode: Mode::Off, ..Settings::default() }
    }
}
