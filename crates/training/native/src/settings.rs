//! The settings of an app: which there are, what they are by default, and reading them with all problems at once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::problem::{Problem, nearest};

/// One setting, for help and for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    /// As it would be written; empty: not set.
    pub default: &'static str,
    pub help: &'static str,
}

/// Reads settings one by one and gathers what is wrong with them.
#[derive(Debug)]
pub struct Reader {
    /// Name to what was given for it.
    given: BTreeMap<&'static str, String>,
    known: Vec<Setting>,
    pub problems: Vec<Problem>,
}

impl Reader {
    /// `aliases` are other spellings, with the name they stand for.
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
                        reader.problems.push(Problem::new(written, what, "leave one of them out"));
                    }
                },
                None => reader.problems.push(unknown(written, &reader.known)),
            }
        }
        reader
    }

    /// The value, given or by default; `None` if it is not set, or wrong, which is noted. `parse` says in words what a value
    /// must be.
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
                self.problems.push(Problem::new(name, format!("{text:?} cannot be used"), advice));
                None
            }
        }
    }

    /// Notes settings that were given and would do nothing.
    pub fn refuse(&mut self, names: &[&'static str], why: &str) {
        for name in names.iter().filter(|name| self.given.contains_key(*name)) {
            self.problems.push(Problem::new(*name, format!("it has no effect {why}"), "leave it out"));
        }
    }
}

fn unknown(written: &str, known: &[Setting]) -> Problem {
    let names = || known.iter().map(|setting| setting.name);
    let advice = match nearest(written, names()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("known are {}", names().collect::<Vec<_>>().join(", ")),
    };
    Problem::new(written, "there is no such setting", advice)
}
