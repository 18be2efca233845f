//! What is told about a federation in its resource: from what is seen to `.status`.
//!
//! Pure. The time is an argument, and a condition keeps the time at which it last changed its mind.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::federation::{Federation, Mode, Pool};
use crate::object::{Identity, Object};
use crate::render::{Durability, Problem};

/// What a condition may say at most; the API server takes 32 KiB.
const MESSAGE_CHARACTERS: usize = 1024;

pub const READY: &str = "Ready";
pub const RECONCILING: &str = "Reconciling";
pub const STALLED: &str = "Stalled";
pub const ADVICE: &str = "Advice";
pub const STATE_DURABLE: &str = "StateDurable";

/// One thing that is said, without the times.
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

/// Something that went wrong in a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which object could not be brought to what it should be.
    pub about: Option<Identity>,
    pub reason: String,
    pub message: String,
    /// Only the user can end it; trying again does not help.
    pub lasting: bool,
}

impl Trouble {
    pub fn of_problem(problem: &Problem) -> Self {
        let message = format!("{}: {}; {}", problem.place, problem.what, problem.to_do);
        Trouble { about: None, reason: "InvalidSpec".to_owned(), message, lasting: true }
    }
}

/// All that a status is made from.
#[derive(Debug, Clone)]
pub struct Picture<'a> {
    pub federation: &'a Federation,
    /// The federation's objects as they are.
    pub objects: &'a BTreeMap<Identity, Object>,
    pub durability: Durability,
    pub troubles: &'a [Trouble],
    /// What the operator waits for.
    pub waiting: &'a [String],
    /// What others say: certificates, versions.
    pub conditions: &'a [Condition],
    /// What others tell beside conditions, by field of `.status`.
    pub fields: &'a Map<String, Value>,
}

/// How one part of a federation is.
struct Part {
    ready: i64,
    desired: i64,
    /// Whether all pods are as wanted, not only enough of them ready.
    settled: bool,
    reason: &'static str,
    message: String,
}

impl Part {
    fn is_ready(&self) -> bool {
        self.reason == "AllReady"
    }
}

/// `.status`, whole. `previous` is the one that is there; `now` is RFC 3339.
pub fn status(picture: &Picture<'_>, previous: &Value, now: &str) -> Value {
    let federation = picture.federation;
    let pools = &federation.spec.supernodes.pools;
    let parts: Vec<Part> = pools.iter().map(|pool| part_of_pool(picture, pool)).collect();
    let superlink = part_of_superlink(picture);
    let (ready, desired) = parts.iter().fold((0, 0), |(r, d), part| (r + part.ready, d + part.desired));

    let mut status = picture.fields.clone();
    status.insert("observedGeneration".to_owned(), federation.generation.into());
    status.insert("supernodes".to_owned(), format!("{ready}/{desired}").into());
    status.insert("readySupernodes".to_owned(), ready.into());
    status.insert("desiredSupernodes".to_owned(), desired.into());
    if let Some(endpoints) = endpoints(picture) {
        status.insert("endpoints".to_owned(), endpoints);
    }
    let told = pools.iter().zip(&parts).map(|(pool, part)| {
        let mode = federation.spec.mode;
        let earlier = previous["pools"].as_array().and_then(|all| all.iter().find(|old| old["name"] == pool.name.as_str()));
        let condition = Condition::new(READY, part.is_ready(), part.reason, part.message.clone());
        let conditions = with_times(&[condition], &earlier.unwrap_or(&Value::Null)["conditions"], federation.generation, now);
        json!({"name": pool.name, "kind": kind_of(mode), "desired": part.desired, "ready": part.ready, "conditions": conditions})
    });
    status.insert("pools".to_owned(), told.collect());
    if let Some(scaled) = scaled(picture) {
        status.entry("selector").or_insert(scaled.0);
        status.entry("scaling").or_insert(scaled.1);
    }
    let conditions = conditions(picture, &superlink, pools, &parts);
    let conditions = with_times(&conditions, &previous["conditions"], federation.generation, now);
    status.insert("conditions".to_owned(), conditions);
    Value::Object(status)
}

/// What works and could be better: versions that do not fit well, fields without effect.
pub fn advice(notes: &[Problem]) -> Condition {
    let message: Vec<String> =
        notes.iter().map(|note| format!("{}: {}; {}", note.place, note.what, note.to_do)).collect();
    match message.is_empty() {
        true => Condition::new(ADVICE, false, "Nothing", "nothing to remark"),
        false => Condition::new(ADVICE, true, "SeeMessage", message.join("; ")),
    }
}

/// `.status` of a resource that cannot be read: what was known stays.
pub fn status_of_unreadable(why: &str, generation: i64, previous: &Value, now: &str) -> Value {
    let message = format!("the resource cannot be read: {why}");
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

/// What turns `previous` into `wanted` as a merge patch; `None` where nothing changes.
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

fn workload<'a>(picture: &Picture<'a>, kind: &str, name: String) -> Option<&'a Object> {
    picture.objects.get(&Identity { api_version: "apps/v1".to_owned(), kind: kind.to_owned(), name })
}

/// Trouble with one object, to be told where that object is told of.
fn trouble_with<'a>(picture: &Picture<'a>, kind: &str, name: &str) -> Option<&'a Trouble> {
    let fits = |about: &Identity| about.kind == kind && about.name == name;
    picture.troubles.iter().find(|trouble| trouble.about.as_ref().is_some_and(fits))
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Whether the controller of a StatefulSet has seen its last change and brought it to all pods.
fn rolled_out(object: &Value) -> bool {
    let (status, wanted) = (&object["status"], object["spec"]["replicas"].as_i64().unwrap_or(1));
    number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"])
        && number(&status["replicas"]) == wanted
        && (number(&status["updatedReplicas"]) >= wanted || status["updateRevision"] == status["currentRevision"])
}

