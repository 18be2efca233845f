//! Periodic clean-up: removes finished runs (a SuperLink does not announce them, so the node asks), unused apps and unreferenced
//! objects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use trellis_client::fleet::FleetError;
use trellis_clock::now_s;
use trellis_core::id::RunId;

use super::Engine;
use super::execution::is_finished;
use crate::error::Error;
use crate::fab;
use crate::store::KnownRun;

const INTERVAL: Duration = Duration::from_secs(60);
/// A run without instructions for this time is checked.
const QUIET_S: f64 = 120.0;
/// A run without any news for this time is considered over.
const ABANDONED_S: f64 = 30.0 * 24.0 * 3600.0;

pub async fn run(engine: Arc<Engine>) -> Result<(), Error> {
    while engine.pause(INTERVAL).await.is_some() {
        if let Ok(runs) = engine.disk(|store| store.runs()).await {
            check_all(&engine, &runs).await;
            collect_garbage(&engine, &runs).await;
        }
    }
    Ok(())
}

async fn check_all(engine: &Engine, runs: &[KnownRun]) {
    let Ok(all) = engine.disk(|store| store.all_work()).await else { return };
    for known in runs {
        let (run, quiet_s) = (RunId(known.run.run_id), now_s() - known.used_at);
        if quiet_s > QUIET_S && !all.iter().any(|work| work.run == run) {
            check(engine, run, quiet_s).await;
        }
    }
}

async fn check(engine: &Engine, run: RunId, quiet_s: f64) {
    let Some(node) = *engine.identity.borrow() else { return };
    match engine.link.fleet().get_run(node, run).await {
        Ok(found) if is_finished(&found) => engine.end_run(run, "finished").await,
        Err(error @ FleetError::RunOver { .. }) => engine.end_run(run, &error.to_string()).await,
        _ if quiet_s > ABANDONED_S => engine.end_run(run, "no news for 30 days").await,
        _ => {}
    }
}

async fn collect_garbage(engine: &Arc<Engine>, runs: &[KnownRun]) {
    let in_use: BTreeSet<String> = runs.iter().map(|known| known.run.fab_hash.clone()).collect();
    engine.known_apps.retain(&in_use);
    let apps = engine.config.state_dir.join("apps");
    let swept = tokio::task::spawn_blocking(move || fab::sweep(&apps, &in_use, SystemTime::now())).await;
    if let Ok(Err(error)) = swept {
        tracing::warn!(%error, "unused apps cannot be removed");
    }
    // Objects of failed replies.
    if let Ok(_nobody) = engine.busy.try_write()
        && let Err(error) = engine.disk(|store| store.sweep()).await
    {
        tracing::warn!(error = &error as &dyn std::error::Error, "unreferenced objects cannot be removed");
    }
}
