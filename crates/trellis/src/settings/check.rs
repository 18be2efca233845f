//! What checks of settings have in common: telling problems with their places, paths, files. What is checked is the
//! program's. Pure: what is needed of the outside world is handed in.

use std::path::{Path, PathBuf};

use super::gather::RawArgs;
use super::problem::{Problem, Source};

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

/// Goes through the flags `A` of a program, and collects what is wrong with them.
pub struct Checker<'a, A> {
    pub raw: &'a RawArgs<A>,
    pub around: &'a Surroundings<'a>,
    pub problems: Vec<Problem>,
    /// What the user should know although it is not wrong.
    pub warnings: Vec<String>,
}

impl<'a, A> Checker<'a, A> {
    pub fn new(raw: &'a RawArgs<A>, around: &'a Surroundings<'a>) -> Self {
        Self { raw, around, problems: raw.problems.clone(), warnings: raw.warnings.clone() }
    }

    pub fn refuse(&mut self, flags: &[&str], what: impl Into<String>, advice: impl Into<String>) {
        let places: Vec<String> = flags.iter().map(|name| self.source(name).locate(name)).collect();
        self.problems.push(Problem::new(what, places.join("; "), advice));
    }

    pub fn warn(&mut self, what: impl Into<String>) {
        self.warnings.push(what.into());
    }

    pub fn source(&self, name: &str) -> &Source {
        self.raw.sources.get(name).unwrap_or(&Source::Default)
    }

    /// The absolute path meant by `path`. Apps run elsewhere, so a relative one would not last; one in a file starts
    /// from the file's directory.
    pub fn resolve(&self, name: &str, path: &str) -> PathBuf {
        if let (Some(rest), Some(home)) = (path.strip_prefix("~/"), self.around.home) {
            return home.join(rest);
        }
        let base = match self.source(name) {
            Source::File { path, .. } => self.around.current_dir.join(path.parent().unwrap_or(Path::new(""))),
            _ => self.around.current_dir.to_owned(),
        };
        base.join(path.strip_prefix("./").unwrap_or(path))
    }

    pub fn must_be_readable(&mut self, name: &str, path: &Path, advice: &str) {
        if let Some(why) = (self.around.unreadable)(path) {
            self.refuse(&[name], format!("--{name}: {} cannot be read: {why}", path.display()), advice);
        }
    }

    /// A file that is given, and can be read.
    pub fn file(&mut self, name: &str, given: Option<&str>, advice: &str) -> Option<PathBuf> {
        let path = self.resolve(name, given?);
        self.must_be_readable(name, &path, advice);
        Some(path)
    }

    /// A file that is given, with its content.
    pub fn content(&mut self, name: &str, given: Option<&str>, advice: &str) -> Option<(PathBuf, FileSeen)> {
        let path = self.resolve(name, given?);
        match (self.around.read)(&path) {
            Ok(seen) => Some((path, seen)),
            Err(why) => {
                self.refuse(&[name], format!("--{name}: {} cannot be read: {why}", path.display()), advice);
                None
            }
        }
    }

    /// A program that is given: a file, or a name to be found on PATH.
    pub fn executable(&mut self, name: &str, given: Option<&str>, advice: &str) -> Option<PathBuf> {
        match given? {
            bare if !bare.contains('/') => Some(bare.into()),
            path => self.file(name, Some(path), advice),
        }
    }

    /// A value out of a list; the first one is the default.
    pub fn choice<T: Copy>(&mut self, name: &str, given: Option<&str>, choices: &[(&str, T)]) -> T {
        let Some(given) = given else { return choices[0].1 };
        match choices.iter().find(|(word, _)| *word == given) {
            Some((_, meant)) => *meant,
            None => {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                let advice = match words.split_last() {
                    Some((last, others)) if !others.is_empty() => format!("use {} or {last}", others.join(", ")),
                    _ => String::new(),
                };
                self.refuse(&[name], format!("--{name} cannot be {given:?}"), advice);
                choices[0].1
            }
        }
    }

    /// Where a program keeps its state if nobody says so; `None`: there is no place for it.
    pub fn default_state_dir(&self, program: &str) -> Option<PathBuf> {
        // A relative XDG directory is to be ignored, says its specification.
        let home = self.around.state_home.filter(|path| path.is_absolute()).map(Path::to_owned);
        let home = home.or_else(|| self.around.home.map(|home| home.join(".local/state")))?;
        Some(home.join("trellis").join(program))
    }
}

pub fn dashed(flags: &[&str]) -> String {
    flags.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ")
}

/// The names of the flags that are given.
pub fn given<const N: usize>(flags: [(&'static str, bool); N]) -> Vec<&'static str> {
    flags.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}
