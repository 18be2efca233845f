//! The node config of a pool: text with placeholders, and its values for one node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::federation::{ConfigTemplate, Name, Pool};

const PLACEHOLDERS: [&str; 5] = ["index", "replicas", "pool", "site", "node"];

/// A value of the node config of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ConfigValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

/// The node config of the node `index` of `replicas` in a pool. A value that is `{index}` or `{replicas}` and nothing
/// else becomes a number.
pub fn render_node_config(
    pool: &Pool,
    index: u32,
    replicas: u32,
    site: &Name,
    node: &str,
) -> BTreeMap<String, ConfigValue> {
    let render = |template: &ConfigTemplate| match template {
        ConfigTemplate::Bool(on) => ConfigValue::Bool(*on),
        ConfigTemplate::Int(number) => ConfigValue::Int(*number),
        ConfigTemplate::Float(number) => ConfigValue::Float(*number),
        ConfigTemplate::Text(text) if text == "{index}" => ConfigValue::Int(index.into()),
        ConfigTemplate::Text(text) if text == "{replicas}" => ConfigValue::Int(replicas.into()),
        ConfigTemplate::Text(text) => ConfigValue::Text(fill(text, |name| match name {
            "index" => index.to_string(),
            "replicas" => replicas.to_string(),
            "pool" => pool.name.to_string(),
            "site" => site.to_string(),
            "node" => node.to_owned(),
            // Refused by the checks of the document.
            unknown => format!("{{{unknown}}}"),
        })),
    };
    pool.node_config.iter().map(|(key, template)| (key.clone(), render(template))).collect()
}

/// A part of a text: literal text or a placeholder.
#[derive(Debug, PartialEq)]
enum Part<'t> {
    Text(&'t str),
    Placeholder(&'t str),
    /// A brace that is neither doubled nor part of a placeholder.
    Stray,
}

/// `{{` and `}}` stand for single braces.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(brace) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(brace);
        parts.push(Part::Text(before));
        let (part, length) = if from.starts_with("{{") || from.starts_with("}}") {
            (Part::Text(&from[..1]), 2)
        } else {
            match from.find('}').filter(|end| from.starts_with('{') && !from[1..*end].contains('{')) {
                Some(end) => (Part::Placeholder(&from[1..end]), end + 1),
                None => (Part::Stray, 1),
            }
        };
        parts.push(part);
        rest = &from[length..];
    }
    parts.push(Part::Text(rest));
    parts
}

fn fill(text: &str, value: impl Fn(&str) -> String) -> String {
    let fill = |part: Part<'_>| match part {
        Part::Text(text) => text.to_owned(),
        Part::Placeholder(name) => value(name),
        Part::Stray => String::new(),
    };
    parts(text).into_iter().map(fill).collect()
}

/// What is wrong with the placeholders of a text, and how to correct it.
pub(crate) fn placeholder_fault(text: &str) -> Option<(String, String)> {
    parts(text).into_iter().find_map(|part| match part {
        Part::Placeholder(name) if PLACEHOLDERS.contains(&name) => None,
        Part::Placeholder(name) => {
            let advice = crate::problem::suggest(name, PLACEHOLDERS.into_iter());
            Some((format!("unknown placeholder {{{name}}}"), format!("{advice}; or write {{{{ and }}}} for braces")))
        }
        Part::Stray => Some(("it contains a single brace".to_owned(), "write {{ and }} for braces".to_owned())),
        Part::Text(_) => None,
    })
}

/// Whether it looks like a placeholder of Go templates, `{{.Index}}`, which stays text here.
pub(crate) fn looks_like_go(text: &str) -> bool {
    text.contains("{{.") || text.contains("{{ .")
}

/// Escapes the text, so that only the placeholders in `kept` are replaced.
pub(crate) fn with_literal_braces(text: &str, kept: &[&str]) -> String {
    let mut result = text.replace('{', "{{").replace('}', "}}");
    for name in kept {
        result = result.replace(&format!("{{{{{name}}}}}"), &format!("{{{name}}}"));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        match placeholder_fault(text) {
            Some((what, advice)) => Err(format!("{what}; {advice}")),
            None => Ok(fill(text, |name| format!("<{name}>"))),
        }
    }

    #[test]
    fn placeholders_are_filled_and_unknown_ones_told() {
        let braces = "or write {{ and }} for braces";
        for (text, expected) in [
            ("plain", Ok("plain".to_owned())),
            ("{index}", Ok("<index>".to_owned())),
            ("/data/{site}/{node}-{index} of {replicas}", Ok("/data/<site>/<node>-<index> of <replicas>".to_owned())),
            ("{{\"a\": {pool}}}", Ok("{\"a\": <pool>}".to_owned())),
            ("{indx}", Err(format!("unknown placeholder {{indx}}; did you mean index?; {braces}"))),
            ("a } b", Err("it contains a single brace; write {{ and }} for braces".to_owned())),
            ("a { b", Err("it contains a single brace; write {{ and }} for braces".to_owned())),
            ("{{.Index}}", Ok("{.Index}".to_owned())),
        ] {
            assert_eq!(filled(text), expected, "{text}");
        }
    }

    #[test]
    fn braces_of_others_stay_braces() {
        for (text, expected) in [("{x} {index}", "{x} <index>"), ("{{.Index}}", "{{.Index}}"), ("}{", "}{")] {
            let ours = with_literal_braces(text, &["index"]);
            assert_eq!(fill(&ours, |name| format!("<{name}>")), expected);
        }
    }
}
