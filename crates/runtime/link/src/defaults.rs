//! Defaults of runs on this SuperLink: they override the app's values, and a run's own values override them. Only keys
//! of the app are set: official nodes and ServerApps refuse a run with other keys. Pure.

use trellis_wire::fab::Config;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;

/// A configuration with defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completed {
    /// The run's configuration with the added defaults.
    pub config: Config,
    /// The added keys.
    pub added: Vec<String>,
    /// Keys whose default has another type than the app's value.
    pub misfits: Vec<String>,
}

impl Completed {
    /// Describes the changes for the log of the run; `None`: no changes.
    pub fn describe(&self) -> Option<String> {
        let values: Vec<String> =
            self.added.iter().filter_map(|key| Some(format!("{key} = {}", shown(self.config.get(key)?)))).collect();
        let added = (!values.is_empty()).then(|| format!("Defaults of this SuperLink: {}.\n", values.join(", ")));
        let misfits = (!self.misfits.is_empty()).then(|| {
            let keys = self.misfits.join(", ");
            format!("Defaults of this SuperLink with a wrong type for the app, not applied: {keys}.\n")
        });
        let text: String = added.into_iter().chain(misfits).collect();
        (!text.is_empty()).then_some(text)
    }
}

/// Adds defaults for the keys of the app that the run does not set.
pub fn complete(given: Config, of_app: &Config, defaults: &Config) -> Completed {
    let mut completed = Completed { config: given, ..Completed::default() };
    for (key, value) in defaults {
        let Some(expected) = of_app.get(key).filter(|_| !completed.config.contains_key(key)) else { continue };
        match fitting(value, expected) {
            Some(value) => {
                completed.config.insert(key.clone(), value);
                completed.added.push(key.clone());
            }
            None => completed.misfits.push(key.clone()),
        }
    }
    completed
}

/// Converts a value to the type that the app has. A whole number is a valid float.
fn fitting(value: &proto::Scalar, expected: &proto::Scalar) -> Option<proto::Scalar> {
    let scalar = match (value.scalar.as_ref()?, expected.scalar.as_ref()?) {
        (Scalar::Sint64(number), Scalar::Double(_)) => Scalar::Double(*number as f64),
        (value, expected) if std::mem::discriminant(value) == std::mem::discriminant(expected) => value.clone(),
        _ => return None,
    };
    Some(proto::Scalar { scalar: Some(scalar) })
}

fn shown(value: &proto::Scalar) -> String {
    match &value.scalar {
        Some(Scalar::Bool(on)) => on.to_string(),
        Some(Scalar::Sint64(number)) => number.to_string(),
        Some(Scalar::Uint64(number)) => number.to_string(),
        Some(Scalar::Double(number)) => number.to_string(),
        Some(Scalar::String(text)) => format!("{text:?}"),
        Some(Scalar::Bytes(_)) | None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, Scalar)]) -> Config {
        let scalar = |scalar: &Scalar| proto::Scalar { scalar: Some(scalar.clone()) };
        pairs.iter().map(|(key, value)| ((*key).to_owned(), scalar(value))).collect()
    }

    fn text(text: &str) -> Scalar {
        Scalar::String(text.to_owned())
    }

    #[test]
    fn the_run_overrides_the_superlink_and_the_superlink_overrides_the_app() {
        let of_app = config(&[("rounds", Scalar::Sint64(3)), ("lr", Scalar::Double(0.1)), ("name", text("a"))]);
        let defaults = config(&[("rounds", Scalar::Sint64(9)), ("lr", Scalar::Sint64(1)), ("other", text("x"))]);
        for (given, expected, added) in [
            (vec![], vec![("lr", Scalar::Double(1.0)), ("rounds", Scalar::Sint64(9))], vec!["lr", "rounds"]),
            (
                vec![("rounds", Scalar::Sint64(5))],
                vec![("lr", Scalar::Double(1.0)), ("rounds", Scalar::Sint64(5))],
                vec!["lr"],
            ),
            // The run's own values are unchanged, even with a wrong type.
            (
                vec![("new", text("y")), ("lr", text("z")), ("rounds", Scalar::Sint64(1))],
                vec![("lr", text("z")), ("new", text("y")), ("rounds", Scalar::Sint64(1))],
                vec![],
            ),
        ] {
            let completed = complete(config(&given), &of_app, &defaults);
            assert_eq!(
                (completed.config, completed.added),
                (config(&expected), added.iter().map(|key| (*key).to_owned()).collect())
            );
            assert_eq!(completed.misfits, [""; 0]);
        }
    }

    #[test]
    fn defaults_with_a_wrong_type_are_skipped_and_reported() {
        let of_app = config(&[("rounds", Scalar::Sint64(3)), ("on", Scalar::Bool(true)), ("name", text("a"))]);
        let defaults =
            config(&[("rounds", Scalar::Double(1.5)), ("on", Scalar::Bool(false)), ("name", Scalar::Sint64(1))]);
        let completed = complete(Config::new(), &of_app, &defaults);
        assert_eq!(completed.config, config(&[("on", Scalar::Bool(false))]));
        assert_eq!(completed.misfits, ["name", "rounds"]);
        let expected = "\
Defaults of this SuperLink: on = false.
Defaults of this SuperLink with a wrong type for the app, not applied: name, rounds.
";
        assert_eq!(completed.describe().as_deref(), Some(expected));
        assert_eq!(complete(Config::new(), &of_app, &Config::new()).describe(), None);
    }
}
