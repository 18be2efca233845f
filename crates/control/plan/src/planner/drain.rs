//! Stopping serving parts: within `maxUnavailable`, and not before they are idle or the drain timeout has passed.

use super::retry::words;
use crate::Millis;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Presence};
use crate::report::Weight;
use crate::resource::ResourceId;

/// As [`crate::Verb::word`].
const DRAIN: &str = "drain";

/// Whether a serving part may be stopped.
pub(super) enum Finished {
    /// It is idle, or the drain timeout has passed.
    Yes,
    /// It must be drained first.
    Drain,
    NotYet {
        why: String,
        until_ms: Millis,
    },
}

/// The drain timeout of a resource starts at the first call.
pub(super) fn finished(
    ledger: &mut Ledger,
    id: &ResourceId,
    facts: &Facts,
    can_drain: bool,
    now_ms: Millis,
) -> Finished {
    let since_ms = *ledger.drains.entry(id.clone()).or_insert(now_ms);
    let until_ms = since_ms.saturating_add(ledger.drain_timeout_ms);
    if now_ms >= until_ms {
        return Finished::Yes;
    }
    if can_drain && !facts.draining && !cannot_drain(ledger, id) {
        return Finished::Drain;
    }
    let left = words(until_ms - now_ms);
    match facts.busy {
        Some(false) => Finished::Yes,
        Some(true) => Finished::NotYet { why: format!("it is busy and has another {left} to finish"), until_ms },
        None => {
            let why = format!("it may be busy, which cannot be observed, and has another {left} to finish");
            Finished::NotYet { why, until_ms }
        }
    }
}

/// Whether the driver refused to drain this node for good.
fn cannot_drain(ledger: &Ledger, id: &ResourceId) -> bool {
    ledger.tries.get(id).is_some_and(|tries| tries.never && tries.verb == DRAIN)
}

/// Whether it serves and is not being stopped.
pub(super) fn serves(ledger: &Ledger, id: &ResourceId, presence: &Presence) -> bool {
    presence.serves() && !ledger.drains.contains_key(id)
}

/// Whether it serves, or may serve before an action reaches it. Then stopping it counts against `maxUnavailable`.
pub(super) fn may_serve(ledger: &Ledger, id: &ResourceId, facts: &Facts, now_ms: Millis) -> bool {
    match facts.phase {
        Phase::Ready | Phase::Starting => true,
        Phase::Failed { .. } | Phase::Stopping => ledger.is_unsettled(id, now_ms),
    }
}

/// Marks the node of a shard as unavailable, if `max_unavailable` permits.
pub(super) fn disrupt(ledger: &mut Ledger, shard: u32, max_unavailable: u32, now_ms: Millis) -> bool {
    let is_below = ledger.taken.len() < usize::try_from(max_unavailable).unwrap_or(usize::MAX);
    let may = is_below || ledger.taken.contains_key(&shard);
    if may {
        ledger.taken.entry(shard).or_insert(now_ms);
    }
    may
}

/// Why no more nodes may be stopped, and how severe that is.
pub(super) fn disruption_limit(ledger: &Ledger, max_unavailable: u32) -> (Weight, String) {
    let holders = ledger.taken.keys().filter_map(|shard| ledger.shards.holder(*shard));
    let names: Vec<String> = holders.map(|holder| holder.to_string()).collect();
    match &names[..] {
        [] if !ledger.taken.is_empty() => {
            (Weight::Waits, "the replacements of removed nodes are not ready yet".to_owned())
        }
        [] => (Weight::Stuck, "upgrade.maxUnavailable allows no node to be unavailable".to_owned()),
        [name] => (Weight::Waits, format!("{name} is unavailable, and upgrade.maxUnavailable is {max_unavailable}")),
        names => (
            Weight::Waits,
            format!("{} are unavailable, and upgrade.maxUnavailable is {max_unavailable}", names.join(", ")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Action, Order, Outcome, Verb};
    use crate::observed::Addresses;

    #[test]
    fn a_node_that_cannot_drain_is_stopped_when_idle() {
        let id = ResourceId::try_from("fed/lab/node/a-0".to_owned()).expect("an id");
        let idle = Facts {
            phase: Phase::Ready,
            busy: Some(false),
            draining: false,
            version: None,
            addresses: Addresses::default(),
            runs: None,
            round_ms: None,
            required_nodes: None,
            shard: None,
            shards: None,
            node_id: None,
            since_ms: 0,
            instance: 1,
            waiting_for: None,
        };
        let mut ledger = Ledger { drain_timeout_ms: 60_000, ..Ledger::default() };
        assert!(matches!(finished(&mut ledger, &id, &idle, true, 0), Finished::Drain));
        let drain = Action { order: Order::default(), verb: Verb::Drain { id: id.clone() } };
        ledger.record_attempt(&drain.verb, 0);
        ledger.record(&drain, &Outcome::Refused { why: "it cannot drain".to_owned(), retry: false });
        assert!(matches!(finished(&mut ledger, &id, &idle, true, 1), Finished::Yes));
        let unknown = Facts { busy: None, ..idle };
        assert!(matches!(finished(&mut ledger, &id, &unknown, true, 1), Finished::NotYet { .. }));
    }
}
