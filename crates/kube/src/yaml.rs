//! Objects as YAML for people: block style, keys in order, quotes only where a reader of YAML 1.1 or 1.2 needs them.

use std::fmt::Write;

use serde_json::Value;

/// What some reader takes for something other than text.
const RESERVED: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

/// One document.
pub fn document(value: &Value) -> String {
    let mut text = String::new();
    node(&mut text, value, 0, Place::Line);
    text
}

/// Several, with a line between them.
pub fn documents<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    values.into_iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// Where a value begins: on a line of its own, behind `key:`, or behind a dash.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Line,
    Key,
    Dash,
}

fn node(text: &mut String, value: &Value, depth: usize, place: Place) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            if place == Place::Key {
                text.push('\n');
            }
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 || place != Place::Dash {
                    indent(text, depth);
                }
                text.push_str(&scalar(key));
                text.push(':');
                // A list stands below its key, not further in.
                let deeper = if value.is_array() { depth } else { depth + 1 };
                node(text, value, deeper, Place::Key);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if place == Place::Key {
                text.push('\n');
            }
            for (index, item) in items.iter().enumerate() {
                if index > 0 || place != Place::Dash {
                    indent(text, depth);
                }
                text.push_str("- ");
                node(text, item, depth + 1, Place::Dash);
            }
        }
        leaf => {
            if place == Place::Key {
                text.push(' ');
            }
            match leaf {
                Value::String(string) => text.push_str(&scalar(string)),
                other => text.push_str(&other.to_string()),
            }
            text.push('\n');
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Not printable, or the end of a line to some readers.
            c if c.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}', '\u{fffe}', '\u{ffff}'].contains(&c) => {
                write!(quoted, "\\u{:04x}", u32::from(c)).expect("text cannot refuse to be written");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Text that nobody can take for anything else.
fn is_plain(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || " _-./@:,()*+=$".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '$')
        && text.chars().all(inside)
        && !text.ends_with([':', ' '])
        && !text.contains(": ")
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
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
