//! Keeps the node known to its SuperLink: registered, active, alive.

use std::sync::Arc;
use std::time::Duration;

use trellis_client::fleet::{FleetError, Remedy};
use trellis_core::id::NodeId;

use super::Engine;
use super::link::{Unanswered, random};
use crate::error::Error;
use crate::store::Store;

/// As announced. The SuperLink waits twice that for a silent node, and then answers in its place. What a node has taken it
/// keeps through lost links and reboots, so it is worth waiting for; a node that leaves for good says so.
const ANNOUNCED_INTERVAL_S: f64 = 180.0;
/// The same for a node that stops in the middle of a run: an update takes less.
const RETURN_INTERVAL_S: f64 = 60.0;
/// Between two heartbeats, shortest and longest, so that fleets do not beat together. Much less than announced: they also
/// find out whether the link works.
const HEARTBEAT_S: (f64, f64) = (17.5, 22.5);
/// Between two tries of a node that the SuperLink does not take: somebody may have registered it meanwhile.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(5);
/// A SuperLink that is asked to stop knowing the node gets so long.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// The same for a node that is not expected back: a run would wait for minutes for one that the SuperLink takes for alive.
const DRAINED_LEAVE_LIMIT: Duration = Duration::from_secs(20);
const LEAVE_PAUSE: Duration = Duration::from_millis(200);

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
        tracing::warn!("the SuperLink does not know this node any more: joining again");
    }
}

/// Registers and activates the node; its id. `None`: the node stops.
async fn join(engine: &Engine) -> Result<Option<NodeId>, Error> {
    let superlink = engine.link.fleet().endpoint();
    let known = superlink.clone();
    let mut previous = engine.disk(move |store| store.node_id(&known)).await?;
    let mut told = String::new();
    loop {
        let tried = match try_to_join(engine, previous.take()).await {
            Err(Unanswered::Refused(error)) => error,
            Err(Unanswered::Stopping) => return Ok(None),
            Err(Unanswered::GivenUp(error)) => return Err(Error::Link(error)),
            Ok(id) => {
                welcome(engine, superlink, id).await?;
                return Ok(Some(id));
            }
        };
        if engine.config.retry.max_retries.is_some() || engine.config.retry.max_wait.is_some() {
            return Err(Error::Link(tried));
        }
        let text = tried.to_string();
        engine.watch.link_lost(&text, UNKNOWN_PAUSE);
        if told != text {
            let to_do = advice(engine, &tried);
            tracing::error!("the SuperLink does not take this node, which waits and tries again: {text}{to_do}");
            told = text;
        }
        if engine.pause(UNKNOWN_PAUSE).await.is_none() {
            return Ok(None);
        }
    }
}

/// What a person can do for a node that is not taken.
fn advice(engine: &Engine, refused: &FleetError) -> String {
    let FleetError::NotKnown { remedy: Remedy::Register | Remedy::RegisterOrWait | Remedy::Person, .. } = refused
    else {
        return String::new();
    };
    let key = engine.config.key.clone().unwrap_or_else(|| engine.config.state_dir.join("node.key"));
    format!("; to do: `flwr supernode register {}.pub`, if the SuperLink does not have its key yet", key.display())
}

/// Activates the node, after registering it where that is its own business.
async fn try_to_join(engine: &Engine, previous: Option<NodeId>) -> Result<NodeId, Unanswered> {
    let activate = || engine.link.call(|fleet| async move { fleet.activate_node(ANNOUNCED_INTERVAL_S).await });
    let refused = match activate().await {
        Err(Unanswered::Refused(error)) => error,
        other => return other,
    };
    let FleetError::NotKnown { remedy, .. } = &refused else { return Err(Unanswered::Refused(refused)) };
    // The SuperLink still believes in the life that this node had before: it may go on with that.
    if let (Remedy::Wait | Remedy::RegisterOrWait, Some(id)) = (remedy, previous)
        && send_heartbeat(engine, id).await? == Presence::Known
    {
        return Ok(id);
    }
    match remedy {
        Remedy::Register | Remedy::RegisterOrWait if engine.config.key.is_none() => {
            // `None`: the key was registered before, so there is nothing but to wait.
            match engine.link.call(|fleet| async move { fleet.register_node().await }).await? {
                Some(id) => tracing::info!(node = %id, "registered"),
                None => return Err(Unanswered::Refused(refused)),
            }
            activate().await
        }
        _ => Err(Unanswered::Refused(refused)),
    }
}

async fn welcome(engine: &Engine, superlink: String, id: NodeId) -> Result<(), Error> {
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

/// Tells the SuperLink that the node lives, until it does not know the node.
async fn beat(engine: &Engine, id: NodeId) -> Result<(), Unanswered> {
    while send_heartbeat(engine, id).await? == Presence::Known {
        let (least, most) = HEARTBEAT_S;
        let wait = least + (most - least) * random();
        tokio::select! {
            () = engine.stop.cancelled() => return Err(Unanswered::Stopping),
            () = engine.disowned.notified() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs_f64(wait)) => {}
        }
    }
    Ok(())
}

/// Tells the SuperLink that the node goes. In the middle of a run it may be back in a moment, and then nothing should be
/// lost; otherwise, and if it was told to take no new work, nobody waits for it. It stays registered, to come back as the same.
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
            tokio::time::sleep(LEAVE_PAUSE).await;
        }
    };
    let limit = if is_draining { DRAINED_LEAVE_LIMIT } else { LEAVE_LIMIT };
    let gone = tokio::time::timeout(limit, until_heard).await;
    tracing::debug!(?gone, "left");
}

async fn takes_part(engine: &Engine) -> bool {
    let any = |store: &Store| Ok(!store.runs()?.is_empty() || !store.all_work()?.is_empty());
    engine.disk(any).await.unwrap_or(true)
}
