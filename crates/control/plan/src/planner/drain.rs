//! Taking away what works: not more than may be missed at once, and not before it has finished, or had its time.

use super::pace::words;
use crate::Millis;
use crate::ledger::Ledger;
use crate::observed::{Facts, Phase, Sighting};
use crate::report::Weight;
use crate::resource::ResourceId;

/// What [`crate::Verb::word`] calls it.
const DRAIN: &str = "drain";

/// Whether something that works may be taken now.
pub(super) enum Finished {
    /// It works on nothing, or its time is up.
    Yes,
    /// It must first be told to take nothing new.
    Tell,
    NotYet {
        why: String,
        until_ms: Millis,
    },
}

/// From the first time that this is asked for a resource, its time runs.
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
    if can_drain && !facts.draining && !is_deaf(ledger, id) {
        return Finished::Tell;
    }
    let left = words(until_ms - now_ms);
    match facts.busy {
        Some(false) => Finished::Yes,
        Some(true) => Finished::NotYet { why: format!("is at work, and has another {left} to finish"), until_ms },
        None => {
            let why = format!("may be at work, which cannot be seen, and has another {left} to finish");
            Finished::NotYet { why, until_ms }
        }
    }
}

/// Its driver said that it can never be told, whatever other nodes of the driver can.
fn is_deaf(ledger: &Ledger, id: &ResourceId) -> bool {
    ledger.tries.get(id).is_some_and(|tries| tries.never && tries.verb == DRAIN)
}

/// It works, and nobody asked it to stop.
pub(super) fn serves(ledger: &Ledger, id: &ResourceId, sighting: &Sighting) -> bool {
    sighting.serves() && !ledger.drains.contains_key(id)
}

/// It works, or may before anything reaches it: who takes it away must be allowed to.
pub(super) fn may_serve(ledger: &Ledger, id: &ResourceId, facts: &Facts, now_ms: Millis) -> bool {
    match facts.phase {
        Phase::Ready | Phase::Starting => true,
        Phase::Failed { .. } | Phase::Stopping => ledger.is_unsettled(id, now_ms),
    }
}

/// Takes the node of a shard away, if one more may be missed.
pub(super) fn take(ledger: &mut Ledger, shard: u32, max_unavailable: u32, now_ms: Millis) -> bool {
    let room = ledger.taken.len() < usize::try_from(max_unavailable).unwrap_or(usize::MAX);
    let may = room || ledger.taken.contains_key(&shard);
    if may {
        ledger.taken.entry(shard).or_insert(now_ms);
    }
    may
}

/// Why no more may be taken, and how grave that is.
pub(super) fn all_taken(ledger: &Ledger, max_unavailable: u32) -> (Weight, String) {
    let holders = ledger.taken.keys().filter_map(|shard| ledger.shards.holder(*shard));
    let names: Vec<String> = holders.map(|holder| holder.to_string()).collect();
    match &names[..] {
        [] if !ledger.taken.is_empty() => {
            (Weight::Waits, "those who come in the place of nodes that left do not work yet".to_owned())
        }
        [] => (Weight::Stuck, "upgrade.maxUnavailable lets no node ever be taken away".to_owned()),
        [name] => (Weight::Waits, format!("{name} is away, and not more than {max_unavailable} may be")),
        names => (Weight::Waits, format!("{} are away, and not more than {max_unavailable} may be", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Action, Order, Outcome, Verb};
    use crate::observed::Addresses;

    #[test]
    fn who_can_never_be_told_is_taken_when_it_is_idle() {
        let id = ResourceId::try_from("fed/lab/node/a-0".to_owned()).expect("an id");
        let idle = Facts {
            phase: Phase::Ready,
            busy: Some(false),
            draining: false,
            version: None,
            addresses: Addresses::default(),
            runs: None,
            round_ms: None,
            waits_for: None,
            shard: None,
            shards: None,
            node_id: None,
            since_ms: 0,
            instance: 1,
            hindrance: None,
        };
        let mut ledger = Ledger { drain_timeout_ms: 60_000, ..Ledger::default() };
        assert!(matches!(finished(&mut ledger, &id, &idle, true, 0), Finished::Tell));
        let drain = Action { order: Order::default(), verb: Verb::Drain { id: id.clone() } };
        ledger.asked(&drain.verb, 0);
        ledger.record(&drain, &Outcome::Refused { why: "it has no ears".to_owned(), retry: false });
        assert!(matches!(finished(&mut ledger, &id, &idle, true, 1), Finished::Yes));
        let unseen = Facts { busy: None, ..idle };
        assert!(matches!(finished(&mut ledger, &id, &unseen, true, 1), Finished::NotYet { .. }));
    }
}
