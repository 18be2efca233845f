//! An app as a directory: to be changed, sent, or packed by `flwr build`.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::App;

/// Why an app could not be written.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error("{path} is there already")]
    Exists { path: PathBuf },
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: io::Error },
}

impl App {
    /// Writes its files into a directory, which is made and must not be there yet. It is there whole or not at all.
    pub fn export(&self, directory: &Path) -> Result<(), ExportError> {
        if directory.symlink_metadata().is_ok() {
            return Err(ExportError::Exists { path: directory.to_owned() });
        }
        let mut name = directory.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.draft", std::process::id()));
        let draft = directory.with_file_name(name);
        let written = self.write(&draft).and_then(|()| {
            fs::rename(&draft, directory).map_err(|source| ExportError::Write { path: directory.to_owned(), source })
        });
        if written.is_err() {
            // What remains of it is of no use; why it failed is told.
            let _ = fs::remove_dir_all(&draft);
        }
        written
    }

    fn write(&self, directory: &Path) -> Result<(), ExportError> {
        for file in &self.files {
            let path = directory.join(&file.path);
            let put = || -> io::Result<()> {
                fs::create_dir_all(path.parent().unwrap_or(directory))?;
                let mut made = fs::File::create_new(&path)?;
                made.write_all(file.content)?;
                made.sync_all()
            };
            put().map_err(|source| ExportError::Write { path: path.clone(), source })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trellis_wire::fab;

    use super::*;
    use crate::list;

    #[test]
    fn every_app_can_be_packed_and_is_the_same_each_time() {
        let place = tempfile::tempdir().unwrap();
        for app in list() {
            let bundles = ["a", "b"].map(|copy| {
                let directory = place.path().join(format!("{}-{copy}", app.name));
                app.export(&directory).unwrap();
                fab::App::read(&directory).unwrap().bundle().unwrap()
            });
            assert_eq!(bundles[0].fab.content, bundles[1].fab.content);
            assert_eq!(bundles[0].metadata.id(), format!("trellis/{}", app.name));
            let packed = fab::App::open(&bundles[0].fab.content).unwrap();
            assert_eq!(packed.config().len(), app.config.len());
        }
    }

    #[test]
    fn what_is_there_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let app = &list()[0];
        assert!(matches!(app.export(place.path()), Err(ExportError::Exists { .. })));
        let nowhere = place.path().join("no/such/place");
        fs::write(place.path().join("no"), "").unwrap();
        assert!(matches!(app.export(&nowhere), Err(ExportError::Write { .. })));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing half-done is left");
    }
}
