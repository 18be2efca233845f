//! All that the later steps look at: what is wanted beside what was seen, node by node.

use std::collections::{BTreeMap, BTreeSet};

use trellis_spec::{Federation, Name};

use super::numbering::Numbered;
use super::{Step, blueprint, links, skew};
use crate::Millis;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::observed::{Observed, Sighting};
use crate::report::Weight;
use crate::resource::{Desired, NodeKey, Part, ResourceId, Tunnel};

pub(super) struct View<'a> {
    pub federation: &'a Federation,
    pub inventory: &'a Inventory,
    pub observed: &'a Observed,
    pub now_ms: Millis,
    /// All that is there, or may be, wanted or not.
    pub known: BTreeMap<ResourceId, Sighting>,
    /// Sites where some of it is.
    known_sites: BTreeSet<Name>,
    pub coordinator: Coordinator,
    /// In the order of the document.
    pub nodes: Vec<Node>,
}

/// The coordinator that is wanted.
pub(super) struct Coordinator {
    pub id: ResourceId,
    pub desired: Desired,
    pub sighting: Sighting,
}

/// A node that is wanted.
pub(super) struct Node {
    pub key: NodeKey,
    pub id: ResourceId,
    pub shard: Option<u32>,
    /// `None`: it has no shard yet, or nobody knows where the coordinator will be.
    pub desired: Option<Desired>,
    pub sighting: Sighting,
    /// Why it must not be made as it is wanted.
    pub hindrance: Option<String>,
}

impl Coordinator {
    /// It is there as it should be, and works.
    pub fn is_well(&self) -> bool {
        self.sighting.serves() && self.is_updated()
    }

    pub fn is_updated(&self) -> bool {
        self.sighting.generation() == Some(self.desired.generation)
    }
}

impl Node {
    pub fn is_well(&self) -> bool {
        self.sighting.serves() && self.is_updated()
    }

    pub fn is_updated(&self) -> bool {
        let wanted = self.desired.as_ref().map(|desired| desired.generation);
        wanted.is_some() && self.sighting.generation() == wanted
    }
}

impl View<'_> {
    /// All that is wanted, as far as it is known what it is to be.
    pub fn into_blueprints(self) -> Vec<Desired> {
        let nodes = self.nodes.into_iter().filter_map(|node| node.desired);
        [self.coordinator.desired].into_iter().chain(nodes).collect()
    }

    /// What is known to be there, or may be, and is not wanted: nodes only.
    pub fn leaving(&self) -> Vec<(&ResourceId, &Sighting)> {
        let wanted: BTreeSet<&ResourceId> = self.nodes.iter().map(|node| &node.id).collect();
        let is_node = |id: &ResourceId| id.node_key().is_some();
        self.known.iter().filter(|(id, _)| is_node(id) && !wanted.contains(id)).collect()
    }

    /// The same part at another site: there, or perhaps.
    pub fn elsewhere(&self, id: &ResourceId) -> Option<(&ResourceId, &Sighting)> {
        let others = self.known_sites.iter().filter(|site| **site != id.site);
        let mut same = others.map(|site| ResourceId { site: site.clone(), ..id.clone() });
        same.find_map(|other| self.known.get_key_value(&other))
    }

    /// Nodes that are there, or may be, wanted or not.
    pub fn nodes_at(&self, site: &Name) -> u32 {
        let nodes = self.known.keys().filter(|id| id.site == *site && id.node_key().is_some());
        u32::try_from(nodes.count()).unwrap_or(u32::MAX)
    }

    /// How many more the document lets a site hold; `None`: as many as it can.
    pub fn room_by_document(&self, site: &Name) -> Option<u32> {
        let most = self.federation.sites.iter().find(|other| other.name == *site).and_then(|site| site.max_nodes);
        most.map(|most| most.saturating_sub(self.nodes_at(site)))
    }

    pub fn is_full(&self, site: &Name) -> bool {
        self.room_by_document(site) == Some(0) || self.observed.offer(site).room == Some(0)
    }

    /// The document keeps this node from new work.
    pub fn is_drained(&self, key: &NodeKey) -> bool {
        let pool = self.federation.pools.iter().find(|pool| pool.name == key.pool);
        pool.is_some_and(|pool| pool.drained.contains(&key.index))
    }

    pub fn site(&self, index: usize) -> &Name {
        &self.federation.sites[index].name
    }
}

pub(super) fn draw<'a>(
    federation: &'a Federation,
    inventory: &'a Inventory,
    observed: &'a Observed,
    known: BTreeMap<ResourceId, Sighting>,
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
        let sighting = observed.sighting(&id);
        let hindrance = gpu.hindrance.or_else(|| skew::hindrance(federation, pool));
        nodes.push(Node { key: numbered.key, id, shard: numbered.shard, desired, sighting, hindrance });
    }
    for (pool, text) in gpus.notes() {
        step.tell(Weight::Note, format!("pool {pool}"), text);
    }
    let known_sites = known.keys().map(|id| id.site.clone()).collect();
    (View { federation, inventory, observed, now_ms, known, known_sites, coordinator, nodes }, step)
}

fn coordinator(federation: &Federation, inventory: &Inventory, observed: &Observed, ledger: &Ledger) -> Coordinator {
    let site = &federation.sites[federation.coordinator.site];
    let id = ResourceId { federation: federation.name.clone(), site: site.name.clone(), part: Part::Coordinator };
    let desired = blueprint::coordinator(federation, inventory, ledger, &id);
    let sighting = observed.sighting(&id);
    Coordinator { id, desired, sighting }
}

/// Nodes of each pool, by its number.
fn counts(numbered: &[Numbered]) -> BTreeMap<usize, u32> {
    let mut counts = BTreeMap::new();
    for node in numbered {
        *counts.entry(node.pool).or_default() += 1;
    }
    counts
}
