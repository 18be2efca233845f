//! Merges the pod template of the user into the rendered one. Containers with our names are changed, others are added.

use serde_json::{Map, Value};

use super::env::{Key, add, put};
use super::pod::is_empty;

/// Lists of a pod to which entries of the user are added. Rendered entries stay.
const ADDED: [&str; 3] = ["volumes", "imagePullSecrets", "resourceClaims"];
/// Lists of a container that are merged by this key. Entries of the user take precedence.
const MERGED: [(&str, Key); 3] = [("env", Key::Name), ("volumeMounts", Key::MountPath), ("ports", Key::Name)];
/// Fields of a container that come from the resource only.
const OURS_ALONE: [&str; 2] = ["name", "image"];

/// `template` has `metadata` and `spec`.
pub(super) fn apply(template: &mut Value, theirs: Option<&Value>) {
    let Some(theirs) = theirs else { return };
    for kind in ["labels", "annotations"] {
        let Some(their_marks) = theirs["metadata"][kind].as_object() else { continue };
        let mut marks = their_marks.clone();
        marks.extend(template["metadata"][kind].as_object().cloned().unwrap_or_default());
        if !marks.is_empty() {
            template["metadata"][kind] = Value::Object(marks);
        }
    }
    let Some(their_spec) = theirs["spec"].as_object() else { return };
    let Some(spec) = template["spec"].as_object_mut() else { return };
    for (field, value) in their_spec.iter().filter(|(_, value)| !is_empty(value)) {
        match field.as_str() {
            "containers" => containers(spec, value),
            "securityContext" => security(spec, value),
            field if ADDED.contains(&field) => added(spec, field, value),
            field => {
                spec.insert(field.to_owned(), value.clone());
            }
        }
    }
    agree(spec, their_spec);
}

/// Fields that follow from choices of the user.
fn agree(spec: &mut Map<String, Value>, theirs: &Map<String, Value>) {
    let chosen = |field: &str| theirs.get(field).is_some_and(|value| !is_empty(value));
    // A pod with a service account mounts its token.
    if chosen("serviceAccountName") && !chosen("automountServiceAccountToken") {
        spec.remove("automountServiceAccountToken");
    }
    // On the host network the default policy does not resolve names of Services.
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) && !chosen("dnsPolicy") {
        spec.insert("dnsPolicy".to_owned(), "ClusterFirstWithHostNet".into());
    }
}

fn added(spec: &mut Map<String, Value>, field: &str, theirs: &Value) {
    let mut list = spec.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    for entry in theirs.as_array().into_iter().flatten() {
        add(&mut list, entry.clone(), Key::Name);
    }
    spec.insert(field.to_owned(), Value::Array(list));
}

/// Fields of the user take precedence. A user who runs as root lifts the rule against root.
fn security(spec: &mut Map<String, Value>, theirs: &Value) {
    let Some(theirs) = theirs.as_object() else { return };
    let mut context = spec.get("securityContext").and_then(Value::as_object).cloned().unwrap_or_default();
    if theirs.get("runAsUser").and_then(Value::as_i64) == Some(0) {
        context.remove("runAsNonRoot");
    }
    context.extend(theirs.clone());
    spec.insert("securityContext".to_owned(), Value::Object(context));
}

fn containers(spec: &mut Map<String, Value>, theirs: &Value) {
    let mut list = spec.get("containers").and_then(Value::as_array).cloned().unwrap_or_default();
    for their_container in theirs.as_array().into_iter().flatten() {
        match list.iter_mut().find(|ours| ours["name"] == their_container["name"]) {
            Some(ours) => container(ours, their_container),
            None => list.push(their_container.clone()),
        }
    }
    spec.insert("containers".to_owned(), Value::Array(list));
}

fn container(ours: &mut Value, theirs: &Value) {
    let (Some(ours), Some(theirs)) = (ours.as_object_mut(), theirs.as_object()) else { return };
    for (field, value) in
        theirs.iter().filter(|(field, value)| !is_empty(value) && !OURS_ALONE.contains(&field.as_str()))
    {
        if let Some((_, key)) = MERGED.iter().find(|(list, _)| list == field) {
            let mut list = ours.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
            for entry in value.as_array().into_iter().flatten() {
                put(&mut list, entry.clone(), *key);
            }
            ours.insert(field.clone(), Value::Array(list));
        } else {
            overlay(ours.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
    agree_container(ours, theirs);
}

/// A probe has one handler: a handler of the user replaces the rendered one.
fn agree_container(ours: &mut Map<String, Value>, theirs: &Map<String, Value>) {
    const WAYS: [&str; 4] = ["exec", "grpc", "httpGet", "tcpSocket"];
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let Some(their_probe) = theirs.get(probe).and_then(Value::as_object) else { continue };
        let Some(way) = WAYS.iter().find(|way| their_probe.contains_key(**way)) else { continue };
        if let Some(our_probe) = ours.get_mut(probe).and_then(Value::as_object_mut) {
            our_probe.retain(|field, _| field == way || !WAYS.contains(&field.as_str()));
            our_probe.insert((*way).to_owned(), their_probe[*way].clone());
        }
    }
    // A privileged container cannot forbid privilege escalation.
    let privileged = theirs.get("securityContext").is_some_and(|context| context["privileged"] == Value::Bool(true));
    if let (true, Some(context)) = (privileged, ours.get_mut("securityContext").and_then(Value::as_object_mut)) {
        context.remove("allowPrivilegeEscalation");
    }
}

/// Merges maps field by field, and replaces other values.
fn overlay(ours: &mut Value, theirs: &Value) {
    match (ours.as_object_mut(), theirs.as_object()) {
        (Some(ours), Some(theirs)) => {
            for (field, value) in theirs {
                overlay(ours.entry(field.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *ours = theirs.clone(),
    }
}
