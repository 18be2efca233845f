use proptest::prelude::*;

use super::{argument as with_settled, *};

fn argument(config: &BTreeMap<String, String>, pool: &str, size: i32) -> String {
    with_settled(config, &BTreeMap::new(), pool, size)
}

fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// What Kubernetes makes of `$(NAME)` and `$$` in an argument, in our words.
fn expanded(argument: &str, variables: &[(&str, &str)]) -> String {
    let mut result = String::new();
    let mut rest = argument;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some(end) = rest.strip_prefix('(').and_then(|inner| inner.find(')')) {
            let name = &rest[1..=end];
            match variables.iter().find(|(variable, _)| *variable == name) {
                Some((_, value)) => result.push_str(value),
                None => result.push_str(&format!("$({name})")),
            }
            rest = &rest[end + 2..];
        } else {
            result.push('$');
        }
    }
    result + rest
}

/// What Flower makes of `--node-config`: pairs are found by quotes before anything is read as TOML.
fn read(argument: &str) -> BTreeMap<String, toml::Value> {
    let (mut rest, mut lines) = (argument, String::new());
    while let Some((key, after)) = rest.split_once('=') {
        let end = match after.strip_prefix('"') {
            Some(inside) => inside.find('"').expect("it ends") + 2,
            None => after.find(' ').unwrap_or(after.len()),
        };
        lines += &format!("{} = {}\n", key.trim_start(), &after[..end]);
        rest = &after[end..];
    }
    assert_eq!(rest.trim(), "", "all of {argument:?} is read");
    toml::from_str(&lines).unwrap_or_else(|error| panic!("{lines}: {error}"))
}

/// Reference 2.3, value formatting; O5.
#[test]
fn values_are_numbers_truths_or_text() {
    for (value, expected) in [
        ("42", "42"),
        ("0", "0"),
        ("12345", "12345"),
        ("-1", "-1"),
        ("+3", "+3"),
        ("true", "true"),
        ("false", "false"),
        ("True", "\"True\""),
        ("0.01", "\"0.01\""),
        ("007", "\"007\""),
        ("-07", "\"-07\""),
        ("1_000", "\"1_000\""),
        ("0x10", "\"0x10\""),
        ("9223372036854775808", "\"9223372036854775808\""),
        ("", "\"\""),
        ("-", "\"-\""),
        ("text", "\"text\""),
        ("two words", "\"two words\""),
        ("{index}", "$(FLOWER_INDEX)"),
        ("{replicas}", "8"),
        ("{pool}", "\"p\""),
        ("{node}", "\"$(FLOWER_NODE_NAME)\""),
        ("client_{pool}_{index}", "\"client_p_$(FLOWER_INDEX)\""),
        ("{replicas} of {what}", "\"8 of {what}\""),
        ("a\"b", "\"a\\u0022b\""),
        ("a\\b", "\"a\\\\b\""),
        ("a\nb\u{7f}", "\"a\\u000Ab\\u007F\""),
        ("$HOME $(POD_NAME) `id`", "\"$$HOME $$(POD_NAME) `id`\""),
    ] {
        assert_eq!(toml(value, "p", 8), expected, "{value:?}");
    }
}

/// Reference 2.3, string building.
#[test]
fn settings_are_in_the_order_of_their_keys() {
    assert_eq!(argument(&config(&[("zebra", "1"), ("alpha", "2"), ("mike", "3")]), "p", 4), "alpha=2 mike=3 zebra=1");
    let mixed = config(&[("partition-id", "{index}"), ("num-partitions", "{replicas}"), ("name", "c_{pool}_{index}")]);
    let expected = "name=\"c_p_$(FLOWER_INDEX)\" num-partitions=4 partition-id=$(FLOWER_INDEX)";
    assert_eq!(argument(&mixed, "p", 4), expected);
    let static_ones = config(&[("rate", "0.01"), ("epochs", "3"), ("fast", "true"), ("set", "mnist")]);
    assert_eq!(argument(&static_ones, "p", 4), "epochs=3 fast=true rate=\"0.01\" set=\"mnist\"");
}

/// Reference 2.3, dynamic detection; O8: a number that is known here needs no variable.
#[test]
fn only_what_differs_between_nodes_needs_variables() {
    for (value, differs) in [
        ("{index}", true),
        ("{node}", true),
        ("x{index}", true),
        ("{replicas}", false),
        ("{pool}", false),
        ("7", false),
    ] {
        assert_eq!(differs_by_node(&config(&[("other", "1"), ("key", value)])), differs, "{value}");
    }
    assert!(!differs_by_node(&config(&[])));
}

