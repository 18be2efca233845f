//! Which nodes runs may select: nodes of one numbering of the data, and one node for each shard. While a new numbering rolls
//! through the nodes, runs stay with the old one until as many nodes have the new one, and change between two rounds.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::Runtime;

use super::view::View;
use super::{Selection, Step};
use crate::ledger::Ledger;
use crate::observed::{LinkNode, Phase, Sighting};
use crate::report::Weight;
use crate::resource::ResourceId;

pub(super) fn select(view: &View<'_>, ledger: &mut Ledger) -> (Option<Selection>, Step) {
    let mut step = Step::default();
    let Some(nodes) = view.observed.link.as_deref().filter(|_| view.federation.runtime == Runtime::Trellis) else {
        return (None, step);
    };
    let wanted = ledger.shards.total(view.federation.training.partitions);
    let total = selected_total(view, wanted, ledger);
    ledger.selected_total = Some(total);
    let mut selection = Selection { total, ..Selection::default() };
    let mut shards: BTreeSet<u32> = BTreeSet::new();
    let is_changing = total != wanted || ledger.applied.values().any(|applied| has_another(&applied.totals, total));
    for (id, sighting) in in_order(view) {
        let Some(node_id) = node_id(id, sighting, nodes) else { continue };
        let applied = ledger.applied.get(id);
        let has_another = applied.is_some_and(|applied| has_another(&applied.totals, total));
        // The process of the old numbering may still be at work.
        let is_on_its_way = is_changing && sighting.facts().is_some_and(|facts| facts.phase != Phase::Ready);
        let is_second = sighting.facts().and_then(|facts| facts.shard).is_some_and(|shard| !shards.insert(shard));
        if has_another || is_on_its_way || is_second {
            selection.left_out.insert(node_id.to_owned());
        }
    }
    if total != wanted {
        let text = format!(
            "runs select nodes with the data in {total} shards, until as many nodes have the new numbering of {wanted} shards"
        );
        step.tell(Weight::Waits, "federation", text);
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

/// Those that are wanted first: they keep their shards.
fn in_order<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a ResourceId, &'a Sighting)> {
    view.nodes.iter().map(|node| (&node.id, &node.sighting)).chain(view.leaving())
}

/// The numbering that runs go on with: the wanted one as soon as no other has more nodes that serve.
fn selected_total(view: &View<'_>, wanted: u32, ledger: &Ledger) -> u32 {
    let mut serving: BTreeMap<u32, u32> = BTreeMap::new();
    for (id, _) in in_order(view).filter(|(_, sighting)| sighting.serves()) {
        let totals = ledger.applied.get(id).map(|applied| &applied.totals);
        // One that may have another already is none of either.
        if let Some(total) = totals.filter(|totals| totals.len() == 1).and_then(BTreeSet::first) {
            *serving.entry(*total).or_default() += 1;
        }
    }
    let count = |total: u32| serving.get(&total).copied().unwrap_or_default();
    let most = || serving.iter().max_by_key(|(_, nodes)| **nodes).map(|(total, _)| *total);
    let current = ledger.selected_total.filter(|total| count(*total) > 0).or_else(most).unwrap_or(wanted);
    if count(wanted) >= count(current) { wanted } else { current }
}

/// What the SuperLink calls a node of a pool.
fn node_id<'a>(id: &ResourceId, sighting: &'a Sighting, nodes: &'a [LinkNode]) -> Option<&'a str> {
    let seen = sighting.facts().and_then(|facts| facts.node_id.as_deref());
    let name = id.part.name();
    seen.or_else(|| nodes.iter().find(|node| node.is_online && node.name == name).map(|node| &*node.id))
}
