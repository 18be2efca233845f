//! State that a plan needs from earlier plans and that cannot be observed. The controller stores it before it applies actions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use trellis_spec::Name;

use crate::Millis;
use crate::action::{Action, Outcome, Verb};
use crate::resource::{Generation, NodeKey, ResourceId};
use crate::shards::ShardTable;

pub const LEDGER_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    pub version: u32,
    /// Of the last planned action.
    pub serial: u64,
    pub shards: ShardTable,
    /// Resources that were created and not observed to be absent since.
    pub applied: BTreeMap<ResourceId, Applied>,
    pub pools: BTreeMap<Name, PoolMemory>,
    /// Shards whose node is unavailable because of an action, and since when.
    pub taken: BTreeMap<u32, Millis>,
    /// Resources that were asked to finish their work, and since when.
    pub drains: BTreeMap<ResourceId, Millis>,
    pub tries: BTreeMap<ResourceId, Attempts>,
    /// The last observed address of the coordinator for nodes.
    pub coordinator_address: Option<String>,
    /// The last observed number of GPUs of each site.
    pub gpus: BTreeMap<Name, u32>,
    /// From the last document, for the time after the document is deleted.
    pub drain_timeout_ms: Millis,
    /// The number of each site's gateway in the tunnel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gateways: BTreeMap<Name, u32>,
    /// By SuperLink id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined: BTreeMap<String, JoinedNode>,
    /// SuperLink ids of nodes of pools that the SuperLink still lists.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub made: BTreeSet<String>,
    /// The number of shards of the nodes that runs may select.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_total: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub generation: Option<Generation>,
    pub since_ms: Millis,
    /// Nodes: the shards that the node may be running with; several while the outcome of a change is unknown.
    pub shards: BTreeSet<u32>,
    /// Nodes: the numbers of shards that the node may be running with.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub totals: BTreeSet<u32>,
}

/// A node that belongs to no pool: it joined the SuperLink by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedNode {
    pub shard: Option<u32>,
    /// The node uses the shard that the SuperLink assigns.
    pub asks_for_shard: bool,
}

/// State of the scaling policy of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMemory {
    pub count: u32,
    pub changed_ms: Millis,
    /// Since when no node of the pool is busy.
    pub idle_since_ms: Option<Millis>,
}

/// The last action for a resource, and how often it was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    pub verb: String,
    pub generation: Option<Generation>,
    /// Attempts since the resource was last healthy.
    pub count: u32,
    pub last_ms: Millis,
    /// The driver returned an outcome. Without one, the action may still take effect.
    pub answered: bool,
    /// The reason of the failure.
    pub why: Option<String>,
    /// Retrying the same action is useless.
    pub never: bool,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            version: LEDGER_VERSION,
            serial: 0,
            shards: ShardTable::default(),
            applied: BTreeMap::new(),
            pools: BTreeMap::new(),
            taken: BTreeMap::new(),
            drains: BTreeMap::new(),
            tries: BTreeMap::new(),
            coordinator_address: None,
            gpus: BTreeMap::new(),
            drain_timeout_ms: 0,
            gateways: BTreeMap::new(),
            joined: BTreeMap::new(),
            made: BTreeSet::new(),
            selected_total: None,
        }
    }
}

impl Ledger {
    /// Parses the output of [`Ledger::to_json`].
    pub fn from_json(text: &str) -> Result<Ledger, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(text).map_err(|error| format!("not a ledger: {error}"))?;
        if version != LEDGER_VERSION {
            return Err(format!("the ledger has version {version}, and this program reads version {LEDGER_VERSION}"));
        }
        serde_json::from_str(text).map_err(|error| format!("a damaged ledger: {error}"))
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a ledger has only text keys, so it always has a JSON form")
    }

    /// Records the outcome of an action.
    pub fn record(&mut self, action: &Action, outcome: &Outcome) {
        let Some(tries) = self.tries.get_mut(action.id()).filter(|tries| tries.verb == action.verb.word()) else {
            return;
        };
        let (answered, why, never) = match outcome {
            Outcome::Done | Outcome::Started => (true, None, false),
            Outcome::Refused { why, retry } => (true, Some(why.clone()), !retry),
            Outcome::Failed { why } => (false, Some(why.clone()), false),
        };
        tries.answered = answered;
        tries.why = why;
        tries.never = never;
    }

    /// Forgets the resources of a site that no longer exists. Only a user can know that.
    pub fn forget_site(&mut self, site: &Name) {
        self.applied.retain(|id, _| id.site != *site);
        self.drains.retain(|id, _| id.site != *site);
        self.tries.retain(|id, _| id.site != *site);
    }

    /// Records that an action is applied at `now_ms`.
    pub(crate) fn record_attempt(&mut self, verb: &Verb, now_ms: Millis) {
        let id = verb.id().clone();
        let generation = verb.generation();
        if let Verb::Create(desired) | Verb::Replace(desired) = verb {
            let before = self.applied.remove(&id);
            let (mut shards, mut totals) = before.map(|applied| (applied.shards, applied.totals)).unwrap_or_default();
            shards.extend(desired.spec.shard());
            totals.extend(desired.spec.shards());
            let applied = Applied { generation: Some(desired.generation), since_ms: now_ms, shards, totals };
            self.applied.insert(id.clone(), applied);
        }
        let count = self.tries.get(&id).filter(|tries| tries.continues(verb)).map_or(0, |tries| tries.count);
        let count = count.saturating_add(1);
        let verb = verb.word().to_owned();
        let tries = Attempts { verb, generation, count, last_ms: now_ms, answered: false, why: None, never: false };
        self.tries.insert(id, tries);
    }

    /// Whether another node may run with a shard, whatever the table says: a node that waits for its upgrade still has its old one.
    pub(crate) fn may_be_used_by_another(&self, shard: u32, node: &NodeKey) -> bool {
        let is_other = |id: &ResourceId| id.node_key() != Some(node);
        self.applied.iter().any(|(id, applied)| applied.shards.contains(&shard) && is_other(id))
            || self.joined.values().any(|joined| joined.shard == Some(shard))
    }

    /// Whether an action without an outcome may still take effect.
    pub(crate) fn is_unsettled(&self, id: &ResourceId, now_ms: Millis) -> bool {
        let unsettled = |tries: &Attempts| !tries.answered && now_ms < tries.last_ms + crate::planner::UNSETTLED_MS;
        self.tries.get(id).is_some_and(unsettled)
    }
}

impl Attempts {
    /// Whether `verb` is a further attempt at the same goal. A drain is no attempt at the action that follows it.
    fn continues(&self, verb: &Verb) -> bool {
        let either_is_of_any = self.generation.is_none() || verb.generation().is_none();
        match self.verb == verb.word() {
            true => self.generation == verb.generation(),
            false => self.verb != "drain" && (either_is_of_any || self.generation == verb.generation()),
        }
    }
}
