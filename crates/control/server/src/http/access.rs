//! Who calls, and what they may: tokens are known by their SHA-256, so that finding one compares hashes and tells nothing by
//! the time it takes. What was found is kept until something is revoked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::sync::watch;
use trellis_api::Role;
use trellis_clock::now_ms;
use trellis_digest::{hex, sha256};
use trellis_front::{Rate, Source};
use trellis_registry::{ID_BYTES, Registry, TokenEntry};

use super::fault::{Fault, Kind};

/// Callers that are kept; with more, all are looked up anew.
const MOST_KNOWN: usize = 1024;
/// Wrong tokens that an address may show at once, and how long it takes until it may show another.
const ATTEMPTS: u32 = 60;
const ATTEMPT_RETURNS_AFTER_S: u64 = 1;
/// Addresses whose attempts are counted each for itself.
const MOST_COUNTED: usize = 4096;
/// No token is longer.
const LONGEST_TOKEN: usize = 512;

/// Whoever showed a token that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub expires_ms: Option<u64>,
    sha256: [u8; 32],
}

pub struct Access {
    registry: Registry,
    known: Mutex<HashMap<[u8; 32], Caller>>,
    /// Counts revocations.
    revoked: watch::Sender<u64>,
    attempts: Rate<Source>,
    since: Instant,
}

impl Access {
    pub fn new(registry: Registry) -> Access {
        let attempts = Rate::new(ATTEMPTS, ATTEMPT_RETURNS_AFTER_S as f64, MOST_COUNTED);
        let revoked = watch::Sender::new(0);
        Access { registry, known: Mutex::default(), revoked, attempts, since: Instant::now() }
    }

    /// The caller, if their role is high enough.
    pub async fn admit(&self, headers: &HeaderMap, remote: IpAddr, least: Role) -> Result<Caller, Fault> {
        let token = bearer(headers)?;
        let Some(caller) = self.look_up(sha256(token.as_bytes())).await? else {
            return Err(self.unknown(remote));
        };
        if caller.role < least {
            let told = format!(
                "This needs the role {}; the token {:?} has the role {}.",
                least.name(),
                caller.name,
                caller.role.name()
            );
            return Err(Fault::new(Kind::FORBIDDEN, told));
        }
        Ok(caller)
    }

    /// Whether a caller of before still counts.
    pub async fn still_counts(&self, caller: &Caller) -> bool {
        matches!(self.look_up(caller.sha256).await, Ok(Some(_)))
    }

    /// Changes whenever tokens were revoked.
    pub fn revocations(&self) -> watch::Receiver<u64> {
        self.revoked.subscribe()
    }

    /// Ends a token at once: calls from now on, and streams that are open. `false`: there is none with this id.
    pub async fn revoke(&self, id: &str) -> Result<bool, Fault> {
        let found = self.registry.revoke_token(id).await?;
        let mut known = self.known();
        self.revoked.send_modify(|count| *count += 1);
        known.clear();
        Ok(found)
    }

    /// Gives a token another role and end, from now on. `false`: it was revoked.
    pub async fn renew(&self, sha256: &[u8; 32], role: Role, expires_ms: u64) -> Result<bool, Fault> {
        let found = self.registry.renew_token(sha256, role.name(), expires_ms).await?;
        let mut known = self.known();
        let before = known.remove(sha256);
        let changed = before.is_none_or(|caller| caller.role != role);
        self.revoked.send_if_modified(|count| {
            *count += 1;
            changed
        });
        Ok(found)
    }

    /// What is known of a token that does not count, for the audit log: its id, and that it has expired.
    pub async fn refused_token(&self, headers: &HeaderMap) -> Option<(String, bool)> {
        let hash = sha256(bearer(headers).ok()?.as_bytes());
        let expired = self.registry.token(&hash, 0).await.ok()?.is_some();
        Some((token_id(&hash), expired))
    }

    async fn look_up(&self, sha256: [u8; 32]) -> Result<Option<Caller>, Fault> {
        let now_ms = now_ms();
        let counts = |caller: &Caller| caller.expires_ms.is_none_or(|end| now_ms < end);
        if let Some(caller) = self.known().get(&sha256) {
            return Ok(counts(caller).then(|| caller.clone()));
        }
        let before = *self.revoked.borrow();
        let Some(entry) = self.registry.token(&sha256, now_ms).await? else { return Ok(None) };
        let Some(caller) = Caller::of(entry, sha256) else { return Ok(None) };
        let mut known = self.known();
        // What was read before a revocation must not outlive it.
        if *self.revoked.borrow() == before {
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(sha256, caller.clone());
        }
        Ok(Some(caller))
    }

    /// Guessing is hopeless; this keeps it from being costly, too.
    fn unknown(&self, remote: IpAddr) -> Fault {
        if self.attempts.admit(remote.into(), self.since.elapsed().as_secs_f64()).is_none() {
            let told = "Too many calls with tokens that do not count came from this address. Wait a little.";
            return Fault::new(Kind::TOO_MANY, told).retry_after(ATTEMPT_RETURNS_AFTER_S);
        }
        let told = "The token is not known, was revoked, or has expired. Sign in again, or ask an administrator for another one.";
        Fault::new(Kind::UNKNOWN_CALLER, told)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<[u8; 32], Caller>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller {
    /// Its token belongs to a user of the identity provider: their names have an `@`, and their tokens end.
    pub fn is_identity(&self) -> bool {
        self.name.contains('@') && self.expires_ms.is_some()
    }

    fn of(entry: TokenEntry, sha256: [u8; 32]) -> Option<Caller> {
        let role = Role::from_name(&entry.role)?;
        Some(Caller { id: entry.id, name: entry.name, role, expires_ms: entry.expires_ms, sha256 })
    }
}

/// The id of a token, as lists have it.
pub fn token_id(sha256: &[u8; 32]) -> String {
    hex(&sha256[..ID_BYTES])
}

fn bearer(headers: &HeaderMap) -> Result<&str, Fault> {
    let needed = || Fault::new(Kind::UNKNOWN_CALLER, "Send a token: `Authorization: Bearer TOKEN`.");
    let value = headers.get(AUTHORIZATION).ok_or_else(needed)?.to_str().map_err(|_| needed())?;
    let (scheme, token) = value.split_once(' ').ok_or_else(needed)?;
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || token.len() > LONGEST_TOKEN {
        return Err(needed());
    }
    Ok(token)
}
