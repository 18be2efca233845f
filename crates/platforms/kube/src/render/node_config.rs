//! The settings of a node for its apps, as one argument. No shell: what differs between the nodes of a pool comes through
//! variables that Kubernetes fills in, `$(NAME)`. Values are TOML; nothing in a value can leave its quotes.

use std::collections::BTreeMap;

/// The number of a node in its pool.
pub(super) const INDEX: &str = "FLOWER_INDEX";
/// The machine that a node is on.
pub(super) const NODE: &str = "FLOWER_NODE_NAME";

pub(super) const INDEX_PLACEHOLDER: &str = "{index}";
pub(super) const REPLICAS_PLACEHOLDER: &str = "{replicas}";
const POOL_PLACEHOLDER: &str = "{pool}";
const NODE_PLACEHOLDER: &str = "{node}";

/// `key=value` in the order of keys, as `--node-config` takes them.
pub(super) fn argument(config: &BTreeMap<String, String>, pool: &str, size: i32) -> String {
    let pairs: Vec<String> = config.iter().map(|(key, value)| format!("{key}={}", toml(value, pool, size))).collect();
    pairs.join(" ")
}

/// Whether some value differs between the nodes of a pool.
pub(super) fn differs_by_node(config: &BTreeMap<String, String>) -> bool {
    config.values().any(|value| value.contains(INDEX_PLACEHOLDER) || value.contains(NODE_PLACEHOLDER))
}

/// What tells nodes apart by number cannot be said where they have none.
pub(super) fn counts_nodes(value: &str) -> bool {
    value.contains(INDEX_PLACEHOLDER) || value.contains(REPLICAS_PLACEHOLDER)
}

/// Flower takes keys apart by the first `=`, and dots as tables.
pub(super) fn is_key(key: &str) -> bool {
    let bare = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    key.split('.').all(bare)
}

fn toml(value: &str, pool: &str, size: i32) -> String {
    match value {
        INDEX_PLACEHOLDER => format!("$({INDEX})"),
        REPLICAS_PLACEHOLDER => size.to_string(),
        "true" | "false" => value.to_owned(),
        number if is_integer(number) => number.to_owned(),
        text => format!("\"{}\"", quoted(text, pool, size)),
    }
}

/// An integer as in TOML: optional sign, no leading zeros. `007` stays text, and so does `-0`, which would become 0.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain && (digits == "0" || !digits.starts_with('0')) && text != "-0" && text.parse::<i64>().is_ok()
}

/// The inside of a TOML string, placeholders filled in. A text that looks like a placeholder after that stays as it is.
fn quoted(text: &str, pool: &str, size: i32) -> String {
    let mut inside = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = [
            (INDEX_PLACEHOLDER, format!("$({INDEX})")),
            (REPLICAS_PLACEHOLDER, size.to_string()),
            (NODE_PLACEHOLDER, format!("$({NODE})")),
            (POOL_PLACEHOLDER, pool.to_owned()),
        ];
        if let Some((placeholder, filled)) = found.into_iter().find(|(placeholder, _)| rest.starts_with(placeholder)) {
            inside.push_str(&filled);
            rest = &rest[placeholder.len()..];
        } else {
            escape(first, &mut inside);
            rest = &rest[first.len_utf8()..];
        }
    }
    inside
}

fn escape(c: char, inside: &mut String) {
    match c {
        // Kubernetes reads `$(`; two stand for one.
        '$' => inside.push_str("$$"),
        '\\' => inside.push_str("\\\\"),
        // Flower looks for the next quote before it reads TOML, so none may be seen, not even one with a backslash.
        '"' => inside.push_str("\\u0022"),
        c if c.is_control() => inside.push_str(&format!("\\u{:04X}", u32::from(c))),
        c => inside.push(c),
    }
}

#[cfg(test)]
mod tests;
