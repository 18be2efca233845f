//! The connection of the official `flwr` command, for a federation that comes or goes. It is a convenience: where it does not
//! work, that is told and nothing else changes.

use std::path::{Path, PathBuf};

use trellis_api::Connection;

use crate::flwr_connection::{self, app_here};
use crate::python::FlwrHere;

/// Lets `flwr run . NAME` find the federation; what was done, in words. `here`: the server is on this machine.
pub async fn connect(name: &str, connection: &Connection, here: bool) -> Vec<String> {
    let Some(certificates) = certificates(connection, here) else {
        return vec!["`flwr` does not know it: its certificates are on the server's machine".to_owned()];
    };
    let release = FlwrHere::look(false).await.and_then(|found| found.release());
    let directory = std::env::current_dir().unwrap_or_default();
    let app = app_here(&directory, release);
    match flwr_connection::write(None, app.as_deref(), name, connection, certificates.as_deref()) {
        Ok(written) => written.lines(),
        Err(error) => vec![format!("`flwr` does not know it: {error}")],
    }
}

/// The file to trust; `Some(None)`: none is needed.
fn certificates(connection: &Connection, here: bool) -> Option<Option<PathBuf>> {
    match (&connection.root_certificates, &connection.root_certificates_path) {
        (_, Some(path)) if here => Some(Some(path.into())),
        (None, _) => Some(None),
        (Some(_), _) => None,
    }
}

/// Takes away what was written for it.
pub fn disconnect(name: &str, connection: Option<&Connection>) {
    let certificates = connection.and_then(|connection| connection.root_certificates_path.as_deref()).map(Path::new);
    let directory = std::env::current_dir().unwrap_or_default();
    let app = directory.join("pyproject.toml").is_file().then_some(directory.as_path());
    // Nobody can do anything about it here, and `flwr` itself says it when the federation is missing.
    let _ = flwr_connection::remove(None, app, name, certificates);
}
