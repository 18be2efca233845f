//! Computes `.status` of a federation from the observed state.
//!
//! Pure: the time is an argument. A condition keeps the time of its last transition.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use trellis_diagnostic::Diagnostic;

use crate::federation::{Federation, Mode, Pool};
use crate::object::{Identity, Object};
use crate::progress::Progress;
use crate::render::Durability;

/// Limit of condition messages; the API server takes 32 KiB.
const MESSAGE_CHARACTERS: usize = 1024;

pub const READY: &str = "Ready";
pub const RECONCILING: &str = "Reconciling";
pub const STALLED: &str = "Stalled";
pub const ADVICE: &str = "Advice";
pub const STATE_DURABLE: &str = "StateDurable";

/// A condition without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub kind: String,
    /// `None`: unknown.
    pub holds: Option<bool>,
    pub reason: String,
    pub message: String,
}

impl Condition {
    pub fn new(kind: &str, holds: bool, reason: &str, message: impl Into<String>) -> Self {
        Condition { kind: kind.to_owned(), holds: Some(holds), reason: reason.to_owned(), message: message.into() }
    }
}

/// A failure of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The object that could not be reconciled.
    pub about: Option<Identity>,
    pub reason: String,
    pub message: String,
    /// A retry does not help; the user must change something.
    pub permanent: bool,
}

impl Failure {
    pub fn of_problem(problem: &Diagnostic) -> Self {
        let message = format!("{}; {}", problem.finding(), problem.advice);
        Failure { about: None, reason: "InvalidSpec".to_owned(), message, permanent: true }
    }
}

/// Input of the status.
#[derive(Debug, Clone)]
pub struct StatusInput<'a> {
    pub federation: &'a Federation,
    /// The live objects of the federation.
    pub objects: &'a BTreeMap<Identity, Object>,
    pub durability: Durability,
    pub failures: &'a [Failure],
    /// What the operator waits for.
    pub waiting: &'a [String],
    /// Conditions of other parts: certificates, versions.
    pub conditions: &'a [Condition],
    /// Other fields of `.status`.
    pub fields: &'a Map<String, Value>,
}

/// State of one workload.
struct Part {
    ready: i64,
    desired: i64,
    /// Whether all pods have the newest revision.
    settled: bool,
    reason: &'static str,
    message: String,
}

impl Part {
    fn is_ready(&self) -> bool {
        self.reason == "AllReady"
    }
}

/// The whole `.status`. `previous` is the present one; `now` is RFC 3339.
pub fn status(input: &StatusInput<'_>, previous: &Value, now: &str) -> Value {
    let federation = input.federation;
    let pools = &federation.spec.supernodes.pools;
    let parts: Vec<Part> = pools.iter().map(|pool| part_of_pool(input, pool)).collect();
    let superlink = part_of_superlink(input);
    let (ready, desired) = parts.iter().fold((0, 0), |(r, d), part| (r + part.ready, d + part.desired));

    let mut status = input.fields.clone();
    status.insert("observedGeneration".to_owned(), federation.generation.into());
    status.insert("supernodes".to_owned(), format!("{ready}/{desired}").into());
    status.insert("readySupernodes".to_owned(), ready.into());
    status.insert("desiredSupernodes".to_owned(), desired.into());
    if let Some(endpoints) = endpoints(input) {
        status.insert("endpoints".to_owned(), endpoints);
    }
    let statuses = pools.iter().zip(&parts).map(|(pool, part)| {
        let mode = federation.spec.mode;
        let earlier = previous["pools"].as_array().and_then(|all| all.iter().find(|old| old["name"] == pool.name.as_str()));
        let condition = Condition::new(READY, part.is_ready(), part.reason, part.message.clone());
        let conditions = with_times(&[condition], &earlier.unwrap_or(&Value::Null)["conditions"], federation.generation, now);
        json!({"name": pool.name, "kind": kind_of(mode), "desired": part.desired, "ready": part.ready, "conditions": conditions})
    });
    status.insert("pools".to_owned(), statuses.collect());
    if let Some(scaled) = scaled(input) {
        status.entry("selector").or_insert(scaled.0);
        status.entry("scaling").or_insert(scaled.1);
    }
    let conditions = conditions(input, &superlink, pools, &parts);
    let conditions = with_times(&conditions, &previous["conditions"], federation.generation, now);
    status.insert("conditions".to_owned(), conditions);
    Value::Object(status)
}

/// Advice: versions that do not fit well, fields without effect.
pub fn advice(notes: &[Diagnostic]) -> Condition {
    let message: Vec<String> = notes.iter().map(|note| format!("{}; {}", note.finding(), note.advice)).collect();
    match message.is_empty() {
        true => Condition::new(ADVICE, false, "Nothing", "no advice"),
        false => Condition::new(ADVICE, true, "SeeMessage", message.join("; ")),
    }
}

