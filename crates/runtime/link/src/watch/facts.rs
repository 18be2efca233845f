//! Extracts strategy, rounds and clients from a run's settings. Apps choose the names of their settings: this module
//! knows the usual names and reports unknown values otherwise.

use std::collections::BTreeMap;

use trellis_wire::proto;

/// Longer names of strategies are truncated in metrics and events.
const MAX_STRATEGY_CHARS: usize = 40;

const STRATEGY: &[&str] = &["strategy", "strategy-name", "fl-strategy", "aggregation-strategy"];
const ROUNDS: &[&str] = &["num-server-rounds", "num-rounds", "server-rounds", "fl-num-rounds", "rounds", "n-rounds"];
const MIN_CLIENTS: &[&str] = &[
    "min-available-nodes",
    "min-available-clients",
    "fl-min-available-clients",
    "min-clients",
    "min-nodes",
    "min-train-nodes",
    "min-fit-clients",
    "fl-min-fit-clients",
];

/// What is known of a training before it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub strategy: Option<String>,
    pub num_rounds: Option<u64>,
    pub min_clients: Option<u64>,
    /// The ServerApp sends reports.
    pub reports: bool,
}

impl Facts {
    /// Reads the app's `pyproject.toml` and the user's overrides.
    pub fn of(pyproject: Option<&toml::Table>, overrides: &BTreeMap<String, proto::Scalar>) -> Facts {
        let mut settings = BTreeMap::new();
        if let Some(defaults) = pyproject.and_then(app_config) {
            flatten(defaults, "", &mut settings);
        }
        settings.extend(overrides.iter().filter_map(|(key, value)| Some((key.clone(), scalar(value)?))));
        // Settings may be grouped (`server.num-rounds`): the last part is the name.
        let named: BTreeMap<String, Setting> = settings
            .into_iter()
            .map(|(key, value)| (plain(key.rsplit('.').next().unwrap_or_default()), value))
            .collect();
        let first = |names: &[&str]| names.iter().find_map(|name| named.get(*name));
        Facts {
            strategy: first(STRATEGY).and_then(Setting::strategy),
            num_rounds: first(ROUNDS).and_then(Setting::count),
            min_clients: first(MIN_CLIENTS).and_then(Setting::count),
            reports: false,
        }
    }
}

/// Normalises a name: apps differ in case, `-` and `_`.
pub(super) fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', ' '], "-")
}

#[derive(Debug)]
enum Setting {
    Text(String),
    Number(f64),
}

impl Setting {
    fn strategy(&self) -> Option<String> {
        let Setting::Text(name) = self else { return None };
        let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_.+".contains(*letter);
        let name: String = name.trim().chars().filter(is_plain).take(MAX_STRATEGY_CHARS).collect();
        (!name.is_empty()).then_some(name)
    }

    fn count(&self) -> Option<u64> {
        let number = match self {
            Setting::Text(text) => text.trim().parse().ok()?,
            Setting::Number(number) => *number,
        };
        (number >= 1.0 && number <= f64::from(u32::MAX) && number.fract() == 0.0).then_some(number as u64)
    }
}

fn app_config(pyproject: &toml::Table) -> Option<&toml::Table> {
    pyproject.get("tool")?.get("flwr")?.get("app")?.get("config")?.as_table()
}

fn flatten(table: &toml::Table, prefix: &str, settings: &mut BTreeMap<String, Setting>) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        let setting = match value {
            toml::Value::Table(inner) => {
                flatten(inner, &format!("{key}."), settings);
                continue;
            }
            toml::Value::String(text) => Setting::Text(text.clone()),
            toml::Value::Integer(number) => Setting::Number(*number as f64),
            toml::Value::Float(number) => Setting::Number(*number),
            _ => continue,
        };
        settings.insert(key, setting);
    }
}

fn scalar(value: &proto::Scalar) -> Option<Setting> {
    use proto::scalar::Scalar;
    Some(match value.scalar.as_ref()? {
        Scalar::Double(number) => Setting::Number(*number),
        Scalar::Sint64(number) => Setting::Number(*number as f64),
        Scalar::Uint64(number) => Setting::Number(*number as f64),
        Scalar::String(text) => Setting::Text(text.clone()),
        Scalar::Bool(_) | Scalar::Bytes(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(settings: &[(&str, proto::scalar::Scalar)]) -> BTreeMap<String, proto::Scalar> {
        let set = |(key, value): &(&str, _)| ((*key).to_owned(), proto::Scalar { scalar: Some(Clone::clone(value)) });
        settings.iter().map(set).collect()
    }

    #[test]
    fn usual_names_of_settings_are_recognised() {
        let reported = |facts: Facts| {
            let number = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
            let strategy = facts.strategy.unwrap_or_else(|| "?".to_owned());
            format!("{strategy} {} {}", number(facts.num_rounds), number(facts.min_clients))
        };
        for (config, expected) in [
            ("", "? ? ?"),
            ("num-server-rounds = 3\nstrategy = 'FedAvg'\nmin-clients = 2", "FedAvg 3 2"),
            ("num_rounds = '5'\nSTRATEGY = 'fed prox!'", "fedprox 5 ?"),
            ("[server]\nrounds = 4.0\nmin_fit_clients = 3", "? 4 3"),
            ("num-rounds = 9\nnum-server-rounds = 3", "? 3 ?"),
            ("num-server-rounds = -1\nmin-clients = 2.5\nstrategy = 7", "? ? ?"),
            ("num-server-rounds = true\nstrategy = ''", "? ? ?"),
        ] {
            let project: toml::Table =
                format!("[tool.flwr.app.config]\n{}", config.replace("[server]", "[tool.flwr.app.config.server]"))
                    .parse()
                    .unwrap();
            assert_eq!(reported(Facts::of(Some(&project), &BTreeMap::new())), expected, "{config}");
        }
    }

    #[test]
    fn the_overrides_of_the_user_win() {
        use proto::scalar::Scalar;
        let project: toml::Table =
            "[tool.flwr.app.config]\nnum-server-rounds = 3\nstrategy = 'FedAvg'".parse().unwrap();
        let set = overrides(&[("num-server-rounds", Scalar::Sint64(10)), ("min-clients", Scalar::Double(4.0))]);
        let expected =
            Facts { strategy: Some("FedAvg".into()), num_rounds: Some(10), min_clients: Some(4), reports: false };
        assert_eq!(Facts::of(Some(&project), &set), expected);
        assert_eq!(Facts::of(None, &overrides(&[("rounds", Scalar::Bool(true))])), Facts::default());
    }

    #[test]
    fn a_long_name_is_truncated() {
        use proto::scalar::Scalar;
        let facts = Facts::of(None, &overrides(&[("strategy", Scalar::String("x".repeat(500)))]));
        assert_eq!(facts.strategy.map(|name| name.len()), Some(MAX_STRATEGY_CHARS));
    }
}
