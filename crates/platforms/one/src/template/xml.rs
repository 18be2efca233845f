//! XML form of templates.

use super::{Template, Value};
use crate::xml::{Element, escape_into};

pub(super) fn write(template: &Template, root: &str) -> String {
    let mut out = format!("<{root}>");
    for (key, value) in &template.0 {
        out.push_str(&format!("<{key}>"));
        match value {
            Value::Text(text) => escape_into(&mut out, text),
            Value::Vector(pairs) => {
                for (inner, text) in pairs {
                    out.push_str(&format!("<{inner}>"));
                    escape_into(&mut out, text);
                    out.push_str(&format!("</{inner}>"));
                }
            }
        }
        out.push_str(&format!("</{key}>"));
    }
    out + &format!("</{root}>")
}

pub(super) fn read(root: &Element) -> Template {
    Template(root.children.iter().map(|child| (child.name.clone(), value(child))).collect())
}

fn value(element: &Element) -> Value {
    match element.children.as_slice() {
        [] => Value::Text(element.text.clone()),
        children => Value::Vector(children.iter().map(|child| (child.name.clone(), child.text.clone())).collect()),
    }
}
