//! What is asked of MLflow: paths and bodies, within its limits. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::point::{Point, clean};
use crate::run::{Ended, RunFacts};

/// By this tag a run of ours is found.
const RUN_TAG: &str = "trellis.run_id";
/// Of one call (MLflow: 1,000 metrics, 100 parameters).
pub const MAX_POINTS: usize = 1000;
pub const MAX_PARAMETERS: usize = 100;
/// Older servers take no longer ones.
const MAX_VALUE_CHARS: usize = 500;
/// Points of one page of a metric's history.
pub const PAGE: &str = "10000";
/// For a connection, and for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Of URIs of artifacts that go through the server itself.
const PROXY: &str = "mlflow-artifacts:";

/// The value of a header that proves who calls.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

pub fn basic(user: &str, password: &str) -> Secret {
    Secret(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

pub fn query(call: &str, values: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(values).finish();
    format!("{call}?{query}")
}

/// Ids of runs are digits: nothing in them ends the text of the filter.
pub fn search(experiment: &str, run: &str) -> Value {
    let filter = format!("tags.`{RUN_TAG}` = '{}'", run.replace('\'', ""));
    json!({ "experiment_ids": [experiment], "filter": filter, "max_results": 1 })
}

pub fn create(experiment: &str, run: &RunFacts) -> Value {
    let tags = [
        (RUN_TAG, run.id.as_str()),
        ("trellis.app", &run.app),
        ("trellis.app_version", &run.version),
        ("trellis.federation", &run.federation),
        ("trellis.version", env!("CARGO_PKG_VERSION")),
        ("mlflow.source.name", &run.app),
    ];
    let tags =
        tags.iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| json!({ "key": key, "value": value }));
    json!({
        "experiment_id": experiment,
        "run_name": format!("{} {}", run.app, run.id),
        "start_time": millis(run.submitted_at),
        "tags": tags.collect::<Vec<_>>(),
    })
}

/// The settings of a run, as MLflow takes them.
pub fn parameters(run: &RunFacts) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let cut = |value: &Value| text(value).chars().take(MAX_VALUE_CHARS).collect();
    run.parameters.iter().map(|(name, value)| (clean(name), cut(value))).filter(|(name, _)| !name.is_empty()).collect()
}

pub fn parameter_batch(run: &str, parameters: &[(String, String)]) -> Value {
    let params: Vec<Value> = parameters.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    json!({ "run_id": run, "params": params })
}

pub fn point_batch(run: &str, points: &[&Point]) -> Value {
    let metric = |point: &&Point| {
        let Point { name, step, .. } = point;
        json!({ "key": name, "value": number(point.value), "timestamp": millis(point.at), "step": step })
    };
    json!({ "run_id": run, "metrics": points.iter().map(metric).collect::<Vec<_>>() })
}

pub fn update(run: &str, ended: &Ended) -> Value {
    let status = match ended.status.as_str() {
        "completed" => "FINISHED",
        "stopped" => "KILLED",
        _ => "FAILED",
    };
    json!({ "run_id": run, "status": status, "end_time": millis(ended.at) })
}

/// The path of the artifacts of a run below the proxy; or why there is none.
pub fn artifact_path(uri: &str) -> Result<String, String> {
    let elsewhere = || format!("MLflow keeps the artifacts of this run at {uri}, not behind its own address");
    // `mlflow-artifacts:/1/ab/artifacts`, or with a host before the path.
    let rest = uri.strip_prefix(PROXY).ok_or_else(elsewhere)?;
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.split_once('/').map_or("", |(_, path)| path),
        None => rest,
    };
    let path = path.trim_matches('/');
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_.~/".contains(char);
    if path.is_empty() || !path.chars().all(plain) || path.split('/').any(|part| part == "..") {
        return Err(elsewhere());
    }
    Ok(path.to_owned())
}

/// As protobuf's JSON has numbers that are not finite.
fn number(value: f64) -> Value {
    match value {
        finite if finite.is_finite() => json!(finite),
        nan if nan.is_nan() => json!("NaN"),
        infinite => json!(if infinite > 0.0 { "Infinity" } else { "-Infinity" }),
    }
}

fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_metrics_of_a_step() {
        let point = |value| Point { name: "train/loss".to_owned(), step: 3, value, at: 1.5 };
        let points = [point(0.5), point(f64::NAN), point(f64::NEG_INFINITY)];
        let batch = point_batch("r", &points.iter().collect::<Vec<_>>());
        let values: Vec<&Value> = batch["metrics"].as_array().unwrap().iter().map(|metric| &metric["value"]).collect();
        assert_eq!(values, [&json!(0.5), &json!("NaN"), &json!("-Infinity")]);
        assert_eq!(batch["metrics"][0], json!({"key": "train/loss", "value": 0.5, "timestamp": 1500, "step": 3}));
    }

    #[test]
    fn a_run_is_made_with_tags_by_which_it_is_found() {
        let run = RunFacts { id: "42".to_owned(), app: "a/b".to_owned(), submitted_at: 2.0, ..Default::default() };
        let made = create("7", &run);
        assert_eq!((&made["run_name"], &made["start_time"]), (&json!("a/b 42"), &json!(2000)));
        assert_eq!(made["tags"][0], json!({"key": "trellis.run_id", "value": "42"}));
        assert_eq!(made["tags"].as_array().unwrap().len(), 4, "empty tags are left out");
        assert_eq!(search("7", "42")["filter"], "tags.`trellis.run_id` = '42'");
    }

    #[test]
    fn parameters_fit_the_limits_of_mlflow() {
        let parameters_of = |value: Value| {
            parameters(&RunFacts { parameters: [("a?".to_owned(), value)].into(), ..Default::default() })["a_"].clone()
        };
        assert_eq!(parameters_of(json!("x")), "x");
        assert_eq!(parameters_of(json!(1.5)), "1.5");
        assert_eq!(parameters_of(json!("é".repeat(600))).chars().count(), MAX_VALUE_CHARS);
        let alike = [("a?".to_owned(), json!(1)), ("a!".to_owned(), json!(2))].into();
        assert_eq!(parameters(&RunFacts { parameters: alike, ..Default::default() }).len(), 1);
    }

    #[test]
    fn artifacts_go_through_the_server_or_nowhere() {
        for (uri, expected) in [
            ("mlflow-artifacts:/1/ab/artifacts", Some("1/ab/artifacts")),
            ("mlflow-artifacts://host:5000/1/ab/artifacts", Some("1/ab/artifacts")),
            ("s3://bucket/1/ab", None),
            ("mlflow-artifacts:/../x", None),
            ("mlflow-artifacts:/a b", None),
            ("mlflow-artifacts:", None),
        ] {
            assert_eq!(artifact_path(uri).ok().as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn calls_are_one_path_whatever_a_name_is() {
        assert_eq!(query("/x", &[("name", "a b&c/d")]), "/x?name=a+b%26c%2Fd");
        assert_eq!(basic("me", "secret").0, "Basic bWU6c2VjcmV0");
        assert_eq!(format!("{:?}", basic("me", "secret")), "Secret");
    }
}
