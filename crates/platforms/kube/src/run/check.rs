//! What is wrong with a `FederationRun` beyond what the API server can refuse, all of it at once.

use serde_json::Value;
use trellis_spec::Schedule;

use super::RunSpec;
use crate::render::Problem;

/// More tries are no help.
pub const MOST_RETRIES: u32 = 100;

/// Everything that keeps it from being submitted. Whether the app exists is found out by who has it.
pub fn problems(spec: &RunSpec) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut refuse = |place: &str, what: String, to_do: &str| {
        found.push(Problem { place: place.to_owned(), what, to_do: to_do.to_owned() });
    };
    let app = &spec.app;
    let given = [app.native.is_some(), app.catalogue.is_some(), app.config_map.is_some()];
    match given.iter().filter(|given| **given).count() {
        1 => {}
        0 => refuse("spec.app", "it names no app".to_owned(), "give one of native, catalogue and configMap"),
        _ => refuse("spec.app", "it names several apps".to_owned(), "keep one of native, catalogue and configMap"),
    }
    if let Some(Err(why)) = spec.schedule.as_deref().map(Schedule::parse) {
        refuse("spec.schedule", format!("it is no schedule: {why}"), "write it like 0 9 * * mon-fri (in UTC)");
    }
    if spec.schedule.is_some() && spec.ttl_seconds_after_finished.is_some() {
        let to_do = "leave out one of them: a schedule keeps its last ten runs and no more";
        refuse("spec.ttlSecondsAfterFinished", "a schedule has no end after which it could go".to_owned(), to_do);
    }
    if spec.retries > MOST_RETRIES {
        refuse("spec.retries", format!("it is more than {MOST_RETRIES}"), "write less");
    }
    for (key, value) in &spec.config {
        if text(value).is_none() {
            refuse(&format!("spec.config.{key}"), "it is no value".to_owned(), "give a text, a number or a truth");
        }
    }
    if spec.rounds.is_some() && ROUNDS.iter().any(|name| spec.config.contains_key(*name)) {
        refuse("spec.rounds", "spec.config says how many already".to_owned(), "keep one of them");
    }
    found
}

/// Names of the number of rounds in an app's configuration; the first is the usual one.
pub const ROUNDS: [&str; 2] = ["num-server-rounds", "rounds"];

/// A value of the configuration, as it would be typed.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_wrong_is_told_at_once() {
        let spec = json!({
            "federation": "demo", "app": {"native": "mlp", "catalogue": "x"}, "schedule": "never", "rounds": 3,
            "ttlSecondsAfterFinished": 5, "retries": 101, "config": {"a": [1], "b": 1, "rounds": "4"},
        });
        let found = problems(&serde_json::from_value(spec).expect("it can be read"));
        let places: Vec<&str> = found.iter().map(|problem| problem.place.as_str()).collect();
        let expected = [
            "spec.app",
            "spec.schedule",
            "spec.ttlSecondsAfterFinished",
            "spec.retries",
            "spec.config.a",
            "spec.rounds",
        ];
        assert_eq!(places, expected);
        let sound = json!({"federation": "demo", "app": {"native": "mlp"}, "schedule": "0 9 * * mon-fri"});
        assert_eq!(problems(&serde_json::from_value(sound).expect("it can be read")), []);
    }
}
