//! The view: desired and observed state side by side, the input of the later steps.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::{Federation, Name};

use super::numbering::Numbered;
use super::{Step, blueprint, links, skew};
use crate::Millis;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::{Observed, Presence};
use crate::report::Weight;
use crate::resource::{Desired, NodeKey, Part, ResourceId, Tunnel};

pub(super) struct View<'a> {
    pub federation: &'a Federation,
    pub inventory: &'a Inventory,
    pub observed: &'a Observed,
    pub now_ms: Millis,
    /// All resources that exist or may exist, desired or not.
    pub known: BTreeMap<ResourceId, Presence>,
    /// Sites of `known`.
    known_sites: BTreeSet<Name>,
    pub coordinator: Coordinator,
    /// In the order of the document.
    pub nodes: Vec<Node>,
}

/// The desired coordinator.
pub(super) struct Coordinator {
    pub id: ResourceId,
    pub desired: Desired,
    pub presence: Presence,
}

/// A desired node.
pub(super) struct Node {
    pub key: NodeKey,
    pub id: ResourceId,
    pub shard: Option<u32>,
    /// `None`: it has no shard yet, or the address of the coordinator is unknown.
    pub desired: Option<Desired>,
    pub presence: Presence,
    /// Why the node cannot be created as desired.
    pub blocker: Option<String>,
}

impl Coordinator {
    /// Whether it serves with the desired generation.
    pub fn is_healthy(&self) -> bool {
        self.presence.serves() && self.is_updated()
    }

    pub fn is_updated(&self) -> bool {
        self.presence.generation() == Some(self.desired.generation)
    }
}

impl Node {
    pub fn is_healthy(&self) -> bool {
        self.presence.serves() && self.is_updated()
    }

    pub fn is_updated(&self) -> bool {
        let generation = self.desired.as_ref().map(|desired| desired.generation);
        generation.is_some() && self.presence.generation() == generation
    }
}

impl View<'_> {
    /// The desired state of all parts for which it can be computed.
    pub fn into_blueprints(self) -> Vec<Desired> {
        let nodes = self.nodes.into_iter().filter_map(|node| node.desired);
        [self.coordinator.desired].into_iter().chain(nodes).collect()
    }

    /// Nodes that exist or may exist and are not desired.
    pub fn undesired(&self) -> Vec<(&ResourceId, &Presence)> {
        let desired: BTreeSet<&ResourceId> = self.nodes.iter().map(|node| &node.id).collect();
        let is_node = |id: &ResourceId| id.node_key().is_some();
        self.known.iter().filter(|(id, _)| is_node(id) && !desired.contains(id)).collect()
    }

    /// The same part at another site, if it exists or may exist there.
    pub fn elsewhere(&self, id: &ResourceId) -> Option<(&ResourceId, &Presence)> {
        let others = self.known_sites.iter().filter(|site| **site != id.site);
        let mut same = others.map(|site| ResourceId { site: site.clone(), ..id.clone() });
        same.find_map(|other| self.known.get_key_value(&other))
    }

    /// Nodes of a site that exist or may exist, desired or not.
    pub fn nodes_at(&self, site: &Name) -> u32 {
        let nodes = self.known.keys().filter(|id| id.site == *site && id.node_key().is_some());
        u32::try_from(nodes.count()).unwrap_or(u32::MAX)
    }

    /// How many more nodes the document allows at a site; `None`: no limit.
    pub fn free_nodes_by_document(&self, site: &Name) -> Option<u32> {
        let max = self.federation.sites.iter().find(|other| other.name == *site).and_then(|site| site.max_nodes);
        max.map(|max| max.saturating_sub(self.nodes_at(site)))
    }

    pub fn is_full(&self, site: &Name) -> bool {
        self.free_nodes_by_document(site) == Some(0) || self.observed.capacity(site).free_nodes == Some(0)
    }

    /// Whether the document drains this node.
    pub fn is_drained(&self, key: &NodeKey) -> bool {
        let pool = self.federation.pools.iter().find(|pool| pool.name == key.pool);
        pool.is_some_and(|pool| pool.drained.contains(&key.index))
    }

    pub fn site(&self, index: usize) -> &Name {
        &self.federation.sites[index].name
    }
}

pub(super) fn build<'a>(
    federation: &'a Federation,
    inventory: &'a Inventory,
    observed: &'a Observed,
    known: BTreeMap<ResourceId, Presence>,
    numbered: Vec<Numbered>,
    ledger: &Ledger,
    now_ms: Millis,
) -> (View<'a>, Step) {
    let mut step = Step::default();
    let coordinator = coordinator(federation, inventory, observed, ledger);
    let tunnels: Vec<Option<Tunnel>> =
        (0..federation.sites.len()).map(|site| links::of_nodes(federation, ledger, site)).collect();
    let mut gpus = blueprint::GpuShares::new(federation, inventory, ledger);
    let mut nodes = Vec::with_capacity(numbered.len());
    let counts = counts(&numbered);
    for numbered in numbered {
        let pool = &federation.pools[numbered.pool];
        let site = &federation.sites[pool.site].name;
        let id = ResourceId::node(&federation.name, site, &numbered.key);
        let gpu = gpus.share(pool);
        let replicas = counts.get(&numbered.pool).copied().unwrap_or_default();
        let desired = numbered.shard.zip(ledger.coordinator_address.as_deref()).map(|(shard, address)| {
            let shards = ledger.shards.total(federation.training.partitions);
            let place = blueprint::Place { shard, shards, replicas, tunnel: tunnels[pool.site].clone() };
            blueprint::node(federation, inventory, pool, &id, &place, address, gpu.gpu.clone())
        });
        let presence = observed.presence(&id);
        let blocker = gpu.blocker.or_else(|| skew::blocker(federation, pool));
        nodes.push(Node { key: numbered.key, id, shard: numbered.shard, desired, presence, blocker });
    }
    for (pool, text) in gpus.notes() {
        step.report(Weight::Note, format!("pool {pool}"), text);
    }
    let known_sites = known.keys().map(|id| id.site.clone()).collect();
    (View { federation, inventory, observed, now_ms, known, known_sites, coordinator, nodes }, step)
}

fn coordinator(federation: &Federation, inventory: &Inventory, observed: &Observed, ledger: &Ledger) -> Coordinator {
    let site = &federation.sites[federation.coordinator.site];
    let id = ResourceId { federation: federation.name.clone(), site: site.name.clone(), part: Part::Coordinator };
    let desired = blueprint::coordinator(federation, inventory, ledger, &id);
    let presence = observed.presence(&id);
    Coordinator { id, desired, presence }
}

/// Number of nodes of each pool, by pool index.
fn counts(numbered: &[Numbered]) -> BTreeMap<usize, u32> {
    let mut counts = BTreeMap::new();
    for node in numbered {
        *counts.entry(node.pool).or_default() += 1;
    }
    counts
}