/// `.status` of an invalid resource: other fields keep their values.
pub fn status_of_unreadable(why: &str, generation: i64, previous: &Value, now: &str) -> Value {
    let message = format!("cannot read the resource: {why}");
    let conditions = [
        Condition::new(READY, false, "Unreadable", message.clone()),
        Condition::new(RECONCILING, false, "Unreadable", "nothing is changed until the resource can be read"),
        Condition::new(STALLED, true, "Unreadable", message),
    ];
    let mut status = previous.as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".to_owned(), generation.into());
    let conditions = with_times(&conditions, &previous["conditions"], generation, now);
    status.insert("conditions".to_owned(), conditions);
    Value::Object(status)
}

/// The merge patch from `previous` to `wanted`; `None` if they are equal.
pub fn patch(previous: &Value, wanted: &Value) -> Option<Value> {
    let (Some(old), Some(new)) = (previous.as_object(), wanted.as_object()) else {
        return (previous != wanted).then(|| wanted.clone());
    };
    let mut changes = Map::new();
    for (key, value) in new {
        match old.get(key) {
            None => drop(changes.insert(key.clone(), value.clone())),
            Some(old) => {
                if let Some(change) = patch(old, value) {
                    changes.insert(key.clone(), change);
                }
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

pub fn kind_of(mode: Mode) -> &'static str {
    match mode {
        Mode::DaemonSet => "DaemonSet",
        Mode::StatefulSet => "StatefulSet",
    }
}

fn workload<'a>(input: &StatusInput<'a>, kind: &str, name: String) -> Option<&'a Object> {
    input.objects.get(&Identity { api_version: "apps/v1".to_owned(), kind: kind.to_owned(), name })
}

/// The failure with one object.
fn failure_of<'a>(input: &StatusInput<'a>, kind: &str, name: &str) -> Option<&'a Failure> {
    let fits = |about: &Identity| about.kind == kind && about.name == name;
    input.failures.iter().find(|failure| failure.about.as_ref().is_some_and(fits))
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn part_of_superlink(input: &StatusInput<'_>) -> Part {
    let name = input.federation.superlink_name();
    let live = workload(input, "StatefulSet", name.clone()).map(|object| &object.0);
    let progress = live.map(Progress::of);
    let ready = progress.map_or(0, |progress| progress.ready);
    let settled = progress.is_some_and(|progress| progress.is_updated() && progress.pods == progress.desired);
    let (reason, message) = match failure_of(input, "StatefulSet", &name) {
        _ if ready >= 1 => ("AllReady", String::new()),
        Some(failure) => ("Failed", format!("SuperLink StatefulSet not ready: {}", failure.message)),
        None => ("NotReady", "SuperLink StatefulSet not ready".to_owned()),
    };
    Part { ready, desired: 1, settled, reason, message }
}

fn part_of_pool(input: &StatusInput<'_>, pool: &Pool) -> Part {
    let federation = input.federation;
    let (kind, name) = (kind_of(federation.spec.mode), federation.pool_name(&pool.name));
    let live = workload(input, kind, name.clone()).map(|object| &object.0);
    let progress = live.map(Progress::of);
    let is_updated = progress.is_some_and(|progress| progress.is_updated());
    let (default, settled) = match federation.spec.mode {
        Mode::StatefulSet => {
            let has_all_pods = progress.is_some_and(|progress| progress.pods == progress.desired);
            (pool.replicas.map_or(1, i64::from), is_updated && has_all_pods)
        }
        Mode::DaemonSet => (0, is_updated),
    };
    let (ready, desired) = progress.map_or((0, default), |progress| (progress.ready, progress.desired));
    let lagging = format!("Pool {} not fully ready ({ready}/{desired})", pool.name);
    let (reason, message) = match failure_of(input, kind, &name) {
        Some(failure) => ("Failed", format!("{lagging}: {}", failure.message)),
        None if live.is_none() => ("NotReady", lagging),
        None if ready < desired => ("NotReady", lagging),
        None if desired == 0 && federation.spec.mode == Mode::DaemonSet => (
            "NoNodes",
            format!(
                "{lagging}: no node of the cluster fits it; check nodeSelector, affinity and tolerations of the pool"
            ),
        ),
        None => ("AllReady", format!("{ready} of {desired} nodes are ready")),
    };
    Part { ready, desired, settled, reason, message }
}

/// Addresses of the SuperLink for programs outside of its pods.
fn endpoints(input: &StatusInput<'_>) -> Option<Value> {
    let federation = input.federation;
    let name = federation.superlink_name();
    let id = Identity { api_version: "v1".to_owned(), kind: "Service".to_owned(), name: name.clone() };
    let ports = input.objects.get(&id)?.0["spec"]["ports"].as_array()?;
    let port = |name: &str| ports.iter().find(|port| port["name"] == name).and_then(|port| port["port"].as_i64());
    let at = |port: i64| Value::from(format!("{name}.{}.svc:{port}", federation.namespace));
    let mut endpoints = Map::new();
    for known in ["fleet", "control", "http"] {
        if let Some(port) = port(known) {
            endpoints.insert(known.to_owned(), at(port));
        }
    }
    let main = port("control").or_else(|| port("http"))?;
    endpoints.insert("superlinkService".to_owned(), at(main));
    Some(Value::Object(endpoints))
}

