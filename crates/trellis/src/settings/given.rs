//! Merges command line, environment and configuration file: for each setting its value and the source of the value. The only
//! place that knows the precedence. Does not know what values mean.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use trellis_diagnostic::Diagnostic;

use super::config_file::{self, FileSettings};
use super::flags::Flags;
use super::problem::Source;
use super::scan::Scanned;
use super::table::{Shape, name_in, variable_of};

/// The text of a switch that is on.
pub const ON: &str = "true";
const OFF: &str = "false";

/// The unchecked settings.
#[derive(Debug, Default)]
pub struct Given {
    /// The value and source of each given setting, by name.
    values: BTreeMap<String, (String, Source)>,
    /// Mistakes found on the way.
    pub problems: Vec<Diagnostic>,
    pub warnings: Vec<String>,
    /// A configuration file could not be read, so a missing setting proves nothing.
    pub incomplete: bool,
}

impl Given {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(text, _)| text.as_str())
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some(ON)
    }

    pub fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.text(name).into_iter().flat_map(|text| text.split(','))
    }

    /// The source of a setting, or `None` if it is not given.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.values.get(name).map(|(_, source)| source)
    }
}

/// The outside world, as far as gathering needs it.
pub struct Outside<'a> {
    pub environment: &'a BTreeMap<String, OsString>,
    pub read_file: &'a dyn Fn(&Path) -> std::io::Result<String>,
    /// A file of settings with the lowest precedence.
    pub base: Option<&'a Path>,
}

/// Merges the command line with environment and file.
pub fn gather(scanned: Scanned, flags: &Flags, outside: &Outside<'_>) -> Given {
    let mut given = Given { problems: scanned.problems, ..Given::default() };
    // From the weakest place to the strongest: a later one replaces an earlier one.
    let mut merged: BTreeMap<String, (String, Source)> = BTreeMap::new();
    let environment = environment_settings(flags, outside.environment, &mut given);
    let command_line =
        joined(scanned.values, flags).into_iter().map(|(name, value)| (name, value, Source::CommandLine));
    let stronger: Vec<_> = environment.into_iter().chain(command_line).collect();

    let config = stronger.iter().rev().find(|(name, ..)| name == "config");
    let config = config.map(|(_, path, source)| read_config(Path::new(path), source, flags, outside));
    let base = outside.base.map(|path| read_config(path, &Source::CommandLine, flags, outside));
    for file in base.into_iter().chain(config) {
        given.problems.extend(file.problems);
        given.incomplete |= file.incomplete;
        merged.extend(file.values.into_iter().map(|(name, value, source)| (name, (value, source))));
    }
    merged.extend(stronger.into_iter().map(|(name, value, source)| (name, (value, source))));
    for (name, (value, source)) in merged {
        match plain(&name, value, flags) {
            Ok(value) => drop(given.values.insert(name, (value, source))),
            Err((what, advice)) => given.problems.push(Diagnostic::error(source.locate(&name), what, advice)),
        }
    }
    given
}

/// Joins the values of a list that was given several times.
fn joined(values: Vec<(String, String)>, flags: &Flags) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for (name, value) in values {
        match settings.iter_mut().find(|(known, _)| *known == name) {
            Some((_, list)) if flags.shape(&name) == Some(Shape::List) => *list = format!("{list},{value}"),
            _ => settings.push((name, value)),
        }
    }
    settings
}

