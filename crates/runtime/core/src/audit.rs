//! The audit log of nodes, accounts, secrets and refused calls.
//!
//! A change and its entry are one commit. Entries are never changed; the oldest are deleted. Secrets and keys appear as
//! fingerprints only. The caller identifies peers and limits the rate of entries for refused calls.

use crate::Seconds;
use crate::id::NodeId;
use crate::port::Tx;
use crate::refusal::Refusal;

/// Maximum number of stored entries except refused calls. The oldest entries beyond it are deleted.
pub const MAX_ENTRIES: u64 = 100_000;
/// Maximum number of stored refused calls. Any client can cause refusals, so they never displace other entries.
pub const MAX_REFUSED: u64 = 20_000;
/// Number of new entries between two trims of the log.
pub const TRIM_INTERVAL: u64 = 256;
/// Longer texts are truncated: peers choose some of the text.
const MAX_TEXT_CHARS: usize = 200;

/// Audited events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    NodeRegisteredByUser,
    NodeRegisteredByItself,
    NodeRegisteredByToken,
    NodeActivated,
    NodeDeactivated,
    /// The node unregistered itself.
    NodeUnregistered,
    /// A user removed the node.
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

    /// The name in the store and in listings.
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

/// A stored entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Strictly increasing and unique.
    pub seq: u64,
    pub at: Seconds,
    pub event: Event,
    /// The acting account or node, or what is known of a peer.
    pub actor: String,
    /// The account, node or call that the event is about.
    pub subject: String,
    pub detail: String,
}

/// A call that failed authentication or authorisation.
#[derive(Debug, Clone, Default)]
pub struct RefusedCall {
    /// The fingerprint of the presented key, or the public id of the presented secret; may be empty.
    pub identity: String,
    pub peer: String,
    pub call: String,
    pub reason: String,
    /// Number of similar refusals without an entry since the last entry.
    pub unwritten: u64,
}

/// Records a refused call. The caller limits the rate.
pub fn refused(tx: &mut dyn Tx, call: &RefusedCall, now: Seconds) -> Result<(), Refusal> {
    let actor = if call.identity.is_empty() { "unknown" } else { &call.identity };
    let mut detail = format!("from {}: {}", call.peer, call.reason);
    if call.unwritten > 0 {
        // At the start, because a long reason is truncated.
        detail = format!("{} more not written; {detail}", call.unwritten);
    }
    record(tx, Event::CallRefused, actor, &call.call, &detail, now)
}

/// Appends an entry and trims the log now and then.
pub(crate) fn record(
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

/// Names a node as actor or subject.
pub(crate) fn node(id: NodeId) -> String {
    format!("node {id}")
}

/// Truncates a text and replaces control characters, which could move the cursor of a terminal.
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
    fn names_are_unique() {
        for event in Event::ALL {
            assert_eq!(Event::from_name(event.name()), Some(event));
        }
        assert_eq!(Event::from_name("nothing"), None);
    }

    #[test]
    fn texts_of_peers_are_truncated_and_escaped() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\r"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(plain(&"é".repeat(MAX_TEXT_CHARS)), "é".repeat(MAX_TEXT_CHARS));
        assert_eq!(plain(&"é".repeat(MAX_TEXT_CHARS + 1)), "é".repeat(MAX_TEXT_CHARS) + "…");
    }
}
