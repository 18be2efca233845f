//! Prints effective settings as a configuration file, each with its source. `--config` reads the output with the same result.

use toml::Value;

use super::given::Given;
use super::problem::Source;
use super::table::Program;

/// A setting and its value; `None` if it is not set.
pub type Row = (&'static str, Option<Value>);

/// The settings that are printed, in the order of the table.
pub fn rows<C>(program: &Program<C>, checked: &C) -> Vec<Row> {
    program.settings().filter_map(|setting| Some((setting.name, setting.show?(checked)))).collect()
}

/// The file's text.
pub fn config_file<C>(program: &Program<C>, rows: &[Row], given: &Given) -> String {
    let assignment = |(name, value): &Row| match value {
        Some(value) => format!("{name} = {value}"),
        None => format!("# {name} ="),
    };
    let source = |name: &str| {
        let others = program.settings().filter(|setting| setting.printed_as == Some(name));
        let mut names = std::iter::once(name).chain(others.map(|setting| setting.name));
        names.find_map(|name| given.source(name)).unwrap_or(&Source::Default)
    };
    let width = rows.iter().map(|row| assignment(row).chars().count()).max().unwrap_or(0);
    rows.iter()
        .map(|row| {
            let place = match row {
                (_, None) => "not set".to_owned(),
                (name, Some(_)) => source(name).to_string(),
            };
            format!("{:width$}  # {place}\n", assignment(row))
        })
        .collect()
}

/// The rows of every program that reads a configuration file.
macro_rules! config_group {
    () => {
        $crate::settings::group! { "Configuration and inspection";
            /// Read settings from this TOML file; its keys are the flags without their dashes
            ///
            /// Relative paths in the file start from its directory.
            "config" "FILE";

            /// Print the settings that would be used, as such a file, and exit
            "print-config" ($crate::settings::Role::Action);
        }
    };
}
pub(crate) use config_group;
