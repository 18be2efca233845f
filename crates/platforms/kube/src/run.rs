//! The `FederationRun` resource: a run that is submitted to the SuperLink of a federation, once or by a schedule.
//!
//! Types of the spec and the status. [`check`] finds problems; [`machine`] decides.

pub mod check;
pub mod clock;
pub mod machine;
mod status;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::federation::{Raw, Unreadable};

pub const KIND: &str = "FederationRun";
pub const PLURAL: &str = "federationruns";
pub const SHORT_NAME: &str = "fedrun";
/// Finalizer, removed when the run at the SuperLink has ended: the API server cannot clean up there.
pub const FINALIZER: &str = "flwr.exalsius.ai/run";

/// A parsed resource.
#[derive(Debug, Clone, PartialEq)]
pub struct FederationRun {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    /// Seconds since 1970.
    pub created: i64,
    /// Deletion time in seconds since 1970.
    pub deleted: Option<i64>,
    /// It has our finalizer.
    pub held: bool,
    pub spec: RunSpec,
    pub status: RunStatus,
}

/// Required: `federation` and `app`. Without `schedule` there is one run, otherwise one for each scheduled time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    /// Name of a Federation in the same namespace. Immutable.
    pub federation: String,
    pub app: App,
    /// Number of rounds; absent: as the app says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Values that override the configuration of the app: strings, numbers, booleans.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Raw>,
    /// Minute, hour, day of the month, month, day of the week, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// What happens if an earlier run is still active at a scheduled time; absent: `Forbid`.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Retries of a failed run, 0 to 100.
    #[serde(default)]
    pub retries: u32,
    /// Seconds before the first retry, 1 to 86,400; doubled for each further one. Absent: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_seconds: Option<u32>,
    /// Time limit of an attempt, after which it is stopped and counts as failed. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Seconds after the end of the run until the resource is deleted. Absent: never. Not allowed with `schedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<u32>,
    /// Suspends submissions. Active runs continue.
    #[serde(default)]
    pub suspend: bool,
}

/// Exactly one field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct App {
    /// A native app, such as `mlp`. For Trellis SuperLinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// A Flower app of the catalogue, such as `image-classification`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<String>,
    /// A bundle of `flwr build`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapApp>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapApp {
    pub name: String,
    /// Key of `binaryData`; absent: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Concurrency {
    /// The scheduled time is skipped.
    #[default]
    Forbid,
    /// A concurrent run, up to [`machine::MAX_ACTIVE_RUNS`].
    Allow,
}

/// The status. Fields at the top level are those of the newest run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default)]
    pub state: State,
    /// Run id at the SuperLink; a string, because some JSON parsers lose large numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// Round and rounds as `2/10`, for `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// RFC 3339, as all times of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// Next scheduled time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Metrics of the last round, by phase and name: `train.loss`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub result: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Conditions of kstatus (Ready, Reconciling, Stalled) and of Jobs (Complete, Failed).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Active and pending runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<Job>,
    /// Finished runs of the schedule: the newest first, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Past>,
    /// Number of runs.
    #[serde(default)]
    pub count: u64,
    /// Last scheduled time that was executed or skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Not reconciled yet.
    #[default]
    Pending,
    /// Waits for the federation, for the SuperLink, for its time, or for the end of a suspension. The message says for
    /// which.
    Waiting,
    Running,
    Succeeded,
    Failed,
    /// Stopped by a user at the SuperLink.
    Stopped,
}

/// An active run with its failed attempts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// 1 for the first.
    pub number: u64,
    /// 1 for the first.
    pub attempt: u32,
    /// Scheduled time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<String>,
    /// The attempt may have been submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Earliest time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// It was stopped because of its time limit.
    #[serde(default)]
    pub timed_out: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub result: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A finished run of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    pub number: u64,
    pub state: State,
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    pub finished: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub result: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub last_transition_time: String,
}

impl FederationRun {
    /// Parses the resource as the API server returns it.
    pub fn read(resource: &Value) -> Result<FederationRun, Unreadable> {
        let meta = &resource["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let moment = |field: &str| meta[field].as_str().and_then(clock::seconds);
        let spec = serde_json::from_value(resource["spec"].clone());
        let finalizers = meta["finalizers"].as_array();
        Ok(FederationRun {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            created: moment("creationTimestamp").unwrap_or_default(),
            deleted: moment("deletionTimestamp"),
            held: finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER)),
            spec: spec.map_err(|error| Unreadable::explained(&crate::crd::federation_run(), resource, &error))?,
            // The status is ours. An unreadable one is ignored: submitted runs are found again by their mark.
            status: serde_json::from_value(resource["status"].clone()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Fields of `status` that the schema would prune.
    fn cut_off(schema: &Value, status: &Value, place: &str) -> Vec<String> {
        match status {
            Value::Object(fields) if schema["properties"].is_object() => fields
                .iter()
                .flat_map(|(name, value)| match &schema["properties"][name] {
                    Value::Null => vec![format!("{place}.{name}")],
                    inner => cut_off(inner, value, &format!("{place}.{name}")),
                })
                .collect(),
            Value::Array(items) => items.iter().flat_map(|item| cut_off(&schema["items"], item, place)).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn the_api_server_keeps_all_that_is_told() {
        let text = || Some("x".to_owned());
        let result = BTreeMap::from([("train.loss".to_owned(), 0.5)]);
        let status = RunStatus {
            observed_generation: Some(1),
            state: State::Running,
            run_id: text(),
            attempt: Some(1),
            round: Some(1),
            rounds: Some(1),
            progress: text(),
            started: text(),
            finished: text(),
            next: text(),
            result: result.clone(),
            message: "x".to_owned(),
            conditions: vec![Condition { observed_generation: Some(1), ..Condition::default() }],
            active: vec![Job {
                scheduled: text(),
                submitted: text(),
                run_id: text(),
                not_before: text(),
                round: Some(1),
                rounds: Some(1),
                result: result.clone(),
                message: "x".to_owned(),
                ..Job::default()
            }],
            history: vec![Past {
                run_id: text(),
                scheduled: text(),
                started: text(),
                round: Some(1),
                rounds: Some(1),
                result,
                message: "x".to_owned(),
                ..Past::default()
            }],
            count: 1,
            scheduled: text(),
        };
        let scaling = crate::scaling::Decision {
            pool: "a".to_owned(),
            size: 1,
            why: "x".to_owned(),
            memory: crate::scaling::Memory { desired: Some(1), asked: Some(1), changed: Some(1) },
            wake_at: None,
        };
        let status = [
            (crate::crd::federation_run(), serde_json::to_value(status).expect("plain data")),
            (crate::crd::federation(), json!({"scaling": scaling.status(1)})),
        ];
        for (definition, status) in status {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
            assert_eq!(cut_off(schema, &status, "status"), [""; 0]);
        }
    }
}
