//! Observed state. A resource has three states, not two: one that cannot be observed is neither present nor absent.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trellis_spec::Name;

use crate::Millis;
use crate::controller::RunMetrics;
use crate::resource::{Generation, Part, ResourceId};

/// Observed state of one resource.
#[derive(Debug, Clone, PartialEq)]
// Nearly all resources are present: a box would only add an indirection.
#[allow(clippy::large_enum_variant)]
pub enum Presence {
    Absent,
    Unknown {
        why: String,
    },
    Present {
        /// `None` if it was created by another program, or lost its mark.
        generation: Option<Generation>,
        facts: Facts,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub phase: Phase,
    /// Nodes: training in a round. Coordinator: has an active run. `None`: unknown.
    pub busy: Option<bool>,
    /// Takes no new work.
    pub draining: bool,
    pub version: Option<String>,
    pub addresses: Addresses,
    /// Coordinator: number of active runs.
    pub runs: Option<u32>,
    /// Coordinator: duration of the last round of the active runs; of several runs, the longest.
    pub round_ms: Option<Millis>,
    /// Coordinator: how many nodes its runs wait for; of several runs, the most. `None`: no run waits, or unknown.
    pub required_nodes: Option<u32>,
    /// Nodes: the shard that the node was started with.
    pub shard: Option<u32>,
    /// Nodes: the number of shards that the node was started with.
    pub shards: Option<u32>,
    /// Nodes: the id in the SuperLink.
    pub node_id: Option<String>,
    /// Start of this phase.
    pub since_ms: Millis,
    /// A different number for each start.
    pub instance: u64,
    /// While it starts: what it waits for, as text; `None`: unknown.
    pub waiting_for: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Ready,
    Failed { why: String },
    Stopping,
}

/// Host and port of each interface of the coordinator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Addresses {
    pub fleet: Option<String>,
    pub control: Option<String>,
    pub app: Option<String>,
    pub http: Option<String>,
}

/// Observation of one site.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    Unreachable { why: String },
    Reached(ObservedSite),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedSite {
    pub resources: BTreeMap<ResourceId, Presence>,
    /// `false`: resources that are not listed may exist.
    pub complete: bool,
    pub capacity: Capacity,
    /// Current sizes of the pools that the site scales itself.
    pub sizes: BTreeMap<Name, u32>,
}

/// Capacity of a site. `None`: unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// How many more nodes fit.
    pub free_nodes: Option<u32>,
    /// Number of GPUs, free or used.
    pub gpus: Option<u32>,
}

/// Observation of all sites of a federation, and of its SuperLink.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    pub sites: BTreeMap<Name, Observation>,
    /// All nodes of the SuperLink, of pools or not; `None`: unknown.
    pub link: Option<Arc<[LinkNode]>>,
}

/// A node in the SuperLink.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkNode {
    pub id: String,
    /// May be empty.
    pub name: String,
    pub location: String,
    pub is_online: bool,
    /// Takes no new work.
    pub draining: bool,
    /// A user drained it.
    pub drained: bool,
    /// The node uses the shard that the SuperLink assigns.
    pub asks_for_shard: bool,
    pub version: Option<String>,
    /// Since when it is online or offline.
    pub since_ms: Option<Millis>,
}

impl Observed {
    pub fn presence(&self, id: &ResourceId) -> Presence {
        match self.sites.get(&id.site) {
            None => Presence::Unknown { why: format!("site {} was not observed", id.site) },
            Some(Observation::Unreachable { why }) => {
                Presence::Unknown { why: format!("site {} cannot be reached: {why}", id.site) }
            }
            Some(Observation::Reached(site)) => match site.resources.get(id) {
                Some(presence) => presence.clone(),
                None if site.complete => Presence::Absent,
                None => Presence::Unknown { why: format!("the observation of site {} is incomplete", id.site) },
            },
        }
    }

    /// The size of a pool that its site scales.
    pub fn size(&self, site: &Name, pool: &Name) -> Option<u32> {
        match self.sites.get(site) {
            Some(Observation::Reached(reached)) => reached.sizes.get(pool).copied(),
            _ => None,
        }
    }

    pub fn capacity(&self, site: &Name) -> Capacity {
        match self.sites.get(site) {
            Some(Observation::Reached(reached)) => reached.capacity,
            _ => Capacity::default(),
        }
    }

    /// All resources that any site lists.
    pub fn listed(&self) -> impl Iterator<Item = &ResourceId> {
        let reached = self.sites.values().filter_map(|observation| match observation {
            Observation::Reached(site) => Some(site),
            Observation::Unreachable { .. } => None,
        });
        reached.flat_map(|site| site.resources.keys())
    }
}

impl Observation {
    /// Fills in metrics of the runs that the driver does not report.
    pub(crate) fn add_run_metrics(&mut self, run_metrics: RunMetrics) {
        let Observation::Reached(site) = self else { return };
        for (id, presence) in &mut site.resources {
            if let Presence::Present { facts, .. } = presence
                && id.part == Part::Coordinator
            {
                facts.round_ms = facts.round_ms.or(run_metrics.round_ms);
                facts.required_nodes = facts.required_nodes.or(run_metrics.required_nodes);
            }
        }
    }
}

impl Facts {
    /// Whether it is ready and takes new work.
    pub fn serves(&self) -> bool {
        self.phase == Phase::Ready && !self.draining
    }
}

impl Presence {
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            Presence::Present { facts, .. } => Some(facts),
            Presence::Absent | Presence::Unknown { .. } => None,
        }
    }

    pub fn generation(&self) -> Option<Generation> {
        match self {
            Presence::Present { generation, .. } => *generation,
            Presence::Absent | Presence::Unknown { .. } => None,
        }
    }

    pub fn serves(&self) -> bool {
        self.facts().is_some_and(Facts::serves)
    }
}
