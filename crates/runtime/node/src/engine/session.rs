//! Keeps the node registered and active at its SuperLink.

use std::sync::Arc;
use std::time::Duration;

use trellis_client::fleet::{FleetError, Remedy};
use trellis_core::id::NodeId;

use super::Engine;
use super::link::{Unanswered, random};
use crate::error::Error;
use crate::store::Store;

/// The announced heartbeat interval. The SuperLink waits twice this time before it answers instead of a silent node. A node
/// preserves its instructions through broken links and reboots, so waiting is worthwhile; a node that leaves says so.
const ANNOUNCED_INTERVAL_S: f64 = 180.0;
/// The same for a node that stops during a run: an update takes less time.
const RETURN_INTERVAL_S: f64 = 60.0;
/// The minimum and maximum interval of heartbeats, randomised so that fleets do not synchronise. Much shorter than announced:
/// heartbeats also detect a broken link.
const HEARTBEAT_S: (f64, f64) = (17.5, 22.5);
/// The delay before a refused node tries to join again: it may have been registered meanwhile.
const JOIN_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The timeout for deactivating the node at the SuperLink.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for a drained node: a run would wait minutes for a node that the SuperLink still considers alive.
const DRAINED_LEAVE_TIMEOUT: Duration = Duration::from_secs(20);
const LEAVE_RETRY_DELAY: Duration = Duration::from_millis(200);

pub async fn keep(engine: Arc<Engine>) -> Result<(), Error> {
    loop {
        let Some(id) = join(&engine).await? else { return Ok(()) };
        engine.identity.send_replace(Some(id));
        match beat(&engine, id).await {
            Ok(()) => {}
            Err(Unanswered::Stopping) => return Ok(()),
            Err(Unanswered::GivenUp(error) | Unanswered::Refused(error)) => return Err(Error::Link(error)),
        }
        engine.identity.send_replace(None);
        tracing::warn!("the SuperLink no longer knows this node: joining again");
    }
}

/// Registers and activates the node; returns its id. `None`: the node is stopping.
async fn join(engine: &Engine) -> Result<Option<NodeId>, Error> {
    let superlink = engine.link.fleet().endpoint();
    let known = superlink.clone();
    let mut previous = engine.disk(move |store| store.node_id(&known)).await?;
    let mut logged = String::new();
    loop {
        let tried = match try_to_join(engine, previous.take()).await {
            Err(Unanswered::Refused(error)) => error,
            Err(Unanswered::Stopping) => return Ok(None),
            Err(Unanswered::GivenUp(error)) => return Err(Error::Link(error)),
            Ok(id) => {
                connected(engine, superlink, id).await?;
                return Ok(Some(id));
            }
        };
        if engine.config.retry.max_retries.is_some() || engine.config.retry.max_wait.is_some() {
            return Err(Error::Link(tried));
        }
        let text = tried.to_string();
        engine.watch.link_lost(&text, JOIN_RETRY_DELAY);
        if logged != text {
            let to_do = advice(engine, &tried);
            tracing::error!("the SuperLink refuses this node, which retries: {text}{to_do}");
            logged = text;
        }
        if engine.pause(JOIN_RETRY_DELAY).await.is_none() {
            return Ok(None);
        }
    }
}

/// What a user can do for a refused node.
fn advice(engine: &Engine, refused: &FleetError) -> String {
    let FleetError::NotKnown { remedy: Remedy::Register | Remedy::RegisterOrWait | Remedy::Person, .. } = refused
    else {
        return String::new();
    };
    let key = engine.config.key.clone().unwrap_or_else(|| engine.config.state_dir.join("node.key"));
    format!("; to do: `flwr supernode register {}.pub`, if the SuperLink does not have its key yet", key.display())
}

