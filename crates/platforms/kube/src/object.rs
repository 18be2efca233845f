//! A Kubernetes object as JSON: identity, owner, and the comparison of live and desired objects.
//!
//! Pure: decides what to do; the operator does it.

mod difference;
mod quantity;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use trellis_digest::sha256_hex;

pub use difference::difference;

/// Annotation with the digest of the desired object that was applied last.
pub const APPLIED: &str = "trellis.dev/applied";
const DIGEST_CHARACTERS: usize = 32;

/// An object as the API server takes it: apiVersion, kind, metadata, spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Object(pub Value);

/// Identity of an object in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// The controller of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// The federation that owns the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    pub name: &'a str,
    pub uid: &'a str,
}

/// What to do about one desired object.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    InSync,
    Apply(Cause),
    /// Another object must be deleted first; a watch reports when.
    Wait(String),
    /// An immutable field changed.
    Recreate {
        why: String,
        /// The new object adopts the pods.
        keep_pods: bool,
    },
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    New,
    /// The desired object changed.
    Changed,
    /// Another writer changed the object, at this field.
    Drift(String),
    /// Another operator created the object for the same federation. Its fields are taken over first.
    Adopt,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason for a condition.
    pub reason: &'static str,
    pub message: String,
}

impl Object {
    pub fn identity(&self) -> Identity {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Identity {
            api_version: text(&self.0["apiVersion"]),
            kind: text(&self.0["kind"]),
            name: text(&self.0["metadata"]["name"]),
        }
    }

