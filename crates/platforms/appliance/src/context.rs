//! Sources of variables: the environment, `one_env`, the context CD, and the assignment of a controller. Parses all of them
//! and executes none. The meaning of values is defined elsewhere.

mod quoting;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

pub use quoting::single_quoted;
use trellis_one::keys::Assignment;

use crate::problem::{Diagnostic, problem};

/// Maximum size of a context file. Real ones have a few kilobytes.
pub const MAX_CONTEXT_BYTES: usize = 4 << 20;
/// Maximum size of a value. Long certificate chains fit.
pub const MAX_VALUE_BYTES: usize = 256 << 10;

/// Variables that only `one_env` contains.
const GUEST_VARIABLES: [&str; 3] = ["TOKENTXT", "VMID", "ONEGATE_ENDPOINT"];

/// Origin of a value, in the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Assignment,
    Environment,
    ContextCd,
    /// Last, because a value with line breaks can contain a line that looks like another variable.
    OneEnv,
}

impl Origin {
    pub fn name(self) -> &'static str {
        match self {
            Origin::Assignment => "assignment",
            Origin::Environment => "environment",
            Origin::ContextCd => "context CD",
            Origin::OneEnv => "one_env",
        }
    }
}

/// All values with their origins. They are bytes, because they may not be UTF-8.
#[derive(Debug, Clone, Default)]
pub struct Values {
    value: BTreeMap<(String, Origin), Vec<u8>>,
    problems: Vec<Diagnostic>,
    /// A context CD was read.
    has_cd: bool,
    assigned: Option<(String, String)>,
}

/// An effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value<'a> {
    /// Upper-case name.
    pub name: &'a str,
    pub origin: Origin,
    pub bytes: &'a [u8],
}

impl Values {
    /// Adds the variables of this process, which include those that one-apps exports.
    pub fn add_environment(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        for (name, value) in variables {
            // Names of the appliance are UTF-8.
            if let Ok(name) = name.into_string() {
                self.insert(&name, Origin::Environment, value.into_vec());
            }
        }
    }

    /// Adds `/var/run/one-context/one_env`.
    pub fn add_one_env(&mut self, bytes: &[u8]) {
        let Some(bytes) = self.bounded("one_env", bytes) else { return };
        let (pairs, problems) = quoting::one_env(bytes);
        self.problems.extend(problems);
        for (name, value) in pairs {
            // The first occurrence wins: a later one may be part of another value.
            let key = (name.to_ascii_uppercase(), Origin::OneEnv);
            self.value.entry(key).or_insert(value);
        }
    }

    /// Adds `context.sh` of the context CD.
    pub fn add_context_sh(&mut self, bytes: &[u8]) {
        let Some(bytes) = self.bounded("context.sh", bytes) else { return };
        let (pairs, problems) = quoting::context_sh(bytes);
        self.problems.extend(problems);
        self.has_cd = true;
        for (name, value) in pairs {
            self.insert(&name, Origin::ContextCd, value);
        }
    }

    /// Adds the assignment of the controller, which takes precedence.
    pub fn add_assignment(&mut self, assignment: &Assignment) {
        for (name, value) in &assignment.settings {
            self.insert(name, Origin::Assignment, value.clone().into_bytes());
        }
        self.assigned = Some((assignment.part.clone(), assignment.generation.clone()));
    }

    /// Part and generation of the assignment.
    pub fn assigned(&self) -> Option<(&str, &str)> {
        self.assigned.as_ref().map(|(part, generation)| (part.as_str(), generation.as_str()))
    }

