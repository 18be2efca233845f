//! Secrets of accounts and join tokens of nodes. The core knows only their hashes.
//!
//! Expiry depends on the time, not on an event.

use std::fmt;
use std::str::FromStr;

use crate::id::NodeId;
use crate::{IllegalTransition, Seconds};

/// SHA-256 of a secret.
pub type Hash = [u8; 32];

/// The public id of a secret: the first 8 hexadecimal digits of its hash. It authenticates nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretId([u8; 4]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the ID of a secret: expected 8 lower-case hexadecimal digits")]
pub struct InvalidSecretId;

impl SecretId {
    pub fn of(hash: &Hash) -> SecretId {
        SecretId([hash[0], hash[1], hash[2], hash[3]])
    }

    /// Returns the first and the last hash with this id.
    pub fn hash_range(&self) -> (Hash, Hash) {
        let with = |rest: u8| {
            let mut hash = [rest; 32];
            hash[..4].copy_from_slice(&self.0);
            hash
        };
        (with(0), with(0xff))
    }
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for SecretId {
    type Err = InvalidSecretId;

    fn from_str(text: &str) -> Result<SecretId, InvalidSecretId> {
        let is_hex = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        if text.len() != 8 || !text.bytes().all(is_hex) {
            return Err(InvalidSecretId);
        }
        let number = u32::from_str_radix(text, 16).map_err(|_| InvalidSecretId)?;
        Ok(SecretId(number.to_be_bytes()))
    }
}

/// What a secret may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Authenticates its account, any number of times.
    Access,
    /// Gets its account a new pair of secrets, once.
    Refresh,
    /// Registers one node, once. Its account is the issuer.
    Join,
}

impl Purpose {
    pub const ALL: [Purpose; 3] = [Purpose::Access, Purpose::Refresh, Purpose::Join];

    pub fn name(self) -> &'static str {
        match self {
            Purpose::Access => "access",
            Purpose::Refresh => "refresh",
            Purpose::Join => "join",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    Fresh,
    /// Used once; `node` is the node that joined.
    Used {
        at: Seconds,
        node: Option<NodeId>,
    },
    Revoked {
        at: Seconds,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    Use { node: Option<NodeId> },
    Revoke,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Fresh => "fresh",
            State::Used { .. } => "used",
            State::Revoked { .. } => "revoked",
        }
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Event::Use { .. } => "use",
            Event::Revoke => "revoke",
        }
    }
}

/// Returns the state after `event` at `now`. The caller checks the expiry.
pub fn next(purpose: Purpose, state: State, event: Event, now: Seconds) -> Result<State, IllegalTransition> {
    match (purpose, state, event) {
        (Purpose::Refresh | Purpose::Join, State::Fresh, Event::Use { node }) => Ok(State::Used { at: now, node }),
        (_, State::Fresh | State::Used { .. }, Event::Revoke) => Ok(State::Revoked { at: now }),
        (_, State::Revoked { .. }, Event::Revoke) => Ok(state),
        // An access secret is not used up.
        (Purpose::Access, _, Event::Use { .. })
        | (_, State::Used { .. } | State::Revoked { .. }, Event::Use { .. }) => {
            Err(IllegalTransition { state: state.name(), event: event.name() })
        }
    }
}

/// A stored secret.
#[derive(Debug, Clone, PartialEq)]
pub struct Secret {
    pub hash: Hash,
    pub purpose: Purpose,
    /// The id of the account that it authenticates, or of the issuer.
    pub account: String,
    /// A label chosen by the user; may be empty.
    pub label: String,
    pub created_at: Seconds,
    pub expires_at: Option<Seconds>,
    state: State,
}

impl Secret {
    pub fn new(hash: Hash, purpose: Purpose, account: &str, label: &str, ttl_s: Option<f64>, now: Seconds) -> Secret {
        Secret {
            hash,
            purpose,
            account: account.to_owned(),
            label: label.to_owned(),
            created_at: now,
            expires_at: ttl_s.map(|ttl_s| now + ttl_s),
            state: State::Fresh,
        }
    }

