//! Manifests of one part: the objects that [`trellis_kube`] renders, with the labels by which the driver finds them and the record
//! of the part. Pure.

use serde_json::{Map, Value, json};
use trellis_kube::object::Object;
use trellis_kube::render::{Part, render_part};

use crate::cluster::STATEFUL_SET;
use crate::names::{self, ObjectNames};
use crate::record::Record;
use crate::resource::{self, Context};

#[derive(Debug, Clone, PartialEq)]
pub struct Manifests {
    /// The StatefulSet.
    pub workload: Value,
    /// Objects that the StatefulSet owns.
    pub others: Vec<Value>,
}

/// The manifests, or all problems.
pub fn manifests(record: &Record, context: &Context<'_>) -> Result<Manifests, Vec<String>> {
    let names = ObjectNames::of(record.id());
    let (federation, ground) = resource::resource(&record.desired, context)?;
    let part = names.pool.as_deref().map_or(Part::SuperLink, Part::Pool);
    let rendered = render_part(&federation, &ground, part);
    if !rendered.problems.is_empty() {
        let problem =
            |problem: &trellis_diagnostic::Diagnostic| format!("{} (to do: {})", problem.what, problem.advice);
        return Err(rendered.problems.iter().map(problem).collect());
    }
    // The account of a site may not write budgets, and a budget of one for a single pod has no effect.
    let objects = rendered.objects.into_iter().filter(|Object(object)| object["kind"] != "PodDisruptionBudget");
    let objects = objects.map(|Object(object)| labelled(object, record, context));
    let (workloads, others): (Vec<Value>, Vec<Value>) = objects.partition(|object| object["kind"] == STATEFUL_SET.1);
    let workload = workloads.into_iter().next();
    let workload = workload.ok_or_else(|| vec![format!("{} was not rendered", names.workload())])?;
    Ok(Manifests { workload: recorded(workload, record), others })
}

fn labelled(mut object: Value, record: &Record, context: &Context<'_>) -> Value {
    fields(&mut object["metadata"]).insert("namespace".to_owned(), json!(context.site.namespace));
    add(&mut object["metadata"]["labels"], names::labels(record.id()));
    object
}

/// With the record, and the marks that tell pods of this generation and instance from earlier ones.
fn recorded(mut workload: Value, record: &Record) -> Value {
    add(&mut workload["metadata"]["annotations"], [(names::RECORD.to_owned(), record.text())]);
    // With `OrderedReady` a pod that cannot start blocks its replacement. The operator deletes such pods.
    workload["spec"]["podManagementPolicy"] = json!("Parallel");
    let template = &mut workload["spec"]["template"];
    add(&mut template["metadata"]["labels"], names::labels(record.id()));
    let marks = [
        (names::GENERATION.to_owned(), record.generation().to_string()),
        (names::INSTANCE.to_owned(), record.instance.to_string()),
    ];
    add(&mut template["metadata"]["annotations"], marks);
    workload
}

/// The object with `workload` as its controller, so that the cluster deletes both together.
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

/// The live workload with the desired spec. Labels and annotations of others stay, and so do immutable fields.
pub fn merged(live: &Value, mut desired: Value) -> Value {
    const IMMUTABLE: [&str; 4] = ["selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"];
    for field in IMMUTABLE {
        match live["spec"].get(field) {
            Some(value) => desired["spec"][field] = value.clone(),
            None => drop(fields(&mut desired["spec"]).remove(field)),
        }
    }
    let mut merged = live.clone();
    fields(&mut merged).remove("status");
    for field in ["labels", "annotations"] {
        let own = desired["metadata"][field].as_object().cloned().unwrap_or_default();
        fields(&mut merged["metadata"][field]).extend(own);
    }
    merged["spec"] = desired["spec"].take();
    merged
}

/// Volume claim templates are immutable: a workload with other claims must be created anew.
pub fn has_same_claims(live: &Value, desired: &Value) -> bool {
    let names = |workload: &Value| -> Vec<String> {
        let claims = workload["spec"]["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
        claims.iter().map(|claim| claim["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    names(live) == names(desired)
}

/// The workload without pods.
pub fn scaled_to_zero(mut workload: Value) -> Value {
    workload["spec"]["replicas"] = json!(0);
    workload
}

fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was just made an object")
}

fn add(target: &mut Value, entries: impl IntoIterator<Item = (String, String)>) {
    fields(target).extend(entries.into_iter().map(|(key, value)| (key, Value::String(value))));
}

#[cfg(test)]
mod tests;
