//! An object of Kubernetes as JSON: who it is, and whether a live one is as it is wanted.

use serde_json::Value;

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

impl Object {
    pub fn identity(&self) -> Identity {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Identity {
            api_version: text(&self.0["apiVersion"]),
            kind: text(&self.0["kind"]),
            name: text(&self.0["metadata"]["name"]),
        }
    }
}
