//! Writes readable YAML: block style, two spaces, quotes only where YAML 1.1 or 1.2 requires them. Reads untrusted
//! YAML within limits.

mod reader;

use std::fmt::Write;

pub use reader::read;

use serde_json::Value as Json;

/// Words that a reader of YAML 1.1 or 1.2 may not read as text.
const RESERVED: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

pub enum Out {
    Scalar(Json),
    /// An amount with its unit, or a number: never quoted.
    Amount(String),
    List(Vec<Out>),
    Map(Map),
}

/// Fields in insertion order.
#[derive(Default)]
pub struct Map(Vec<(String, Out)>);

impl Map {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn put(mut self, name: &str, value: impl Into<Out>) -> Self {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    pub fn maybe(self, name: &str, value: Option<impl Into<Out>>) -> Self {
        match value {
            Some(value) => self.put(name, value),
            None => self,
        }
    }
}

impl Out {
    pub fn list<T>(items: &[T], out: impl Fn(&T) -> Out) -> Out {
        Out::List(items.iter().map(out).collect())
    }
}

impl From<Map> for Out {
    fn from(map: Map) -> Self {
        Out::Map(map)
    }
}

macro_rules! scalars {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Out {
            fn from(value: $kind) -> Self {
                Out::Scalar(value.into())
            }
        }
    )*};
}
scalars!(&str, String, bool, u32, Json);

/// Objects keep the order of their keys.
impl From<&Json> for Out {
    fn from(value: &Json) -> Self {
        match value {
            Json::Object(fields) => {
                Out::Map(Map(fields.iter().map(|(name, value)| (name.clone(), value.into())).collect()))
            }
            Json::Array(items) => Out::List(items.iter().map(Out::from).collect()),
            other => Out::Scalar(other.clone()),
        }
    }
}

/// One document.
pub fn document(value: &Json) -> String {
    written(&value.into())
}

/// Several documents, with a separator line between them.
pub fn documents<'a>(values: impl IntoIterator<Item = &'a Json>) -> String {
    values.into_iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// Converts JSON of this program to YAML and keeps the order of keys; `None` if it is not JSON. Not for untrusted
/// input: use [`read`].
pub fn from_own_json(json: &str) -> Option<String> {
    let parsed = yaml_rust2::YamlLoader::load_from_str(json).ok()?;
    let mut text = String::new();
    let mut emitter = yaml_rust2::YamlEmitter::new(&mut text);
    emitter.multiline_strings(true);
    emitter.dump(parsed.first()?).ok()?;
    Some(text + "\n")
}

pub(crate) fn emit(map: Map) -> String {
    written(&Out::Map(map))
}

fn written(value: &Out) -> String {
    let mut text = String::new();
    put(&mut text, value, 0, Place::Line);
    text
}

/// Position of a value: on a line of its own, after `key:`, or after a dash.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Line,
    Key,
    Dash,
}

fn put(text: &mut String, value: &Out, depth: usize, place: Place) {
    let begin = |text: &mut String, index: usize| match (index, place) {
        (0, Place::Dash) => {}
        (0, Place::Key) => {
            text.push('\n');
            indent(text, depth);
        }
        _ => indent(text, depth),
    };
    match value {
        Out::Map(Map(fields)) if !fields.is_empty() => {
            for (index, (name, value)) in fields.iter().enumerate() {
                begin(text, index);
                text.push_str(&scalar(&Json::String(name.clone())));
                text.push(':');
                // Lists have the indentation of their key.
                let deeper = if matches!(value, Out::List(_)) { depth } else { depth + 1 };
                put(text, value, deeper, Place::Key);
            }
        }
        Out::List(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                begin(text, index);
                text.push_str("- ");
                put(text, item, depth + 1, Place::Dash);
            }
        }
        leaf => {
            if place == Place::Key {
                text.push(' ');
            }
            text.push_str(&match leaf {
                Out::Scalar(value) => scalar(value),
                Out::Amount(amount) => amount.clone(),
                Out::List(_) => "[]".to_owned(),
                Out::Map(_) => "{}".to_owned(),
            });
            text.push('\n');
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

fn scalar(value: &Json) -> String {
    match value {
        Json::String(text) if is_plain(text) => text.clone(),
        Json::String(text) => quoted(text),
        // Readers of YAML 1.1 require a decimal point and a sign.
        Json::Number(number) if number.is_f64() => {
            let text = number.to_string();
            match text.split_once('e') {
                Some((digits, power)) => {
                    let point = if digits.contains('.') { "" } else { ".0" };
                    let sign = if power.starts_with(['-', '+']) { "" } else { "+" };
                    format!("{digits}{point}e{sign}{power}")
                }
                None => text,
            }
        }
        other => other.to_string(),
    }
}

/// Whether every reader of YAML reads it as text without quotes.
fn is_plain(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || " _-./@:,()*+=$".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '$')
        && text.chars().all(inside)
        && !text.ends_with([':', ' '])
        && !text.contains(": ")
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Not printable, or a line break to some readers.
            c if c.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}', '\u{fffe}', '\u{ffff}'].contains(&c) => {
                write!(quoted, "\\u{:04x}", u32::from(c)).expect("text cannot refuse to be written");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn says_the_same_and_is_easy_to_read() {
        let value = json!({
            "kind": "Role", "none": {}, "empty": [], "on": true,
            "rules": [{"verbs": ["get", "list"], "nested": [["a"], [1, null]]}, {}],
            "text": {"number": "1", "word": "yes", "colon": "a: b", "dash": "- x", "lines": "a\nb", "flag": "--leader-elect", "plain": "why it is so"},
        });
        let expected = r#"empty: []
kind: Role
none: {}
"on": true
rules:
- nested:
  - - a
  - - 1
    - null
  verbs:
  - get
  - list
- {}
text:
  colon: "a: b"
  dash: "- x"
  flag: "--leader-elect"
  lines: "a\nb"
  number: "1"
  plain: why it is so
  word: "yes"
"#;
        assert_eq!(document(&value), expected);
    }

    #[test]
    fn documents_have_a_line_between_them() {
        assert_eq!(documents([&json!({"a": 1}), &json!({"b": 2})]), "a: 1\n---\nb: 2\n");
    }
}
