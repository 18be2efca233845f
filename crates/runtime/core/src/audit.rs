//! The audit log: who joined, who was refused, who was taken away, who may do what, and who said so.
//!
//! Entries are written in the commit of what they tell about: there is no change without its entry, and no entry
//! without its change. They are never changed, only forgotten, oldest first. Secrets and keys are named here by
//! fingerprints only. How a peer was recognised, and how often a refusal is worth an entry, others decide.

use crate::Seconds;
use crate::id::NodeId;
use crate::port::Tx;
use crate::refusal::Refusal;

/// Maximum number of stored entries, refused calls excluded. The oldest entries beyond it are deleted.
pub const MAX_ENTRIES: u64 = 100_000;
/// Maximum number of stored refused calls. Any client can cause refusals, so they never displace other entries.
pub const MAX_REFUSED: u64 = 20_000;
/// Number of new entries between two trims of the log.
pub const TRIM_INTERVAL: u64 = 256;
/// Peers choose some of the text: longer is cut.
const MAX_TEXT_CHARS: usize = 200;

/// What can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    NodeRegisteredByUser,
    NodeRegisteredByItself,
    NodeRegisteredByToken,
    NodeActivated,
    NodeDeactivated,
    /// It went for good, by itself.
    NodeUnregistered,
    /// A user took it away.
    NodeRevoked,
    CallRefused,
    AccountCreated,
    AccountRoleChanged,
    AccountDisabled,
    AccountEnabled,
    SecretIssued,
    SecretUsed,
    SecretRevoked,
    Login,
}

impl Event {
    pub const ALL: [Event; 16] = [
        Event::NodeRegisteredByUser,
        Event::NodeRegisteredByItself,
        Event::NodeRegisteredByToken,
        Event::NodeActivated,
        Event::NodeDeactivated,
        Event::NodeUnregistered,
        Event::NodeRevoked,
        Event::CallRefused,
        Event::AccountCreated,
        Event::AccountRoleChanged,
        Event::AccountDisabled,
        Event::AccountEnabled,
        Event::SecretIssued,
        Event::SecretUsed,
        Event::SecretRevoked,
        Event::Login,
    ];

    /// How it is kept and shown.
    pub fn name(self) -> &'static str {
        match self {
            Event::NodeRegisteredByUser => "node-registered-by-user",
            Event::NodeRegisteredByItself => "node-registered-by-itself",
            Event::NodeRegisteredByToken => "node-registered-by-token",
            Event::NodeActivated => "node-activated",
            Event::NodeDeactivated => "node-deactivated",
            Event::NodeUnregistered => "node-unregistered",
            Event::NodeRevoked => "node-revoked",
            Event::CallRefused => "call-refused",
            Event::AccountCreated => "account-created",
            Event::AccountRoleChanged => "account-role-changed",
            Event::AccountDisabled => "account-disabled",
            Event::AccountEnabled => "account-enabled",
            Event::SecretIssued => "secret-issued",
            Event::SecretUsed => "secret-used",
            Event::SecretRevoked => "secret-revoked",
            Event::Login => "login",
        }
    }

    pub fn from_name(name: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// An entry as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Later entries have larger numbers; none is used twice.
    pub seq: u64,
    pub at: Seconds,
    pub event: Event,
    /// Who did it: the name of an account, a node, or what is known of a peer.
    pub actor: String,
    /// To whom or what.
    pub subject: String,
    pub detail: String,
}

/// A call by somebody who is not who it says, or may not do that.
#[derive(Debug, Clone, Default)]
pub struct RefusedCall {
    /// The fingerprint of the key, or the public id of the secret, that came with it; empty: none came.
    pub identity: String,
    pub peer: String,
    pub call: String,
    pub reason: String,
    /// Refusals like this one that were not written since the last entry.
    pub unwritten: u64,
}

/// Notes a refused call. Callers see to it that a flood of refusals is not a flood of entries.
pub fn refused(tx: &mut dyn Tx, call: &RefusedCall, now: Seconds) -> Result<(), Refusal> {
    let actor = if call.identity.is_empty() { "unknown" } else { &call.identity };
    let mut detail = format!("from {}: {}", call.peer, call.reason);
    if call.unwritten > 0 {
        // In front, so that a long reason cannot push it out.
        detail = format!("{} more not written; {detail}", call.unwritten);
    }
    note(tx, Event::CallRefused, actor, &call.call, &detail, now)
}

/// Writes an entry.
pub(crate) fn note(
    tx: &mut dyn Tx,
    event: Event,
    actor: &str,
    subject: &str,
    detail: &str,
    now: Seconds,
) -> Result<(), Refusal> {
    let seq = tx.append_audit(now, event, &plain(actor), &plain(subject), &plain(detail))?;
    if seq.is_multiple_of(TRIM_INTERVAL) {
        tx.trim_audit(true, MAX_REFUSED)?;
        tx.trim_audit(false, MAX_ENTRIES)?;
    }
    Ok(())
}

/// A node as actor or subject.
pub(crate) fn node(id: NodeId) -> String {
    format!("node {id}")
}

/// Text of bounded length that cannot move the cursor of whoever reads it.
fn plain(text: &str) -> String {
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut plain: String = text.chars().take(MAX_TEXT_CHARS).map(visible).collect();
    if text.chars().nth(MAX_TEXT_CHARS).is_some() {
        plain.push('…');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_lead_back() {
        for event in Event::ALL {
            assert_eq!(Event::from_name(event.name()), Some(event));
        }
        assert_eq!(Event::from_name("nothing"), None);
    }

    #[test]
    fn text_of_peers_is_cut_and_harmless() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\r"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(plain(&"é".repeat(MAX_TEXT_CHARS)), "é".repeat(MAX_TEXT_CHARS));
        assert_eq!(plain(&"é".repeat(MAX_TEXT_CHARS + 1)), "é".repeat(MAX_TEXT_CHARS) + "…");
    }
}
