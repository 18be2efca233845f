//! What is wrong with a document, where, and what to do; and the name that was perhaps meant.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Lines and columns count from 1, as editors do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub line: usize,
    pub column: usize,
}

impl Mark {
    pub const START: Mark = Mark { line: 1, column: 1 };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// Which field, like `spec.pools[1].count`; empty: the document itself.
    pub path: String,
    pub what: String,
    pub advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} (to do: {})", self.what, self.advice)
    }
}

/// Everything that is wrong, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let end = if index + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "{problem}{end}")?;
        }
        Ok(())
    }
}

/// Gathers what is said about one file while it is read.
#[derive(Debug)]
pub(crate) struct Notes {
    file: String,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl Notes {
    pub fn new(file: &str) -> Rc<Self> {
        Rc::new(Self { file: file.to_owned(), problems: RefCell::default(), warnings: RefCell::default() })
    }

    /// Problems and warnings, each in the order of the file.
    pub fn take(&self) -> (Vec<Problem>, Vec<Problem>) {
        let sorted = |notes: &RefCell<Vec<Problem>>| {
            let mut notes = notes.take();
            notes.sort_by_key(|note| (note.line, note.column));
            notes
        };
        (sorted(&self.problems), sorted(&self.warnings))
    }

    pub fn problem_count(&self) -> usize {
        self.problems.borrow().len()
    }

    fn problem(&self, place: &Place, what: String, advice: String) -> Problem {
        let Mark { line, column } = place.mark;
        Problem { file: self.file.clone(), line, column, path: place.path.clone(), what, advice }
    }
}

/// A place in a document, for saying something about it.
#[derive(Debug, Clone)]
pub struct Place {
    notes: Rc<Notes>,
    pub mark: Mark,
    path: String,
}

impl Place {
    pub(crate) fn top(notes: &Rc<Notes>, mark: Mark) -> Self {
        Self { notes: notes.clone(), mark, path: String::new() }
    }

    pub fn field(&self, name: &str, mark: Mark) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { notes: self.notes.clone(), mark, path: format!("{}{dot}{name}", self.path) }
    }

    pub fn item(&self, index: usize, mark: Mark) -> Self {
        Self { notes: self.notes.clone(), mark, path: format!("{}[{index}]", self.path) }
    }

    pub fn refuse(&self, what: impl Into<String>, advice: impl Into<String>) {
        self.notes.problems.borrow_mut().push(self.notes.problem(self, what.into(), advice.into()));
    }

    pub fn warn(&self, what: impl Into<String>, advice: impl Into<String>) {
        self.notes.warnings.borrow_mut().push(self.notes.problem(self, what.into(), advice.into()));
    }
}

/// `did you mean count?`, or all the names there are.
pub(crate) fn suggest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The known name that is nearest to a misspelt one, if any is near.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |text: &str| -> Vec<char> {
        text.chars().filter(|c| !['-', '_', ' '].contains(c)).flat_map(char::to_lowercase).collect()
    };
    let word = letters(word);
    let (distance, name) = known.map(|name| (edits(&word, &letters(name)), name)).min_by_key(|(edits, _)| *edits)?;
    // A third of the letters may be wrong.
    (distance * 3 <= word.len()).then_some(name)
}

/// How many letters must be added, removed, exchanged or swapped with their neighbour to make one word of the other.
fn edits(from: &[char], to: &[char]) -> usize {
    let mut before_last = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i; to.len() + 1];
        for j in 1..=to.len() {
            let exchanged = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            row[j] = exchanged.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        let known = ["count", "nodeConfig", "image", "gpu", "extraArgs"];
        for (typed, meant) in [
            ("cuont", Some("count")),
            ("counts", Some("count")),
            ("node_config", Some("nodeConfig")),
            ("nodeconfig", Some("nodeConfig")),
            ("extra-arg", Some("extraArgs")),
            ("gup", Some("gpu")),
            ("replicas", None),
            ("cpu", Some("gpu")),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known.into_iter()), meant, "{typed}");
        }
    }

    #[test]
    fn problems_read_from_top_to_bottom() {
        let notes = Notes::new("a.yaml");
        let top = Place::top(&notes, Mark::START);
        let pools = top.field("spec", Mark::START).field("pools", Mark { line: 7, column: 3 });
        pools.item(1, Mark { line: 9, column: 5 }).refuse("it is wrong", "write it right");
        top.refuse("it is empty", "write something");
        let (problems, warnings) = notes.take();
        let told = Problems(problems).to_string();
        let expected = "a.yaml:1:1: it is empty (to do: write something)\n\
                        a.yaml:9:5: spec.pools[1]: it is wrong (to do: write it right)";
        assert_eq!((told.as_str(), warnings.len()), (expected, 0));
    }
}
