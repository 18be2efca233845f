//! The models of native runs, from the directory of their coordinator.

use std::fs::File;
use std::path::PathBuf;

use trellis_api::ModelFile;
use trellis_models::{Entry, ModelError, ModelStore};

use super::Refusal;
use super::sites::Sites;
use super::view::View;

/// All readable models. `trellis model ls` also lists damaged ones.
pub async fn list(sites: &Sites, view: &View) -> Result<Vec<ModelFile>, Refusal> {
    let entries = in_store(directory(sites, view)?, |store| store.list()).await?;
    Ok(entries.into_iter().filter_map(described).collect())
}

pub async fn open(sites: &Sites, view: &View, path: &str) -> Result<File, Refusal> {
    let (directory, owned) = (directory(sites, view)?, path.to_owned());
    let file = in_store(directory, move |store| store.open_model(&owned)).await?;
    file.ok_or_else(|| Refusal::NotFound(format!("federation {} has no model {path:?}", view.name)))
}

fn directory(sites: &Sites, view: &View) -> Result<PathBuf, Refusal> {
    let here = view.federation.as_ref().and_then(|federation| sites.models_path(federation));
    here.ok_or_else(|| Refusal::NotFound(format!("the models of {} are on the machine of its coordinator", view.name)))
}

async fn in_store<T: Send + 'static>(
    directory: PathBuf,
    work: impl FnOnce(&ModelStore) -> Result<T, ModelError> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(move || work(&ModelStore::new(directory))).await;
    let done = done.map_err(|error| Refusal::Broken(error.to_string()))?;
    done.map_err(|error| {
        tracing::error!(%error, source = ?std::error::Error::source(&error), "the models");
        Refusal::Broken(error.to_string())
    })
}

fn described(entry: Entry) -> Option<ModelFile> {
    let path = entry.model_path();
    let manifest = entry.manifest.ok()?;
    Some(ModelFile {
        run: entry.run_id,
        round: entry.round,
        is_final: manifest.is_final,
        path,
        bytes: manifest.model_bytes(),
        strategy: manifest.strategy,
        saved_at: manifest.saved_at,
    })
}
