//! The sandbox flags of SuperNode and SuperLink: declaration, checks, output.

use std::path::{Path, PathBuf};

use clap::Args;
use toml::Value;
use trellis_sandbox::{DataPath, Mode, Network, Settings};

use crate::process::OWN_PROGRAM;
use crate::settings::Checker;
use crate::settings::print::{Row, text};

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sandbox of apps (Linux)")]
pub struct SandboxArgs {
    /// Keep apps from files, processes and secrets that are not theirs: `required`, `best-effort` or `off` [default:
    /// best-effort]
    ///
    /// An app reads its interpreter, its own files and what --app-data names, and writes to a scratch directory of its
    /// own. `required` refuses to start where the kernel cannot enforce that (Linux 5.13 or later, Landlock and
    /// seccomp); `best-effort` uses what there is, and says what is missing. See docs/supernode.md.
    #[arg(long, value_name = "MODE")]
    pub sandbox: Option<String>,

    /// A file or directory that apps may read, or with `:rw` write to: PATH or PATH:rw; may be repeated
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub app_data: Vec<String>,

    /// A variable of the environment that apps get in addition to the usual ones; may be repeated
    ///
    /// They get PATH, languages, and what Python, numeric libraries and GPUs use.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub app_env: Vec<String>,
}

impl<A> Checker<'_, A> {
    /// Converts the flags to settings; none of these flags restricts the network.
    pub fn sandbox(&mut self, args: &SandboxArgs) -> Settings {
        Settings {
            mode: self.choice("sandbox", args.sandbox.as_deref(), &Mode::ALL),
            network: Network::All,
            data: args.app_data.iter().filter_map(|text| self.data_path(text)).collect(),
            variables: args.app_env.iter().filter_map(|name| self.variable(name)).collect(),
            helper: PathBuf::from(OWN_PROGRAM),
        }
    }

    fn data_path(&mut self, text: &str) -> Option<DataPath> {
        let (given, writable) = DataPath::parse(text);
        let path = self.resolve("app-data", given);
        if path == Path::new("/") {
            let what = format!("--app-data: {text:?} is the whole machine");
            self.refuse(&["app-data"], what, "name the directories that apps use; or use --sandbox off");
            return None;
        }
        Some(DataPath { path, writable })
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        if name.is_empty() || name.contains(['=', '\0']) {
            let what = format!("--app-env: {name:?} is no name of a variable");
            self.refuse(&["app-env"], what, "give the name only: the value is that of the environment");
            return None;
        }
        Some(name.to_owned())
    }
}

/// The settings, by the names of their flags.
pub fn rows(settings: &Settings) -> Vec<Row> {
    let list = |values: Vec<String>| (!values.is_empty()).then(|| Value::from(values));
    vec![
        ("sandbox", text(settings.mode.word())),
        ("app-data", list(settings.data.iter().map(DataPath::text).collect())),
        ("app-env", list(settings.variables.clone())),
    ]
}
