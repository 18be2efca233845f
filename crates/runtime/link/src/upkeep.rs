//! What must happen although nobody asks: expiry, signs of life, counters, and the truth about our own health.

use std::sync::Arc;
use std::time::Duration;

use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use trellis_core::refusal::Refusal;
use trellis_core::upkeep;

use crate::link::Link;
use crate::watch::survey;

const TICK: Duration = Duration::from_secs(1);
/// Ticks between two signs of life while all is well.
const TICKS_PER_LIFE_SIGN: u32 = 10;

/// Ticks between two looks at the files of the certificate.
const TICKS_PER_LOOK: u32 = 5;
/// Ticks between two looks at who is there.
const TICKS_PER_ROLL_CALL: u32 = 5;

/// The whole server, in the words of `grpc.health.v1`.
struct Overall;

impl NamedService for Overall {
    const NAME: &'static str = "";
}

/// Works until the SuperLink stops.
pub async fn run(link: Arc<Link>, health: Option<HealthReporter>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ticks = 0u32;
    while !link.room.is_closed() {
        tick.tick().await;
        if let Err(error) = step(&link, ticks).await {
            tracing::debug!(%error, "upkeep will be tried again");
        }
        if let Some(health) = &health {
            let status = if link.store().works() { ServingStatus::Serving } else { ServingStatus::NotServing };
            health.set_service_status(Overall::NAME, status).await;
        }
        ticks = ticks.wrapping_add(1);
    }
    if let Some(health) = &health {
        health.set_service_status(Overall::NAME, ServingStatus::NotServing).await;
    }
}

async fn step(link: &Link, ticks: u32) -> Result<(), Refusal> {
    let now = link.now();
    let ended = std::mem::take(&mut *link.ended.lock().expect("no holder panics"));
    survey::finished(link, ended);
    link.watch.tick(now);
    if let Some(tls) = link.tls.as_ref().filter(|_| ticks.is_multiple_of(TICKS_PER_LOOK)) {
        tls.look();
    }
    if ticks.is_multiple_of(TICKS_PER_ROLL_CALL) {
        let online = link.read(|view| view.online_nodes(now))?;
        if link.watch.nodes_online(&online) {
            link.nodes_changed();
        }
    }
    // While the store does not work, trying to write is how we learn that it does again.
    if ticks.is_multiple_of(TICKS_PER_LIFE_SIGN) || !link.store().works() {
        link.write(move |tx| tx.set_alive_at(now)).await?;
        if link.read(|view| view.unfinished_runs())?.is_empty() {
            link.hot.clear();
        }
    }
    link.keep_traffic().await?;
    if link.read(|view| upkeep::is_due(view, now))? {
        link.write(move |tx| upkeep::tick(tx, now)).await?;
    }
    Ok(())
}
