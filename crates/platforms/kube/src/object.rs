//! An object of Kubernetes as JSON: who it is, whose it is, and whether a live one is as it is wanted.
//!
//! Pure: what is to be done is decided here, who does it is somebody else.

mod difference;
mod quantity;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use trellis_digest::sha256_hex;

pub use difference::difference;

/// Holds the digest of what was wanted when an object was last applied.
pub const APPLIED: &str = "trellis.dev/applied";
const DIGEST_CHARACTERS: usize = 32;

/// As it is sent: apiVersion, kind, metadata, spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Object(pub Value);

/// Which one it is, among those of a namespace.
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

/// Who looks after an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// The federation for which objects are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    pub name: &'a str,
    pub uid: &'a str,
}

/// What is to be done about one wanted object.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    InSync,
    Apply(Cause),
    /// Something goes away first; the cluster tells when.
    Wait(String),
    /// A field changed that cannot be changed in place.
    Recreate {
        why: String,
        /// Pods are taken over by the new object.
        keep_pods: bool,
    },
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    New,
    /// The federation wants it otherwise than before.
    Changed,
    /// Somebody else changed it: where.
    Drift(String),
    /// Made by somebody else for the same federation: what that one wrote becomes ours first.
    Adopt,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For a condition.
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

    /// With the digest of itself in its annotations.
    pub fn marked(&self) -> Object {
        let mut marked = self.clone();
        marked.0["metadata"]["annotations"][APPLIED] = digest(&self.0).into();
        marked
    }

    /// Without what is of no use to us and takes most of the room.
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

/// The same for equal values, whatever the order of their fields.
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

/// What a live object is made of, without what changes by itself.
pub fn digest_of_live(live: &Object) -> String {
    let meta = &live.0["metadata"];
    let mut kept = live.0.as_object().cloned().unwrap_or_default();
    kept.remove("status");
    let meta = json!({"labels": meta["labels"], "annotations": meta["annotations"], "ownerReferences": meta["ownerReferences"]});
    kept.insert("metadata".to_owned(), meta);
    digest(&Value::Object(kept))
}

/// `wanted` with what an existing object keeps because it cannot be changed and does not matter enough to make it anew.
pub fn settled(mut wanted: Object, live: Option<&Object>) -> Object {
    let Some(live) = live.filter(|live| live.0["kind"] == "StatefulSet") else { return wanted };
    let policy = &live.0["spec"]["podManagementPolicy"];
    if policy.is_string() && wanted.0["spec"]["podManagementPolicy"].is_string() {
        wanted.0["spec"]["podManagementPolicy"] = policy.clone();
    }
    wanted
}

/// What is to be done so that `live` becomes `wanted` (which is settled and not marked). `made` is the digest of what the API
/// server made of this very `wanted` before, where it writes things in another way than we do.
pub fn compare(wanted: &Object, live: Option<&Object>, owner: Owner<'_>, made: Option<&str>) -> Verdict {
    let Some(live) = live else { return Verdict::Apply(Cause::New) };
    if let Some(verdict) = not_ours(live, owner) {
        return verdict;
    }
    let found = difference(&wanted.0, &live.0);
    let as_made = || made.is_some_and(|made| made == digest_of_live(live));
    match live.applied() {
        Some(applied) if applied == digest(&wanted.0) => match found {
            None => Verdict::InSync,
            Some(_) if as_made() => Verdict::InSync,
            Some(place) => immutable(wanted, live).unwrap_or(Verdict::Apply(Cause::Drift(place))),
        },
        Some(_) => immutable(wanted, live).unwrap_or(Verdict::Apply(Cause::Changed)),
        None => immutable(wanted, live).unwrap_or(Verdict::Apply(Cause::Adopt)),
    }
}

fn not_ours(live: &Object, owner: Owner<'_>) -> Option<Verdict> {
    let identity = live.identity();
    let foreign = |whose: &str| {
        Verdict::Refused(Refusal {
            reason: "NameTaken",
            message: format!(
                "{identity} exists and {whose}; it is left as it is: delete or rename it, or give this federation another name"
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
        Some(_) if live.is_leaving() => Some(Verdict::Wait(format!("{identity} to be gone before it is made anew"))),
        Some(_) => None,
    }
}

/// What follows from a change of what cannot be changed in place.
fn immutable(wanted: &Object, live: &Object) -> Option<Verdict> {
    let (kind, new, old) = (wanted.0["kind"].as_str()?, &wanted.0["spec"], &live.0["spec"]);
    if !matches!(kind, "StatefulSet" | "DaemonSet") {
        return None;
    }
    if difference(&new["selector"], &old["selector"]).is_some() {
        // Its pods would belong to nobody.
        return Some(Verdict::Recreate { why: "the selector changed".to_owned(), keep_pods: false });
    }
    if kind != "StatefulSet" {
        return None;
    }
    let templates = |spec: &Value| spec["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
    let (new_claims, old_claims) = (templates(new), templates(old));
    if let Some(message) = lost_claim(&new_claims, &old_claims) {
        let message = format!("{}: {message}", wanted.identity());
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

/// Which claim would no longer be there, or be smaller.
fn lost_claim(new: &[Value], old: &[Value]) -> Option<String> {
    let name = |claim: &Value| claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    old.iter().find_map(|old| {
        let claim = name(old);
        let Some(new) = new.iter().find(|new| name(new) == claim) else {
            return Some(format!(
                "the volume claim {claim} is no longer wanted, and the data in it would not be used any more; put it back, or \
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

/// Objects of the federation that nothing wants any more, but for the kinds that are kept elsewhere.
pub fn leftovers<'a>(
    wanted: &'a [Object],
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
            && !wanted.iter().any(|wanted| wanted.identity() == identity)
    })
}

/// Who wrote which fields, rewritten so that what another operator wrote counts as applied by `manager`. Fields that it set and
/// that are not wanted go with the next apply. `None`: nothing to take over.
pub fn taken_over(managed_fields: &Value, manager: &str) -> Option<Value> {
    let entries = managed_fields.as_array()?;
    let theirs = |entry: &Value| {
        let whole = entry["subresource"].as_str().unwrap_or_default().is_empty() && entry["operation"] == "Update";
        // Who made the object for the federation wrote its owner; `manager` is how that program calls itself.
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
