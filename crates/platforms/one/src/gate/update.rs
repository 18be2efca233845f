//! Bodies of attribute updates. Pure.
//!
//! OneGate rewrites the body before it reaches oned: it puts quotes around the text after an equals sign, and closes them at
//! every comma, bracket and backslash. Lines of `KEY=VALUE` survive this if the values contain none of these characters.
//! Otherwise the whole update is XML with character references for all affected characters: oned accepts both, and OneGate
//! has nothing to rewrite. Lines are preferred because OneFlow notices `READY=YES` in them at once, and in XML only at its
//! next poll.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum size of an update. oned has no limit for attributes.
pub const MAX_UPDATE_BYTES: usize = 256 << 10;

/// Attributes that OneGate protects.
const RESTRICTED: [&str; 3] = ["SCHED_REQUIREMENTS", "SERVICE_ID", "ROLE_NAME"];

/// Body of one PUT with all attributes, or all problems.
pub fn render_update(attributes: &BTreeMap<String, String>) -> Result<String, Vec<String>> {
    let problems: Vec<String> = attributes.iter().filter_map(|(key, value)| problem(key, value)).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let body = match attributes.values().all(|value| survives_as_line(value)) {
        true => attributes.iter().fold(String::new(), |body, (key, value)| body + key + "=" + value + "\n"),
        false => as_xml(attributes),
    };
    match body.len() <= MAX_UPDATE_BYTES {
        true => Ok(body),
        false => Err(vec![format!("the update has {} bytes, more than {MAX_UPDATE_BYTES}", body.len())]),
    }
}

/// Names that both oned and XML accept: letters, digits and underscores.
pub(super) fn is_key(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn problem(key: &str, value: &str) -> Option<String> {
    if !is_key(key) {
        return Some(format!("{key:?} is not the name of an attribute"));
    }
    if RESTRICTED.iter().any(|restricted| key.eq_ignore_ascii_case(restricted)) {
        return Some(format!("a VM may not change its {key}"));
    }
    if value.chars().any(char::is_control) {
        return Some(format!("the value of {key} has line breaks or control characters"));
    }
    None
}

fn survives_as_line(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii() && !b"\",[]\\".contains(&byte)) && value.trim() == value
}

fn as_xml(attributes: &BTreeMap<String, String>) -> String {
    let mut xml = String::from("<TEMPLATE>");
    for (key, value) in attributes {
        let _ = write!(xml, "<{key}>");
        for c in value.chars() {
            match c.is_ascii_alphanumeric() || " _-.:/+;".contains(c) {
                true => xml.push(c),
                false => drop(write!(xml, "&#{};", u32::from(c))),
            }
        }
        let _ = write!(xml, "</{key}>");
    }
    xml + "</TEMPLATE>"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::template::{Template, Value};

    /// The body that oned receives: a model of OneGate's rewriting.
    fn rewritten(body: &str) -> String {
        let characters: Vec<char> = body.chars().collect();
        let mut out = String::new();
        let mut open = false;
        for (at, &c) in characters.iter().enumerate() {
            let after_quote = at > 0 && characters[at - 1] == '"';
            let before_quote = matches!(characters.get(at + 1), Some('[' | '"'));
            let after_equals = at > 0 && characters[at - 1] == '=';
            let closes = match c {
                ',' | '\n' | '\\' => !after_quote,
                '[' | ']' => !after_quote && !after_equals,
                _ => false,
            };
            match c {
                '=' if !open && !before_quote => {
                    out.push_str("=\"");
                    open = true;
                }
                _ if closes => {
                    out.push('"');
                    out.push(c);
                    open &= c == ',' || c == '[';
                }
                _ => out.push(c),
            }
        }
        if open && !out.ends_with([']', '"']) {
            out.push('"');
        }
        out
    }

    fn values() -> impl Strategy<Value = String> {
        prop_oneof!["[ -~]{0,12}", "[A-Za-z0-9+/=]{0,12}", "\\PC{0,6}"]
    }

    proptest! {
        #[test]
        fn values_arrive_as_they_were_meant(
            pairs in prop::collection::btree_map("[A-Z][A-Z_]{0,5}", values(), 1..5)
        ) {
            let arrived = Template::parse(&rewritten(&render_update(&pairs).unwrap())).unwrap();
            let arrived: BTreeMap<String, String> = arrived.0.into_iter().map(|(key, value)| match value {
                Value::Text(text) => (key, text),
                Value::Vector(pairs) => panic!("{key} became {pairs:?}"),
            }).collect();
            prop_assert_eq!(arrived, pairs);
        }
    }

    #[test]
    fn without_care_values_would_not_arrive() {
        for body in ["A=12:0,13:1\n", "A=\"QUJD==\"\n", "A=a\\b\n", "A=x[1]\n"] {
            let value = body.trim_end().trim_start_matches("A=").trim_matches('"');
            let arrived = Template::parse(&rewritten(body));
            assert_ne!(arrived, Ok(Template::new().with("A", value)), "{body}");
        }
    }

    fn update(pairs: &[(&str, &str)]) -> Result<String, Vec<String>> {
        render_update(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn plain_values_are_lines() {
        let expected = "CA=QUJD+/==\nFOO=bar baz\nREADY=YES\nX=\n";
        assert_eq!(update(&[("READY", "YES"), ("FOO", "bar baz"), ("CA", "QUJD+/=="), ("X", "")]), Ok(expected.into()));
        assert_eq!(update(&[]), Ok(String::new()));
    }

    #[test]
    fn values_that_would_be_rewritten_travel_as_xml() {
        let hostile = [
            ("12:0,13:1", "12:0&#44;13:1"),
            ("a\"\\[=$x]", "a&#34;&#92;&#91;&#61;&#36;x&#93;"),
            ("<ä>", "&#60;&#228;&#62;"),
            (" x", " x"),
        ];
        for (value, expected) in hostile {
            assert_eq!(update(&[("A", value)]), Ok(format!("<TEMPLATE><A>{expected}</A></TEMPLATE>")), "{value}");
        }
        assert_eq!(
            update(&[("READY", "NO"), ("FL_ERROR", "bad: a, b")]),
            Ok("<TEMPLATE><FL_ERROR>bad: a&#44; b</FL_ERROR><READY>NO</READY></TEMPLATE>".into())
        );
    }

    #[test]
    fn all_invalid_values_are_reported_at_once() {
        let problems = update(&[("A B", "x"), ("C", "two\nlines"), ("role_name", "x"), ("", "x"), ("D", "ok")]);
        let expected = [
            "\"\" is not the name of an attribute",
            "\"A B\" is not the name of an attribute",
            "the value of C has line breaks or control characters",
            "a VM may not change its role_name",
        ];
        assert_eq!(problems, Err(expected.map(str::to_owned).to_vec()));
        let long = "x".repeat(MAX_UPDATE_BYTES);
        assert_eq!(update(&[("A", &long)]).unwrap_err().len(), 1);
    }
}
