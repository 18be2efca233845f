//! A file of run defaults: initial values of the run configs on a SuperLink, in TOML. Pure.

use toml::{Table, Value};
use trellis_train::settings::find;
use trellis_wire::fab::Config;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;

/// The values by all names of each setting, because an app may use any of them. Or all problems.
pub fn parse(text: &str) -> Result<Config, Vec<String>> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| vec![line_of(text, &error)])?;
    let (mut config, mut problems) = (Config::new(), Vec::new());
    read(&table, "", &mut config, &mut problems);
    for (key, scalar) in config.clone() {
        let Some(setting) = find(&key) else { continue };
        for name in setting.aliases.iter().copied().chain([setting.name]) {
            let known = config.entry(name.to_owned()).or_insert_with(|| scalar.clone());
            if *known != scalar && key.as_str() < name {
                problems.push(format!("{key} and {name} are the same setting, and differ"));
            }
        }
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn line_of(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    format!("line {line}: {}", error.message())
}

fn read(table: &Table, above: &str, config: &mut Config, problems: &mut Vec<String>) {
    for (key, value) in table {
        let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        let (scalar, written) = match value {
            Value::Table(inner) => {
                read(inner, &path, config, problems);
                continue;
            }
            Value::Boolean(on) => (Scalar::Bool(*on), on.to_string()),
            Value::Integer(number) => (Scalar::Sint64(*number), number.to_string()),
            Value::Float(number) => (Scalar::Double(*number), number.to_string()),
            Value::String(text) => (Scalar::String(text.clone()), text.clone()),
            Value::Array(_) | Value::Datetime(_) => {
                let kind = value.type_str();
                problems.push(format!("{path} is of type {kind}, and must be a bool, int, float or string"));
                continue;
            }
        };
        // A setting that is known is checked here: a run would fail with it, one by one.
        match find(&path) {
            Some(setting) if !written.is_empty() && setting.kind.parse(&written).is_none() => {
                problems.push(format!("{path} is {value}, and must be {}", setting.kind.expected()));
            }
            _ => {}
        }
        if config.insert(path.clone(), proto::Scalar { scalar: Some(scalar) }).is_some() {
            problems.push(format!("{path} is there twice: as a key with a dot, and as a table"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_known_by_all_its_names() {
        let config = parse("num-server-rounds = 9\nmin-fit-clients = 4\nmine = 'x'\n[a]\nb = 1.5\n").unwrap();
        let number = |number| Some(proto::Scalar { scalar: Some(Scalar::Sint64(number)) });
        for (key, expected) in [("rounds", number(9)), ("num-server-rounds", number(9)), ("min-train-nodes", number(4))]
        {
            assert_eq!(config.get(key), expected.as_ref(), "{key}");
        }
        assert_eq!(config["mine"].scalar, Some(Scalar::String("x".to_owned())));
        assert_eq!(config["a.b"].scalar, Some(Scalar::Double(1.5)));
        assert_eq!(parse(""), Ok(Config::new()));
    }

    #[test]
    fn everything_that_is_wrong_is_told() {
        for (text, expected) in [
            ("a = ", vec!["line 1: "]),
            ("\n\nb = [", vec!["line 3: "]),
            (
                "num-server-rounds = 0\nstrategy = 'FedNothing'\nlist = [1]\n'x.y' = 1\nx.y = 2\n",
                vec![
                    "list is of type array, and must be a bool, int, float or string",
                    "num-server-rounds is 0, and must be a whole number from 1",
                    "strategy is \"FedNothing\", and must be one of ",
                    "x.y is there twice: as a key with a dot, and as a table",
                ],
            ),
            (
                "rounds = 1\nnum-server-rounds = 2",
                vec!["num-server-rounds and rounds are the same setting, and differ"],
            ),
        ] {
            let mut problems = parse(text).unwrap_err();
            problems.sort();
            assert_eq!(problems.len(), expected.len(), "{text}: {problems:?}");
            for (problem, expected) in problems.iter().zip(expected) {
                assert!(problem.starts_with(expected), "{problem}");
            }
        }
    }
}
