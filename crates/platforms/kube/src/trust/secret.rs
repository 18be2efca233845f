//! Observed and desired Secrets. Each is written as a whole.

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
/// Label value of every Secret of a federation.
pub const SELECTOR_COMPONENT: &str = "trust";

pub type Entries = BTreeMap<String, Vec<u8>>;

/// An observed Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ObservedSecret {
    pub entries: Entries,
    pub annotations: BTreeMap<String, String>,
    pub resource_version: String,
    /// UID of the controller.
    pub owner: Option<String>,
}

impl ObservedSecret {
    /// Parses the resource as the API server returns it. The API server admits base64 only.
    pub fn read(resource: &Value) -> ObservedSecret {
        let meta = &resource["metadata"];
        let data: BTreeMap<String, String> = serde_json::from_value(resource["data"].clone()).unwrap_or_default();
        let entries = data.into_iter().filter_map(|(name, text)| Some((name, STANDARD.decode(text).ok()?))).collect();
        let owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str());
        ObservedSecret {
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

/// Does not show the content.
impl std::fmt::Debug for ObservedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedSecret").field("entries", &self.entries.keys()).finish_non_exhaustive()
    }
}

/// A desired Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct DesiredSecret {
    pub name: String,
    pub entries: Entries,
    pub annotations: BTreeMap<String, String>,
}

impl DesiredSecret {
    pub fn new(name: String, entries: impl IntoIterator<Item = (&'static str, String)>) -> DesiredSecret {
        let entries = entries.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect();
        DesiredSecret { name, entries, annotations: BTreeMap::new() }
    }

    pub fn annotated(mut self, name: &str, value: impl Into<String>) -> DesiredSecret {
        self.annotations.insert(name.to_owned(), value.into());
        self
    }

    /// Whether the observed Secret is as desired. Other annotations are ignored.
    pub fn is(&self, seen: &ObservedSecret) -> bool {
        seen.entries == self.entries
            && self.annotations.iter().all(|(name, value)| seen.annotations.get(name) == Some(value))
    }

    /// The manifest: replaces the observed Secret unless that has changed; creates it otherwise.
    pub fn object(&self, federation: &Federation, seen: Option<&ObservedSecret>) -> Object {
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

impl std::fmt::Debug for DesiredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.entries.keys();
        f.debug_struct("DesiredSecret").field("name", &self.name).field("entries", &names).finish_non_exhaustive()
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

/// Label selector of all Secrets of a federation.
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
