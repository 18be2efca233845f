//! Reads a configuration file: TOML whose keys are flag names. Knows the keys, not the meaning of values.

use std::path::Path;

use toml::de::{DeTable, DeValue};
use trellis_diagnostic::Diagnostic;

use super::flags::Flags;
use super::problem::Source;
use super::table::Shape;

/// The values of a file, and the problems with it.
#[derive(Debug, Default)]
pub struct FileSettings {
    pub values: Vec<(String, String, Source)>,
    pub problems: Vec<Diagnostic>,
    /// The file could not be parsed completely: settings may be missing.
    pub incomplete: bool,
}

/// Reads the `text` of the file at `path`.
pub fn parse(path: &Path, text: &str, flags: &Flags) -> FileSettings {
    let place = |offset: usize| Source::File { path: path.to_owned(), line: line_of(text, offset) };
    let mut found = FileSettings::default();
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut broken = Vec::new();
    for error in errors {
        let offset = error.span().map_or(0, |span| span.start);
        broken.push(line_of(text, offset));
        let what = format!("not valid TOML: {}", error.message().replace('\n', ", "));
        found.problems.push(Diagnostic::error(
            place(offset).to_string(),
            what,
            "write lines of the form: key = \"value\"",
        ));
        found.incomplete = true;
    }
    let mut entries: Vec<_> = table.into_inner().into_iter().collect();
    // Values that error recovery found in a broken line are unreliable.
    entries.retain(|(key, _)| !broken.contains(&line_of(text, key.span().start)));
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let source = place(key.span().start);
        let name = key.into_inner();
        if name == "config" {
            let what = "config cannot be set in a config file";
            found.problems.push(Diagnostic::error(source.to_string(), what, "put all settings into one file"));
        } else if !flags.settings().any(|known| known == name) {
            found.problems.push(unknown_key(&name, &source, flags));
        } else {
            match setting(&name, value.get_ref(), flags) {
                Ok(Some(value)) => found.values.push((name.into_owned(), value, source)),
                Ok(None) => {}
                Err((what, advice)) => found.problems.push(Diagnostic::error(source.to_string(), what, advice)),
            }
        }
    }
    found
}

/// The value as other sources write it. An empty list means "not set".
fn setting(name: &str, value: &DeValue<'_>, flags: &Flags) -> Result<Option<String>, (String, String)> {
    if flags.shape(name) == Some(Shape::List) {
        let list = list_of(value).map(|list| Some(list).filter(|list| !list.is_empty()));
        return list.ok_or_else(|| {
            let advice = format!("write it as: {name} = [\"one\", \"other\"]");
            (format!("{name} must be a list of texts"), advice)
        });
    }
    text_of(value).map(Some).ok_or_else(|| {
        let what = format!("{name} must be text, a number, true or false");
        (what, format!("write it as: {name} = \"value\""))
    })
}

fn unknown_key(name: &str, source: &Source, flags: &Flags) -> Diagnostic {
    let advice = match flags.suggest(name).filter(|meant| flags.settings().any(|known| known == meant)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "remove it; keys are the flags without their dashes".to_owned(),
    };
    Diagnostic::error(source.to_string(), format!("unknown key {name:?}"), advice)
}

fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(on) => Some(on.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// The texts of a list, separated by commas; a single text counts as a list of one.
fn list_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Array(values) => {
            let texts: Option<Vec<&str>> = values.iter().map(|value| value.get_ref().as_str()).collect();
            texts.map(|texts| texts.join(","))
        }
        single => single.as_str().map(str::to_owned),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::sample;

    fn read(text: &str) -> FileSettings {
        parse(Path::new("link.toml"), text, &sample::flags())
    }

    #[test]
    fn values_keep_their_lines() {
        let found =
            read("# ours\ninsecure = true\n\nfleet-api-address = \"h:1\"\nobject-cache-size = 1_000\nport = 1.5\n");
        assert!(found.problems.is_empty() && !found.incomplete, "{found:?}");
        let line = |line| Source::File { path: "link.toml".into(), line };
        let expected = [
            ("insecure", "true", 2),
            ("fleet-api-address", "h:1", 4),
            ("object-cache-size", "1000", 5),
            ("port", "1.5", 6),
        ];
        let expected: Vec<_> = expected.map(|(key, value, at)| (key.to_owned(), value.to_owned(), line(at))).into();
        assert_eq!(found.values, expected);
    }

    #[test]
    fn all_mistakes_are_found() {
        for (text, expected) in [
            (
                "flet-api-address = 1\nzzz = 2",
                vec![
                    ("unknown key \"flet-api-address\"", "link.toml line 1", "did you mean fleet-api-address?"),
                    ("unknown key \"zzz\"", "link.toml line 2", "remove it; keys are the flags without their dashes"),
                ],
            ),
            (
                "fleet_api_address = 'h:1'",
                vec![("unknown key \"fleet_api_address\"", "link.toml line 1", "did you mean fleet-api-address?")],
            ),
            (
                "config = 'other.toml'",
                vec![("config cannot be set in a config file", "link.toml line 1", "put all settings into one file")],
            ),
            (
                "\ndatabase = ['a']",
                vec![(
                    "database must be text, a number, true or false",
                    "link.toml line 2",
                    "write it as: database = \"value\"",
                )],
            ),
            (
                "endpoint = [1]",
                vec![(
                    "endpoint must be a list of texts",
                    "link.toml line 1",
                    "write it as: endpoint = [\"one\", \"other\"]",
                )],
            ),
            (
                "check-state = true",
                vec![(
                    "unknown key \"check-state\"",
                    "link.toml line 1",
                    "remove it; keys are the flags without their dashes",
                )],
            ),
        ] {
            let problems = read(text).problems;
            let found: Vec<_> =
                problems.iter().map(|p| (p.what.as_str(), p.place.as_str(), p.advice.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn broken_toml_is_incomplete() {
        let found = read("insecure = true\ndatabase = \nstate-dir = \"d");
        assert!(found.incomplete);
        let places: Vec<_> = found.problems.iter().map(|problem| problem.place.as_str()).collect();
        assert_eq!(places, ["link.toml line 2", "link.toml line 3"]);
    }
}
