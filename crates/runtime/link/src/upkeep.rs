//! Periodic tasks: expiry, heartbeats of the SuperLink, counters, and health.

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
/// Ticks between two heartbeats.
const TICKS_PER_HEARTBEAT: u32 = 10;

/// Ticks between two checks of the certificate files.
const TICKS_PER_RELOAD: u32 = 5;
/// Ticks between two checks of online nodes.
const TICKS_PER_PRESENCE: u32 = 5;

/// The name of the whole server in `grpc.health.v1`.
struct Overall;

impl NamedService for Overall {
    const NAME: &'static str = "";
}

/// Runs until the SuperLink stops.
pub async fn run(link: Arc<Link>, health: Option<HealthReporter>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ticks = 0u32;
    while !link.room.is_closed() {
        tick.tick().await;
        if let Err(error) = step(&link, ticks).await {
            tracing::debug!(%error, "periodic tasks failed; retrying");
        }
        if let Some(health) = &health {
            let status = if link.store().is_healthy() { ServingStatus::Serving } else { ServingStatus::NotServing };
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
    link.app_logs.runs_ended(&ended);
    survey::finished(link, ended);
    link.watch.tick(now);
    if let Some(tls) = link.tls.as_ref().filter(|_| ticks.is_multiple_of(TICKS_PER_RELOAD)) {
        tls.reload_if_changed();
    }
    if ticks.is_multiple_of(TICKS_PER_PRESENCE) {
        let online = link.read(|view| view.online_nodes(now))?;
        if link.watch.nodes_online(&online) {
            link.nodes_changed();
        }
    }
    // While the store fails, a write detects its recovery.
    if ticks.is_multiple_of(TICKS_PER_HEARTBEAT) || !link.store().is_healthy() {
        link.write(move |tx| tx.set_alive_at(now)).await?;
        if link.read(|view| view.unfinished_runs())?.is_empty() {
            link.hot.clear();
        }
    }
    link.store_traffic().await?;
    if link.read(|view| upkeep::is_due(view, now))? {
        link.write(move |tx| upkeep::tick(tx, now)).await?;
    }
    Ok(())
}
