//! The settings of an app: names and defaults, and a reader that collects all errors.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use trellis_diagnostic::{Diagnostic, suggest};

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    /// The default as text; empty if there is none.
    pub default: &'static str,
    pub help: &'static str,
}

/// Reads settings one by one and collects errors.
#[derive(Debug)]
pub struct Reader {
    /// The given values by name.
    given: BTreeMap<&'static str, String>,
    known: Vec<Setting>,
    pub problems: Vec<Diagnostic>,
}

impl Reader {
    /// `aliases` maps alternative names to names.
    pub fn new(known: Vec<Setting>, aliases: &[(&str, &str)], settings: &BTreeMap<String, String>) -> Self {
        let mut reader = Self { given: BTreeMap::new(), known, problems: Vec::new() };
        for (written, value) in settings {
            let name = aliases.iter().find(|(alias, _)| alias == written).map_or(written.as_str(), |(_, name)| name);
            match reader.known.iter().find(|setting| setting.name == name) {
                Some(setting) => match reader.given.entry(setting.name) {
                    Entry::Vacant(place) => {
                        place.insert(value.clone());
                    }
                    Entry::Occupied(_) => {
                        let what = format!("it is the same setting as {name}, which is given too");
                        reader.problems.push(Diagnostic::error(written, what, "leave one of them out"));
                    }
                },
                None => reader.problems.push(unknown(written, &reader.known)),
            }
        }
        reader
    }

    /// The given or default value; `None` if it is missing or invalid. Errors are collected; that of `parse` describes the
    /// allowed values.
    pub fn value<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let setting = self.known.iter().find(|setting| setting.name == name).expect("only known settings are read");
        let text = self.given.get(name).map_or(setting.default, String::as_str).trim();
        if text.is_empty() {
            return None;
        }
        match parse(text) {
            Ok(value) => Some(value),
            Err(expected) => {
                let advice = match setting.default {
                    "" => format!("write {expected}, or leave it out"),
                    default => format!("write {expected}, or leave it out for {default}"),
                };
                self.problems.push(Diagnostic::error(name, format!("{text:?} cannot be used"), advice));
                None
            }
        }
    }

    /// Reports settings that were given but have no effect.
    pub fn refuse(&mut self, names: &[&'static str], why: &str) {
        for name in names.iter().filter(|name| self.given.contains_key(*name)) {
            self.problems.push(Diagnostic::error(*name, format!("it has no effect {why}"), "leave it out"));
        }
    }
}

fn unknown(written: &str, known: &[Setting]) -> Diagnostic {
    let advice = suggest(written, known.iter().map(|setting| setting.name), "known are");
    Diagnostic::error(written, "there is no such setting", advice)
}
