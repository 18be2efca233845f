//! Names, labels and owners of objects. Selectors are those of the operator this one takes the place of, so that its objects are
//! adopted as they are.

use serde_json::{Map, Value, json};

use super::Scene;
use crate::federation::{API_VERSION, Federation, KIND};

/// Of all objects, ours and those of the operator this one takes the place of.
pub const MANAGED_BY: &str = "flower-operator";
const NAME: &str = "app.kubernetes.io/name";
const INSTANCE: &str = "app.kubernetes.io/instance";
const COMPONENT: &str = "app.kubernetes.io/component";
const MANAGER: &str = "app.kubernetes.io/managed-by";
const POOL: &str = "flower.flwr.ai/pool";
const FLOWER_COMPONENT: &str = "flower.flwr.ai/component";
const FLOWER_FEDERATION: &str = "flower.flwr.ai/federation";

pub(super) const SUPERLINK: &str = "superlink";
pub(super) const SUPERNODE: &str = "supernode";

pub(super) type Labels = Map<String, Value>;

/// The selector of the SuperLink's pod.
pub fn superlink_labels(federation: &str) -> Map<String, Value> {
    labels(federation, SUPERLINK, SUPERLINK)
}

/// The selector of a pool's pods.
pub fn pool_labels(federation: &str, pool: &str) -> Map<String, Value> {
    let mut labels = labels(federation, SUPERNODE, &pool_component(pool));
    labels.insert(POOL.to_owned(), pool.into());
    labels
}

/// All nodes of a federation in the cluster.
pub fn node_labels(federation: &str) -> Map<String, Value> {
    let mut labels = instance_labels(federation);
    labels.insert(NAME.to_owned(), SUPERNODE.into());
    labels
}

/// All pods of a federation.
pub fn instance_labels(federation: &str) -> Map<String, Value> {
    let labels = [(INSTANCE, federation), (MANAGER, MANAGED_BY)];
    labels.into_iter().map(|(label, value)| (label.to_owned(), value.into())).collect()
}

pub(super) fn pool_component(pool: &str) -> String {
    format!("pool-{pool}")
}

fn labels(federation: &str, name: &str, component: &str) -> Labels {
    let mut labels = instance_labels(federation);
    labels.insert(NAME.to_owned(), name.into());
    labels.insert(COMPONENT.to_owned(), component.into());
    labels
}

/// With the labels that users are told to look for. They are in no selector: those cannot be changed.
pub(super) fn shown(mut labels: Labels, federation: &str, component: &str) -> Labels {
    labels.insert(FLOWER_COMPONENT.to_owned(), component.into());
    labels.insert(FLOWER_FEDERATION.to_owned(), federation.into());
    labels
}

impl Scene<'_> {
    pub(super) fn metadata(&self, name: &str, labels: Labels) -> Value {
        let federation = self.federation;
        let mut metadata = json!({"name": name, "namespace": federation.namespace, "labels": labels});
        // Without a resource in the cluster nothing owns the objects.
        if !federation.uid.is_empty() {
            metadata["ownerReferences"] = json!([owner(federation)]);
        }
        metadata
    }

    pub(super) fn superlink_marks(&self) -> Labels {
        let name = &self.federation.name;
        shown(superlink_labels(name), name, SUPERLINK)
    }

    pub(super) fn pool_marks(&self, pool: &str) -> Labels {
        let name = &self.federation.name;
        shown(pool_labels(name, pool), name, SUPERNODE)
    }

    pub(super) fn node_marks(&self) -> Labels {
        let name = &self.federation.name;
        shown(node_labels(name), name, SUPERNODE)
    }
}

fn owner(federation: &Federation) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": federation.name,
        "uid": federation.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
