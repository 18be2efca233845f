//! The connection of the official `flwr` command, for a federation that comes or goes. It is a convenience: where it does not
//! work, that is told and nothing else changes.

use std::path::{Path, PathBuf};

use trellis_api::Connection;
use trellis_client::Token;

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
    let token = match token(connection, here) {
        Ok(token) => token,
        Err(why) => return vec![format!("`flwr` does not know it: {why}")],
    };
    match flwr_connection::write(None, app.as_deref(), name, connection, certificates.as_deref(), token.as_ref()) {
        Ok(written) if token.is_none() && connection.token_path.is_some() => {
            let mut lines = written.lines();
            lines.push(format!("its SuperLink asks who calls: run `flwr login {name}` once"));
            lines
        }
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

/// The token for the SuperLink; `None` if it needs none, or if the token is on the server's machine.
fn token(connection: &Connection, here: bool) -> Result<Option<Token>, String> {
    let Some(path) = connection.token_path.as_deref().filter(|_| here) else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("its token in {path} cannot be read: {error}"))?;
    Token::parse(&text).map(Some).map_err(|error| format!("there is no token in {path}: {error}"))
}

/// Takes away what was written for it.
pub fn disconnect(name: &str, connection: Option<&Connection>) {
    let certificates = connection.and_then(|connection| connection.root_certificates_path.as_deref()).map(Path::new);
    let directory = std::env::current_dir().unwrap_or_default();
    let app = directory.join("pyproject.toml").is_file().then_some(directory.as_path());
    // Nobody can do anything about it here, and `flwr` itself says it when the federation is missing.
    let _ = flwr_connection::remove(None, app, name, certificates);
}
