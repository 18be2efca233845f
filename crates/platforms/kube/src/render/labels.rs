//! Labels and owners of objects. Selectors are those of the operator that this one replaces, so that its objects are
//! adopted unchanged.

use serde_json::{Map, Value, json};

use super::Scene;
use crate::federation::{API_VERSION, Federation, KIND};

/// Value of the label `managed-by`, of this operator and of the one that it replaces.
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

/// Adds the labels that the documentation shows to users. Selectors do not have them, because selectors are immutable.
pub(super) fn shown(mut labels: Labels, federation: &str, component: &str) -> Labels {
    labels.insert(FLOWER_COMPONENT.to_owned(), component.into());
    labels.insert(FLOWER_FEDERATION.to_owned(), federation.into());
    labels
}

impl Scene<'_> {
    pub(super) fn metadata(&self, name: &str, labels: Labels) -> Value {
        let federation = self.federation;
        let mut metadata = json!({"name": name, "namespace": federation.namespace, "labels": labels});
        // Without a resource in the cluster the objects have no owner.
        if !federation.uid.is_empty() {
            metadata["ownerReferences"] = json!([owner(federation)]);
        }
        metadata
    }

    pub(super) fn superlink_labels_shown(&self) -> Labels {
        let name = &self.federation.name;
        shown(superlink_labels(name), name, SUPERLINK)
    }

    pub(super) fn pool_labels_shown(&self, pool: &str) -> Labels {
        let name = &self.federation.name;
        shown(pool_labels(name, pool), name, SUPERNODE)
    }

    pub(super) fn node_labels_shown(&self) -> Labels {
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
