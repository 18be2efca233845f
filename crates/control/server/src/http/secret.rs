//! Tokens as they are made, and the first one: whoever can read the home directory of the control plane is its
//! administrator, by the token in `admin.token`.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use trellis_api::Role;
use trellis_clock::now_ms;
use trellis_digest::sha256;
use trellis_files as files;
use trellis_registry::{NewToken, Registry, RegistryError};
use trellis_wire::token::Token;

const FILE: &str = "admin.token";

#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    #[error("the token of the administrator, {0}, cannot be read or written")]
    File(PathBuf, #[source] io::Error),
    #[error("the token of the administrator cannot be kept")]
    Registry(#[from] RegistryError),
}

pub fn fresh() -> String {
    Token::generate().reveal().to_owned()
}

/// Makes the token of the administrator where there is none. One that was revoked stays so: with the file removed, the
/// next start makes another.
pub async fn provide_admin(home: &Path, registry: &Registry) -> Result<(), AdminTokenError> {
    let path = home.join(FILE);
    let failed = |error| AdminTokenError::File(path.clone(), error);
    match fs::read_to_string(&path) {
        Ok(token) => {
            if fs::metadata(&path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
                tracing::warn!("{} can be read by others: chmod 600 it", path.display());
            }
            if registry.token(&sha256(token.trim().as_bytes()), now_ms()).await?.is_none() {
                tracing::warn!("{} does not count any more; the next start without it makes another", path.display());
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = fresh();
            let role = Role::Admin.name().to_owned();
            let hash = sha256(token.as_bytes());
            // Known before it is told: a crash between the two costs an entry that nobody has.
            let new = NewToken { name: "admin.token".to_owned(), role, sha256: hash, expires_ms: None };
            registry.issue_token(&new, now_ms()).await?;
            files::replace(&path, format!("{token}\n").as_bytes(), files::PRIVATE_FILE).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}
