//! Nodes that joined the SuperLink by themselves: no driver created them, and they belong to no pool. They are listed as long as the
//! SuperLink lists them. Those that ask for a shard get one like all other nodes.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::Federation;

use super::view::View;
use crate::ledger::{JoinedNode, Ledger};
use crate::observed::{LinkNode, Observed, Presence};
use crate::resource::ResourceId;
use crate::status::NodeStatus;

/// Adds online nodes that no driver created to the ledger, and removes those that the SuperLink no longer lists.
pub(super) fn adopt(
    federation: &Federation,
    observed: &Observed,
    known: &BTreeMap<ResourceId, Presence>,
    ledger: &mut Ledger,
) {
    let Some(nodes) = &observed.link else { return };
    let CreatedNodes { ids, names } = CreatedNodes::new(federation, known);
    let listed: BTreeSet<&str> = nodes.iter().map(|node| &*node.id).collect();
    ledger.made.extend(ids);
    ledger.made.retain(|id| listed.contains(&**id));
    let is_made = |node: &&LinkNode| ledger.made.contains(&node.id) || names.contains(&node.name);
    let mut joined = BTreeMap::new();
    for node in nodes.iter().filter(|node| !is_made(node)) {
        let before = ledger.joined.get(&node.id).cloned();
        // A node that was offline at the first observation may be a deleted node of a pool.
        if before.is_some() || node.is_online {
            let before = before.unwrap_or_default();
            let asks_for_shard = before.asks_for_shard || node.asks_for_shard;
            joined.insert(node.id.clone(), JoinedNode { asks_for_shard, ..before });
        }
    }
    ledger.joined = joined;
}

/// Nodes that drivers created.
struct CreatedNodes {
    ids: BTreeSet<String>,
    /// Names of those without a known id.
    names: BTreeSet<String>,
}

impl CreatedNodes {
    fn new(federation: &Federation, known: &BTreeMap<ResourceId, Presence>) -> CreatedNodes {
        let mut created = CreatedNodes { ids: BTreeSet::new(), names: BTreeSet::new() };
        let mut identified = BTreeSet::new();
        for (id, presence) in known {
            let Some(key) = id.node_key() else { continue };
            match presence.facts().and_then(|facts| facts.node_id.clone()) {
                Some(node_id) => {
                    created.ids.insert(node_id);
                    identified.insert(key.to_string());
                }
                None => drop(created.names.insert(key.to_string())),
            }
        }
        // A node may be online before its driver observes it.
        for pool in &federation.pools {
            let names = (0..pool.count).map(|index| format!("{}-{index}", pool.name));
            created.names.extend(names.filter(|name| !identified.contains(name)));
        }
        created
    }
}

/// Extends the shard table. Nodes of pools take precedence: of a fixed number of shards, joined nodes get the remaining ones.
pub(super) fn make_room(pool_nodes: usize, partitions: Option<u32>, ledger: &mut Ledger) {
    let asking = ledger.joined.values().filter(|joined| joined.asks_for_shard).count();
    ledger.shards.make_room(pool_nodes + asking);
    let total = ledger.shards.total(partitions);
    let max = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(pool_nodes);
    let mut holders: Vec<&mut JoinedNode> = ledger.joined.values_mut().collect();
    holders.retain(|joined| joined.shard.is_some());
    holders.sort_by_key(|joined| joined.shard);
    for (place, joined) in holders.into_iter().enumerate() {
        if place >= max || joined.shard >= Some(total) {
            joined.shard = None;
        }
    }
}

/// Assigns the lowest free shards to the nodes that ask for one.
pub(super) fn assign(partitions: Option<u32>, ledger: &mut Ledger) {
    let total = ledger.shards.total(partitions);
    let mut used: BTreeSet<u32> = ledger.shards.holders().map(|(shard, _)| shard).collect();
    used.extend(ledger.applied.values().flat_map(|applied| &applied.shards));
    used.extend(ledger.joined.values().filter_map(|joined| joined.shard));
    let mut free = (0..total).filter(|shard| !used.contains(shard));
    for joined in ledger.joined.values_mut().filter(|joined| joined.asks_for_shard && joined.shard.is_none()) {
        joined.shard = free.next();
    }
}

pub(super) fn statuses(view: &View<'_>, ledger: &Ledger) -> Vec<NodeStatus> {
    let nodes = view.observed.link.iter().flat_map(|nodes| nodes.iter());
    let listed: Vec<(&LinkNode, &JoinedNode)> =
        nodes.filter_map(|node| Some((node, ledger.joined.get(&node.id)?))).collect();
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let created = view.nodes.iter().map(|node| node.key.to_string());
    for name in created.chain(listed.iter().map(|(node, _)| node.name.clone())) {
        *names.entry(name).or_default() += 1;
    }
    let name = |node: &LinkNode| match names.get(&node.name) {
        Some(1) if !node.name.is_empty() => node.name.clone(),
        _ => node.id.clone(),
    };
    let status = |(node, joined): &(&LinkNode, &JoinedNode)| NodeStatus {
        name: name(node),
        site: node.location.clone(),
        wanted: true,
        shard: joined.shard,
        id: Some(node.id.clone()),
        phase: if node.is_online { "ready" } else { "absent" }.to_owned(),
        why: why(node, joined),
        updated: true,
        draining: node.draining || node.drained,
        drained: node.drained,
        joined: true,
        version: node.version.clone(),
        since_ms: node.since_ms,
        ..NodeStatus::default()
    };
    listed.iter().map(status).collect()
}

fn why(node: &LinkNode, joined: &JoinedNode) -> Option<String> {
    let text = match (node.is_online, joined) {
        (false, _) => "joined by itself, and is offline",
        (true, JoinedNode { asks_for_shard: false, .. }) => {
            "joined by itself with its own --node-config, or with a SuperNode of Flower, which cannot be assigned a shard"
        }
        (true, JoinedNode { shard: None, .. }) => {
            "joined by itself, and no run selects it: every shard has a node; raise training.partitions"
        }
        (true, _) => return None,
    };
    Some(text.to_owned())
}
