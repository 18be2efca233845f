//! Whose orders count for a federation at a site: one ConfigMap, written only by who has read what is in it.

use serde_json::{Value, json};
use trellis_plan::{Action, Order, Orders, Outcome, ResourceId, Verb};
use trellis_spec::Name;

use crate::cluster::{CONFIG_MAP, Cluster};
use crate::dress::owned;
use crate::names;
use crate::trouble::{Kind, Trouble};

const KEY: &str = "orders.json";
/// Others write it once for each of them that takes over, and for each part that goes.
const TRIES: u32 = 20;

/// As it was read.
pub struct Book {
    pub orders: Orders,
    /// `None`: there is none yet.
    object: Option<Value>,
}

/// Either it may go on, with what is written down, or it is refused.
pub async fn admit(cluster: &Cluster, action: &Action) -> Result<Result<Book, Outcome>, Trouble> {
    let ResourceId { federation, site, .. } = action.id();
    let (order, makes) = (&action.order, matches!(action.verb, Verb::Create(_)));
    for _ in 0..TRIES {
        let mut book = read(cluster, federation, site).await?;
        if let Some(refused) = book.orders.taken_over(order) {
            return Ok(Err(refused));
        }
        let advanced = book.orders.advance(order.fence);
        // Something is made again where the last was to go.
        let stays =
            makes && book.object.as_ref().is_some_and(|object| !object["metadata"]["ownerReferences"].is_null());
        if !advanced && !stays {
            return Ok(Ok(book));
        }
        if let Some(metadata) = book.object.as_mut().and_then(|object| object["metadata"].as_object_mut()) {
            metadata.remove("ownerReferences");
        }
        match write(cluster, federation, site, &book).await {
            Err(Trouble { kind: Kind::Conflict, .. }) => {}
            written => return written.map(|object| Ok(Book { object: Some(object), ..book })),
        }
    }
    Err(busy())
}

/// The last order for a part that goes, written before it does.
pub async fn note_gone(cluster: &Cluster, id: &ResourceId, order: Order) -> Result<(), Trouble> {
    for _ in 0..TRIES {
        let mut book = read(cluster, &id.federation, &id.site).await?;
        if book.orders.gone.get(id).is_some_and(|known| *known >= order) || order.fence < book.orders.fence {
            return Ok(());
        }
        book.orders.gone.insert(id.clone(), order);
        match write(cluster, &id.federation, &id.site, &book).await {
            Err(Trouble { kind: Kind::Conflict, .. }) => {}
            written => return written.map(drop),
        }
    }
    Err(busy())
}

/// Nothing else of the federation is left here: when the last part is gone, nobody needs to know any longer.
pub async fn go_with(cluster: &Cluster, id: &ResourceId, workload: &Value) -> Result<(), Trouble> {
    let name = names::orders(&id.federation, &id.site);
    match cluster.get(CONFIG_MAP, &name).await? {
        None => Ok(()),
        Some(object) => match cluster.write(&owned(object, workload)).await {
            Err(Trouble { kind: Kind::Conflict, .. }) => Ok(()),
            written => written.map(drop),
        },
    }
}

fn busy() -> Trouble {
    Trouble::new(Kind::Refused, "too many write at once whose orders count")
}

async fn read(cluster: &Cluster, federation: &Name, site: &Name) -> Result<Book, Trouble> {
    let object = cluster.get(CONFIG_MAP, &names::orders(federation, site)).await?;
    let text = object.as_ref().and_then(|object| object["data"][KEY].as_str());
    let orders = text.map(serde_json::from_str).transpose();
    let damaged = |error: serde_json::Error| {
        let name = names::orders(federation, site);
        let to_do = "delete it when no other control plane is at work";
        Trouble::new(Kind::Refused, format!("ConfigMap {name} cannot be read: {error} (to do: {to_do})"))
    };
    Ok(Book { orders: orders.map_err(damaged)?.unwrap_or_default(), object })
}

async fn write(cluster: &Cluster, federation: &Name, site: &Name, book: &Book) -> Result<Value, Trouble> {
    let text = serde_json::to_string(&book.orders).expect("orders have only text keys, so they have a JSON form");
    match &book.object {
        Some(object) => {
            let mut object = object.clone();
            object["data"] = json!({ KEY: text });
            cluster.write(&object).await
        }
        None => {
            let labels = json!({ names::FEDERATION: federation.as_str(), names::SITE: site.as_str() });
            let metadata = json!({ "name": names::orders(federation, site), "labels": labels });
            let made = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { KEY: text } });
            cluster.make(&made).await
        }
    }
}
