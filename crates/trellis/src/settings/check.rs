//! What checks of settings have in common: telling problems with their places, paths, files. What is checked is the
//! program's. Pure: what is needed of the outside world is handed in.

use std::path::{Path, PathBuf};

use super::given::Given;
use super::kind::Kind;
use super::problem::{Problem, Source};
use super::table::{Program, Shape};

/// The outside world, as far as the checks need it.
pub struct Surroundings<'a> {
    pub current_dir: &'a Path,
    pub home: Option<&'a Path>,
    pub state_home: Option<&'a Path>,
    /// Why a file cannot be read, if so.
    pub unreadable: &'a dyn Fn(&Path) -> Option<String>,
    /// Why nothing can be written to a file, which need not exist, if so.
    pub unwritable: &'a dyn Fn(&Path) -> Option<String>,
    /// A file whose content decides, or why it cannot be read.
    pub read: &'a dyn Fn(&Path) -> Result<FileSeen, String>,
}

/// A small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSeen {
    pub text: String,
    /// Who may do what with it.
    pub mode: u32,
}

impl Surroundings<'_> {
    /// The state directory of a program if none is given; `None`: there is no place for it.
    pub fn default_state_dir(&self, program: &str) -> Option<PathBuf> {
        // A relative XDG directory is to be ignored, says its specification.
        let home = self.state_home.filter(|path| path.is_absolute()).map(Path::to_owned);
        let home = home.or_else(|| self.home.map(|home| home.join(".local/state")))?;
        Some(home.join("trellis").join(program))
    }

    /// The path that a setting gives.
    pub fn resolve(&self, given: &Given, name: &str) -> Option<PathBuf> {
        Some(self.absolute(given.text(name)?, given.source(name)?))
    }

    /// The absolute path meant by `path`. Apps run elsewhere, so a relative one would not last; one in a file starts
    /// from the file's directory.
    fn absolute(&self, path: &str, source: &Source) -> PathBuf {
        if let (Some(rest), Some(home)) = (path.strip_prefix("~/"), self.home) {
            return home.join(rest);
        }
        let base = match source {
            Source::File { path, .. } => self.current_dir.join(path.parent().unwrap_or(Path::new(""))),
            _ => self.current_dir.to_owned(),
        };
        base.join(path.strip_prefix("./").unwrap_or(path))
    }
}

/// Checks the settings of a program, and collects what is wrong with them.
pub struct Checker<'a, C: 'static> {
    program: &'static Program<C>,
    pub given: &'a Given,
    pub around: &'a Surroundings<'a>,
    /// The settings so far.
    pub checked: C,
    /// Each with the position of its setting in the table.
    problems: Vec<(usize, Problem)>,
    /// What the user should know although it is not wrong.
    warnings: Vec<String>,
}

impl<'a, C> Checker<'a, C> {
    /// Checks each setting alone. `unset` is what holds where nothing is given.
    pub fn new(program: &'static Program<C>, given: &'a Given, around: &'a Surroundings<'a>, unset: C) -> Self {
        let (problems, warnings) = (Vec::new(), given.warnings.clone());
        let mut checker = Self { program, given, around, checked: unset, problems, warnings };
        for setting in program.settings() {
            (setting.check)(&mut checker);
        }
        checker
    }

    /// The settings and warnings; or everything that is wrong, in the order of the table.
    pub fn finish(mut self) -> Result<(C, Vec<String>), Vec<Problem>> {
        self.problems.sort_by_key(|(position, _)| *position);
        let found = self.problems.into_iter().map(|(_, problem)| problem);
        let problems: Vec<Problem> = self.given.problems.iter().cloned().chain(found).collect();
        if problems.is_empty() { Ok((self.checked, self.warnings)) } else { Err(problems) }
    }

    pub fn refuse(&mut self, flags: &[&str], what: impl Into<String>, advice: impl Into<String>) {
        let places: Vec<String> = flags.iter().map(|name| self.source(name).locate(name)).collect();
        let problem = Problem::new(what, places.join("; "), advice);
        self.problems.push((self.position(flags[0]), problem));
    }

    /// Refuses that none of several settings is given; `name` is one of them.
    pub fn refuse_unset(&mut self, name: &str, what: impl Into<String>, advice: impl Into<String>) {
        self.problems.push((self.position(name), Problem::new(what, "not set anywhere", advice)));
    }

    fn position(&self, name: &str) -> usize {
        self.program.settings().position(|setting| setting.name == name).expect("a setting of the table")
    }

    pub fn warn(&mut self, what: impl Into<String>) {
        self.warnings.push(what.into());
    }

    /// The text of a setting.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        debug_assert!(self.program.settings().any(|setting| setting.name == name), "{name} is not in the table");
        self.given.text(name)
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.text(name).is_some() && self.given.is_on(name)
    }

    pub fn is_given(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// Those of the settings that are given; a switch that is turned off is not.
    pub fn asked(&self, names: &[&'static str]) -> Vec<&'static str> {
        let rows = self.program.settings().filter(|setting| names.contains(&setting.name));
        let asked = rows.filter(|setting| match setting.shape {
            Shape::Switch => self.is_on(setting.name),
            Shape::Value | Shape::List => self.is_given(setting.name),
        });
        asked.map(|setting| setting.name).collect()
    }

    /// The value of a setting, or its default.
    pub fn read<K: Kind>(&mut self, name: &'static str, kind: &K) -> Option<K::Value> {
        self.text(name).and_then(|text| kind.read(self, name, text)).or_else(|| kind.default())
    }

    fn source(&self, name: &str) -> &Source {
        self.given.source(name).unwrap_or(&Source::Default)
    }

    /// The absolute path of a text in the setting `name`.
    pub fn resolve(&self, name: &str, path: &str) -> PathBuf {
        self.around.absolute(path, self.source(name))
    }

    /// A file that is given, and can be read.
    pub fn file(&mut self, name: &str, advice: &str) -> Option<PathBuf> {
        let path = self.resolve(name, self.text(name)?);
        if let Some(why) = (self.around.unreadable)(&path) {
            self.refuse(&[name], format!("--{name}: {} cannot be read: {why}", path.display()), advice);
        }
        Some(path)
    }

    /// A file that is given, with its content.
    pub fn content(&mut self, name: &str, advice: &str) -> Option<(PathBuf, FileSeen)> {
        let path = self.resolve(name, self.text(name)?);
        match (self.around.read)(&path) {
            Ok(seen) => Some((path, seen)),
            Err(why) => {
                self.refuse(&[name], format!("--{name}: {} cannot be read: {why}", path.display()), advice);
                None
            }
        }
    }
}

pub fn dashed(flags: &[&str]) -> String {
    flags.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ")
}
