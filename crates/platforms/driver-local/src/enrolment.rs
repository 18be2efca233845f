//! Where only known nodes take part: a node's key is made, and the SuperLink is told of it, before the node starts. Ours takes
//! it with a join token; an official one as from `flwr supernode register`.

use std::sync::Arc;

use trellis_client::{Error, NodeKey, SuperLink};
use trellis_plan::ResourceId;
use trellis_spec::Name;
use trellis_wire::call::{CreateJoinToken, Join, RevokeNode};

use crate::part::blocking;
use crate::probe;
use crate::recipe::Probe;
use crate::world::World;

/// It is used at once.
const TOKEN_SECONDS: f64 = 300.0;
/// What an official SuperLink says of a key that it knows, in every release.
const KNOWN: &str = "already in use";

/// The SuperLink of a federation, and whose it is.
enum Coordinator {
    Ours(SuperLink),
    Official(SuperLink),
}

/// Makes a node known. Repeated, it stays the same node.
pub async fn enrol(world: &Arc<World>, id: &ResourceId) -> Result<(), String> {
    let coordinator = coordinator(world, &id.federation).await?;
    let (path, name) = (world.home.node_key(id), id.part.name());
    let made = move || key(&path, &name).map_err(std::io::Error::other);
    let key = blocking(made).await.map_err(|error| error.to_string())?;
    let enrolled = match coordinator {
        Coordinator::Ours(superlink) => join(&superlink, id, &key).await,
        Coordinator::Official(superlink) => match superlink.register_node(&key.public_pem()).await {
            Err(Error::Refused { detail, .. }) if detail.contains(KNOWN) => Ok(()),
            other => other.map(drop),
        },
    };
    enrolled.map_err(|error| format!("the SuperLink does not take its key: {error}"))
}

async fn join(superlink: &SuperLink, id: &ResourceId, key: &NodeKey) -> Result<(), Error> {
    let (name, location) = (id.part.name(), id.site.to_string());
    let token = superlink.call(&CreateJoinToken { ttl_s: TOKEN_SECONDS, label: name.clone() }).await?;
    let join = Join { token: token.token, public_key: key.public_pem(), name, location };
    superlink.call_as_node(&join, key).await.map(drop)
}

/// Takes a node away from its SuperLink, if that can be asked.
pub async fn revoke(world: &World, id: &ResourceId, node_id: &str) {
    let revoked = match coordinator(world, &id.federation).await {
        Ok(Coordinator::Ours(superlink)) => superlink.call(&RevokeNode { id: node_id.to_owned() }).await.map(drop),
        Ok(Coordinator::Official(superlink)) => match node_id.parse() {
            Ok(node_id) => superlink.unregister_node(node_id).await,
            Err(_) => return,
        },
        Err(_) => return,
    };
    if let Err(error) = revoked {
        tracing::info!(part = %id, "the SuperLink still knows the node: {error}");
    }
}

fn key(path: &std::path::Path, comment: &str) -> Result<NodeKey, String> {
    let told = |error: trellis_client::node_key::NodeKeyError| error.to_string();
    match NodeKey::read(path).map_err(told)? {
        Some(key) => Ok(key),
        None => NodeKey::generate(path, comment).map_err(told),
    }
}

async fn coordinator(world: &World, federation: &Name) -> Result<Coordinator, String> {
    let elsewhere = "its key cannot be made known: the coordinator does not run on this machine";
    let part = world.coordinator(federation).ok_or(elsewhere)?;
    let recipe = part.lock().await.recipe.clone().ok_or("the coordinator has not started yet")?;
    let found = match &recipe.probe {
        Probe::SuperLink { address, tls, trust, token } => {
            probe::superlink(*address, *tls, trust.as_deref(), token).map(Coordinator::Ours)
        }
        Probe::FlowerSuperLink { address, transport, tls, trust, .. } => {
            probe::flower_superlink(*address, *transport, *tls, trust.as_deref()).map(Coordinator::Official)
        }
        _ => return Err("this coordinator takes no keys from the driver".to_owned()),
    };
    found.ok_or_else(|| "the certificate of the coordinator cannot be checked".to_owned())
}
