//! The only JSON syntax that is not YAML: a character beyond the first 65,536, written as two escapes.

use std::borrow::Cow;

/// Replaces each such pair by one escape of YAML. Other texts are unchanged.
pub(super) fn as_yaml(text: &str) -> Cow<'_, str> {
    let has_pairs = text.contains("\\ud") || text.contains("\\uD");
    if !has_pairs || serde_json::from_str::<serde_json::Value>(text).is_err() {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        joined.push_str(before);
        let length = match (half(escape), escape.get(6..).and_then(half)) {
            (Some(high @ 0xd800..0xdc00), Some(low @ 0xdc00..0xe000)) => {
                let letter = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                joined.push_str(&format!("\\U{letter:08x}"));
                12
            }
            // The character after a backslash may be another backslash.
            _ => {
                joined.push_str(&escape[..2]);
                2
            }
        };
        rest = &escape[length..];
    }
    joined.push_str(rest);
    Cow::Owned(joined)
}

/// The number of an escape like `\ud83d` at the start of a text.
fn half(text: &str) -> Option<u32> {
    text.strip_prefix("\\u").and_then(|digits| digits.get(..4)).and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_one_letter_and_nothing_else_changes() {
        for (json, expected) in [
            (r#"["\ud83d\ude00"]"#, r#"["\U0001f600"]"#),
            (r#"["\uD83D\uDE00\n\u00e9"]"#, r#"["\U0001f600\n\u00e9"]"#),
            (r#"["\\ud83d\\ude00"]"#, r#"["\\ud83d\\ude00"]"#),
            // No JSON: in single quotes a backslash is a backslash.
            (r"['\ud83d\ude00']", r"['\ud83d\ude00']"),
            ("[1]", "[1]"),
        ] {
            assert_eq!(as_yaml(json), expected);
        }
    }
}
