//! Custom resource definitions: structural schemas, rules, columns, subresources.
//!
//! Core types have no descriptions, so that client-side `kubectl apply` accepts the size.

mod core;
mod faults;
mod federation;
mod rules;
mod run;
mod schema;
mod status;

use serde_json::{Value, json};

use crate::federation::{GROUP, KIND, PLURAL, VERSION};
pub use faults::faults;
use schema::Schema;

/// Limit of client-side `kubectl apply`, which stores the object in an annotation.
pub const MAX_BYTES: usize = 262_144;

/// All definitions, in the order of installation.
pub fn all() -> [Value; 2] {
    [federation(), federation_run()]
}

/// `Federation` of the operator that this one replaces, with optional fields of Trellis.
pub fn federation() -> Value {
    let schema = Schema::object("A federation of Flower on this cluster: one SuperLink and pools of SuperNodes.")
        .field("apiVersion", Schema::text("flwr.exalsius.ai/v1"))
        .field("kind", Schema::text("Federation"))
        .field("metadata", federation::metadata())
        .field("spec", federation::spec())
        .field("status", status::federation())
        .required(["spec"])
        .rules([rules::names_together()]);
    definition(
        json!({
            "kind": KIND,
            "listKind": "FederationList",
            "plural": PLURAL,
            "shortNames": ["fedf"],
            "singular": "federation",
        }),
        &json!({
            "scale": {
                "labelSelectorPath": ".status.selector",
                "specReplicasPath": ".spec.scaling.replicas",
                "statusReplicasPath": ".status.scaling.replicas",
            },
            "status": {},
        }),
        &json!([
            { "jsonPath": ".spec.mode", "name": "Mode", "type": "string" },
            { "jsonPath": ".spec.isolationMode", "name": "Isolation", "type": "string" },
            { "jsonPath": ".status.supernodes", "name": "Supernodes", "type": "string" },
            { "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string" },
            { "jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date" },
        ]),
        schema,
    )
}

/// `FederationRun`: a run of a federation, once or by a schedule.
pub fn federation_run() -> Value {
    let schema = Schema::object("A run of a Flower app on a federation, once or by a schedule.")
        .field("apiVersion", Schema::text("flwr.exalsius.ai/v1"))
        .field("kind", Schema::text("FederationRun"))
        .field("metadata", Schema::made(json!({ "type": "object" })))
        .field("spec", run::spec())
        .field("status", run::status())
        .required(["spec"]);
    definition(
        json!({
            "kind": crate::run::KIND,
            "listKind": "FederationRunList",
            "plural": crate::run::PLURAL,
            "shortNames": [crate::run::SHORT_NAME],
            "singular": "federationrun",
        }),
        &json!({ "status": {} }),
        &json!([
            { "jsonPath": ".spec.federation", "name": "Federation", "type": "string" },
            { "jsonPath": ".status.state", "name": "State", "type": "string" },
            { "jsonPath": ".status.progress", "name": "Round", "type": "string" },
            { "jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date" },
        ]),
        schema,
    )
}

fn definition(names: Value, subresources: &Value, columns: &Value, schema: Schema) -> Value {
    let plural = names["plural"].as_str().expect("every resource has a plural").to_owned();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [{
                "additionalPrinterColumns": columns,
                "name": VERSION,
                "schema": { "openAPIV3Schema": schema.into_value() },
                "served": true,
                "storage": true,
                "subresources": subresources,
            }],
        },
    })
}

#[cfg(test)]
mod tests;
