//! Brings command line, environment and configuration file together: for each setting the value that counts and the
//! place it came from. Precedence is decided here and nowhere else; what values mean is not known here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use clap::FromArgMatches;

use super::config_file::{self, FileSettings};
use super::flags::{Flags, Kind};
use super::problem::{Problem, Source};
use super::scan::Scanned;

const PREFIX: &str = "TRELLIS_";

/// What was asked for, not yet checked.
#[derive(Debug, Default)]
pub struct RawArgs<A> {
    pub args: A,
    /// Where each given setting came from, by flag name.
    pub sources: BTreeMap<String, Source>,
    /// Mistakes found on the way.
    pub problems: Vec<Problem>,
    pub warnings: Vec<String>,
    /// A configuration file could not be read, so that a missing setting says nothing.
    pub incomplete: bool,
}

/// The outside world, as far as gathering needs it.
pub struct Outside<'a> {
    pub environment: &'a BTreeMap<String, OsString>,
    pub read_file: &'a dyn Fn(&Path) -> std::io::Result<String>,
    /// A file of settings that counts less than everything else that is said.
    pub base: Option<&'a Path>,
}

/// Merges what the command line says with environment and file.
pub fn gather<A: FromArgMatches + Default>(scanned: Scanned, flags: &Flags, outside: &Outside<'_>) -> RawArgs<A> {
    let mut raw: RawArgs<A> = RawArgs { problems: scanned.problems, ..RawArgs::default() };
    // From the weakest place to the strongest: a later one replaces an earlier one.
    let mut merged: BTreeMap<String, (String, Source)> = BTreeMap::new();
    let environment = environment_settings(flags, outside.environment, &mut raw);
    let command_line =
        joined(scanned.values, flags).into_iter().map(|(name, value)| (name, value, Source::CommandLine));
    let stronger: Vec<_> = environment.into_iter().chain(command_line).collect();

    let config = stronger.iter().rev().find(|(name, ..)| name == "config");
    let config = config.map(|(_, path, source)| read_config(Path::new(path), source, flags, outside));
    let base = outside.base.map(|path| read_config(path, &Source::CommandLine, flags, outside));
    for file in base.into_iter().chain(config) {
        raw.problems.extend(file.problems);
        raw.incomplete |= file.incomplete;
        merged.extend(file.values.into_iter().map(|(name, value, source)| (name, (value, source))));
    }
    merged.extend(stronger.into_iter().map(|(name, value, source)| (name, (value, source))));

    let mut arguments = Vec::new();
    for (name, (value, source)) in merged {
        match as_argument(&name, &value, flags) {
            Ok(argument) => {
                arguments.extend(argument);
                raw.sources.insert(name, source);
            }
            Err((what, advice)) => raw.problems.push(Problem::new(what, source.locate(&name), advice)),
        }
    }
    match flags.parse(arguments) {
        Ok(args) => raw.args = args,
        Err(error) => raw.problems.push(Problem::new(error.to_string(), "command line", "see the help")),
    }
    raw
}

/// Makes one setting of a list that was given in several parts.
fn joined(values: Vec<(String, String)>, flags: &Flags) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for (name, value) in values {
        match settings.iter_mut().find(|(known, _)| *known == name) {
            Some((_, list)) if flags.kind(&name) == Some(Kind::List) => *list = format!("{list},{value}"),
            _ => settings.push((name, value)),
        }
    }
    settings
}

