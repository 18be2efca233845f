//! The first administrator: created if accounts are on and none exists, with a generated token or a token from a file.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use trellis_core::Seconds;
use trellis_core::access::{self, NewSecret};
use trellis_core::account::{self, Role};
use trellis_core::port::Tx;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::secret::{Hash, State};
use trellis_digest::{hex, sha256};
use trellis_wire::token::Token;

use crate::api::{account::new_token, random};
use crate::link::Link;
use crate::serve::ServeError;

/// The file of the generated token in the state directory.
const GENERATED_TOKEN_FILE: &str = "admin.token";
const NAME: &str = "admin";
const BY: &str = "the SuperLink";
const GENERATED: &str = "first";
/// The label of the token from a file. At most one is valid.
const CONFIGURED: &str = "admin-token-file";
/// Shorter tokens could be guessed.
pub const MIN_TOKEN_CHARS: usize = 32;
/// Maximum size of a token file.
const MAX_FILE_BYTES: u64 = 8 << 10;
/// Forbidden permissions of a token file. The group may read it: container platforms pass secrets to non-root users
/// this way, as with keys of nodes.
const FORBIDDEN_MODE: u32 = 0o027;

/// Parses and checks the token of a file.
pub fn configured_token(text: &str, mode: u32) -> Result<Token, String> {
    if mode & FORBIDDEN_MODE != 0 {
        return Err(format!("other users may access it (mode {:04o})", mode & 0o7777));
    }
    let token = Token::parse(text).map_err(|error| error.to_string())?;
    match token.reveal().len() {
        short if short < MIN_TOKEN_CHARS => {
            Err(format!("its token has {short} characters, the minimum is {MIN_TOKEN_CHARS}"))
        }
        _ => Ok(token),
    }
}

/// Ensures that an administrator exists; with a file, that its token is the administrator's.
pub async fn ensure(link: &Link, file: Option<&Path>) -> Result<(), ServeError> {
    if !link.accounts {
        return Ok(());
    }
    match file {
        Some(path) => ensure_configured(link, path).await,
        None => ensure_generated(link).await,
    }
}

async fn ensure_generated(link: &Link) -> Result<(), ServeError> {
    if !link.read(|view| view.accounts()).map_err(ServeError::Recovery)?.is_empty() {
        return Ok(());
    }
    let path = link.directory().join(GENERATED_TOKEN_FILE);
    let (token, hash) = new_token();
    // The file first: a token without an account is replaced at the next start, but an account without its token is
    // lost.
    trellis_files::replace(&path, format!("{token}\n").as_bytes(), trellis_files::PRIVATE_FILE)
        .map_err(|source| ServeError::AdminToken { path: path.display().to_string(), source })?;
    let (id, now) = (hex(&random::<8>()), link.now());
    let made = link.write(move |tx| {
        account::create(tx, &id, NAME, Role::Admin, BY, now)?;
        let secret = NewSecret { hash, label: GENERATED.to_owned(), ttl_s: None };
        access::issue_access(tx, NAME, &secret, BY, now)
    });
    made.await.map_err(ServeError::Recovery)?;
    tracing::info!(path = %path.display(), "the first account is 'admin'; its token is in this file");
    Ok(())
}

async fn ensure_configured(link: &Link, path: &Path) -> Result<(), ServeError> {
    let unusable = |why: String| ServeError::UnusableToken { path: path.display().to_string(), why };
    let token = read(path).map_err(unusable)?;
    let (id, hash, now) = (hex(&random::<8>()), sha256(token.reveal().as_bytes()), link.now());
    let changed = link.write(move |tx| adopt(tx, &id, hash, now)).await.map_err(|refusal| match refusal.kind {
        Kind::Precondition => unusable(refusal.text.into_owned()),
        _ => ServeError::Recovery(refusal),
    })?;
    if changed {
        tracing::info!(path = %path.display(), "account 'admin' uses the token in this file");
    }
    Ok(())
}

/// Makes the token of the file the administrator's, in place of the previous token from the file. Returns whether it
/// changed.
fn adopt(tx: &mut dyn Tx, id: &str, hash: Hash, now: Seconds) -> Result<bool, Refusal> {
    if tx.accounts()?.is_empty() {
        account::create(tx, id, NAME, Role::Admin, BY, now)?;
    }
    let admin = tx.accounts()?.into_iter().find(|account| account.name == NAME).ok_or_else(|| {
        Refusal::new(Kind::Precondition, "there are accounts, but no account 'admin': remove the file from the options")
    })?;
    match tx.secret(&hash)? {
        None => {}
        Some(known) if known.account == admin.id && known.state() == State::Fresh && !known.has_expired(now) => {
            return Ok(false);
        }
        Some(_) => {
            let text = "its token was revoked, has expired or belongs to another account: write a new one";
            return Err(Refusal::new(Kind::Precondition, text));
        }
    }
    for earlier in tx.secrets_of(&admin.id)? {
        if earlier.label == CONFIGURED && earlier.state() == State::Fresh {
            access::revoke(tx, earlier.id(), BY, now)?;
        }
    }
    let secret = NewSecret { hash, label: CONFIGURED.to_owned(), ttl_s: None };
    access::issue_access(tx, NAME, &secret, BY, now)?;
    Ok(true)
}

fn read(path: &Path) -> Result<Token, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > MAX_FILE_BYTES {
        return Err(format!("it is not a file of at most {MAX_FILE_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    configured_token(&text, about.mode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_token_files_are_refused() {
        let good = "a".repeat(MIN_TOKEN_CHARS);
        assert_eq!(configured_token(&format!(" {good}\n"), 0o100_600).unwrap().reveal(), good);
        assert!(configured_token(&good, 0o100_400).is_ok());
        assert!(configured_token(&good, 0o100_440).is_ok(), "owned by root, readable by the group of a pod");
        for (text, mode, expected) in [
            (good.as_str(), 0o100_660, "other users may access it (mode 0660)"),
            (good.as_str(), 0o100_604, "other users may access it (mode 0604)"),
            ("short", 0o100_600, "its token has 5 characters, the minimum is 32"),
            ("", 0o100_600, ""),
            ("two words that are long enough to pass", 0o100_600, ""),
        ] {
            let why = configured_token(text, mode).unwrap_err();
            assert!(why.contains(expected) && !why.is_empty(), "{why}");
        }
    }
}
