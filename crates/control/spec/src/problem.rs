//! Diagnostics of a document: what is wrong, where, and how to correct it; and suggestions for misspelt names.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use trellis_diagnostic::Severity;

/// Line and column, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub line: usize,
    pub column: usize,
}

impl Mark {
    pub const START: Mark = Mark { line: 1, column: 1 };
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// The field, like `spec.pools[1].count`; empty for the document itself.
    pub field: String,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)?;
        if self.field.is_empty() { Ok(()) } else { write!(f, ": {}", self.field) }
    }
}

pub type Diagnostic = trellis_diagnostic::Diagnostic<Position>;
/// All errors of a file, in its order; at least one.
pub type Diagnostics = trellis_diagnostic::Diagnostics<Position>;

/// Collects the diagnostics of a file.
#[derive(Debug)]
pub(crate) struct Notes {
    file: String,
    found: RefCell<Vec<Diagnostic>>,
}

impl Notes {
    pub fn new(file: &str) -> Rc<Self> {
        Rc::new(Self { file: file.to_owned(), found: RefCell::default() })
    }

    /// Errors and warnings, in the order of the file.
    pub fn take(&self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let mut found = self.found.take();
        found.sort_by_key(|found| (found.place.line, found.place.column));
        found.into_iter().partition(|found| found.severity == Severity::Error)
    }

    pub fn error_count(&self) -> usize {
        self.found.borrow().iter().filter(|found| found.severity == Severity::Error).count()
    }
}

/// A place in a document, to which diagnostics refer.
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
        self.notes.found.borrow_mut().push(Diagnostic::error(self.position(), what, advice));
    }

    pub fn warn(&self, what: impl Into<String>, advice: impl Into<String>) {
        self.notes.found.borrow_mut().push(Diagnostic::warning(self.position(), what, advice));
    }

    fn position(&self) -> Position {
        let Mark { line, column } = self.mark;
        Position { file: self.notes.file.clone(), line, column, field: self.path.clone() }
    }
}

/// `did you mean count?`, or all known names.
pub(crate) fn suggest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    trellis_diagnostic::suggest(word, known, "known are")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_read_from_top_to_bottom() {
        let notes = Notes::new("a.yaml");
        let top = Place::top(&notes, Mark::START);
        let pools = top.field("spec", Mark::START).field("pools", Mark { line: 7, column: 3 });
        pools.item(1, Mark { line: 9, column: 5 }).refuse("it is wrong", "write it right");
        top.refuse("it is empty", "write something");
        let (problems, warnings) = notes.take();
        let told = Diagnostics::from(problems).to_string();
        let expected = "a.yaml:1:1: it is empty (to do: write something)\n\
                        a.yaml:9:5: spec.pools[1]: it is wrong (to do: write it right)";
        assert_eq!((told.as_str(), warnings.len()), (expected, 0));
    }
}