/// Activates the node, after registering it unless that is somebody else's task.
async fn try_to_join(engine: &Engine, previous: Option<NodeId>) -> Result<NodeId, Unanswered> {
    let activate = || engine.link.call(|fleet| async move { fleet.activate_node(ANNOUNCED_INTERVAL_S).await });
    let refused = match activate().await {
        Err(Unanswered::Refused(error)) => error,
        other => return other,
    };
    let FleetError::NotKnown { remedy, .. } = &refused else { return Err(Unanswered::Refused(refused)) };
    // The SuperLink may still have the node's previous id as active: continue with it.
    if let (Remedy::Wait | Remedy::RegisterOrWait, Some(id)) = (remedy, previous)
        && send_heartbeat(engine, id).await? == Presence::Known
    {
        return Ok(id);
    }
    match remedy {
        Remedy::Register | Remedy::RegisterOrWait if engine.config.key.is_none() => {
            // `None`: the key is registered already, so retry later.
            match engine.link.call(|fleet| async move { fleet.register_node().await }).await? {
                Some(id) => tracing::info!(node = %id, "registered"),
                None => return Err(Unanswered::Refused(refused)),
            }
            activate().await
        }
        _ => Err(Unanswered::Refused(refused)),
    }
}

async fn connected(engine: &Engine, superlink: String, id: NodeId) -> Result<(), Error> {
    let transport = engine.link.tell_up(id);
    tracing::info!(node = %id, superlink, transport = transport.word(), "connected");
    engine.disk(move |store| store.set_node_id(&superlink, id)).await?;
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Presence {
    Known,
    Unknown,
}

async fn send_heartbeat(engine: &Engine, id: NodeId) -> Result<Presence, Unanswered> {
    let beat = engine.link.call(|fleet| async move { fleet.send_heartbeat(id, ANNOUNCED_INTERVAL_S).await });
    match beat.await {
        Ok(true) => Ok(Presence::Known),
        Ok(false) | Err(Unanswered::Refused(FleetError::NotKnown { .. })) => Ok(Presence::Unknown),
        Err(Unanswered::Refused(error)) => {
            tracing::warn!(%error, "a heartbeat was refused");
            Ok(Presence::Known)
        }
        Err(other) => Err(other),
    }
}

/// Sends heartbeats until the SuperLink does not know the node.
async fn beat(engine: &Engine, id: NodeId) -> Result<(), Unanswered> {
    while send_heartbeat(engine, id).await? == Presence::Known {
        let (min, max) = HEARTBEAT_S;
        let wait = min + (max - min) * random();
        tokio::select! {
            () = engine.stop.cancelled() => return Err(Unanswered::Stopping),
            () = engine.registration_lost.notified() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs_f64(wait)) => {}
        }
    }
    Ok(())
}

/// Deactivates the node. During a run it may return soon and must not lose anything, so the SuperLink is told to wait;
/// otherwise, and if it is draining, nothing waits for it. It stays registered, to return with the same id.
pub async fn leave(engine: &Engine) {
    let Some(id) = *engine.identity.borrow() else { return };
    let fleet = engine.link.fleet();
    let is_draining = engine.drain.is_on();
    let comes_back = !is_draining && takes_part(engine).await;
    let tell = || async {
        match comes_back {
            true => fleet.send_heartbeat(id, RETURN_INTERVAL_S).await.map(drop),
            false => fleet.deactivate_node(id).await,
        }
    };
    let until_heard = async {
        while let Err(FleetError::Unreachable { .. }) = tell().await {
            tokio::time::sleep(LEAVE_RETRY_DELAY).await;
        }
    };
    let limit = if is_draining { DRAINED_LEAVE_TIMEOUT } else { LEAVE_TIMEOUT };
    let gone = tokio::time::timeout(limit, until_heard).await;
    tracing::debug!(?gone, "left");
}

async fn takes_part(engine: &Engine) -> bool {
    let any = |store: &Store| Ok(!store.runs()?.is_empty() || !store.all_work()?.is_empty());
    engine.disk(any).await.unwrap_or(true)
}
