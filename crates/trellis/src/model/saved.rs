//! Files that ServerApps in Python saved in their working directories, on this machine. What they hold is the app's business.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use trellis_api::Home;
use trellis_driver_local::superlinks;
use trellis_terminal::size::rounded;

use crate::settings::system;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// Empty for a SuperLink without a federation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub federation: String,
    run_id: String,
    path: String,
    bytes: u64,
    #[serde(skip)]
    modified: Option<SystemTime>,
}

impl Saved {
    pub fn words(&self) -> String {
        format!("The ServerApp of run {} saved {} ({})", self.run_id, self.path, rounded(self.bytes))
    }
}

/// Those of runs whose id has this prefix, the newest last.
pub fn list(run: &str) -> Vec<Saved> {
    let mut states = Home::find(None).map(|home| superlinks(home.directory())).unwrap_or_default();
    let by_hand = system::with_system(|system| system.default_state_dir("superlink"));
    states.extend(by_hand.map(|state| (String::new(), state)));
    let mut found: Vec<Saved> = states.iter().flat_map(|(federation, state)| of_superlink(federation, state)).collect();
    found.retain(|saved| saved.run_id.starts_with(run));
    found.sort_by_key(|saved| saved.modified);
    found
}

fn of_superlink(federation: &str, state: &Path) -> Vec<Saved> {
    let mut found = Vec::new();
    for run in entries(&state.join("apps")) {
        for file in entries(&run.join("work")) {
            // Not through links: an app may have made them.
            let Some(metadata) = file.symlink_metadata().ok().filter(|metadata| metadata.is_file()) else { continue };
            found.push(Saved {
                federation: federation.to_owned(),
                run_id: run.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                path: file.display().to_string(),
                bytes: metadata.len(),
                modified: metadata.modified().ok(),
            });
        }
    }
    found
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_and_links_are_not() {
        let state = tempfile::tempdir().unwrap();
        let work = state.path().join("apps/17/work");
        fs::create_dir_all(work.join("below")).unwrap();
        fs::write(work.join("model.npz"), "12345").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", work.join("link")).unwrap();
        let [saved] = &of_superlink("lab", state.path())[..] else { panic!("one") };
        assert_eq!((saved.federation.as_str(), saved.run_id.as_str(), saved.bytes), ("lab", "17", 5));
        assert_eq!(saved.words(), format!("The ServerApp of run 17 saved {} (5 B)", work.join("model.npz").display()));
    }
}
