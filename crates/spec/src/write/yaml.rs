//! Writes YAML: block style, two spaces, quotes only where they are needed.

use std::fmt::Write;

use serde_json::Value as Json;

/// What some reader of YAML, of version 1.1 or 1.2, takes for something other than text.
const RESERVED: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

pub(super) enum Out {
    Scalar(Json),
    /// An amount with its unit, or a number: never quoted.
    Amount(String),
    List(Vec<Out>),
    Map(Map),
}

/// Fields in the order in which they are put.
#[derive(Default)]
pub(super) struct Map(Vec<(String, Out)>);

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

pub(super) fn emit(map: Map) -> String {
    let mut text = String::new();
    emit_map(&mut text, &map, 0);
    text
}

fn emit_map(text: &mut String, map: &Map, depth: usize) {
    for (index, (name, value)) in map.0.iter().enumerate() {
        // The first field of an item stands behind its dash.
        if index > 0 || !text.ends_with("- ") {
            indent(text, depth);
        }
        text.push_str(&scalar(&Json::String(name.clone())));
        text.push(':');
        emit_value(text, value, depth);
    }
}

fn emit_value(text: &mut String, value: &Out, depth: usize) {
    match value {
        Out::Scalar(_) | Out::Amount(_) => {
            text.push(' ');
            emit_scalar(text, value);
        }
        Out::List(items) if items.is_empty() => text.push_str(" []\n"),
        Out::Map(map) if map.0.is_empty() => text.push_str(" {}\n"),
        Out::Map(map) => {
            text.push('\n');
            emit_map(text, map, depth + 1);
        }
        Out::List(items) => {
            text.push('\n');
            for item in items {
                indent(text, depth);
                text.push_str("- ");
                match item {
                    Out::Map(map) => emit_map(text, map, depth + 1),
                    item => emit_scalar(text, item),
                }
            }
        }
    }
}

/// The end of a line. No list of a Federation holds lists.
fn emit_scalar(text: &mut String, value: &Out) {
    match value {
        Out::Scalar(value) => text.push_str(&scalar(value)),
        Out::Amount(amount) => text.push_str(amount),
        Out::List(_) | Out::Map(_) => text.push_str("[]"),
    }
    text.push('\n');
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

fn scalar(value: &Json) -> String {
    match value {
        Json::String(text) if is_plain(text) => text.clone(),
        Json::String(text) => quoted(text),
        // Readers of YAML 1.1 want a point and a sign.
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

/// Text that nobody can take for anything else.
fn is_plain(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_-./@:".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(inside)
        && !text.ends_with(':')
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
