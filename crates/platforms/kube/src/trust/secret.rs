//! Secrets as they are seen and as they are written: names of entries, and bytes. Each is written whole.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::federation::{API_VERSION, Federation, KIND};
use crate::object::Object;

pub const CERTIFICATE: &str = "tls.crt";
pub const KEY: &str = "tls.key";
pub const BUNDLE: &str = "ca.crt";
pub const TOKEN: &str = "token";
const OPAQUE: &str = "Opaque";
const TLS: &str = "kubernetes.io/tls";
/// On every Secret of a federation, so that one question finds them all.
pub const SELECTOR_COMPONENT: &str = "trust";

pub type Entries = BTreeMap<String, Vec<u8>>;

/// What there is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretSeen {
    pub entries: Entries,
    pub annotations: BTreeMap<String, String>,
    pub resource_version: String,
    /// Of whoever controls it.
    pub owner: Option<String>,
}

impl SecretSeen {
    /// From the resource as the API server gives it. An entry that is no base64 cannot come from there.
    pub fn read(resource: &Value) -> SecretSeen {
        let meta = &resource["metadata"];
        let data: BTreeMap<String, String> = serde_json::from_value(resource["data"].clone()).unwrap_or_default();
        let entries = data.into_iter().filter_map(|(name, text)| Some((name, STANDARD.decode(text).ok()?))).collect();
        let owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str());
        SecretSeen {
            entries,
            annotations: serde_json::from_value(meta["annotations"].clone()).unwrap_or_default(),
            resource_version: meta["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            owner: owner.map(str::to_owned),
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.entries.get(name)?).ok()
    }
}

/// Never shows what is in it.
impl std::fmt::Debug for SecretSeen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretSeen").field("entries", &self.entries.keys()).finish_non_exhaustive()
    }
}

/// What there should be.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretWanted {
    pub name: String,
    pub entries: Entries,
    pub annotations: BTreeMap<String, String>,
}

impl SecretWanted {
    pub fn new(name: String, entries: impl IntoIterator<Item = (&'static str, String)>) -> SecretWanted {
        let entries = entries.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect();
        SecretWanted { name, entries, annotations: BTreeMap::new() }
    }

    pub fn annotated(mut self, name: &str, value: impl Into<String>) -> SecretWanted {
        self.annotations.insert(name.to_owned(), value.into());
        self
    }

    /// Whether what is there is as wanted. Annotations of others are theirs.
    pub fn is(&self, seen: &SecretSeen) -> bool {
        seen.entries == self.entries
            && self.annotations.iter().all(|(name, value)| seen.annotations.get(name) == Some(value))
    }

    /// As it is sent: in place of what was seen, or refused if that has changed since; anew where nothing was.
    pub fn object(&self, federation: &Federation, seen: Option<&SecretSeen>) -> Object {
        let is_tls = self.entries.contains_key(CERTIFICATE) && self.entries.contains_key(KEY);
        let data: BTreeMap<&str, String> =
            self.entries.iter().map(|(name, bytes)| (name.as_str(), STANDARD.encode(bytes))).collect();
        let mut annotations = seen.map(|seen| seen.annotations.clone()).unwrap_or_default();
        annotations.extend(self.annotations.clone());
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self.name,
                "namespace": federation.namespace,
                "labels": labels(federation),
                "annotations": annotations,
                "ownerReferences": [owner(federation)],
            },
            "type": if is_tls { TLS } else { OPAQUE },
            "data": data,
        });
        if let Some(seen) = seen {
            object["metadata"]["resourceVersion"] = json!(seen.resource_version);
        }
        Object(object)
    }
}

impl std::fmt::Debug for SecretWanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.entries.keys();
        f.debug_struct("SecretWanted").field("name", &self.name).field("entries", &names).finish_non_exhaustive()
    }
}

pub fn labels(federation: &Federation) -> Value {
    json!({
        "app.kubernetes.io/name": "superlink",
        "app.kubernetes.io/instance": federation.name,
        "app.kubernetes.io/component": SELECTOR_COMPONENT,
        "app.kubernetes.io/managed-by": "flower-operator",
        "flower.flwr.ai/federation": federation.name,
    })
}

/// By which all Secrets of a federation are found.
pub fn selector(federation: &str) -> String {
    format!(
        "app.kubernetes.io/instance={federation},app.kubernetes.io/component={SELECTOR_COMPONENT},\
         app.kubernetes.io/managed-by=flower-operator"
    )
}

pub fn owner(federation: &Federation) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": federation.name,
        "uid": federation.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