#[test]
fn keys_are_plain() {
    for (key, fits) in [
        ("partition-id", true),
        ("a.b", true),
        ("A_1", true),
        ("", false),
        ("a b", false),
        ("a=b", false),
        ("a.", false),
    ] {
        assert_eq!(is_key(key), fits, "{key:?}");
    }
}

/// A value that `--node-config` must bring to an app as this text, filled in for node 3 of 8 on the machine `w-1`.
fn filled(value: &str) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let words = [("{index}", "3"), ("{replicas}", "8"), ("{pool}", "p"), ("{node}", "w-1")];
        let (piece, length) = match words.iter().find(|(word, _)| rest.starts_with(word)) {
            Some((word, meaning)) => ((*meaning).to_owned(), word.len()),
            None => (first.to_string(), first.len_utf8()),
        };
        text += &piece;
        rest = &rest[length..];
    }
    text
}

/// O6: nothing in a value gets out of it, whatever it is.
fn arrives(value: &str) {
    let given = config(&[("before", "x y"), ("key", value), ("later", "{index}")]);
    let argument = argument(&given, "p", 8);
    let arrived = read(&expanded(&argument, &[(INDEX, "3"), (NODE, "w-1"), ("POD_NAME", "stolen")]));
    assert_eq!(arrived.keys().collect::<Vec<_>>(), ["before", "key", "later"], "{argument}");
    assert_eq!(arrived["later"], toml::Value::Integer(3));
    let text = match &arrived["key"] {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(truth) => truth.to_string(),
        other => panic!("{other:?} from {argument}"),
    };
    assert_eq!(
        text,
        filled(value).trim_start_matches(if value.parse::<i64>().is_ok() { "+" } else { "" }),
        "{argument}"
    );
}

#[test]
fn injections_arrive_as_text() {
    for value in [
        "\"; rm -rf / #",
        "$(POD_NAME)",
        "$$(POD_NAME)",
        "$${index}",
        "${index}",
        "$({index})",
        "`id`",
        "a\" later=\"7",
        "' later='7",
        "\\\"",
        "\\u0022",
        "\\",
        "$",
        "x.toml",
        "line\nlater = 7",
        "\"\"\"",
        "\u{0}\u{1b}\u{7f}\u{85}\u{2028}",
        "--insecure=false",
    ] {
        arrives(value);
    }
}

proptest! {
    #[test]
    fn every_value_arrives_as_it_was_written(value in any::<String>()) {
        arrives(&value);
    }

    #[test]
    fn values_of_troublesome_characters_arrive(value in "[$(){}\"'\\\\`=# a-f\\n\\t0-9+.-]{0,24}") {
        arrives(&value);
    }

    #[test]
    fn values_with_placeholders_arrive(parts in prop::collection::vec(
        prop::sample::select(vec!["{index}", "{replicas}", "{pool}", "{node}", "$", "(", ")", "\"", "\\", "{", "}", "x", "7"]),
        0..8,
    )) {
        arrives(&parts.concat());
    }
}

#[test]
fn settled_values_are_read_as_they_are() {
    let settled = [
        ("a", ConfigValue::Int(3)),
        ("b", ConfigValue::Float(1.0)),
        ("c", ConfigValue::Bool(true)),
        ("d", ConfigValue::Text("plain {index}".to_owned())),
        ("e", ConfigValue::Text("it's \"both\" \\ $(POD_NAME) $$".to_owned())),
    ];
    let settled = settled.map(|(key, value)| (key.to_owned(), value)).into();
    let text = with_settled(&config(&[("a", "{index}"), ("z", "{pool}")]), &settled, "p", 4);
    let values = read(&expanded(&text, &[("POD_NAME", "wrong"), ("FLOWER_INDEX", "0")]));
    assert_eq!(values["a"], toml::Value::Integer(3), "a settled value takes precedence");
    assert_eq!(values["b"], toml::Value::Float(1.0));
    assert_eq!(values["c"], toml::Value::Boolean(true));
    assert_eq!(values["d"].as_str(), Some("plain {index}"));
    assert_eq!(values["e"].as_str(), Some("it's \"both\" \\ $(POD_NAME) $$"));
    assert_eq!(values["z"].as_str(), Some("p"));
}