    pub fn uid(&self) -> &str {
        self.0["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub fn is_leaving(&self) -> bool {
        self.0["metadata"]["deletionTimestamp"].is_string()
    }

    pub fn applied(&self) -> Option<&str> {
        self.0["metadata"]["annotations"][APPLIED].as_str()
    }

    pub fn controller(&self) -> Option<Controller> {
        let owners = self.0["metadata"]["ownerReferences"].as_array()?;
        let owner = owners.iter().find(|owner| owner["controller"] == json!(true))?;
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        Some(Controller { kind: text("kind"), name: text("name"), uid: text("uid") })
    }

    pub fn is_of(&self, owner: Owner<'_>) -> bool {
        self.controller().is_some_and(|controller| controller.uid == owner.uid)
    }

    /// Adds the digest of the object to its annotations.
    pub fn marked(&self) -> Object {
        let mut marked = self.clone();
        marked.0["metadata"]["annotations"][APPLIED] = digest(&self.0).into();
        marked
    }

    /// Removes large fields that the operator does not use.
    pub fn trimmed(mut self) -> Object {
        if let Some(meta) = self.0["metadata"].as_object_mut() {
            meta.remove("managedFields");
            meta.remove("selfLink");
            if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        self
    }
}

/// Equal for equal values, whatever the order of fields.
pub fn digest(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    let mut hex = sha256_hex(text.as_bytes());
    hex.truncate(DIGEST_CHARACTERS);
    hex
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            text.push('{');
            for (key, value) in sorted {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// Digest of a live object without fields that change by themselves.
pub fn digest_of_live(live: &Object) -> String {
    let meta = &live.0["metadata"];
    let mut kept = live.0.as_object().cloned().unwrap_or_default();
    kept.remove("status");
    let meta = json!({"labels": meta["labels"], "annotations": meta["annotations"], "ownerReferences": meta["ownerReferences"]});
    kept.insert("metadata".to_owned(), meta);
    digest(&Value::Object(kept))
}

/// The desired object with immutable fields of the live one that are not worth a new object.
pub fn settled(mut desired: Object, live: Option<&Object>) -> Object {
    let Some(live) = live.filter(|live| live.0["kind"] == "StatefulSet") else { return desired };
    let policy = &live.0["spec"]["podManagementPolicy"];
    if policy.is_string() && desired.0["spec"]["podManagementPolicy"].is_string() {
        desired.0["spec"]["podManagementPolicy"] = policy.clone();
    }
    desired
}

/// Compares a desired object (settled, without digest) with the live one. `normalized` is the digest of the live object after
/// this desired object was applied, if the API server normalized it to another form.
pub fn compare(desired: &Object, live: Option<&Object>, owner: Owner<'_>, normalized: Option<&str>) -> Verdict {
    let Some(live) = live else { return Verdict::Apply(Cause::New) };
    if let Some(verdict) = not_ours(live, owner) {
        return verdict;
    }
    let found = difference(&desired.0, &live.0);
    let is_normalized = || normalized.is_some_and(|normalized| normalized == digest_of_live(live));
    match live.applied() {
        Some(applied) if applied == digest(&desired.0) => match found {
            None => Verdict::InSync,
            Some(_) if is_normalized() => Verdict::InSync,
            Some(place) => immutable(desired, live).unwrap_or(Verdict::Apply(Cause::Drift(place))),
        },
        Some(_) => immutable(desired, live).unwrap_or(Verdict::Apply(Cause::Changed)),
        None => immutable(desired, live).unwrap_or(Verdict::Apply(Cause::Adopt)),
    }
}

fn not_ours(live: &Object, owner: Owner<'_>) -> Option<Verdict> {
    let identity = live.identity();
    let foreign = |whose: &str| {
        Verdict::Refused(Refusal {
            reason: "NameTaken",
            message: format!(
                "{identity} exists and {whose}; it is not changed: delete or rename it, or give this federation another name"
            ),
        })
    };
    match live.controller() {
        None => Some(foreign("belongs to no federation")),
        Some(Controller { kind, name, uid }) if uid != owner.uid => {
            let earlier = kind == crate::federation::KIND && name == owner.name;
            Some(match earlier {
                true => Verdict::Wait(format!("{identity} of an earlier federation of this name to go")),
                false => foreign(&format!("belongs to {kind} {name}")),
            })
        }
        Some(_) if live.is_leaving() => {
            Some(Verdict::Wait(format!("{identity} to be deleted before it is created again")))
        }
        Some(_) => None,
    }
}

/// The verdict for a change of immutable fields.
fn immutable(desired: &Object, live: &Object) -> Option<Verdict> {
    let (kind, new, old) = (desired.0["kind"].as_str()?, &desired.0["spec"], &live.0["spec"]);
    if !matches!(kind, "StatefulSet" | "DaemonSet") {
        return None;
    }
    if difference(&new["selector"], &old["selector"]).is_some() {
        // Its pods would have no owner.
        return Some(Verdict::Recreate { why: "the selector changed".to_owned(), keep_pods: false });
    }
    if kind != "StatefulSet" {
        return None;
    }
    let templates = |spec: &Value| spec["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
    let (new_claims, old_claims) = (templates(new), templates(old));
    if let Some(message) = lost_claim(&new_claims, &old_claims) {
        let message = format!("{}: {message}", desired.identity());
        return Some(Verdict::Refused(Refusal { reason: "DataWouldBeLost", message }));
    }
    let again = |why: &str| Some(Verdict::Recreate { why: why.to_owned(), keep_pods: true });
    if new_claims.len() != old_claims.len()
        || new_claims.iter().zip(&old_claims).any(|(new, old)| difference(new, old).is_some())
    {
        return again("volumeClaimTemplates changed; claims that exist keep their size and class until you edit them");
    }
    if new["serviceName"].is_string() && new["serviceName"] != old["serviceName"] {
        return again("serviceName changed");
    }
    None
}

/// The volume claim that would be removed or shrink.
fn lost_claim(new: &[Value], old: &[Value]) -> Option<String> {
    let name = |claim: &Value| claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    old.iter().find_map(|old| {
        let claim = name(old);
        let Some(new) = new.iter().find(|new| name(new) == claim) else {
            return Some(format!(
                "the volume claim {claim} is no longer desired, and the data in it would not be used any more; put it back, or \
                 delete the StatefulSet if that is meant"
            ));
        };
        let size = |claim: &Value| quantity::read(&claim["spec"]["resources"]["requests"]["storage"]);
        let smaller = matches!((size(new), size(old)), (Some(new), Some(old)) if new < old);
        smaller.then(|| {
            format!(
                "the volume claim {claim} cannot shrink from {} to {}; put the larger size back",
                old["spec"]["resources"]["requests"]["storage"], new["spec"]["resources"]["requests"]["storage"]
            )
        })
    })
}

/// Objects of the federation that are not desired, except for kinds that other parts manage.
pub fn leftovers<'a>(
    desired: &'a [Object],
    live: &'a BTreeMap<Identity, Object>,
    owner: Owner<'a>,
    elsewhere: &'a [&'a str],
) -> impl Iterator<Item = &'a Object> {
    live.values().filter(move |object| {
        let kept_elsewhere = object.0["kind"].as_str().is_some_and(|kind| elsewhere.contains(&kind));
        let identity = object.identity();
        !kept_elsewhere
            && object.is_of(owner)
            && !object.is_leaving()
            && !desired.iter().any(|desired| desired.identity() == identity)
    })
}

/// Managed fields in which fields of another operator count as applied by `manager`, so that the next apply removes
/// those that are not desired. `None`: nothing to take over.
pub fn taken_over(managed_fields: &Value, manager: &str) -> Option<Value> {
    let entries = managed_fields.as_array()?;
    let theirs = |entry: &Value| {
        let whole = entry["subresource"].as_str().unwrap_or_default().is_empty() && entry["operation"] == "Update";
        // The creator of the object set its owner; `manager` is the name of that program.
        let made_it = entry["fieldsV1"]["f:metadata"]["f:ownerReferences"].is_object();
        whole && (made_it || entry["manager"] == "manager" || entry["manager"] == manager)
    };
    if !entries.iter().any(theirs) {
        return None;
    }
    let ours = |entry: &Value| entry["manager"] == manager && entry["operation"] == "Apply";
    let mut fields = json!({});
    for entry in entries.iter().filter(|entry| theirs(entry) || ours(entry)) {
        unite(&mut fields, &entry["fieldsV1"]);
    }
    let mut first = entries.iter().find(|entry| theirs(entry))?.clone();
    first["manager"] = manager.into();
    first["operation"] = "Apply".into();
    first["fieldsV1"] = fields;
    let others = entries.iter().filter(|entry| !theirs(entry) && !ours(entry)).cloned();
    Some(Value::Array(std::iter::once(first).chain(others).collect()))
}

fn unite(into: &mut Value, from: &Value) {
    let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) else { return };
    for (key, value) in from {
        unite(into.entry(key.clone()).or_insert_with(|| json!({})), value);
    }
}