    /// Restores a stored secret. For stores.
    pub fn restore(self, state: State) -> Secret {
        Secret { state, ..self }
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn id(&self) -> SecretId {
        SecretId::of(&self.hash)
    }

    pub fn has_expired(&self, now: Seconds) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Returns when the secret ended or will end; `None`: it does not end by itself.
    pub fn ends_at(&self) -> Option<Seconds> {
        match self.state {
            State::Used { at, .. } | State::Revoked { at } => Some(at),
            State::Fresh => self.expires_at,
        }
    }

    /// Applies an event. Returns whether the secret changed.
    pub fn apply(&mut self, event: Event, now: Seconds) -> Result<bool, IllegalTransition> {
        let state = next(self.purpose, self.state, event, now)?;
        Ok(std::mem::replace(&mut self.state, state) != state)
    }
}

/// The form in the audit log.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.purpose.name(), self.id())?;
        if self.label.is_empty() { Ok(()) } else { write!(f, " ({})", self.label) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Seconds = 1000.0;

    /// Every purpose, every state, every event. `None` is refused.
    #[test]
    fn table() {
        let (by, node) = (Some(NodeId(7)), NodeId(7));
        let (used, revoked) = (State::Used { at: 1.0, node: None }, State::Revoked { at: 1.0 });
        let (now_used, now_revoked) = (State::Used { at: NOW, node: Some(node) }, State::Revoked { at: NOW });
        for purpose in Purpose::ALL {
            let used_up = (purpose != Purpose::Access).then_some(now_used);
            let rows = [
                (State::Fresh, [used_up, Some(now_revoked)]),
                (used, [None, Some(now_revoked)]),
                (revoked, [None, Some(revoked)]),
            ];
            for (state, row) in rows {
                for (event, expected) in [Event::Use { node: by }, Event::Revoke].into_iter().zip(row) {
                    assert_eq!(next(purpose, state, event, NOW).ok(), expected, "{purpose:?} {state:?} + {event:?}");
                }
            }
        }
    }

    #[test]
    fn a_secret_ends_when_it_is_used_revoked_or_expired() {
        let mut secret = Secret::new([7; 32], Purpose::Join, "1", "barn", Some(60.0), NOW);
        assert_eq!((secret.has_expired(NOW + 59.9), secret.has_expired(NOW + 60.0)), (false, true));
        assert_eq!(secret.ends_at(), Some(NOW + 60.0));
        assert_eq!(secret.apply(Event::Use { node: None }, NOW + 1.0), Ok(true));
        assert_eq!(secret.ends_at(), Some(NOW + 1.0));
        assert_eq!(secret.apply(Event::Revoke, NOW + 2.0), Ok(true));
        assert_eq!(secret.apply(Event::Revoke, NOW + 3.0), Ok(false), "the first revocation counts");
        assert_eq!(secret.ends_at(), Some(NOW + 2.0));
        assert_eq!(secret.to_string(), "join 07070707 (barn)");
        let lasting = Secret::new([7; 32], Purpose::Access, "1", "", None, NOW);
        assert_eq!((lasting.ends_at(), lasting.has_expired(f64::MAX)), (None, false));
        assert_eq!(lasting.to_string(), "access 07070707");
    }

    #[test]
    fn public_ids_round_trip_and_other_texts_are_refused() {
        let id = SecretId::of(&[0x0a; 32]);
        assert_eq!(id.to_string(), "0a0a0a0a");
        assert_eq!("0a0a0a0a".parse(), Ok(id));
        for bad in ["", "0a0a0a0", "0a0a0a0a0", "0A0A0A0A", "+a0a0a0a", "0a0a0a0g", "éééé"] {
            assert_eq!(bad.parse::<SecretId>(), Err(InvalidSecretId), "{bad:?}");
        }
    }
}
