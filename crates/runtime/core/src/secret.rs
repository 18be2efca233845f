//! Secrets: what accounts prove themselves with, and what a node joins with. Only their hashes are known here.
//!
//! Expiry is a fact of time, not of an event: a secret whose time is up is void, whoever looks.

use std::fmt;
use std::str::FromStr;

use crate::id::NodeId;
use crate::{Illegal, Seconds};

/// SHA-256 of a secret.
pub type Hash = [u8; 32];

/// The public name of a secret: the first 8 hexadecimal digits of its hash. It proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretId([u8; 4]);

/// Not 8 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the ID of a secret: expected 8 lower-case hexadecimal digits")]
pub struct InvalidSecretId;

impl SecretId {
    pub fn of(hash: &Hash) -> SecretId {
        SecretId([hash[0], hash[1], hash[2], hash[3]])
    }

    pub fn as_bytes(&self) -> &[u8; 4] {
        &self.0
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

/// What a secret is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Speaks for its account, any number of times.
    Access,
    /// Gets its account a new pair of secrets, once.
    Refresh,
    /// Lets one node join, once. Its account is the one that issued it.
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
    /// It did what it was for: `node` joined by it.
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

/// The step `event` makes at `now`. Whether the secret has expired is the caller's question.
pub fn next(purpose: Purpose, state: State, event: Event, now: Seconds) -> Result<State, Illegal> {
    match (purpose, state, event) {
        (Purpose::Refresh | Purpose::Join, State::Fresh, Event::Use { node }) => Ok(State::Used { at: now, node }),
        (_, State::Fresh | State::Used { .. }, Event::Revoke) => Ok(State::Revoked { at: now }),
        (_, State::Revoked { .. }, Event::Revoke) => Ok(state),
        // Access is not used up.
        (Purpose::Access, _, Event::Use { .. })
        | (_, State::Used { .. } | State::Revoked { .. }, Event::Use { .. }) => {
            Err(Illegal { state: state.name(), event: event.name() })
        }
    }
}

/// A secret as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Secret {
    pub hash: Hash,
    pub purpose: Purpose,
    /// The id of the account that it speaks for, or that issued it.
    pub account: String,
    /// What its owner calls it; may be empty.
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

    /// Puts a kept secret back into memory. For stores.
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

    /// When it was, or will be, over; `None`: never by itself.
    pub fn ends_at(&self) -> Option<Seconds> {
        match self.state {
            State::Used { at, .. } | State::Revoked { at } => Some(at),
            State::Fresh => self.expires_at,
        }
    }

    /// Steps the machine; says whether anything changed by it.
    pub fn apply(&mut self, event: Event, now: Seconds) -> Result<bool, Illegal> {
        let state = next(self.purpose, self.state, event, now)?;
        Ok(std::mem::replace(&mut self.state, state) != state)
    }
}

/// As the audit log names it.
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
                for (event, want) in [Event::Use { node: by }, Event::Revoke].into_iter().zip(row) {
                    assert_eq!(next(purpose, state, event, NOW).ok(), want, "{purpose:?} {state:?} + {event:?}");
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
        assert_eq!(secret.apply(Event::Revoke, NOW + 3.0), Ok(false), "the first time counts");
        assert_eq!(secret.ends_at(), Some(NOW + 2.0));
        assert_eq!(secret.to_string(), "join 07070707 (barn)");
        let lasting = Secret::new([7; 32], Purpose::Access, "1", "", None, NOW);
        assert_eq!((lasting.ends_at(), lasting.has_expired(f64::MAX)), (None, false));
        assert_eq!(lasting.to_string(), "access 07070707");
    }

    #[test]
    fn public_ids_round_trip_and_refuse_everything_else() {
        let id = SecretId::of(&[0x0a; 32]);
        assert_eq!(id.to_string(), "0a0a0a0a");
        assert_eq!("0a0a0a0a".parse(), Ok(id));
        for bad in ["", "0a0a0a0", "0a0a0a0a0", "0A0A0A0A", "+a0a0a0a", "0a0a0a0g", "éééé"] {
            assert_eq!(bad.parse::<SecretId>(), Err(InvalidSecretId), "{bad:?}");
        }
    }
}
