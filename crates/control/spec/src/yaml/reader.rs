//! Reads YAML or JSON as plain values, with the parser of Federation documents and its limits on size, depth and
//! aliases. No other code of the workspace may parse YAML.

use serde_json::{Map, Number, Value as Json};

use crate::problem::{Diagnostics, Notes};
use crate::tree::{self, Node, Value};

/// Reads all non-empty documents of a text. `file` only appears in problems.
pub fn read(text: &str, file: &str) -> Result<Vec<Json>, Diagnostics> {
    let notes = Notes::new(file);
    let documents = tree::parse(text, &notes);
    match notes.take().0 {
        problems if problems.is_empty() => Ok(documents.into_iter().map(value).collect()),
        problems => Err(problems.into()),
    }
}

/// Recursion is bounded by the depth that the tree accepts.
fn value(node: Node) -> Json {
    if node.is_null() {
        return Json::Null;
    }
    match node.value {
        Value::Scalar { text, plain: true } => plain(text),
        Value::Scalar { text, plain: false } => Json::String(text),
        Value::List(items) => items.into_iter().map(value).collect(),
        Value::Map(entries) => {
            entries.into_iter().map(|(key, node)| (key.name, value(node))).collect::<Map<_, _>>().into()
        }
    }
}

/// The core schema of YAML 1.2, without octal and hexadecimal numbers.
fn plain(text: String) -> Json {
    let looks_numeric = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    match text.as_str() {
        "true" | "True" | "TRUE" => Json::Bool(true),
        "false" | "False" | "FALSE" => Json::Bool(false),
        _ if !looks_numeric => Json::String(text),
        number => {
            let whole =
                number.parse::<i64>().ok().map(Json::from).or_else(|| number.parse::<u64>().ok().map(Json::from));
            let real = || number.parse().ok().and_then(Number::from_f64).map(Json::Number);
            whole.or_else(real).unwrap_or(Json::String(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    /// Far above the time of a refusal, and far below the time of an attack without limits.
    const MAX_REFUSAL_TIME: Duration = Duration::from_secs(5);

    #[test]
    fn values_have_the_type_that_they_are_written_with() {
        let text = "a: 1\nb: '1'\nc: [true, ~, 1.5, -2e3, 2024-01-01, 18446744073709551615]\nd: {e: text}\n---\n---\n{\"f\": null}\n";
        let expected = json!({
            "a": 1, "b": "1", "c": [true, null, 1.5, -2000.0, "2024-01-01", 18_446_744_073_709_551_615_u64], "d": {"e": "text"}
        });
        assert_eq!(read(text, "x").expect("good"), [expected, json!({"f": null})]);
        // A small alias is accepted.
        assert_eq!(read("a: &a [1]\nb: *a\n", "x").expect("good"), [json!({"a": [1], "b": [1]})]);
        assert_eq!(read("a: 1\na: 2\n", "x").expect_err("two").0.len(), 1);
        assert!(read("a: {", "x").is_err());
    }

    #[test]
    fn bombs_are_refused_before_they_are_unpacked() {
        let mut lists = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..9 {
            let inner = vec![format!("*a{}", level - 1); 9].join(",");
            writeln!(lists, "a{level}: &a{level} [{inner}]").expect("text");
        }
        let long = "x".repeat(1 << 20);
        let texts = format!("a: &a {long}\nb: [{}]\n", vec!["*a"; 100_000].join(","));
        let keys = format!("a: &a {{{long}: 1}}\nb: [{}]\n", vec!["*a"; 60_000].join(","));
        let nested: String = (0..60).map(|level| format!("&n{level} [")).collect();
        let anchors = format!("{nested}{}{}", "x,".repeat(150_000), "]".repeat(60));
        let fields: String = (0..190_000).fold(String::new(), |text, index| text + &format!("{index}: 1\n"));
        for (name, text, good) in [
            ("aliases of lists", lists, false),
            ("aliases of a long text", texts, false),
            ("aliases of a long key", keys, false),
            ("anchors inside each other", anchors, false),
            ("too many fields", fields, false),
            ("deep", "[".repeat(1 << 20), false),
            ("long", long.repeat(5), false),
        ] {
            let start = Instant::now();
            assert_eq!(read(&text, name).is_ok(), good, "{name}");
            assert!(start.elapsed() < MAX_REFUSAL_TIME, "{name} took {:?}", start.elapsed());
        }
    }
}
