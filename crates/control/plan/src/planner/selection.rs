//! Which nodes runs may select: nodes of one numbering of the data, and one node for each shard. During a renumbering, runs use the
//! old numbering until as many nodes have the new one, and switch between two rounds.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::Runtime;

use super::view::View;
use super::{Selection, Step};
use crate::ledger::Ledger;
use crate::observed::{LinkNode, Phase, Presence};
use crate::report::Weight;
use crate::resource::ResourceId;

pub(super) fn select(view: &View<'_>, ledger: &mut Ledger) -> (Option<Selection>, Step) {
    let mut step = Step::default();
    let Some(nodes) = view.observed.link.as_deref().filter(|_| view.federation.runtime == Runtime::Trellis) else {
        return (None, step);
    };
    let new_total = ledger.shards.total(view.federation.training.partitions);
    let total = selected_total(view, new_total, ledger);
    ledger.selected_total = Some(total);
    let mut selection = Selection { total, ..Selection::default() };
    let mut shards: BTreeSet<u32> = BTreeSet::new();
    let is_changing = total != new_total || ledger.applied.values().any(|applied| has_another(&applied.totals, total));
    for (id, presence) in in_order(view) {
        let Some(node_id) = node_id(id, presence, nodes) else { continue };
        let applied = ledger.applied.get(id);
        let has_another = applied.is_some_and(|applied| has_another(&applied.totals, total));
        // The process of the old numbering may still be running.
        let is_restarting = is_changing && presence.facts().is_some_and(|facts| facts.phase != Phase::Ready);
        let is_second = presence.facts().and_then(|facts| facts.shard).is_some_and(|shard| !shards.insert(shard));
        if has_another || is_restarting || is_second {
            selection.left_out.insert(node_id.to_owned());
        }
    }
    if total != new_total {
        let text = format!(
            "runs select nodes of the old numbering ({total} shards) until as many nodes have the new one ({new_total} shards)"
        );
        step.report(Weight::Waits, "federation", text);
    }
    for (id, joined) in &ledger.joined {
        let drained = nodes.iter().any(|node| node.id == *id && node.drained);
        let shard = joined.shard.filter(|shard| *shard < total);
        if joined.asks_for_shard {
            selection.shards.insert(id.clone(), shard);
        }
        if drained || (joined.asks_for_shard && shard.is_none()) {
            selection.left_out.insert(id.clone());
        }
    }
    if is_changing {
        let known = nodes.iter().filter(|node| node.is_online && !selection.left_out.contains(&node.id));
        selection.only = Some(known.map(|node| node.id.clone()).collect());
    }
    (Some(selection), step)
}

fn has_another(totals: &BTreeSet<u32>, total: u32) -> bool {
    totals.iter().any(|other| *other != total)
}

/// Desired nodes first: they keep their shards.
fn in_order<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a ResourceId, &'a Presence)> {
    view.nodes.iter().map(|node| (&node.id, &node.presence)).chain(view.undesired())
}

/// The numbering that runs use: the new one as soon as no other has more serving nodes.
fn selected_total(view: &View<'_>, new_total: u32, ledger: &Ledger) -> u32 {
    let mut serving: BTreeMap<u32, u32> = BTreeMap::new();
    for (id, _) in in_order(view).filter(|(_, presence)| presence.serves()) {
        let totals = ledger.applied.get(id).map(|applied| &applied.totals);
        // A node that may have either numbering counts for neither.
        if let Some(total) = totals.filter(|totals| totals.len() == 1).and_then(BTreeSet::first) {
            *serving.entry(*total).or_default() += 1;
        }
    }
    let count = |total: u32| serving.get(&total).copied().unwrap_or_default();
    let most = || serving.iter().max_by_key(|(_, nodes)| **nodes).map(|(total, _)| *total);
    let current = ledger.selected_total.filter(|total| count(*total) > 0).or_else(most).unwrap_or(new_total);
    if count(new_total) >= count(current) { new_total } else { current }
}

/// The SuperLink id of a node of a pool.
fn node_id<'a>(id: &ResourceId, presence: &'a Presence, nodes: &'a [LinkNode]) -> Option<&'a str> {
    let reported = presence.facts().and_then(|facts| facts.node_id.as_deref());
    let name = id.part.name();
    reported.or_else(|| nodes.iter().find(|node| node.is_online && node.name == name).map(|node| &*node.id))
}