fn environment_settings<A>(
    flags: &Flags,
    environment: &BTreeMap<String, OsString>,
    raw: &mut RawArgs<A>,
) -> Vec<(String, String, Source)> {
    let mut found = Vec::new();
    let flower = flags.flower_variables().iter();
    let flower = flower.filter_map(|(variable, name)| Some((*name, *variable, environment.get(*variable)?)));
    let names: BTreeMap<String, &str> = flags.settings().map(|name| (variable_of(name), name)).collect();
    let ours =
        environment.iter().filter(|(variable, _)| variable.starts_with(PREFIX)).filter_map(|(variable, value)| {
            match names.get(variable.as_str()) {
                Some(name) => Some((*name, variable.as_str(), value)),
                None => {
                    raw.warnings.extend(misspelt(variable, flags));
                    None
                }
            }
        });
    for (name, variable, value) in flower.chain(ours) {
        let source = Source::Environment(variable.to_owned());
        match value.to_str() {
            // Set but empty is how containers and unit files say "not set".
            Some("") => {}
            // Kubernetes sets TRELLIS_PORT to a URL where there is a Service of the name "trellis".
            Some(url) if name == "port" && url.contains("://") => {}
            Some(value) => found.push((name.to_owned(), value.to_owned(), source)),
            None => {
                let what = format!("{variable} is not valid UTF-8");
                raw.problems.push(Problem::new(what, source.to_string(), "rename the file, or use a link to it"));
            }
        }
    }
    found
}

fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// A variable of ours that is close to one we read. Others may belong to something else: nothing is said.
fn misspelt(variable: &str, flags: &Flags) -> Option<String> {
    let meant = flags.suggest(variable.strip_prefix(PREFIX)?)?;
    let meant = flags.settings().find(|name| *name == meant)?;
    Some(format!("environment variable {variable} is not known and ignored; did you mean {}?", variable_of(meant)))
}

fn read_config(path: &Path, source: &Source, flags: &Flags, outside: &Outside<'_>) -> FileSettings {
    match (outside.read_file)(path) {
        Ok(text) => config_file::parse(path, &text, flags),
        Err(error) => {
            let what = format!("the config file {} cannot be read: {error}", path.display());
            let problem = Problem::new(what, source.locate("config"), "give the path of a readable TOML file");
            FileSettings { problems: vec![problem], incomplete: true, ..FileSettings::default() }
        }
    }
}

/// The setting as clap reads it; a switch that is off is no argument at all.
fn as_argument(name: &str, value: &str, flags: &Flags) -> Result<Option<String>, (String, String)> {
    match flags.kind(name) {
        Some(Kind::Switch) => match value.to_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(Some(format!("--{name}"))),
            "false" | "no" | "off" | "0" => Ok(None),
            _ => Err((format!("{value:?} is neither true nor false"), "write true or false".to_owned())),
        },
        _ if value.is_empty() => Err((format!("--{name} has no value"), "give one, or leave it out".to_owned())),
        _ => Ok(Some(format!("--{name}={value}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::sample::{self, Sample};
    use crate::settings::scan::scan;

    /// Gathers from a command line, `NAME=value` variables and the text of a file.
    fn raw(line: &str, environment: &str, file: &str) -> RawArgs<Sample> {
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
            assert_eq!(raw.args.fleet_api_address.as_deref(), expected, "{line} {environment}");
            let found = raw.sources.get("fleet-api-address").map(ToString::to_string);
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
            assert_eq!(raw(line, environment, file).args.insecure, expected, "{line} {environment}");
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
            assert_eq!(raw.args.endpoint, expected, "{line} {environment} {file}");
        }
    }

    #[test]
    fn a_variable_of_kubernetes_is_not_ours() {
        assert_eq!(raw("", "TRELLIS_PORT=tcp://10.0.0.1:80", "").args.port, None);
        assert_eq!(raw("", "TRELLIS_PORT=80", "").args.port.as_deref(), Some("80"));
    }

    #[test]
    fn log_level_of_flower() {
        for (environment, expected) in
            [("FLWR_LOG_LEVEL=DEBUG", "DEBUG"), ("FLWR_LOG_LEVEL=DEBUG TRELLIS_LOG_LEVEL=warn", "warn")]
        {
            assert_eq!(raw("", environment, "").args.log.log_level.as_deref(), Some(expected), "{environment}");
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
            ["environment variable TRELLIS_FLEET_API_ADRESS is not known and ignored; \
             did you mean TRELLIS_FLEET_API_ADDRESS?"]
        );
        assert!(raw.problems.is_empty());
    }
}
