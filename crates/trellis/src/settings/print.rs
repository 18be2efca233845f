//! Effective settings as a configuration file, each with the place it came from. What is printed can be given back with
//! `--config` and means the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use toml::Value;

use super::problem::Source;
use super::size;
use crate::duration;
use crate::logging::{LogFormat, LogSettings};

/// A setting and its value; `None` where it is not set.
pub type Row = (&'static str, Option<Value>);

/// The file's text. `aliases` are flags that say the same as the one that is printed: (printed, other).
pub fn config_file(rows: &[Row], aliases: &[(&str, &str)], sources: &BTreeMap<String, Source>) -> String {
    let assignment = |(name, value): &Row| match value {
        Some(value) => format!("{name} = {value}"),
        None => format!("# {name} ="),
    };
    let width = rows.iter().map(|row| assignment(row).chars().count()).max().unwrap_or(0);
    rows.iter()
        .map(|row| {
            let place = match row {
                (_, None) => "not set".to_owned(),
                (name, Some(_)) => source(name, aliases, sources).to_string(),
            };
            format!("{:width$}  # {place}\n", assignment(row))
        })
        .collect()
}

fn source<'a>(name: &str, aliases: &[(&str, &str)], sources: &'a BTreeMap<String, Source>) -> &'a Source {
    let mut aliases = aliases.iter().filter(|(printed, _)| *printed == name);
    let alias = aliases.find_map(|(_, alias)| sources.get(*alias));
    sources.get(name).or(alias).unwrap_or(&Source::Default)
}

pub fn log(log: &LogSettings) -> Vec<Row> {
    let format = match log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    let file = log.file.as_ref();
    vec![
        ("log-format", text(format)),
        ("log-level", text(&log.level)),
        ("log-file", file.and_then(|file| path(&file.path))),
        ("log-rotation-interval-hours", file.map(|file| i64::from(file.interval_hours).into())),
        ("log-rotation-backup-count", file.map(|file| i64::from(file.backups).into())),
    ]
}

pub fn text(text: &str) -> Option<Value> {
    Some(text.into())
}

pub fn path(path: &Path) -> Option<Value> {
    Some(path.to_string_lossy().into_owned().into())
}

pub fn time(time: Duration) -> Option<Value> {
    Some(duration::show(time).into())
}

pub fn bytes(bytes: u64) -> Option<Value> {
    Some(size::show(bytes).into())
}
