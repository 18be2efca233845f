//! Directories with checkpoints on this machine: one per federation in the home, and that of a SuperLink that was started by
//! hand.

use std::fs;
use std::path::{Path, PathBuf};

use trellis_api::Home;
use trellis_models::{ModelError, ModelStore, is_run_id};

use super::{PlaceArgs, failure};
use crate::prefix::{Found, find, too_short};
use crate::remote::CommandError;
use crate::settings::system;

/// In the state directory of a SuperLink.
const MODELS: &str = "models";

/// The checkpoints of one federation.
#[derive(Debug)]
pub struct Shelf {
    /// Empty for a given directory and for a SuperLink without a federation.
    pub federation: String,
    pub store: ModelStore,
}

#[derive(Debug)]
pub struct Shelves {
    /// For people.
    pub place: String,
    pub all: Vec<Shelf>,
}

impl Shelves {
    pub fn at(place: &PlaceArgs) -> Result<Shelves, CommandError> {
        if let Some(directory) = place.models.clone().filter(|path| !path.as_os_str().is_empty()) {
            let place = directory.display().to_string();
            return Ok(Shelves {
                place,
                all: vec![Shelf { federation: String::new(), store: ModelStore::new(directory) }],
            });
        }
        let home = Home::find(None).map(|home| home.models());
        let by_hand = system::with_system(|system| system.default_state_dir("superlink"));
        let by_hand = by_hand.map(|state_dir| state_dir.join(MODELS));
        let place = home.as_ref().or(by_hand.as_ref()).map(|path| path.display().to_string());
        let place = place.ok_or_else(|| {
            CommandError::usage("neither HOME nor TRELLIS_HOME is set", "name the directory with --models")
        })?;
        let mut all = home.as_deref().map(of_home).transpose()?.unwrap_or_default();
        all.extend(by_hand.map(|path| Shelf { federation: String::new(), store: ModelStore::new(path) }));
        Ok(Shelves { place, all })
    }

    /// The run with this id, or the only one whose id has this prefix.
    pub fn find(self, run: &str) -> Result<(Shelf, String), CommandError> {
        if !is_run_id(run) {
            return Err(failure(ModelError::RunId { run: run.to_owned() }));
        }
        let mut ids: Vec<(usize, String)> = Vec::new();
        for (index, shelf) in self.all.iter().enumerate() {
            ids.extend(shelf.store.runs().map_err(failure)?.into_iter().map(|run| (index, run)));
        }
        match find(run, ids, |(_, id)| id) {
            Found::One((index, run)) => Ok((self.all.into_iter().nth(index).expect("it is of this list"), run)),
            Found::None => {
                let what = format!("run {run} has no checkpoints in {}", self.place);
                Err(CommandError::failed(
                    what,
                    Some("trellis model ls shows which there are; --models names another directory"),
                ))
            }
            Found::Many(ids) => Err(too_short(run, &ids)),
        }
    }
}

/// A directory for each federation.
fn of_home(models: &Path) -> Result<Vec<Shelf>, CommandError> {
    let entries = match fs::read_dir(models) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.collect::<Result<Vec<_>, _>>()),
    };
    let entries =
        entries.map_err(|error| CommandError::failed(format!("{} cannot be read: {error}", models.display()), None))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    paths.sort();
    let named = |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), path));
    let shelf = |(federation, path): (String, PathBuf)| Shelf { federation, store: ModelStore::new(path) };
    Ok(paths.into_iter().filter_map(named).map(shelf).collect())
}
