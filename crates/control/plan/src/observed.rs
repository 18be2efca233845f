//! What was seen. Three values, not two: what could not be seen is neither there nor gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trellis_spec::Name;

use crate::Millis;
use crate::controller::Heard;
use crate::resource::{Generation, Part, ResourceId};

/// One resource, as it was seen.
#[derive(Debug, Clone, PartialEq)]
// Nearly all are there: a box would be one more step to each.
#[allow(clippy::large_enum_variant)]
pub enum Sighting {
    Absent,
    Unknown {
        why: String,
    },
    Present {
        /// `None`: somebody else made it, or its mark is lost.
        generation: Option<Generation>,
        facts: Facts,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub phase: Phase,
    /// A node: in a round. The coordinator: with a run at work. `None`: nobody could say.
    pub busy: Option<bool>,
    /// It takes no new work.
    pub draining: bool,
    pub version: Option<String>,
    pub addresses: Addresses,
    /// The coordinator: how many runs are at work.
    pub runs: Option<u32>,
    /// The coordinator: how long the last round took of the runs that are at work, the longest of them.
    pub round_ms: Option<Millis>,
    /// The coordinator: how many nodes its runs wait for, the most of them; `None`: none waits, or nobody could say.
    pub waits_for: Option<u32>,
    /// A node: the shard that it was started with.
    pub shard: Option<u32>,
    /// A node: the number of shards that it was started with.
    pub shards: Option<u32>,
    /// A node: what the SuperLink calls it.
    pub node_id: Option<String>,
    /// Since when it is in this phase.
    pub since_ms: Millis,
    /// Another number for each time that it was started.
    pub instance: u64,
    /// What it waits for while it starts, in its own words; `None`: it does not say.
    pub hindrance: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Ready,
    Failed { why: String },
    Stopping,
}

/// Host and port of each interface that the coordinator offers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Addresses {
    pub fleet: Option<String>,
    pub control: Option<String>,
    pub app: Option<String>,
    pub http: Option<String>,
}

/// One site, as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    Unreachable { why: String },
    Seen(Seen),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    pub resources: BTreeMap<ResourceId, Sighting>,
    /// `false`: what is not listed may exist all the same.
    pub complete: bool,
    pub offer: Offer,
    /// Pools whose size the site itself decides, and what it decided.
    pub sizes: BTreeMap<Name, u32>,
}

/// What a site has to give. `None`: it does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offer {
    /// Nodes that still find room.
    pub room: Option<u32>,
    /// GPUs that there are, free or not.
    pub gpus: Option<u32>,
}

/// All sites that matter to a federation, and its SuperLink.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    pub sites: BTreeMap<Name, Observation>,
    /// Nodes that the SuperLink has, wherever they are; `None`: it did not say.
    pub link: Option<Arc<[LinkNode]>>,
}

/// A node as the SuperLink knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkNode {
    pub id: String,
    /// May be empty.
    pub name: String,
    pub location: String,
    pub is_online: bool,
    /// It takes no new work.
    pub draining: bool,
    /// A user keeps it from new work.
    pub drained: bool,
    /// It works with the shard that it is assigned.
    pub asks_for_shard: bool,
    pub version: Option<String>,
    /// Since when it is online, or away.
    pub since_ms: Option<Millis>,
}

impl Observed {
    pub fn sighting(&self, id: &ResourceId) -> Sighting {
        match self.sites.get(&id.site) {
            None => Sighting::Unknown { why: format!("nobody looked at site {}", id.site) },
            Some(Observation::Unreachable { why }) => {
                Sighting::Unknown { why: format!("site {} cannot be reached: {why}", id.site) }
            }
            Some(Observation::Seen(seen)) => match seen.resources.get(id) {
                Some(sighting) => sighting.clone(),
                None if seen.complete => Sighting::Absent,
                None => Sighting::Unknown { why: format!("site {} told only a part of what it has", id.site) },
            },
        }
    }

    /// How many nodes a site decided that a pool has.
    pub fn size(&self, site: &Name, pool: &Name) -> Option<u32> {
        match self.sites.get(site) {
            Some(Observation::Seen(seen)) => seen.sizes.get(pool).copied(),
            _ => None,
        }
    }

    pub fn offer(&self, site: &Name) -> Offer {
        match self.sites.get(site) {
            Some(Observation::Seen(seen)) => seen.offer,
            _ => Offer::default(),
        }
    }

    /// Everything that is listed anywhere.
    pub fn listed(&self) -> impl Iterator<Item = &ResourceId> {
        let seen = self.sites.values().filter_map(|observation| match observation {
            Observation::Seen(seen) => Some(seen),
            Observation::Unreachable { .. } => None,
        });
        seen.flat_map(|seen| seen.resources.keys())
    }
}

impl Observation {
    /// Adds what was heard of the runs where the driver could not say.
    pub(crate) fn take_in(&mut self, heard: Heard) {
        let Observation::Seen(seen) = self else { return };
        for (id, sighting) in &mut seen.resources {
            if let Sighting::Present { facts, .. } = sighting
                && id.part == Part::Coordinator
            {
                facts.round_ms = facts.round_ms.or(heard.round_ms);
                facts.waits_for = facts.waits_for.or(heard.waits_for);
            }
        }
    }
}

impl Facts {
    /// It works, and takes work.
    pub fn serves(&self) -> bool {
        self.phase == Phase::Ready && !self.draining
    }
}

impl Sighting {
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            Sighting::Present { facts, .. } => Some(facts),
            Sighting::Absent | Sighting::Unknown { .. } => None,
        }
    }

    pub fn generation(&self) -> Option<Generation> {
        match self {
            Sighting::Present { generation, .. } => *generation,
            Sighting::Absent | Sighting::Unknown { .. } => None,
        }
    }

    pub fn serves(&self) -> bool {
        self.facts().is_some_and(Facts::serves)
    }
}