fn environment_settings(
    flags: &Flags,
    environment: &BTreeMap<String, OsString>,
    given: &mut Given,
) -> Vec<(String, String, Source)> {
    let mut found = Vec::new();
    let flower = flags.flower_variables();
    let flower = flower.filter_map(|(variable, name)| Some((name, variable, environment.get(variable)?)));
    let names: BTreeMap<String, &str> = flags.settings().map(|name| (variable_of(name), name)).collect();
    let ours = environment.iter().filter_map(|(variable, value)| match names.get(variable.as_str()) {
        Some(name) => Some((*name, variable.as_str(), value)),
        None => {
            given.warnings.extend(misspelt(variable, flags));
            None
        }
    });
    for (name, variable, value) in flower.chain(ours) {
        let source = Source::Environment(variable.to_owned());
        match value.to_str() {
            // Containers and unit files set variables to the empty text for "not set".
            Some("") => {}
            // Kubernetes sets TRELLIS_PORT to a URL if there is a Service of the name "trellis".
            Some(url) if name == "port" && url.contains("://") => {}
            Some(value) => found.push((name.to_owned(), value.to_owned(), source)),
            None => {
                let what = format!("{variable} is not valid UTF-8");
                given.problems.push(Diagnostic::error(
                    source.to_string(),
                    what,
                    "rename the file, or use a link to it",
                ));
            }
        }
    }
    found
}

/// A warning for an unknown variable with our prefix that is similar to a known one. Others may belong to other programs.
fn misspelt(variable: &str, flags: &Flags) -> Option<String> {
    let meant = flags.suggest(name_in(variable)?)?;
    let meant = flags.settings().find(|name| *name == meant)?;
    Some(format!("the unknown environment variable {variable} is ignored; did you mean {}?", variable_of(meant)))
}

fn read_config(path: &Path, source: &Source, flags: &Flags, outside: &Outside<'_>) -> FileSettings {
    match (outside.read_file)(path) {
        Ok(text) => config_file::parse(path, &text, flags),
        Err(error) => {
            let what = format!("the config file {} cannot be read: {error}", path.display());
            let problem = Diagnostic::error(source.locate("config"), what, "give the path of a readable TOML file");
            FileSettings { problems: vec![problem], incomplete: true, ..FileSettings::default() }
        }
    }
}

