//! Where only known nodes take part: a node's key is made, and the SuperLink is told of it, before the node starts.

use std::sync::Arc;

use trellis_client::{CreateJoinToken, Join, NodeKey, RevokeNode, SuperLink};
use trellis_plan::ResourceId;
use trellis_spec::Name;

use crate::part::blocking;
use crate::probe;
use crate::recipe::Probe;
use crate::world::World;

/// It is used at once.
const TOKEN_SECONDS: u64 = 300;

/// Makes a node known. Repeated, it stays the same node.
pub async fn enrol(world: &Arc<World>, id: &ResourceId) -> Result<(), String> {
    let superlink = superlink(world, &id.federation).await?;
    let (path, name) = (world.home.node_key(id), id.part.name());
    let made = move || key(&path, &name).map_err(std::io::Error::other);
    let key = blocking(made).await.map_err(|error| error.to_string())?;
    let name = id.part.name();
    let told = |error: trellis_client::Error| format!("the SuperLink does not take its key: {error}");
    let token = superlink.call(&CreateJoinToken { ttl_s: TOKEN_SECONDS, label: name.clone() }).await.map_err(told)?;
    let location = id.site.to_string();
    let join = Join { token: token.token, public_key: key.public_pem(), name, location };
    superlink.call_as_node(&join, &key).await.map_err(told)?;
    Ok(())
}

/// Takes a node away from its SuperLink, if that can be asked.
pub async fn revoke(world: &World, id: &ResourceId, node_id: &str) {
    let Ok(superlink) = superlink(world, &id.federation).await else { return };
    if let Err(error) = superlink.call(&RevokeNode { id: node_id.to_owned() }).await {
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

async fn superlink(world: &World, federation: &Name) -> Result<SuperLink, String> {
    let elsewhere = "its key cannot be made known: the coordinator does not run on this machine";
    let coordinator = world.coordinator(federation).ok_or(elsewhere)?;
    let recipe = coordinator.lock().await.recipe.clone().ok_or("the coordinator has not started yet")?;
    match &recipe.probe {
        Probe::SuperLink { address, tls, trust, token } => {
            let superlink = probe::superlink(*address, *tls, trust.as_deref(), token);
            superlink.ok_or_else(|| "the certificate of the coordinator cannot be checked".to_owned())
        }
        _ => Err("this coordinator takes no keys from the driver".to_owned()),
    }
}
