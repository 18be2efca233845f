//! Where checkpoints are on this machine: a directory for each federation in the home, and that of a SuperLink which was started
//! by hand.

use std::fs;
use std::path::{Path, PathBuf};

use trellis_models::{ModelError, ModelStore, is_run_id};

use super::{PlaceArgs, trouble};
use crate::home::Home;
use crate::prefix::{Found, find, too_short};
use crate::remote::Trouble;
use crate::settings::here;

/// In the state directory of a SuperLink.
const MODELS: &str = "models";

/// The checkpoints of one federation.
#[derive(Debug)]
pub struct Shelf {
    /// Empty: of a directory that was given, or of a SuperLink that belongs to no federation.
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
    pub fn at(place: &PlaceArgs) -> Result<Shelves, Trouble> {
        if let Some(directory) = place.models.clone().filter(|path| !path.as_os_str().is_empty()) {
            let place = directory.display().to_string();
            return Ok(Shelves {
                place,
                all: vec![Shelf { federation: String::new(), store: ModelStore::new(directory) }],
            });
        }
        let home = Home::find(None).map(|home| home.models());
        let by_hand = here::with_surroundings(|around| around.default_state_dir("superlink"));
        let by_hand = by_hand.map(|state_dir| state_dir.join(MODELS));
        let place = home.as_ref().or(by_hand.as_ref()).map(|path| path.display().to_string());
        let place = place.ok_or_else(|| {
            Trouble::usage("neither HOME nor TRELLIS_HOME is set", "name the directory with --models")
        })?;
        let mut all = home.as_deref().map(of_home).transpose()?.unwrap_or_default();
        all.extend(by_hand.map(|path| Shelf { federation: String::new(), store: ModelStore::new(path) }));
        Ok(Shelves { place, all })
    }

    /// The run of this id, or the only one whose id begins so.
    pub fn find(self, run: &str) -> Result<(Shelf, String), Trouble> {
        if !is_run_id(run) {
            return Err(trouble(ModelError::RunId { run: run.to_owned() }));
        }
        let mut ids: Vec<(usize, String)> = Vec::new();
        for (index, shelf) in self.all.iter().enumerate() {
            ids.extend(shelf.store.runs().map_err(trouble)?.into_iter().map(|run| (index, run)));
        }
        match find(run, ids, |(_, id)| id) {
            Found::One((index, run)) => Ok((self.all.into_iter().nth(index).expect("it is of this list"), run)),
            Found::None => {
                let what = format!("there are no checkpoints of run {run} in {}", self.place);
                Err(Trouble::failed(
                    what,
                    Some("trellis model ls shows which there are; --models names another directory"),
                ))
            }
            Found::Many(ids) => Err(too_short(run, &ids)),
        }
    }
}

/// A directory for each federation.
fn of_home(models: &Path) -> Result<Vec<Shelf>, Trouble> {
    let entries = match fs::read_dir(models) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.collect::<Result<Vec<_>, _>>()),
    };
    let entries =
        entries.map_err(|error| Trouble::failed(format!("{} cannot be read: {error}", models.display()), None))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    paths.sort();
    let named = |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), path));
    let shelf = |(federation, path): (String, PathBuf)| Shelf { federation, store: ModelStore::new(path) };
    Ok(paths.into_iter().filter_map(named).map(shelf).collect())
}
