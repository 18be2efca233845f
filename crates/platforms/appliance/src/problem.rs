//! What is wrong with the variables of a VM: which one, its value unless it is a secret, and what to do.

use std::fmt;

/// More of a value would hide what is said about it.
const SHOWN_CHARS: usize = 80;
/// What is wrong with a part of a value names that part, which may be long.
const WHAT_CHARS: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// As somebody wrote it; empty: no variable in particular.
    pub variable: String,
    /// Fit to be shown; `None`: a secret, or not said.
    pub value: Option<String>,
    pub what: String,
    pub advice: String,
}

/// Nothing is wrong, but something may not be as it was meant.
pub type Warning = Problem;

impl Problem {
    pub fn new(variable: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Problem {
        let (what, advice) = (cut(what.into(), WHAT_CHARS), cut(advice.into(), WHAT_CHARS));
        Problem { variable: variable.into(), value: None, what, advice }
    }

    /// With the value, cut short and on one line.
    pub fn showing(mut self, value: &str) -> Problem {
        self.value = Some(cut(value.to_owned(), SHOWN_CHARS).chars().flat_map(char::escape_debug).collect());
        self
    }
}

fn cut(mut text: String, chars: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.variable.as_str(), &self.value) {
            ("", _) => {}
            (name, Some(value)) => write!(f, "{name}=\"{value}\": ")?,
            (name, None) => write!(f, "{name}: ")?,
        }
        write!(f, "{} (to do: {})", self.what, self.advice)
    }
}

/// Everything that is wrong, never nothing; and what is strange beside it, which may be the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>, pub Vec<Warning>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let end = if index + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "{problem}{end}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_on_one_line_and_not_whole() {
        let problem = Problem::new("FL_X", "it is wrong", "write it right");
        assert_eq!(problem.to_string(), "FL_X: it is wrong (to do: write it right)");
        assert_eq!(
            problem.clone().showing("a\n\"b").to_string(),
            "FL_X=\"a\\n\\\"b\": it is wrong (to do: write it right)"
        );
        let long = problem.showing(&"x".repeat(70_000));
        assert_eq!(long.value.map(|shown| shown.len()), Some(SHOWN_CHARS + 3));
    }
}
