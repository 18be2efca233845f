//! What must be remembered between plans, and cannot be seen: the controller owns it and stores it before it acts.

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
    /// Of the last action that was decided.
    pub serial: u64,
    pub shards: ShardTable,
    /// What was asked to exist, and was not seen to be gone since.
    pub applied: BTreeMap<ResourceId, Applied>,
    pub pools: BTreeMap<Name, PoolMemory>,
    /// Shards whose node is away because of us, and since when.
    pub taken: BTreeMap<u32, Millis>,
    /// What was asked to finish its work, and since when it may.
    pub drains: BTreeMap<ResourceId, Millis>,
    pub tries: BTreeMap<ResourceId, Tries>,
    /// Where the coordinator was last seen to serve nodes.
    pub coordinator_address: Option<String>,
    /// GPUs that each site was last seen to have.
    pub gpus: BTreeMap<Name, u32>,
    /// Of the last document: a federation that goes has none any more.
    pub drain_timeout_ms: Millis,
    /// Of each site's gateway: its number in the tunnel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gateways: BTreeMap<Name, u32>,
    /// By the id that the SuperLink gave it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined: BTreeMap<String, JoinedNode>,
    /// Ids that the SuperLink gave to nodes of pools, and still has.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub made: BTreeSet<String>,
    /// The number of shards of the nodes that runs select.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_total: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub generation: Option<Generation>,
    pub since_ms: Millis,
    /// A node: the shards that it may be running with. Two while nobody knows whether it has changed.
    pub shards: BTreeSet<u32>,
    /// A node: the numbers of shards that it may be running with.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub totals: BTreeSet<u32>,
}

/// A node that no pool has: it joined the SuperLink from elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedNode {
    pub shard: Option<u32>,
    /// It works with the shard that it is assigned.
    pub asks_for_shard: bool,
}

/// How many nodes a pool has by its scaling policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMemory {
    pub count: u32,
    pub changed_ms: Millis,
    /// Since when nothing of it was at work.
    pub idle_since_ms: Option<Millis>,
}

/// The last thing that was asked for a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    pub verb: String,
    pub generation: Option<Generation>,
    /// How often something was asked since it was last well.
    pub count: u32,
    pub last_ms: Millis,
    /// The driver said what became of it. Without, it may still happen.
    pub answered: bool,
    /// What the driver said against it.
    pub why: Option<String>,
    /// It is of no use to ask the same again.
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
    /// Reads what [`Ledger::to_json`] wrote.
    pub fn from_json(text: &str) -> Result<Ledger, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(text).map_err(|error| format!("not a ledger: {error}"))?;
        if version != LEDGER_VERSION {
            return Err(format!("a ledger of version {version}, and this program reads version {LEDGER_VERSION}"));
        }
        serde_json::from_str(text).map_err(|error| format!("a damaged ledger: {error}"))
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a ledger has only text keys, so it always has a JSON form")
    }

    /// Notes what became of an action.
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

    /// Forgets what may be at a site that will never be reached again. For users who know better than any observation.
    pub fn forget_site(&mut self, site: &Name) {
        self.applied.retain(|id, _| id.site != *site);
        self.drains.retain(|id, _| id.site != *site);
        self.tries.retain(|id, _| id.site != *site);
    }

    /// Notes that `verb` is asked at `now_ms`.
    pub(crate) fn asked(&mut self, verb: &Verb, now_ms: Millis) {
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
        let count = self.tries.get(&id).filter(|tries| tries.goes_on_with(verb)).map_or(0, |tries| tries.count);
        let count = count.saturating_add(1);
        let verb = verb.word().to_owned();
        let tries = Tries { verb, generation, count, last_ms: now_ms, answered: false, why: None, never: false };
        self.tries.insert(id, tries);
    }

    /// Whether a shard may be another's, whatever the table says: one that is to be renumbered still has its old one.
    pub(crate) fn may_be_used_by_another(&self, shard: u32, node: &NodeKey) -> bool {
        let is_other = |id: &ResourceId| id.node_key() != Some(node);
        self.applied.iter().any(|(id, applied)| applied.shards.contains(&shard) && is_other(id))
            || self.joined.values().any(|joined| joined.shard == Some(shard))
    }

    /// Something was asked of which nobody knows whether it will still happen.
    pub(crate) fn is_unsettled(&self, id: &ResourceId, now_ms: Millis) -> bool {
        let unsettled = |tries: &Tries| !tries.answered && now_ms < tries.last_ms + crate::planner::UNSETTLED_MS;
        self.tries.get(id).is_some_and(unsettled)
    }
}

impl Tries {
    /// Asking `verb` is one more attempt at the same thing. To let something finish is no attempt at what comes after.
    fn goes_on_with(&self, verb: &Verb) -> bool {
        let either_is_of_any = self.generation.is_none() || verb.generation().is_none();
        match self.verb == verb.word() {
            true => self.generation == verb.generation(),
            false => self.verb != "drain" && (either_is_of_any || self.generation == verb.generation()),
        }
    }
}