fn part_of_superlink(picture: &Picture<'_>) -> Part {
    let name = picture.federation.superlink_name();
    let live = workload(picture, "StatefulSet", name.clone()).map(|object| &object.0);
    let ready = live.map_or(0, |live| number(&live["status"]["readyReplicas"]));
    let settled = live.is_some_and(rolled_out);
    let (reason, message) = match trouble_with(picture, "StatefulSet", &name) {
        _ if ready >= 1 => ("AllReady", String::new()),
        Some(trouble) => ("Failed", format!("SuperLink StatefulSet not ready: {}", trouble.message)),
        None => ("NotReady", "SuperLink StatefulSet not ready".to_owned()),
    };
    Part { ready, desired: 1, settled, reason, message }
}

fn part_of_pool(picture: &Picture<'_>, pool: &Pool) -> Part {
    let federation = picture.federation;
    let (kind, name) = (kind_of(federation.spec.mode), federation.pool_name(&pool.name));
    let live = workload(picture, kind, name.clone()).map(|object| &object.0);
    let none = Value::Null;
    let (spec, seen) = live.map_or((&none, &none), |live| (&live["spec"], &live["status"]));
    let (ready, desired, settled) = match federation.spec.mode {
        Mode::StatefulSet => {
            let desired = spec["replicas"].as_i64().unwrap_or(pool.replicas.map_or(1, i64::from));
            (number(&seen["readyReplicas"]), desired, live.is_some_and(rolled_out))
        }
        Mode::DaemonSet => {
            let desired = number(&seen["desiredNumberScheduled"]);
            let current =
                number(&seen["observedGeneration"]) >= number(&live.unwrap_or(&none)["metadata"]["generation"]);
            let settled = live.is_some() && current && number(&seen["updatedNumberScheduled"]) >= desired;
            (number(&seen["numberReady"]), desired, settled)
        }
    };
    let lagging = format!("Pool {} not fully ready ({ready}/{desired})", pool.name);
    let (reason, message) = match trouble_with(picture, kind, &name) {
        Some(trouble) => ("Failed", format!("{lagging}: {}", trouble.message)),
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

/// Where programs outside of the pods find the SuperLink.
fn endpoints(picture: &Picture<'_>) -> Option<Value> {
    let federation = picture.federation;
    let name = federation.superlink_name();
    let id = Identity { api_version: "v1".to_owned(), kind: "Service".to_owned(), name: name.clone() };
    let ports = picture.objects.get(&id)?.0["spec"]["ports"].as_array()?;
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

/// What the scale subresource shows: selector, nodes.
fn scaled(picture: &Picture<'_>) -> Option<(Value, Value)> {
    let pool = picture.federation.spec.scaled_pool()?;
    let object = &workload(picture, "StatefulSet", picture.federation.pool_name(&pool.name))?.0;
    let labels = object["spec"]["selector"]["matchLabels"].as_object()?;
    let selector: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    Some((selector.join(",").into(), json!({"replicas": number(&object["status"]["replicas"])})))
}

fn conditions(picture: &Picture<'_>, superlink: &Part, pools: &[Pool], parts: &[Part]) -> Vec<Condition> {
    let lasting: Vec<&Trouble> = picture.troubles.iter().filter(|trouble| trouble.lasting).collect();
    let passing: Vec<&Trouble> = picture.troubles.iter().filter(|trouble| !trouble.lasting).collect();
    let all = |troubles: &[&Trouble]| troubles.iter().map(|t| t.message.as_str()).collect::<Vec<_>>().join("; ");

    let lagging = parts.iter().find(|part| !part.is_ready()).or(Some(superlink).filter(|part| !part.is_ready()));
    let ready = match (lagging, lasting.first(), passing.first()) {
        (_, Some(trouble), _) => Condition::new(READY, false, &trouble.reason, all(&lasting)),
        (Some(part), _, _) => Condition::new(READY, false, "NotReady", part.message.clone()),
        (None, None, Some(trouble)) => Condition::new(READY, false, &trouble.reason, all(&passing)),
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
        () if !lasting.is_empty() => {
            Condition::new(RECONCILING, false, "Stalled", "waits for a change of the resource or the cluster")
        }
        () if !passing.is_empty() => Condition::new(RECONCILING, true, "Retrying", all(&passing)),
        () if !picture.waiting.is_empty() => {
            Condition::new(RECONCILING, true, "Waiting", format!("waits for {}", picture.waiting.join("; ")))
        }
        () if !moving.is_empty() => {
            Condition::new(RECONCILING, true, "Progressing", format!("on their way: {}", moving.join(", ")))
        }
        () => Condition::new(RECONCILING, false, "Done", "the cluster is as the resource says"),
    };
    let stalled = match lasting.first() {
        Some(trouble) => Condition::new(STALLED, true, &trouble.reason, all(&lasting)),
        None => Condition::new(STALLED, false, "NotStalled", "nothing stands in the way"),
    };
    let mut conditions = vec![ready, reconciling, stalled, durable(picture.durability)];
    for condition in picture.conditions {
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
             the federation is made",
        ),
    }
}

/// As the API has them. A condition that says the same as before keeps its time.
fn with_times(conditions: &[Condition], previous: &Value, generation: i64, now: &str) -> Value {
    let told = conditions.iter().map(|condition| {
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
    told.collect()
}
