//! Node authentication: creates the key of a node and registers it with the SuperLink before the node starts. With our SuperLink by
//! a join token, with an official one like `flwr supernode register`.

use std::sync::Arc;

use trellis_client::{Error, NodeKey, SuperLink};
use trellis_plan::ResourceId;
use trellis_spec::Name;
use trellis_wire::call::{CreateJoinToken, Join, RevokeNode};

use crate::part::blocking;
use crate::probe;
use crate::recipe::Probe;
use crate::shared::Shared;

/// The token is used at once.
const TOKEN_TTL_S: f64 = 300.0;
/// Part of the error of an official SuperLink if the key is registered already; the same in all releases.
const KEY_IN_USE: &str = "already in use";

/// The SuperLink of a federation.
enum Coordinator {
    Ours(SuperLink),
    Official(SuperLink),
}

/// Registers a node. Idempotent: a repeated call keeps the key.
pub async fn enrol(shared: &Arc<Shared>, id: &ResourceId) -> Result<(), String> {
    let coordinator = coordinator(shared, &id.federation).await?;
    let (path, name) = (shared.home.node_key(id), id.part.name());
    let made = move || key(&path, &name).map_err(std::io::Error::other);
    let key = blocking(made).await.map_err(|error| error.to_string())?;
    let enrolled = match coordinator {
        Coordinator::Ours(superlink) => join(&superlink, id, &key).await,
        Coordinator::Official(superlink) => match superlink.register_node(&key.public_pem()).await {
            Err(Error::Refused { detail, .. }) if detail.contains(KEY_IN_USE) => Ok(()),
            other => other.map(drop),
        },
    };
    enrolled.map_err(|error| format!("the SuperLink does not accept the key of the node: {error}"))
}

async fn join(superlink: &SuperLink, id: &ResourceId, key: &NodeKey) -> Result<(), Error> {
    let (name, location) = (id.part.name(), id.site.to_string());
    let token = superlink.call(&CreateJoinToken { ttl_s: TOKEN_TTL_S, label: name.clone() }).await?;
    let join = Join { token: token.token, public_key: key.public_pem(), name, location };
    superlink.call_as_node(&join, key).await.map(drop)
}

/// Removes a node from its SuperLink, if the SuperLink is reachable.
pub async fn revoke(shared: &Shared, id: &ResourceId, node_id: &str) {
    let revoked = match coordinator(shared, &id.federation).await {
        Ok(Coordinator::Ours(superlink)) => superlink.call(&RevokeNode { id: node_id.to_owned() }).await.map(drop),
        Ok(Coordinator::Official(superlink)) => match node_id.parse() {
            Ok(node_id) => superlink.unregister_node(node_id).await,
            Err(_) => return,
        },
        Err(_) => return,
    };
    if let Err(error) = revoked {
        tracing::info!(part = %id, "cannot remove the node from the SuperLink: {error}");
    }
}

fn key(path: &std::path::Path, comment: &str) -> Result<NodeKey, String> {
    let text = |error: trellis_client::node_key::NodeKeyError| error.to_string();
    match NodeKey::read(path).map_err(text)? {
        Some(key) => Ok(key),
        None => NodeKey::generate(path, comment).map_err(text),
    }
}

async fn coordinator(shared: &Shared, federation: &Name) -> Result<Coordinator, String> {
    let not_here = "cannot register the key of the node: the coordinator does not run on this machine";
    let part = shared.coordinator(federation).ok_or(not_here)?;
    let recipe = part.lock().await.recipe.clone().ok_or("the coordinator has not started yet")?;
    let found = match &recipe.probe {
        Probe::SuperLink { address, tls, trust, token } => {
            probe::superlink(*address, *tls, trust.as_deref(), token).map(Coordinator::Ours)
        }
        Probe::FlowerSuperLink { address, transport, tls, trust, .. } => {
            probe::flower_superlink(*address, *transport, *tls, trust.as_deref()).map(Coordinator::Official)
        }
        _ => return Err("the driver cannot register keys with this coordinator".to_owned()),
    };
    found.ok_or_else(|| "cannot verify the certificate of the coordinator: its authorities cannot be read".to_owned())
}
