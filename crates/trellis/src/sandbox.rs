//! Sandbox settings of SuperNode and SuperLink: rows, checks.

use std::path::Path;

use toml::Value;
use trellis_sandbox::{DataPath, Mode};

use crate::settings::Checker;
use crate::settings::kind::{self, Choice, Kind};

pub const MODES: Choice<Mode> = Choice(&Mode::ALL);

/// The rows for a program whose config has the sandbox in this field.
macro_rules! sandbox_group {
    ($($field:ident).+) => {
        $crate::settings::group! { "Sandbox of apps (Linux)";
            /// Restrict the access of apps to files, processes and secrets: `required`, `best-effort` or `off` [default:
            /// best-effort]
            ///
            /// An app reads its interpreter, its own files and the paths of --app-data, and writes to a scratch directory of its
            /// own. `required` refuses to start if the kernel cannot enforce that (Linux 5.13 or later, Landlock and
            /// seccomp); `best-effort` enforces what the kernel supports, and logs what is missing. See docs/supernode.md.
            "sandbox" "MODE": $crate::sandbox::MODES => $($field).+.mode;

            /// A file or directory that apps may read, or with `:rw` write to: PATH or PATH:rw; may be repeated
            "app-data" ["PATH"]: $crate::sandbox::Data => $($field).+.data;

            /// An environment variable that apps get in addition to the default ones; may be repeated
            ///
            /// Apps get PATH, languages, and the variables of Python, numeric libraries and GPUs.
            "app-env" ["NAME"]: $crate::sandbox::Variables => $($field).+.variables;
        }
    };
}
pub(crate) use sandbox_group;

/// Files and directories for apps.
pub struct Data;

impl Kind for Data {
    type Value = Vec<DataPath>;

    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, _: &str) -> Option<Vec<DataPath>> {
        let mut data = Vec::new();
        for text in checker.given.list(name) {
            let (given, writable) = DataPath::parse(text);
            let path = checker.resolve(name, given);
            if path == Path::new("/") {
                let what = format!("--{name}: {text:?} is the whole machine");
                checker.refuse(&[name], what, "name the directories that apps use; or use --sandbox off");
            } else {
                data.push(DataPath { path, writable });
            }
        }
        Some(data)
    }

    fn show(&self, value: &Vec<DataPath>) -> Option<Value> {
        kind::list(&value.iter().map(DataPath::text).collect::<Vec<_>>())
    }
}

/// Names of environment variables.
pub struct Variables;

impl Kind for Variables {
    type Value = Vec<String>;

    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, _: &str) -> Option<Vec<String>> {
        let (sound, wrong): (Vec<&str>, Vec<&str>) =
            checker.given.list(name).partition(|text| !text.is_empty() && !text.contains(['=', '\0']));
        for text in wrong {
            let what = format!("--{name}: {text:?} is not the name of a variable");
            checker.refuse(&[name], what, "give the name only: the value comes from the environment");
        }
        Some(sound.into_iter().map(str::to_owned).collect())
    }

    fn show(&self, value: &Vec<String>) -> Option<Value> {
        kind::list(value)
    }
}
