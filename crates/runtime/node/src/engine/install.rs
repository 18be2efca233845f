//! Installs the apps of runs: each is fetched once, stored as a bundle, unpacked, and cached while its run is active.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use trellis_core::id::RunId;
use trellis_wire::proto;

use super::Engine;
use super::execution::{StepError, ask};
use crate::app::InstalledApp;
use crate::config::Config;
use crate::fab::{self, DefaultConfig, FabError};
use crate::store::StoreError;

/// The apps in use, by hash.
#[derive(Default)]
pub struct Apps(Mutex<BTreeMap<String, Arc<App>>>);

struct App {
    installed: InstalledApp,
    defaults: DefaultConfig,
}

impl Apps {
    fn get(&self, hash: &str) -> Option<Arc<App>> {
        self.0.lock().expect("no holder panics").get(hash).cloned()
    }

    fn put(&self, hash: &str, app: &Arc<App>) {
        self.0.lock().expect("no holder panics").insert(hash.to_owned(), Arc::clone(app));
    }

    /// Drops unused apps from the cache; their files remain.
    pub fn retain(&self, used: &BTreeSet<String>) {
        self.0.lock().expect("no holder panics").retain(|hash, _| used.contains(hash));
    }
}

type RunConfig = BTreeMap<String, proto::Scalar>;

/// The unpacked app of a run, and its configuration.
pub async fn app_of(engine: &Arc<Engine>, run: &proto::Run) -> Result<(Option<InstalledApp>, RunConfig), StepError> {
    let native = engine.apps.is_native();
    // A built-in app replaces the app of the run, but the run's app must still be trusted.
    if native && engine.config.trusted_entities.is_empty() {
        return Ok((None, run.override_config.clone()));
    }
    let app = match engine.known_apps.get(&run.fab_hash) {
        Some(app) => app,
        None => find(engine, run).await?,
    };
    if native {
        return Ok((None, run.override_config.clone()));
    }
    let config = fab::run_config(&app.defaults, &run.override_config).map_err(step_error)?;
    Ok((Some(app.installed.clone()), config))
}

async fn find(engine: &Arc<Engine>, run: &proto::Run) -> Result<Arc<App>, StepError> {
    let (config, hash) = (engine.config.clone(), run.fab_hash.clone());
    let found = blocking(move || from_disk(&config, &hash)).await?;
    let app = match found {
        Some(app) => app,
        None => {
            let (id, hash) = (RunId(run.run_id), run.fab_hash.clone());
            let bundle = ask(engine, id, |fleet, node| {
                let hash = hash.clone();
                async move { fleet.get_fab(node, id, &hash).await }
            })
            .await?;
            let config = engine.config.clone();
            blocking(move || {
                fab::verify(&bundle, &config.trusted_entities)?;
                install(&config, &bundle, &hash)
            })
            .await?
        }
    };
    let app = Arc::new(app);
    engine.known_apps.put(&run.fab_hash, &app);
    Ok(app)
}

fn install(config: &Config, bundle: &proto::Fab, hash: &str) -> Result<App, FabError> {
    let apps = config.state_dir.join("apps");
    let (installed, defaults) = fab::install(bundle, hash, &apps, &config.limits)?;
    Ok(App { installed, defaults })
}

/// The app of an earlier instruction. Signatures are not stored: if they matter, the bundle is fetched again.
fn from_disk(config: &Config, hash: &str) -> Result<Option<App>, FabError> {
    if !config.trusted_entities.is_empty() {
        return Ok(None);
    }
    let Some(content) = fab::stored_bundle(&config.state_dir.join("apps"), hash)? else { return Ok(None) };
    let bundle = proto::Fab { content: content.into(), ..Default::default() };
    match install(config, &bundle, hash) {
        Err(FabError::OtherHash { .. }) => Ok(None),
        other => other.map(Some),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FabError> + Send + 'static,
) -> Result<T, StepError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(step_error),
        Err(error) => Err(StepError::Disk(StoreError::Files(io::Error::other(error)))),
    }
}

fn step_error(error: FabError) -> StepError {
    match error.code() {
        Some(code) => StepError::Failed { code, reason: error.to_string() },
        None => StepError::Disk(StoreError::Files(io::Error::other(error))),
    }
}
