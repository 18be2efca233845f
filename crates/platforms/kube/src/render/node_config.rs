//! The node config as one argument, without a shell: values that differ between the nodes of a pool are variables that
//! Kubernetes expands, `$(NAME)`. Values are TOML, and no value can leave its quotes.

use std::collections::BTreeMap;

use trellis_spec::ConfigValue;

/// Index of a node in its pool.
pub(super) const INDEX: &str = "FLOWER_INDEX";
/// Machine of a node.
pub(super) const NODE: &str = "FLOWER_NODE_NAME";

pub(super) const INDEX_PLACEHOLDER: &str = "{index}";
pub(super) const REPLICAS_PLACEHOLDER: &str = "{replicas}";
const POOL_PLACEHOLDER: &str = "{pool}";
const NODE_PLACEHOLDER: &str = "{node}";

/// `key=value` pairs in the order of keys, as `--node-config` takes them. `settled` are the values of one node, without
/// placeholders; they take precedence.
pub(super) fn argument(
    config: &BTreeMap<String, String>,
    settled: &BTreeMap<String, ConfigValue>,
    pool: &str,
    size: i32,
) -> String {
    let mut pairs: BTreeMap<&str, String> =
        config.iter().map(|(key, value)| (&**key, toml(value, pool, size))).collect();
    pairs.extend(settled.iter().map(|(key, value)| (&**key, literal(value))));
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(" ")
}

fn literal(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Bool(on) => on.to_string(),
        ConfigValue::Int(number) => number.to_string(),
        ConfigValue::Float(number) => format!("{number:?}"),
        ConfigValue::Text(text) => {
            let mut inside = String::with_capacity(text.len());
            text.chars().for_each(|letter| escape(letter, &mut inside));
            format!("\"{inside}\"")
        }
    }
}

/// Whether a value differs between the nodes of a pool.
pub(super) fn differs_by_node(config: &BTreeMap<String, String>) -> bool {
    config.values().any(|value| value.contains(INDEX_PLACEHOLDER) || value.contains(NODE_PLACEHOLDER))
}

/// Whether a value needs the index or the size, which pools of a DaemonSet do not have.
pub(super) fn counts_nodes(value: &str) -> bool {
    value.contains(INDEX_PLACEHOLDER) || value.contains(REPLICAS_PLACEHOLDER)
}

/// Flower splits pairs at the first `=`, and reads dots as tables.
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

/// The content of a TOML string with expanded placeholders. The expansion is not expanded again.
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
        // Kubernetes expands `$(`; `$$` is a literal `$`.
        '$' => inside.push_str("$$"),
        '\\' => inside.push_str("\\\\"),
        // Flower searches the next quote before it parses TOML, so a quote must not appear, not even with a backslash.
        '"' => inside.push_str("\\u0022"),
        c if c.is_control() => inside.push_str(&format!("\\u{:04X}", u32::from(c))),
        c => inside.push(c),
    }
}

#[cfg(test)]
mod tests;
