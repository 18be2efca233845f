//! From what `trellis-kube` makes of a part to what is sent for it: only its own objects, with the marks by which it is found
//! again, and what a resource cannot say. Pure.

use serde_json::{Map, Value, json};
use trellis_kube::object::Object;
use trellis_kube::render::render;

use crate::cluster::STATEFUL_SET;
use crate::names::{self, Called};
use crate::record::Record;
use crate::wish::{self, Place};

#[derive(Debug, Clone, PartialEq)]
pub struct Dressed {
    /// With its pod.
    pub workload: Value,
    /// What belongs to it.
    pub others: Vec<Value>,
}

/// All problems, or what is sent.
pub fn dress(record: &Record, place: &Place<'_>) -> Result<Dressed, Vec<String>> {
    let called = Called::of(record.id());
    let (resource, ground) = wish::resource(&record.desired, place)?;
    let rendered = render(&resource, &ground);
    if !rendered.problems.is_empty() {
        return Err(rendered
            .problems
            .iter()
            .map(|problem| format!("{} (to do: {})", problem.what, problem.to_do))
            .collect());
    }
    let mut workload = None;
    let mut others = Vec::new();
    for Object(object) in rendered.objects {
        let is_workload = object["kind"] == STATEFUL_SET.1 && object["metadata"]["name"] == called.workload();
        match is_workload {
            true => workload = Some(object),
            false if is_of(&object, &called) => others.push(marked(object, record, place)),
            false => {}
        }
    }
    let missing = || vec![format!("nothing is rendered for {}", called.workload())];
    let workload = workload.ok_or_else(missing)?;
    Ok(Dressed { workload: dressed(marked(workload, record, place), record), others })
}

/// Of the objects of a whole federation, those of this part. A single pod has no use for a budget of disruptions but to stand in
/// the way of who empties a machine, unless all others depend on it.
fn is_of(object: &Value, called: &Called) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let of_node = called.pool.is_some();
    let whole = [called.workload(), format!("{}-superlink", called.federation)];
    match of_node {
        true => name.starts_with(&whole[0]) && object["kind"] != "PodDisruptionBudget",
        false => name.starts_with(&whole[1]),
    }
}

/// With the labels by which it is found, and no owner yet.
fn marked(mut object: Value, record: &Record, place: &Place<'_>) -> Value {
    let metadata = fields(&mut object["metadata"]);
    metadata.remove("ownerReferences");
    metadata.insert("namespace".to_owned(), json!(place.site.namespace));
    add(&mut object["metadata"]["labels"], names::labels(record.id()));
    object
}

/// The record, the pod's marks, and what the resource could not say.
fn dressed(mut workload: Value, record: &Record) -> Value {
    add(&mut workload["metadata"]["annotations"], [(names::RECORD.to_owned(), record.text())]);
    let spec = &mut workload["spec"];
    spec["replicas"] = json!(1);
    spec["podManagementPolicy"] = json!("Parallel");
    spec["persistentVolumeClaimRetentionPolicy"] = json!({ "whenDeleted": "Delete", "whenScaled": "Retain" });
    let template = &mut spec["template"];
    add(&mut template["metadata"]["labels"], names::labels(record.id()));
    let marks = [
        (names::GENERATION.to_owned(), record.generation().to_string()),
        (names::INSTANCE.to_owned(), record.instance.to_string()),
    ];
    add(&mut template["metadata"]["annotations"], marks);
    workload
}

/// Whoever owns it takes it along.
pub fn owned(mut object: Value, workload: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": STATEFUL_SET.0,
        "kind": STATEFUL_SET.1,
        "name": workload["metadata"]["name"],
        "uid": workload["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    object
}

/// The workload as it is to be, on top of the one that is there: what others added stays, and so does what cannot be changed.
pub fn onto(live: &Value, mut wanted: Value) -> Value {
    const FIXED: [&str; 4] = ["selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"];
    for field in FIXED {
        match live["spec"].get(field) {
            Some(value) => wanted["spec"][field] = value.clone(),
            None => drop(fields(&mut wanted["spec"]).remove(field)),
        }
    }
    let mut whole = live.clone();
    fields(&mut whole).remove("status");
    for field in ["labels", "annotations"] {
        let own = wanted["metadata"][field].as_object().cloned().unwrap_or_default();
        let whole =
            whole["metadata"].as_object_mut().map(|metadata| metadata.entry(field).or_insert_with(|| json!({})));
        if let Some(Value::Object(known)) = whole {
            known.extend(own);
        }
    }
    whole["spec"] = wanted["spec"].take();
    whole
}

/// Claims are made with a workload, and only then.
pub fn same_claims(live: &Value, wanted: &Value) -> bool {
    let names = |workload: &Value| -> Vec<String> {
        let claims = workload["spec"]["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
        claims.iter().map(|claim| claim["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    names(live) == names(wanted)
}

/// Nothing of it runs yet.
pub fn asleep(mut workload: Value) -> Value {
    workload["spec"]["replicas"] = json!(0);
    workload
}

fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was just made one")
}

fn add(target: &mut Value, entries: impl IntoIterator<Item = (String, String)>) {
    fields(target).extend(entries.into_iter().map(|(key, value)| (key, Value::String(value))));
}
