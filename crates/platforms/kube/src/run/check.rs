//! Problems of a `FederationRun` that the API server does not find.

use serde_json::Value;
use trellis_spec::Schedule;

use super::RunSpec;
use trellis_diagnostic::Diagnostic;

/// Limit of retries.
pub const MAX_RETRIES: u32 = 100;

/// All problems that prevent a submission. Whether the app exists is checked elsewhere.
pub fn problems(spec: &RunSpec) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut refuse = |place: &str, what: String, to_do: &str| {
        found.push(Diagnostic::error(place.to_owned(), what, to_do.to_owned()));
    };
    let app = &spec.app;
    let given = [app.native.is_some(), app.catalogue.is_some(), app.config_map.is_some()];
    match given.iter().filter(|given| **given).count() {
        1 => {}
        0 => refuse("spec.app", "it names no app".to_owned(), "give one of native, catalogue and configMap"),
        _ => refuse("spec.app", "it names several apps".to_owned(), "keep one of native, catalogue and configMap"),
    }
    if let Some(Err(why)) = spec.schedule.as_deref().map(Schedule::parse) {
        refuse("spec.schedule", format!("invalid schedule: {why}"), "write it like 0 9 * * mon-fri (in UTC)");
    }
    if spec.schedule.is_some() && spec.ttl_seconds_after_finished.is_some() {
        let to_do = "leave out one of them: a schedule keeps its last ten runs and no more";
        refuse("spec.ttlSecondsAfterFinished", "a schedule never ends, so it has no time to live".to_owned(), to_do);
    }
    if spec.retries > MAX_RETRIES {
        refuse("spec.retries", format!("it is more than {MAX_RETRIES}"), "write less");
    }
    for (key, value) in &spec.config {
        if text(value).is_none() {
            refuse(&format!("spec.config.{key}"), "it is not a value".to_owned(), "give text, a number, true or false");
        }
    }
    if spec.rounds.is_some() && ROUNDS.iter().any(|name| spec.config.contains_key(*name)) {
        refuse("spec.rounds", "spec.config sets the number of rounds too".to_owned(), "keep one of them");
    }
    found
}

/// Keys of the number of rounds in the configuration of an app; the first is the default.
pub const ROUNDS: [&str; 2] = ["num-server-rounds", "rounds"];

/// A value of the configuration as users type it.
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
