//! The first administrator: made where accounts are on and there is none, with a token that is drawn here or was chosen by whoever
//! starts the SuperLink.

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

/// Where a token that is drawn here is put, in the state directory.
const DRAWN_TOKEN_FILE: &str = "admin.token";
const NAME: &str = "admin";
const BY: &str = "the SuperLink";
const DRAWN: &str = "first";
/// The label of the token that a file says. There is one at a time.
const CHOSEN: &str = "admin-token-file";
/// Fewer characters could be guessed.
pub const FEWEST_TOKEN_CHARS: usize = 32;
/// Of a file: a token and the end of its line.
const MAX_FILE_BYTES: u64 = 8 << 10;
/// What others than its owner may not do with a file that holds a secret. Its group may read it: that is how container platforms
/// hand secrets to a user without root, as with keys of nodes.
const OTHERS: u32 = 0o027;

/// The token in a file, or why it cannot be used.
pub fn chosen_token(text: &str, mode: u32) -> Result<Token, String> {
    if mode & OTHERS != 0 {
        return Err(format!("others than its owner may use it (mode {:04o})", mode & 0o7777));
    }
    let token = Token::parse(text).map_err(|error| error.to_string())?;
    match token.reveal().len() {
        short if short < FEWEST_TOKEN_CHARS => {
            Err(format!("its token has {short} characters, and {FEWEST_TOKEN_CHARS} are the fewest"))
        }
        _ => Ok(token),
    }
}

/// Makes sure that there is an administrator; with a file, that its token is the administrator's.
pub async fn ensure(link: &Link, file: Option<&Path>) -> Result<(), ServeError> {
    if !link.accounts {
        return Ok(());
    }
    match file {
        Some(path) => chosen(link, path).await,
        None => drawn(link).await,
    }
}

async fn drawn(link: &Link) -> Result<(), ServeError> {
    if !link.read(|view| view.accounts()).map_err(ServeError::Recovery)?.is_empty() {
        return Ok(());
    }
    let path = link.directory().join(DRAWN_TOKEN_FILE);
    let (token, hash) = new_token();
    // Before the account: a token without an account is replaced at the next start, the reverse would be lost.
    trellis_files::replace(&path, format!("{token}\n").as_bytes(), trellis_files::PRIVATE_FILE)
        .map_err(|source| ServeError::AdminToken { path: path.display().to_string(), source })?;
    let (id, now) = (hex(&random::<8>()), link.now());
    let made = link.write(move |tx| {
        account::create(tx, &id, NAME, Role::Admin, BY, now)?;
        let secret = NewSecret { hash, label: DRAWN.to_owned(), ttl_s: None };
        access::issue_access(tx, NAME, &secret, BY, now)
    });
    made.await.map_err(ServeError::Recovery)?;
    tracing::info!(path = %path.display(), "the first account is 'admin'; its token is in this file");
    Ok(())
}

async fn chosen(link: &Link, path: &Path) -> Result<(), ServeError> {
    let unusable = |why: String| ServeError::UnusableToken { path: path.display().to_string(), why };
    let token = read(path).map_err(unusable)?;
    let (id, hash, now) = (hex(&random::<8>()), sha256(token.reveal().as_bytes()), link.now());
    let changed = link.write(move |tx| adopt(tx, &id, hash, now)).await.map_err(|refusal| match refusal.kind {
        Kind::Precondition => unusable(refusal.text.into_owned()),
        _ => ServeError::Recovery(refusal),
    })?;
    if changed {
        tracing::info!(path = %path.display(), "the token in this file is that of the account 'admin'");
    }
    Ok(())
}

/// The token of the file is the administrator's from now on, in place of one that the file said before. Whether that is new.
fn adopt(tx: &mut dyn Tx, id: &str, hash: Hash, now: Seconds) -> Result<bool, Refusal> {
    if tx.accounts()?.is_empty() {
        account::create(tx, id, NAME, Role::Admin, BY, now)?;
    }
    let admin = tx.accounts()?.into_iter().find(|account| account.name == NAME).ok_or_else(|| {
        Refusal::new(Kind::Precondition, "there is no account 'admin', and there are others: leave the file out")
    })?;
    match tx.secret(&hash)? {
        None => {}
        Some(known) if known.account == admin.id && known.state() == State::Fresh && !known.has_expired(now) => {
            return Ok(false);
        }
        Some(_) => {
            let text = "its token was revoked, has expired or is another account's: put a new one there";
            return Err(Refusal::new(Kind::Precondition, text));
        }
    }
    for earlier in tx.secrets_of(&admin.id)? {
        if earlier.label == CHOSEN && earlier.state() == State::Fresh {
            access::revoke(tx, earlier.id(), BY, now)?;
        }
    }
    let secret = NewSecret { hash, label: CHOSEN.to_owned(), ttl_s: None };
    access::issue_access(tx, NAME, &secret, BY, now)?;
    Ok(true)
}

fn read(path: &Path) -> Result<Token, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > MAX_FILE_BYTES {
        return Err(format!("it is not a file of at most {MAX_FILE_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    chosen_token(&text, about.mode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_are_refused() {
        let good = "a".repeat(FEWEST_TOKEN_CHARS);
        assert_eq!(chosen_token(&format!(" {good}\n"), 0o100_600).unwrap().reveal(), good);
        assert!(chosen_token(&good, 0o100_400).is_ok());
        assert!(chosen_token(&good, 0o100_440).is_ok(), "of root, for the group of a pod");
        for (text, mode, expected) in [
            (good.as_str(), 0o100_660, "others than its owner may use it (mode 0660)"),
            (good.as_str(), 0o100_604, "others than its owner may use it (mode 0604)"),
            ("short", 0o100_600, "its token has 5 characters, and 32 are the fewest"),
            ("", 0o100_600, ""),
            ("two words that are long enough to pass", 0o100_600, ""),
        ] {
            let why = chosen_token(text, mode).unwrap_err();
            assert!(why.contains(expected) && !why.is_empty(), "{why}");
        }
    }
}
