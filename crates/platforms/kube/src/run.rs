//! The `FederationRun` resource: a run that is submitted to the SuperLink of a federation, once or again and again.
//!
//! Here is what users write and what they are told. What is wrong with it is found in [`check`]; what is done, and when, is decided in [`machine`].

pub mod check;
pub mod clock;
pub mod machine;
mod told;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::federation::{Raw, Unreadable};

pub const KIND: &str = "FederationRun";
pub const PLURAL: &str = "federationruns";
pub const SHORT_NAME: &str = "fedrun";
/// Held until the run at the SuperLink is no more: the API server cannot clean up there.
pub const FINALIZER: &str = "flwr.exalsius.ai/run";

/// One resource, read.
#[derive(Debug, Clone, PartialEq)]
pub struct FederationRun {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    /// Seconds since 1970.
    pub created: i64,
    /// When it was told to go, in seconds since 1970.
    pub deleted: Option<i64>,
    /// It has our finalizer.
    pub held: bool,
    pub spec: RunSpec,
    pub status: RunStatus,
}

/// Required: `federation` and `app`. Without `schedule` it is one run; with it, one each time that the schedule is due.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    /// The name of a Federation of the same namespace. Cannot be changed.
    pub federation: String,
    pub app: App,
    /// How many rounds; absent: as many as the app says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Values in place of those in the app's configuration: texts, numbers, truths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Raw>,
    /// Minute, hour, day of the month, month, day of the week, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// What becomes of a time that the schedule names while an earlier run is under way; absent: `Forbid`.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// How many times a run that failed is tried again, 0 to 100.
    #[serde(default)]
    pub retries: u32,
    /// Before the first new try, 1 to 86,400; doubled for each one after it. Absent: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_seconds: Option<u32>,
    /// A try that takes longer is stopped and counts as failed. Absent: it may take as long as it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// The resource is deleted so long after its run has ended. Absent: it stays. Cannot be with `schedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<u32>,
    /// Nothing new is submitted. What is under way goes on.
    #[serde(default)]
    pub suspend: bool,
}

/// Exactly one of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct App {
    /// An app of the program itself, like `mlp`. For Trellis SuperLinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// A Flower app that comes with the program, like `image-classification`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<String>,
    /// A Flower app as `flwr build` packs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapApp>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapApp {
    pub name: String,
    /// Of `binaryData`; absent: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Concurrency {
    /// The time is passed over.
    #[default]
    Forbid,
    /// One more run, up to [`machine::MOST_ACTIVE`] at once.
    Allow,
}

/// What is told. The fields on the outside are those of the newest run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default)]
    pub state: State,
    /// At the SuperLink; a text, since not every reader of JSON has numbers that large.
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
    /// RFC 3339, like all times here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// When the schedule is due next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Metrics of the last round, by phase and name: `train.loss`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub result: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// As kstatus has them (Ready, Reconciling, Stalled), and as Jobs have them (Complete, Failed).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Runs that are under way or about to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<Job>,
    /// Runs of the schedule that are over: the newest first, ten at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Past>,
    /// How many runs there were.
    #[serde(default)]
    pub count: u64,
    /// The last time of the schedule that was heeded or passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nobody has looked at it yet.
    #[default]
    Pending,
    /// For the federation, for the SuperLink, for its time, or for the end of a suspension: the message says it.
    Waiting,
    Running,
    Succeeded,
    Failed,
    /// By somebody, at the SuperLink.
    Stopped,
}

/// A run that is not over: tries that failed belong to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// 1 for the first.
    pub number: u64,
    /// 1 for the first.
    pub attempt: u32,
    /// The time that the schedule named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<String>,
    /// The try may be at the SuperLink from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// No new try before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// It was told to stop because it takes too long.
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

/// A run of a schedule that is over.
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
    /// From the resource as the API server gives it.
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
            // Only we write it. One that cannot be read is as none: what is at the SuperLink is found again by its mark.
            status: serde_json::from_value(resource["status"].clone()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Fields of `told` that the schema would cut off.
    fn cut_off(schema: &Value, told: &Value, place: &str) -> Vec<String> {
        match told {
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
        let told = [
            (crate::crd::federation_run(), serde_json::to_value(status).expect("plain data")),
            (crate::crd::federation(), json!({"scaling": scaling.told(1)})),
        ];
        for (definition, told) in told {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
            assert_eq!(cut_off(schema, &told, "status"), [""; 0]);
        }
    }
}
