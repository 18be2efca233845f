//! A problem with a variable of the context: its name, its value unless it is a secret, and advice.

use std::fmt;

use trellis_diagnostic::joined;

/// Maximum length of a printed value.
const SHOWN_CHARS: usize = 80;
/// Maximum length of the texts, which may name a part of the value.
const WHAT_CHARS: usize = 300;

/// A variable, as it was spelt, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Empty: no variable in particular.
    pub variable: String,
    /// Shortened for display; `None`: a secret, or not relevant.
    pub value: Option<String>,
}

impl Place {
    pub fn showing(variable: &str, value: &str) -> Place {
        Place { value: Some(shown(value)), ..Place::from(variable) }
    }
}

impl<T: Into<String>> From<T> for Place {
    fn from(variable: T) -> Place {
        Place { variable: variable.into(), value: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}=\"{value}\"", self.variable),
            None => f.write_str(&self.variable),
        }
    }
}

pub type Diagnostic = trellis_diagnostic::Diagnostic<Place>;

/// A diagnostic whose texts are short enough for a log line.
pub fn problem(place: impl Into<Place>, what: impl Into<String>, advice: impl Into<String>) -> Diagnostic {
    Diagnostic::error(place, cut(what.into(), WHAT_CHARS), cut(advice.into(), WHAT_CHARS))
}

/// A value on one line, cut short.
pub fn shown(value: &str) -> String {
    cut(value.to_owned(), SHOWN_CHARS).chars().flat_map(char::escape_debug).collect()
}

fn cut(mut text: String, chars: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// All problems, at least one, and warnings, which may explain them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Diagnostic>, pub Vec<Diagnostic>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.0, "\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_printed_truncated_on_one_line() {
        let about = |place: Place| problem(place, "it is wrong", "write it right").to_string();
        assert_eq!(about("FL_X".into()), "FL_X: it is wrong (to do: write it right)");
        assert_eq!(about(Place::showing("FL_X", "a\n\"b")), "FL_X=\"a\\n\\\"b\": it is wrong (to do: write it right)");
        assert_eq!(shown(&"x".repeat(70_000)).len(), SHOWN_CHARS + 3);
    }
}
