//! Shared parts of the checks of settings: problems with their sources, paths, files. Pure: the environment is an argument
//! ([`System`]). The rules are those of each program.

use std::path::{Path, PathBuf};

use trellis_diagnostic::Diagnostic;

use super::given::Given;
use super::kind::Kind;
use super::problem::Source;
use super::table::{Program, Shape};

/// The outside world, as far as the checks need it.
pub struct System<'a> {
    pub current_dir: &'a Path,
    pub home: Option<&'a Path>,
    pub state_home: Option<&'a Path>,
    /// Why a file cannot be read, if so.
    pub unreadable: &'a dyn Fn(&Path) -> Option<String>,
    /// Why a file cannot be written or created; `None` if it can.
    pub unwritable: &'a dyn Fn(&Path) -> Option<String>,
    /// The content of a file whose text is part of the settings, or why it cannot be read.
    pub read: &'a dyn Fn(&Path) -> Result<FileSeen, String>,
}

/// A small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSeen {
    pub text: String,
    /// Permission bits.
    pub mode: u32,
}

impl System<'_> {
    /// The default state directory of a program; `None` if the environment names none.
    pub fn default_state_dir(&self, program: &str) -> Option<PathBuf> {
        // The XDG specification requires relative paths to be ignored.
        let home = self.state_home.filter(|path| path.is_absolute()).map(Path::to_owned);
        let home = home.or_else(|| self.home.map(|home| home.join(".local/state")))?;
        Some(home.join("trellis").join(program))
    }

    /// The absolute path of a setting.
    pub fn resolve(&self, given: &Given, name: &str) -> Option<PathBuf> {
        Some(self.absolute(given.text(name)?, given.source(name)?))
    }

    /// The absolute path of `path`, because apps have other working directories. A path in a file is relative to the file.
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

/// Checks the settings of a program, and collects problems and warnings.
pub struct Checker<'a, C: 'static> {
    program: &'static Program<C>,
    pub given: &'a Given,
    pub system: &'a System<'a>,
    /// The settings so far.
    pub checked: C,
    /// Each with the position of its setting in the table.
    problems: Vec<(usize, Diagnostic)>,
    /// Remarks that are not errors.
    warnings: Vec<String>,
}

impl<'a, C> Checker<'a, C> {
    /// Checks each setting alone. `unset` has the values of settings that are not given.
    pub fn new(program: &'static Program<C>, given: &'a Given, system: &'a System<'a>, unset: C) -> Self {
        let (problems, warnings) = (Vec::new(), given.warnings.clone());
        let mut checker = Self { program, given, system, checked: unset, problems, warnings };
        for setting in program.settings() {
            (setting.check)(&mut checker);
        }
        checker
    }

    /// The settings and warnings; or everything that is wrong, in the order of the table.
    pub fn finish(mut self) -> Result<(C, Vec<String>), Vec<Diagnostic>> {
        self.problems.sort_by_key(|(position, _)| *position);
        let found = self.problems.into_iter().map(|(_, problem)| problem);
        let problems: Vec<Diagnostic> = self.given.problems.iter().cloned().chain(found).collect();
        if problems.is_empty() { Ok((self.checked, self.warnings)) } else { Err(problems) }
    }

    pub fn refuse(&mut self, flags: &[&str], what: impl Into<String>, advice: impl Into<String>) {
        let places: Vec<String> = flags.iter().map(|name| self.source(name).locate(name)).collect();
        let problem = Diagnostic::error(places.join("; "), what, advice);
        self.problems.push((self.position(flags[0]), problem));
    }

    /// Reports that none of several settings is given; `name` is one of them.
    pub fn refuse_unset(&mut self, name: &str, what: impl Into<String>, advice: impl Into<String>) {
        self.problems.push((self.position(name), Diagnostic::error("not set anywhere", what, advice)));
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

    /// The given ones of some settings, except switches that are turned off.
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
        self.system.absolute(path, self.source(name))
    }

    /// The path of a given file, which must be readable.
    pub fn file(&mut self, name: &str, advice: &str) -> Option<PathBuf> {
        let path = self.resolve(name, self.text(name)?);
        if let Some(why) = (self.system.unreadable)(&path) {
            self.refuse(&[name], format!("--{name}: {} cannot be read: {why}", path.display()), advice);
        }
        Some(path)
    }

    /// The path and content of a given file.
    pub fn content(&mut self, name: &str, advice: &str) -> Option<(PathBuf, FileSeen)> {
        let path = self.resolve(name, self.text(name)?);
        match (self.system.read)(&path) {
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
