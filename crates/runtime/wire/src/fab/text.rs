//! Writes a table as TOML, byte for byte as `flwr build` does: the same app always has the same bundle and hash. Dates
//! and times, which no known app uses, keep their spelling.

use std::fmt::Write as _;

use toml::{Table, Value};

/// Longer arrays of tables are not written in one line.
const MAX_LINE_CHARS: usize = 100;
const INDENT: &str = "    ";

pub fn write(table: &Table) -> String {
    let mut text = String::new();
    write_table(&mut text, table, "", false);
    text
}

/// Writes the plain values of a table, then its subtables.
fn write_table(text: &mut String, table: &Table, name: &str, of_array: bool) {
    let mut plain = Vec::new();
    let mut tables: Vec<(&String, &Table, bool)> = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => tables.push((key, inner, false)),
            Value::Array(items) => match wide_tables(items) {
                Some(inner) => tables.extend(inner.into_iter().map(|table| (key, table, true))),
                None => plain.push((key, value)),
            },
            _ => plain.push((key, value)),
        }
    }
    let start = text.len();
    // Writing to a String cannot fail.
    if of_array {
        let _ = writeln!(text, "[[{name}]]");
    } else if !name.is_empty() && (!plain.is_empty() || tables.is_empty()) {
        let _ = writeln!(text, "[{name}]");
    }
    for (key, value) in plain {
        let _ = writeln!(text, "{} = {}", written_key(key), literal(value, 0));
    }
    for (key, inner, of_array) in tables {
        if text.len() > start {
            text.push('\n');
        }
        let key = written_key(key);
        let path = if name.is_empty() { key } else { format!("{name}.{key}") };
        write_table(text, inner, &path, of_array);
    }
}

/// Returns the items if they are tables and one of them is too long for a line.
fn wide_tables(items: &[Value]) -> Option<Vec<&Table>> {
    let tables: Vec<&Table> = items.iter().map(Value::as_table).collect::<Option<_>>()?;
    let fits = |table: &&Table| {
        let line = format!("{INDENT}{},", inline(table));
        line.chars().count() <= MAX_LINE_CHARS && !line.contains('\n')
    };
    (!tables.iter().all(fits)).then_some(tables)
}

fn literal(value: &Value, depth: usize) -> String {
    match value {
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => float(*value),
        Value::Datetime(value) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Table(table) => inline(table),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Array(items) => {
            let line = |item| format!("{}{},\n", INDENT.repeat(depth + 1), literal(item, depth + 1));
            format!("[\n{}{}]", items.iter().map(line).collect::<String>(), INDENT.repeat(depth))
        }
    }
}

fn inline(table: &Table) -> String {
    if table.is_empty() {
        return "{}".to_owned();
    }
    let pairs: Vec<String> =
        table.iter().map(|(key, value)| format!("{} = {}", written_key(key), literal(value, 0))).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// Formats a float as Python does: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "nan".to_owned() } else { format!("{value}") };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    match exponent {
        _ if value == 0.0 => format!("{value:?}"),
        -4..16 => format!("{value:?}"),
        _ => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

fn written_key(key: &str) -> String {
    let bare = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
    if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '\u{8}' => quoted.push_str("\\b"),
            '\n' => quoted.push_str("\\n"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\t' => quoted.push('\t'),
            char if (char as u32) < 32 || char as u32 == 127 => {
                let _ = write!(quoted, "\\u{:04x}", char as u32);
            }
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_equals_that_of_flower() {
        let given = r#"
top = 1
[project]
name = 'app'
dependencies = ["flwr>=1.25", 'numpy']
authors = [{ name = "A", email = "a@example.org" }]
empty = []
[tool.flwr.app]
publisher = "me"
[tool.flwr.app.config]
lr = 1e-5
big = 1e16
small = 0.0001
whole = 3.0
on = true
text = "tab\tline\nquote\" back\\ bell\u0007"
"odd key" = -0.0
[tool.none]
[[tool.many]]
long = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
[[tool.many]]
nested = [[1, 2], [3]]
"#;
        // Generated with tomli_w 1.2, which `flwr build` uses.
        let expected = r#"top = 1

[project]
name = "app"
dependencies = [
    "flwr>=1.25",
    "numpy",
]
authors = [
    { name = "A", email = "a@example.org" },
]
empty = []

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.config]
lr = 1e-05
big = 1e+16
small = 0.0001
whole = 3.0
on = true
text = "tab	line\nquote\" back\\ bell\u0007"
"odd key" = -0.0

[tool.none]

[[tool.many]]
long = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

[[tool.many]]
nested = [
    [
        1,
        2,
    ],
    [
        3,
    ],
]
"#;
        let table: Table = given.parse().unwrap();
        let written = write(&table);
        assert_eq!(written, expected);
        assert_eq!(written.parse::<Table>().unwrap(), table);
    }
}