/// Selector and replicas for the scale subresource.
fn scaled(input: &StatusInput<'_>) -> Option<(Value, Value)> {
    let pool = input.federation.spec.scaled_pool()?;
    let object = &workload(input, "StatefulSet", input.federation.pool_name(&pool.name))?.0;
    let labels = object["spec"]["selector"]["matchLabels"].as_object()?;
    let selector: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    Some((selector.join(",").into(), json!({"replicas": number(&object["status"]["replicas"])})))
}

fn conditions(input: &StatusInput<'_>, superlink: &Part, pools: &[Pool], parts: &[Part]) -> Vec<Condition> {
    let permanent: Vec<&Failure> = input.failures.iter().filter(|failure| failure.permanent).collect();
    let temporary: Vec<&Failure> = input.failures.iter().filter(|failure| !failure.permanent).collect();
    let all = |failures: &[&Failure]| failures.iter().map(|t| t.message.as_str()).collect::<Vec<_>>().join("; ");

    let lagging = parts.iter().find(|part| !part.is_ready()).or(Some(superlink).filter(|part| !part.is_ready()));
    let ready = match (lagging, permanent.first(), temporary.first()) {
        (_, Some(failure), _) => Condition::new(READY, false, &failure.reason, all(&permanent)),
        (Some(part), _, _) => Condition::new(READY, false, "NotReady", part.message.clone()),
        (None, None, Some(failure)) => Condition::new(READY, false, &failure.reason, all(&temporary)),
        (None, None, None) => Condition::new(READY, true, "AllReady", "All components are ready"),
    };

    let moving: Vec<String> = std::iter::once(superlink)
        .filter(|part| !part.settled || !part.is_ready())
        .map(|_| "SuperLink".to_owned())
        .chain(
            pools
                .iter()
                .zip(parts)
                .filter(|(_, part)| part.reason != "NoNodes" && (!part.settled || !part.is_ready()))
                .map(|(pool, part)| format!("pool {} ({}/{})", pool.name, part.ready, part.desired)),
        )
        .collect();
    let reconciling = match () {
        () if !permanent.is_empty() => {
            Condition::new(RECONCILING, false, "Stalled", "waits for a change of the resource or the cluster")
        }
        () if !temporary.is_empty() => Condition::new(RECONCILING, true, "Retrying", all(&temporary)),
        () if !input.waiting.is_empty() => {
            Condition::new(RECONCILING, true, "Waiting", format!("waits for {}", input.waiting.join("; ")))
        }
        () if !moving.is_empty() => {
            Condition::new(RECONCILING, true, "Progressing", format!("on their way: {}", moving.join(", ")))
        }
        () => Condition::new(RECONCILING, false, "Done", "the cluster matches the resource"),
    };
    let stalled = match permanent.first() {
        Some(failure) => Condition::new(STALLED, true, &failure.reason, all(&permanent)),
        None => Condition::new(STALLED, false, "NotStalled", "nothing stands in the way"),
    };
    let mut conditions = vec![ready, reconciling, stalled, durable(input.durability)];
    for condition in input.conditions {
        conditions.retain(|known| known.kind != condition.kind);
        conditions.push(condition.clone());
    }
    conditions
}

fn durable(durability: Durability) -> Condition {
    match durability {
        Durability::Claim => {
            Condition::new(STATE_DURABLE, true, "VolumeClaim", "the SuperLink's state is in a volume claim")
        }
        Durability::Given => Condition::new(
            STATE_DURABLE,
            true,
            "AsGiven",
            "the SuperLink's state is where the resource's arguments and volumes say",
        ),
        Durability::Pod => Condition::new(
            STATE_DURABLE,
            false,
            "InPod",
            "the SuperLink's state is lost with its pod; set persistence.enabled, or give the cluster a default StorageClass before \
             the federation is created",
        ),
    }
}

/// Conditions in the form of the API. An unchanged condition keeps its time.
fn with_times(conditions: &[Condition], previous: &Value, generation: i64, now: &str) -> Value {
    let statuses = conditions.iter().map(|condition| {
        let status = match condition.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let earlier = previous.as_array().and_then(|all| all.iter().find(|old| old["type"] == condition.kind.as_str()));
        let since = earlier.filter(|old| old["status"] == status).and_then(|old| old["lastTransitionTime"].as_str());
        json!({
            "type": condition.kind,
            "status": status,
            "reason": condition.reason,
            "message": condition.message.chars().take(MESSAGE_CHARACTERS).collect::<String>(),
            "observedGeneration": generation,
            "lastTransitionTime": since.unwrap_or(now),
        })
    });
    statuses.collect()
}
