//! Templates of OpenNebula: ordered attributes with text or pairs; keys may be repeated. The callers define their meaning.

mod text;
mod xml;

use crate::xml::{Element, can_carry};

/// Attributes in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template(pub Vec<(String, Value)>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// `KEY = [ A = "x", B = "y" ]`
    Vector(Vec<(String, String)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Value {
    fn from(pairs: [(&str, &str); N]) -> Value {
        Value::Vector(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }
}

impl From<Vec<(String, String)>> for Value {
    fn from(pairs: Vec<(String, String)>) -> Value {
        Value::Vector(pairs)
    }
}

impl Template {
    pub fn new() -> Template {
        Template::default()
    }

    /// Appends an attribute, even if another one has the same name.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Template {
        self.push(key, value);
        self
    }

    pub fn push(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.0.push((key.into(), value.into()));
    }

    /// The text of an attribute. The last of repeated ones counts, as in oned.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().filter(|(name, _)| name == key).find_map(|(_, value)| match value {
            Value::Text(text) => Some(text.as_str()),
            Value::Vector(_) => None,
        })
    }

    /// All attributes of that name with pairs.
    pub fn vectors<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a [(String, String)]> {
        self.0.iter().filter(move |(name, _)| name == key).filter_map(|(_, value)| match value {
            Value::Vector(pairs) => Some(pairs.as_slice()),
            Value::Text(_) => None,
        })
    }

    /// One pair of the first attribute of that name, like `CONTEXT/TOKEN`.
    pub fn pair(&self, key: &str, inner: &str) -> Option<&str> {
        pair(self.vectors(key).next()?, inner)
    }

    /// As text: lines `KEY="v"`.
    pub fn to_text(&self) -> String {
        text::write(self)
    }

    /// As XML, in `<TEMPLATE>`.
    pub fn to_xml(&self) -> String {
        xml::write(self, "TEMPLATE")
    }

    /// The form to send, or all problems. Values that are ambiguous as text are sent as XML; oned accepts both.
    pub fn to_wire(&self) -> Result<String, Vec<String>> {
        let problems = self.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let doubtful = |text: &String| text.contains(['"', '\\']);
        let any = self.0.iter().any(|(_, value)| match value {
            Value::Text(text) => doubtful(text),
            Value::Vector(pairs) => pairs.is_empty() || pairs.iter().any(|(_, text)| doubtful(text)),
        });
        Ok(if any { self.to_xml() } else { self.to_text() })
    }

    /// Parses either form.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        match text.trim_start().starts_with('<') {
            true => Template::parse_xml(text),
            false => text::read(text),
        }
    }

    pub fn parse_text(text: &str) -> Result<Template, TemplateError> {
        text::read(text)
    }

    pub fn parse_xml(text: &str) -> Result<Template, TemplateError> {
        let root = crate::xml::parse(text).map_err(|what| TemplateError { line: None, what })?;
        Ok(xml::read(&root))
    }

    pub(crate) fn from_element(element: &Element) -> Template {
        xml::read(element)
    }

    /// Invalid names and values.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value) in &self.0 {
            check_name(key, "", &mut problems);
            match value {
                Value::Text(text) => check_value(key, text, &mut problems),
                Value::Vector(pairs) => {
                    for (inner, text) in pairs {
                        check_name(inner, &format!(" in {key}"), &mut problems);
                        check_value(&format!("{key}/{inner}"), text, &mut problems);
                    }
                }
            }
        }
        problems
    }
}

/// The last attribute of that name counts.
pub fn pair<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

fn check_name(name: &str, place: &str, problems: &mut Vec<String>) {
    // oned accepts names that start with a digit, but XML does not.
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins_well || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        problems.push(format!("{name:?}{place} is not the name of an attribute: letters, digits and _ only"));
    }
}

fn check_value(path: &str, value: &str, problems: &mut Vec<String>) {
    if let Some(c) = value.chars().find(|&c| !can_carry(c)) {
        problems.push(format!("the value of {path} has the control character {:?}, which cannot be sent", c));
    }
}

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct TemplateError {
    /// Counted from 1; `None` if the problem concerns the whole text.
    pub line: Option<usize>,
    pub what: String,
}
