//! The configuration of an app: `[tool.flwr.app.config]` with flattened tables, keys joined by dots.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{BadFab, bad, find};
use crate::proto;
use crate::proto::scalar::Scalar;

/// The table of the configuration.
pub const CONFIG: &str = "tool.flwr.app.config";
/// Maximum nesting of tables.
const MAX_DEPTH: usize = 64;

/// Configuration values by key; keys of nested tables are joined by dots.
pub type Config = BTreeMap<String, proto::Scalar>;

/// Returns all configuration keys with their defaults.
pub fn config(project: &Table) -> Result<Config, BadFab> {
    let mut config = Config::new();
    match find(project, CONFIG) {
        None => {}
        Some(Value::Table(table)) => flatten(table, "", 1, &mut config)?,
        Some(_) => return Err(bad(format!("[{CONFIG}] in pyproject.toml is not a table"))),
    }
    Ok(config)
}

fn flatten(table: &Table, above: &str, depth: usize, config: &mut Config) -> Result<(), BadFab> {
    if depth > MAX_DEPTH {
        return Err(bad(format!("[{CONFIG}] has more than {MAX_DEPTH} tables within each other")));
    }
    for (key, value) in table {
        let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        let scalar = match value {
            Value::Table(inner) => {
                flatten(inner, &path, depth + 1, config)?;
                continue;
            }
            Value::Boolean(value) => Scalar::Bool(*value),
            Value::Integer(value) => Scalar::Sint64(*value),
            Value::Float(value) => Scalar::Double(*value),
            Value::String(value) => Scalar::String(value.clone()),
            Value::Array(_) | Value::Datetime(_) => {
                let what = value.type_str();
                let why = format!("{path} in [{CONFIG}] is of type {what}, and must be a bool, int, float or string");
                return Err(bad(why));
            }
        };
        // Flower uses the last one in the file, which is always a mistake.
        if config.insert(path.clone(), proto::Scalar { scalar: Some(scalar) }).is_some() {
            return Err(bad(format!("{path} is twice in [{CONFIG}]: as a key with a dot, and as a table")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        config(&text.parse().expect("the test's own TOML is sound")).map_err(|problem| problem.0)
    }

    #[test]
    fn tables_are_flattened() {
        let text = "[tool.flwr.app.config]\nb=true\ni=-3\nf=1.5\ns='x'\nempty={}\n'quoted.key'=1\nt.u.v=2\n";
        let want = [
            ("b", Scalar::Bool(true)),
            ("f", Scalar::Double(1.5)),
            ("i", Scalar::Sint64(-3)),
            ("quoted.key", Scalar::Sint64(1)),
            ("s", Scalar::String("x".into())),
            ("t.u.v", Scalar::Sint64(2)),
        ];
        let want = want.map(|(key, scalar)| (key.to_owned(), proto::Scalar { scalar: Some(scalar) })).into();
        assert_eq!(read(text), Ok(want));
        assert_eq!(read("[tool]"), Ok(Config::new()));
    }

    #[test]
    fn invalid_configurations_are_refused_as_in_flower() {
        for (text, part) in [
            ("[tool.flwr.app.config]\nlist=[1]", "list in [tool.flwr.app.config] is of type array"),
            ("[tool.flwr.app.config]\na.day=2024-01-01", "a.day in [tool.flwr.app.config]"),
            ("[tool.flwr.app]\nconfig=3", "is not a table"),
            ("[tool.flwr.app.config]\n'a.b'=1\na.b=2", "a.b is twice"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