    /// A variable that is no setting (`VMID`, `ONEGATE_ENDPOINT`, `TOKENTXT`), if it is set and is UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.all(name).next()?;
        std::str::from_utf8(value.bytes).ok().map(str::trim).filter(|text| !text.is_empty())
    }

    /// Values of exactly this spelling, in the order of precedence. Empty values are ignored.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = Value<'a>> {
        let name = name.to_ascii_uppercase();
        let range = (name.clone(), Origin::Assignment)..=(name, Origin::OneEnv);
        self.value.range(range).map(value).filter(|value| self.is_effective(value))
    }

    /// Spellings that are in use, without duplicates.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let mut last = None;
        self.value.iter().map(value).filter(|value| self.is_effective(value)).filter_map(move |value| {
            let new = last != Some(value.name);
            last = Some(value.name);
            new.then_some(value.name)
        })
    }

    pub(crate) fn problems(&self) -> &[Diagnostic] {
        &self.problems
    }

    /// If the CD was read, `one_env` only adds variables that the guest created, so that no value can inject another
    /// variable.
    fn is_effective(&self, value: &Value<'_>) -> bool {
        let forged = value.origin == Origin::OneEnv && self.has_cd && !GUEST_VARIABLES.contains(&value.name);
        !forged && !value.bytes.trim_ascii().is_empty()
    }

    fn insert(&mut self, name: &str, origin: Origin, value: Vec<u8>) {
        // Other names are not valid variables, and must not appear in messages.
        if quoting::name(name.as_bytes()).is_some() {
            self.value.insert((name.to_ascii_uppercase(), origin), value);
        }
    }

    fn bounded<'a>(&mut self, file: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if bytes.len() <= MAX_CONTEXT_BYTES {
            return Some(bytes);
        }
        let what = format!("{file} is longer than {MAX_CONTEXT_BYTES} bytes and ignored");
        self.problems.push(problem("", what, "pass data to the VM by other means than the context"));
        None
    }
}

fn value<'a>(((name, origin), bytes): (&'a (String, Origin), &'a Vec<u8>)) -> Value<'a> {
    Value { name, origin: *origin, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(settings: &[(&str, &str)]) -> Assignment {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Assignment { part: "f/s/node/p-0".into(), generation: "7".into(), settings }
    }

    #[test]
    fn the_origin_with_the_highest_precedence_wins() {
        let mut values = Values::default();
        values.add_one_env(b"export FL_A=\"env\"\nexport FL_B=\"env\"\nexport TOKENTXT=\"t\"\n");
        assert_eq!(values.get("fl_b"), Some("env"));
        values.add_context_sh(b"FL_A='cd'\nFL_B=''\nfl_c='cd'\n");
        assert_eq!((values.get("FL_A"), values.get("FL_B"), values.get("FL_C")), (Some("cd"), None, Some("cd")));
        values.add_environment([("FL_A".into(), "process".into()), ("FL_C".into(), "".into())]);
        assert_eq!((values.get("FL_A"), values.get("FL_C")), (Some("process"), Some("cd")));
        values.add_assignment(&assignment(&[("FL_A", "said"), ("FL_C", "")]));
        assert_eq!((values.get("FL_A"), values.get("FL_C")), (Some("said"), Some("cd")));
        assert_eq!((values.get("TOKENTXT"), values.assigned()), (Some("t"), Some(("f/s/node/p-0", "7"))));
        assert_eq!(values.names().collect::<Vec<_>>(), ["FL_A", "FL_C", "TOKENTXT"]);
    }

    #[test]
    fn a_value_in_one_env_cannot_inject_another_variable() {
        let one_env =
            b"export TOKENTXT=\"real\"\nexport NOTE=\"a\nexport FL_ADMIN_TOKEN=\"mine\nexport TOKENTXT=\"mine\"\n";
        let mut values = Values::default();
        values.add_one_env(one_env);
        assert_eq!(values.get("TOKENTXT"), Some("real"));
        values.add_context_sh(b"NOTE='a\nexport FL_ADMIN_TOKEN=\"mine\nexport TOKENTXT=\"mine'\n");
        assert_eq!((values.get("FL_ADMIN_TOKEN"), values.get("TOKENTXT")), (None, Some("real")));
    }

    #[test]
    fn a_file_that_is_no_context_is_not_read() {
        let mut values = Values::default();
        values.add_context_sh(&vec![b'x'; MAX_CONTEXT_BYTES + 1]);
        assert_eq!((values.names().count(), values.problems().len()), (0, 1));
    }
}
