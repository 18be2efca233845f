//! The connection of the official `flwr` command, added and removed with a federation. Only a convenience: if it fails, the
//! error is printed and everything else continues.

use std::path::{Path, PathBuf};

use trellis_api::{Client, Connection};
use trellis_flower::Release;
use trellis_wire::token::Token;

use trellis_flwr::Installation;
use trellis_flwr::connection::{self, PYPROJECT, Written, app_here, reads_own_file, save_certificates};

/// A written connection, and the remaining steps for the user.
pub struct Connected {
    pub written: Written,
    /// The `flwr` on PATH does not find it yet, and needs this command.
    needs_app: bool,
    hints: Vec<String>,
}

impl Connected {
    pub fn lines(&self) -> Vec<String> {
        let written = self.written.lines().into_iter().filter(|_| !self.needs_app || !self.written.is_ready());
        written.chain(self.hints.iter().cloned()).collect()
    }
}

/// Lets `flwr run . NAME` find the federation. `here`: the server is on this machine. `app`: the app that Flower 1.25 is to be
/// used in; without it, the one in the current directory if 1.25 is on PATH.
pub async fn connect(
    name: &str,
    connection: &Connection,
    here: bool,
    token: Option<Token>,
    app: Option<&Path>,
) -> Result<Connected, String> {
    let certificates = certificates(name, connection, here)?;
    let release = Installation::detect(false).await.and_then(|found| found.release());
    let directory = std::env::current_dir().unwrap_or_default();
    let app = app.map(Path::to_owned).or_else(|| app_here(&directory, release));
    let written = connection::write(None, app.as_deref(), name, connection, certificates.as_deref(), token.as_ref())
        .map_err(|error| error.to_string())?;
    let mut hints = Vec::from_iter(hint(name, release, app.is_some()));
    if token.is_none() && connection.token_path.is_some() {
        hints.push(format!("its SuperLink requires accounts: run `flwr login {name}` once"));
    }
    let needs_app = app.is_none() && release.is_some_and(|release| !reads_own_file(release));
    Ok(Connected { written, needs_app, hints })
}

/// The same, in words.
pub async fn connect_in_words(name: &str, connection: &Connection, here: bool) -> Vec<String> {
    let connected = match if here { token(connection) } else { Ok(None) } {
        Ok(token) => connect(name, connection, here, token, None).await,
        Err(why) => Err(why),
    };
    match connected {
        Ok(connected) => connected.lines(),
        Err(why) => vec![format!("`flwr` has no connection: {why}")],
    }
}

/// The command for users of Flower 1.25, which reads connections from the app only.
fn hint(name: &str, release: Option<Release>, in_app: bool) -> Option<String> {
    let command = format!("`trellis connect {name} --app DIR`");
    match (release, in_app) {
        (Some(release), _) if reads_own_file(release) => None,
        (Some(release), true) => {
            Some(format!("Flower {} reads {PYPROJECT}: for other apps, run {command}", release.series()))
        }
        (Some(release), false) => {
            let what = format!("Flower {} reads connections from the app's {PYPROJECT}", release.series());
            Some(format!("{what}: run {command} first, with DIR the directory of the app"))
        }
        (None, true) => None,
        (None, false) => Some(format!("for Flower 1.25, run {command} first, with DIR the directory of the app")),
    }
}

/// The file of trusted certificates; `None` if none is needed.
fn certificates(name: &str, connection: &Connection, here: bool) -> Result<Option<PathBuf>, String> {
    match (&connection.root_certificates, &connection.root_certificates_path) {
        (_, Some(path)) if here => Ok(Some(path.into())),
        (Some(pem), _) if !connection.insecure => save_certificates(name, pem).map(Some),
        _ => Ok(None),
    }
}

/// The token for a SuperLink of this machine; `None` if it needs none.
pub fn token(connection: &Connection) -> Result<Option<Token>, String> {
    let Some(path) = connection.token_path.as_deref() else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("its token in {path} cannot be read: {error}"))?;
    Token::parse(&text).map(Some).map_err(|error| format!("there is no token in {path}: {error}"))
}

/// The path of the certificates of a federation, which identifies its connection at the removal.
pub async fn trust(client: &Client, name: &str) -> Option<PathBuf> {
    client.connection(name).await.ok()?.root_certificates_path.map(PathBuf::from)
}

/// Removes the connection.
pub fn disconnect(name: &str, trust: Option<&Path>) {
    let directory = std::env::current_dir().unwrap_or_default();
    let app = directory.join(PYPROJECT).is_file().then_some(directory.as_path());
    // Errors are ignored: `flwr` reports the missing federation itself.
    let _ = connection::remove(None, app, name, trust);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_1_25_are_told_the_command_that_they_need() {
        let release = |minor| Some(Release::of(minor));
        for (release, in_app, expected) in [
            (release(42), false, None),
            (release(26), true, None),
            (release(25), true, Some("for other apps, run `trellis connect lab --app DIR`")),
            (
                release(25),
                false,
                Some("Flower 1.25 reads connections from the app's pyproject.toml: run `trellis connect"),
            ),
            (None, false, Some("for Flower 1.25, run `trellis connect lab --app DIR` first")),
            (None, true, None),
        ] {
            let hint = hint("lab", release, in_app);
            assert_eq!(hint.is_some(), expected.is_some(), "{hint:?}");
            assert!(hint.unwrap_or_default().contains(expected.unwrap_or_default()), "{release:?} {in_app}");
        }
    }
}