/// The value in one spelling.
fn plain(name: &str, value: String, flags: &Flags) -> Result<String, (String, String)> {
    match flags.shape(name) {
        Some(Shape::Switch) => match value.to_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(ON.to_owned()),
            "false" | "no" | "off" | "0" => Ok(OFF.to_owned()),
            _ => Err((format!("{value:?} is neither true nor false"), "write true or false".to_owned())),
        },
        _ if value.is_empty() => Err((format!("--{name} has no value"), "give one, or leave it out".to_owned())),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::sample;
    use crate::settings::scan::scan;

    /// Gathers from a command line, `NAME=value` variables and the text of a file.
    fn raw(line: &str, environment: &str, file: &str) -> Given {
        let flags = sample::flags();
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let environment = environment
            .split_whitespace()
            .map(|pair| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.into())).expect("NAME=value"))
            .collect();
        let read_file = |path: &Path| match path.to_str() {
            Some("link.toml") => Ok(file.to_owned()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        };
        let outside = Outside { environment: &environment, read_file: &read_file, base: None };
        gather(scan(&arguments, &flags), &flags, &outside)
    }

    #[test]
    fn precedence() {
        let file = "fleet-api-address = 'file:1'\ninsecure = true";
        for (line, environment, expected, place) in [
            ("", "", None, None),
            ("--config link.toml", "", Some("file:1"), Some("link.toml line 1")),
            (
                "--config link.toml",
                "TRELLIS_FLEET_API_ADDRESS=env:1",
                Some("env:1"),
                Some("environment variable TRELLIS_FLEET_API_ADDRESS"),
            ),
            (
                "--fleet-api-address flag:1 --config link.toml",
                "TRELLIS_FLEET_API_ADDRESS=env:1",
                Some("flag:1"),
                Some("command line"),
            ),
            ("", "TRELLIS_CONFIG=link.toml", Some("file:1"), Some("link.toml line 1")),
            ("--config link.toml", "TRELLIS_FLEET_API_ADDRESS=", Some("file:1"), Some("link.toml line 1")),
        ] {
            let raw = raw(line, environment, file);
            assert!(raw.problems.is_empty(), "{line}: {:?}", raw.problems);
            assert_eq!(raw.text("fleet-api-address"), expected, "{line} {environment}");
            let found = raw.source("fleet-api-address").map(ToString::to_string);
            assert_eq!(found.as_deref(), place, "{line} {environment}");
        }
    }

    #[test]
    fn a_stronger_place_turns_a_switch_off() {
        let file = "insecure = true";
        for (line, environment, expected) in [
            ("--config link.toml", "", true),
            ("--config link.toml", "TRELLIS_INSECURE=no", false),
            ("--config link.toml --insecure", "TRELLIS_INSECURE=0", true),
            ("--config link.toml --insecure=false", "", false),
            ("", "TRELLIS_INSECURE=ON", true),
        ] {
            assert_eq!(raw(line, environment, file).is_on("insecure"), expected, "{line} {environment}");
        }
    }

    #[test]
    fn lists() {
        for (line, environment, file, expected) in [
            ("--endpoint a --endpoint=b:1,c", "", "", vec!["a", "b:1", "c"]),
            ("", "TRELLIS_ENDPOINT=a,b", "", vec!["a", "b"]),
            ("--config link.toml", "", "endpoint = ['a', 'b']", vec!["a", "b"]),
            ("--config link.toml", "", "endpoint = 'a,b'", vec!["a", "b"]),
            ("--config link.toml", "", "endpoint = []", vec![]),
            ("--config link.toml", "TRELLIS_ENDPOINT=b", "endpoint = ['a']", vec!["b"]),
            ("--config link.toml --endpoint c", "TRELLIS_ENDPOINT=b", "endpoint = ['a']", vec!["c"]),
        ] {
            let raw = raw(line, environment, file);
            assert!(raw.problems.is_empty(), "{line}: {:?}", raw.problems);
            assert_eq!(raw.list("endpoint").collect::<Vec<_>>(), expected, "{line} {environment} {file}");
        }
    }

    #[test]
    fn a_variable_of_kubernetes_is_not_ours() {
        assert_eq!(raw("", "TRELLIS_PORT=tcp://10.0.0.1:80", "").text("port"), None);
        assert_eq!(raw("", "TRELLIS_PORT=80", "").text("port"), Some("80"));
    }

    #[test]
    fn log_level_of_flower() {
        for (environment, expected) in
            [("FLWR_LOG_LEVEL=DEBUG", "DEBUG"), ("FLWR_LOG_LEVEL=DEBUG TRELLIS_LOG_LEVEL=warn", "warn")]
        {
            assert_eq!(raw("", environment, "").text("log-level"), Some(expected), "{environment}");
        }
    }

    #[test]
    fn problems_of_all_places_come_together() {
        let raw = raw("--config link.toml --zzz --database=", "TRELLIS_INSECURE=perhaps", "yyy = 1");
        let found: Vec<_> =
            raw.problems.iter().map(|problem| format!("{} | {}", problem.what, problem.place)).collect();
        assert_eq!(
            found,
            [
                "unknown flag --zzz | command line",
                "unknown key \"yyy\" | link.toml line 1",
                "--database has no value | command line, --database",
                "\"perhaps\" is neither true nor false | environment variable TRELLIS_INSECURE",
            ]
        );
        assert!(!raw.incomplete);
    }

    #[test]
    fn an_unreadable_file_leaves_open_what_it_sets() {
        let raw = raw("--config other.toml", "", "");
        assert!(raw.incomplete);
        assert!(raw.problems[0].what.starts_with("the config file other.toml cannot be read: "), "{:?}", raw.problems);
    }

    #[test]
    fn a_variable_close_to_ours_is_mentioned() {
        let raw = raw("", "TRELLIS_FLEET_API_ADRESS=x:1 TRELLIS_SOMETHING_ELSE=1 OTHER=1", "");
        assert_eq!(
            raw.warnings,
            ["the unknown environment variable TRELLIS_FLEET_API_ADRESS is ignored; \
             did you mean TRELLIS_FLEET_API_ADDRESS?"]
        );
        assert!(raw.problems.is_empty());
    }
}
