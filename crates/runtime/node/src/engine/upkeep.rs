//! What is done now and then: forgetting runs that are over (a SuperLink tells nobody, so nodes ask), and clearing away what
//! nobody needs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use trellis_client::fleet::FleetError;
use trellis_clock::now_s;
use trellis_core::id::RunId;

use super::Engine;
use super::carry::is_finished;
use crate::error::Error;
use crate::fab;
use crate::store::KnownRun;

const INTERVAL: Duration = Duration::from_secs(60);
/// A run without instructions for so long is asked about.
const QUIET_S: f64 = 120.0;
/// A run that nobody has heard of for so long is over.
const FORGOTTEN_S: f64 = 30.0 * 24.0 * 3600.0;

pub async fn tidy(engine: Arc<Engine>) -> Result<(), Error> {
    while engine.pause(INTERVAL).await.is_some() {
        if let Ok(runs) = engine.disk(|store| store.runs()).await {
            ask_about_all(&engine, &runs).await;
            clear_away(&engine, &runs).await;
        }
    }
    Ok(())
}

async fn ask_about_all(engine: &Engine, runs: &[KnownRun]) {
    let Ok(all) = engine.disk(|store| store.all_work()).await else { return };
    for known in runs {
        let (run, quiet_s) = (RunId(known.run.run_id), now_s() - known.used_at);
        if quiet_s > QUIET_S && !all.iter().any(|work| work.run == run) {
            ask_about(engine, run, quiet_s).await;
        }
    }
}

async fn ask_about(engine: &Engine, run: RunId, quiet_s: f64) {
    let Some(node) = *engine.identity.borrow() else { return };
    match engine.link.fleet().get_run(node, run).await {
        Ok(found) if is_finished(&found) => engine.end_run(run, "finished").await,
        Err(error @ FleetError::RunOver { .. }) => engine.end_run(run, &error.to_string()).await,
        _ if quiet_s > FORGOTTEN_S => engine.end_run(run, "nothing was heard of it for 30 days").await,
        _ => {}
    }
}

async fn clear_away(engine: &Arc<Engine>, runs: &[KnownRun]) {
    let in_use: BTreeSet<String> = runs.iter().map(|known| known.run.fab_hash.clone()).collect();
    engine.known_apps.retain(&in_use);
    let apps = engine.config.state_dir.join("apps");
    let swept = tokio::task::spawn_blocking(move || fab::sweep(&apps, &in_use, SystemTime::now())).await;
    if let Ok(Err(error)) = swept {
        tracing::warn!(%error, "old apps could not be removed");
    }
    // Objects of replies that came to nothing.
    if let Ok(_nobody) = engine.busy.try_write()
        && let Err(error) = engine.disk(|store| store.sweep()).await
    {
        tracing::warn!(error = &error as &dyn std::error::Error, "leftover objects could not be removed");
    }
}
