//! The orders of a federation at a site, in one ConfigMap that is written with optimistic locking.

use serde_json::{Value, json};
use trellis_plan::{Action, Order, Orders, Outcome, ResourceId, Verb};
use trellis_spec::Name;

use crate::cluster::{CONFIG_MAP, Cluster};
use crate::failure::{Failure, FailureKind};
use crate::manifests::owned;
use crate::names;

const KEY: &str = "orders.json";
/// Others write it once for each takeover and for each deleted part.
const MAX_ATTEMPTS: u32 = 20;

/// The orders as they were read.
pub struct StoredOrders {
    pub orders: Orders,
    /// `None`: the ConfigMap does not exist yet.
    object: Option<Value>,
}

/// Admits an action of the current controller, or returns why the action is refused.
pub async fn admit(cluster: &Cluster, action: &Action) -> Result<Result<StoredOrders, Outcome>, Failure> {
    let ResourceId { federation, site, .. } = action.id();
    let (order, creates) = (&action.order, matches!(action.verb, Verb::Create(_)));
    for _ in 0..MAX_ATTEMPTS {
        let mut stored = read(cluster, federation, site).await?;
        if let Some(refused) = stored.orders.taken_over(order) {
            return Ok(Err(refused));
        }
        let advanced = stored.orders.advance(order.fence);
        // The ConfigMap is owned by the last part while that is deleted, and a new part needs it again.
        let is_recreated =
            creates && stored.object.as_ref().is_some_and(|object| !object["metadata"]["ownerReferences"].is_null());
        if !advanced && !is_recreated {
            return Ok(Ok(stored));
        }
        if let Some(metadata) = stored.object.as_mut().and_then(|object| object["metadata"].as_object_mut()) {
            metadata.remove("ownerReferences");
        }
        match write(cluster, federation, site, &stored).await {
            Err(Failure { kind: FailureKind::Conflict, .. }) => {}
            written => return written.map(|object| Ok(StoredOrders { object: Some(object), ..stored })),
        }
    }
    Err(contended())
}

/// Stores the last order for a part before the part is deleted.
pub async fn record_deletion(cluster: &Cluster, id: &ResourceId, order: Order) -> Result<(), Failure> {
    for _ in 0..MAX_ATTEMPTS {
        let mut stored = read(cluster, &id.federation, &id.site).await?;
        if stored.orders.gone.get(id).is_some_and(|known| *known >= order) || order.fence < stored.orders.fence {
            return Ok(());
        }
        stored.orders.gone.insert(id.clone(), order);
        match write(cluster, &id.federation, &id.site, &stored).await {
            Err(Failure { kind: FailureKind::Conflict, .. }) => {}
            written => return written.map(drop),
        }
    }
    Err(contended())
}

/// Makes the last part of the federation the owner, so that the ConfigMap is deleted with it.
pub async fn delete_with(cluster: &Cluster, id: &ResourceId, workload: &Value) -> Result<(), Failure> {
    let name = names::orders(&id.federation, &id.site);
    match cluster.get(CONFIG_MAP, &name).await? {
        None => Ok(()),
        Some(object) => match cluster.replace(&owned(object, workload)).await {
            Err(Failure { kind: FailureKind::Conflict, .. }) => Ok(()),
            written => written.map(drop),
        },
    }
}

fn contended() -> Failure {
    Failure::new(FailureKind::Refused, "too many concurrent writers of the orders")
}

async fn read(cluster: &Cluster, federation: &Name, site: &Name) -> Result<StoredOrders, Failure> {
    let object = cluster.get(CONFIG_MAP, &names::orders(federation, site)).await?;
    let text = object.as_ref().and_then(|object| object["data"][KEY].as_str());
    let orders = text.map(serde_json::from_str).transpose();
    let damaged = |error: serde_json::Error| {
        let name = names::orders(federation, site);
        let to_do = "delete it if no other control plane is running";
        Failure::new(FailureKind::Refused, format!("ConfigMap {name} cannot be read: {error} (to do: {to_do})"))
    };
    Ok(StoredOrders { orders: orders.map_err(damaged)?.unwrap_or_default(), object })
}

async fn write(cluster: &Cluster, federation: &Name, site: &Name, stored: &StoredOrders) -> Result<Value, Failure> {
    let text = serde_json::to_string(&stored.orders).expect("orders have only text keys, so they have a JSON form");
    match &stored.object {
        Some(object) => {
            let mut object = object.clone();
            object["data"] = json!({ KEY: text });
            cluster.replace(&object).await
        }
        None => {
            let labels = json!({ names::FEDERATION: federation.as_str(), names::SITE: site.as_str() });
            let metadata = json!({ "name": names::orders(federation, site), "labels": labels });
            let created =
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { KEY: text } });
            cluster.create(&created).await
        }
    }
}
