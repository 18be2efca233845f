//! What a cluster with cert-manager has and one without it has not.

use serde_json::{Value, json};

/// A definition of `Certificate`. Nobody issues anything by it.
pub fn certificate_definition() -> Value {
    let (plural, kind) = ("certificates", "Certificate");
    let names = json!({"plural": plural, "singular": "certificate", "kind": kind, "listKind": "CertificateList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificates.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}
