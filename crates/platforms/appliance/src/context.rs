//! Where values of variables come from: the environment, `one_env`, the context CD, and what a controller assigned. All of it is
//! parsed and nothing of it is ever run. What the values mean is not known here.

mod quoting;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

pub use quoting::single_quoted;
use trellis_one::keys::Assignment;

use crate::problem::Problem;

/// A context is some kilobytes; a longer file is something else.
pub const MAX_CONTEXT_BYTES: usize = 4 << 20;
/// A value longer than this is no setting. Certificates of a long chain fit.
pub const MAX_VALUE_BYTES: usize = 256 << 10;

/// What only `one_env` tells, besides what the context CD does.
const MADE_IN_THE_GUEST: [&str; 3] = ["TOKENTXT", "VMID", "ONEGATE_ENDPOINT"];

/// Who said a value. Those further up win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Assignment,
    Environment,
    ContextCd,
    /// Last, because a value with line breaks in it can look like another variable there.
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

/// All that was said, by whom. Bytes, because nobody promises text.
#[derive(Debug, Clone, Default)]
pub struct Values {
    said: BTreeMap<(String, Origin), Vec<u8>>,
    problems: Vec<Problem>,
    /// The context CD was read.
    has_cd: bool,
    assigned: Option<(String, String)>,
}

/// One value that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said<'a> {
    /// In capitals, as it was spelled otherwise.
    pub name: &'a str,
    pub origin: Origin,
    pub bytes: &'a [u8],
}

impl Values {
    /// The variables of a process: those that one-apps exports are among them.
    pub fn add_environment(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        for (name, value) in variables {
            // A name that is no text is none of ours.
            if let Ok(name) = name.into_string() {
                self.say(&name, Origin::Environment, value.into_vec());
            }
        }
    }

    /// `/var/run/one-context/one_env`.
    pub fn add_one_env(&mut self, bytes: &[u8]) {
        let Some(bytes) = self.not_too_long("one_env", bytes) else { return };
        let (pairs, problems) = quoting::one_env(bytes);
        self.problems.extend(problems);
        for (name, value) in pairs {
            // The first counts: what stands below it may be part of somebody's value.
            let key = (name.to_ascii_uppercase(), Origin::OneEnv);
            self.said.entry(key).or_insert(value);
        }
    }

    /// `context.sh` of the context CD.
    pub fn add_context_sh(&mut self, bytes: &[u8]) {
        let Some(bytes) = self.not_too_long("context.sh", bytes) else { return };
        let (pairs, problems) = quoting::context_sh(bytes);
        self.problems.extend(problems);
        self.has_cd = true;
        for (name, value) in pairs {
            self.say(&name, Origin::ContextCd, value);
        }
    }

    /// What the controller says, which beats all others.
    pub fn add_assignment(&mut self, assignment: &Assignment) {
        for (name, value) in &assignment.settings {
            self.say(name, Origin::Assignment, value.clone().into_bytes());
        }
        self.assigned = Some((assignment.part.clone(), assignment.generation.clone()));
    }

    /// Which part the VM was assigned, and of which generation.
    pub fn assigned(&self) -> Option<(&str, &str)> {
        self.assigned.as_ref().map(|(part, generation)| (part.as_str(), generation.as_str()))
    }

    /// A variable that is no setting (`VMID`, `ONEGATE_ENDPOINT`, `TOKENTXT`), if it is said and is text.
    pub fn get(&self, name: &str) -> Option<&str> {
        let said = self.all(name).next()?;
        std::str::from_utf8(said.bytes).ok().map(str::trim).filter(|text| !text.is_empty())
    }

    /// Who says a variable of exactly this spelling, those that win first. What is empty is not said.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = Said<'a>> {
        let name = name.to_ascii_uppercase();
        let range = (name.clone(), Origin::Assignment)..=(name, Origin::OneEnv);
        self.said.range(range).map(said).filter(|said| self.counts(said))
    }

    /// The spellings that somebody used, each once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let mut last = None;
        self.said.iter().map(said).filter(|said| self.counts(said)).filter_map(move |said| {
            let new = last != Some(said.name);
            last = Some(said.name);
            new.then_some(said.name)
        })
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Where the CD was read, `one_env` has nothing to add but what the guest made itself: so no value can pretend to be another.
    fn counts(&self, said: &Said<'_>) -> bool {
        let forged = said.origin == Origin::OneEnv && self.has_cd && !MADE_IN_THE_GUEST.contains(&said.name);
        !forged && !said.bytes.trim_ascii().is_empty()
    }

    fn say(&mut self, name: &str, origin: Origin, value: Vec<u8>) {
        // Anything else is no variable of ours, and would be told as one.
        if quoting::name(name.as_bytes()).is_some() {
            self.said.insert((name.to_ascii_uppercase(), origin), value);
        }
    }

    fn not_too_long<'a>(&mut self, file: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if bytes.len() <= MAX_CONTEXT_BYTES {
            return Some(bytes);
        }
        let what = format!("{file} is longer than {MAX_CONTEXT_BYTES} bytes, so nothing of it was read");
        self.problems.push(Problem::new("", what, "give the VM a context, and data by other ways"));
        None
    }
}

fn said<'a>(((name, origin), bytes): (&'a (String, Origin), &'a Vec<u8>)) -> Said<'a> {
    Said { name, origin: *origin, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(settings: &[(&str, &str)]) -> Assignment {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Assignment { part: "f/s/node/p-0".into(), generation: "7".into(), settings }
    }

    #[test]
    fn the_nearest_to_the_controller_wins_and_empty_is_not_said() {
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
    fn a_value_in_one_env_cannot_pretend_to_be_another_variable() {
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
