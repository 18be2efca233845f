//! The reference of the document as Markdown, from the code that reads it.

use std::fmt::Write;

use crate::document;
use crate::object::{Property, Shape, describe};

/// A heading and a table for each object.
pub fn reference() -> String {
    let mut text = String::new();
    section(&mut text, "The document", &describe(document::federation));
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The table of an object, then the tables of its nested objects.
fn section(text: &mut String, title: &str, fields: &[Property]) {
    let written = "text cannot refuse to be written";
    writeln!(text, "### {title}\n\n| field | takes | default | meaning |\n|---|---|---|---|").expect(written);
    for field in fields {
        let Property { name, help, .. } = field;
        let default = match (field.required, field.default) {
            (true, _) => "required".to_owned(),
            (false, Some(default)) => format!("`{default}`"),
            (false, None) => String::new(),
        };
        writeln!(text, "| `{name}` | {} | {default} | {} |", takes(title, field), help.replace('|', "\\|"))
            .expect(written);
    }
    text.push('\n');
    for field in fields {
        if let Shape::Object(inner) | Shape::Objects(inner) = &field.shape {
            section(text, &path(title, field), inner);
        }
    }
}

fn takes(title: &str, field: &Property) -> String {
    let link = || {
        let path = path(title, field);
        let anchor: String = path.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        format!("[`{path}`](#{anchor})")
    };
    match &field.shape {
        Shape::Value { words, example, schema } => match words == example || !schema["enum"].is_null() {
            true => words.clone(),
            false => format!("{words}, like `{example}`"),
        },
        Shape::Object(_) => format!("fields, see {}", link()),
        Shape::Objects(_) => format!("a list, see {}", link()),
    }
}

/// Like `spec.pools[]`, without the document itself.
fn path(title: &str, field: &Property) -> String {
    let list = if matches!(field.shape, Shape::Objects(_)) { "[]" } else { "" };
    match title.contains(' ') {
        true => format!("{}{list}", field.name),
        false => format!("{title}.{}{list}", field.name),
    }
}
