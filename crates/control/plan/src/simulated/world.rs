//! The simulated sites and machines: machines start, work, fail and stop, and actions take effect after a delay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trellis_spec::Name;

use super::disruption::Disruptions;
use super::faults::Faults;
use super::machine::Machine;
use crate::Millis;
use crate::action::{Action, Order, Outcome, Verb};
use crate::observed::{Capacity, LinkNode, Observation, ObservedSite, Phase, Presence};
use crate::planner::Selection;
use crate::resource::{Desired, ResourceId};
use crate::seed::Random;

const START_MS: (Millis, Millis) = (500, 8_000);
const STOP_MS: (Millis, Millis) = (100, 3_000);
const MAX_JOURNAL_LINES: usize = 200;

#[derive(Debug, Clone, Default)]
pub struct SiteState {
    /// `Some`: why the site is unreachable.
    pub unreachable: Option<String>,
    /// Maximum number of nodes.
    pub max_nodes: Option<u32>,
    /// The limit is not part of observations; the site only refuses more nodes.
    pub hides_limit: bool,
    /// `Some`: why the site refuses to create nodes.
    pub refuses: Option<String>,
    pub gpus: Option<u32>,
    /// Sizes of the pools that the site scales itself.
    pub sizes: BTreeMap<Name, u32>,
}

/// Run metrics of the coordinator.
#[derive(Debug, Clone, Default)]
pub struct Training {
    /// Active runs; `None`: unknown.
    pub runs: Option<u32>,
    pub round_ms: Option<Millis>,
    pub required_nodes: Option<u32>,
}

#[derive(Debug, Clone)]
pub struct World {
    pub sites: BTreeMap<Name, SiteState>,
    pub faults: Faults,
    pub training: Training,
    pub disruptions: Disruptions,
    /// Nodes that joined the SuperLink by themselves.
    pub joined: Vec<LinkNode>,
    /// The nodes that runs may select, as set last.
    selection: Option<Selection>,
    /// Violated invariants.
    pub violations: Vec<String>,
    /// The last events, for failure messages.
    pub journal: VecDeque<String>,
    machines: BTreeMap<ResourceId, Machine>,
    /// The last action that was applied to each resource.
    orders: BTreeMap<ResourceId, Order>,
    fences: BTreeMap<Name, u64>,
    /// Actions in progress, by the time at which they take effect.
    in_progress: BTreeMap<(Millis, u64), Action>,
    outcomes: BTreeMap<u64, Outcome>,
    next_ticket: u64,
    instances: u64,
    now_ms: Millis,
    pub(super) random: Random,
}

impl World {
    pub fn new(seed: u64, sites: impl IntoIterator<Item = Name>) -> World {
        World {
            sites: sites.into_iter().map(|site| (site, SiteState::default())).collect(),
            faults: Faults::default(),
            training: Training { runs: Some(0), ..Training::default() },
            disruptions: Disruptions::default(),
            joined: Vec::new(),
            selection: None,
            violations: Vec::new(),
            journal: VecDeque::new(),
            machines: BTreeMap::new(),
            orders: BTreeMap::new(),
            fences: BTreeMap::new(),
            in_progress: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            next_ticket: 0,
            instances: 0,
            now_ms: 0,
            random: Random::new(seed),
        }
    }

    pub fn machines(&self) -> &BTreeMap<ResourceId, Machine> {
        &self.machines
    }

    /// Number of nodes that serve.
    pub fn serving(&self) -> u32 {
        let serving =
            self.machines.values().filter(|machine| machine.desired.spec.shard().is_some() && machine.serves());
        u32::try_from(serving.count()).unwrap_or(u32::MAX)
    }

    /// All nodes of the SuperLink.
    pub fn link_nodes(&self) -> Vec<LinkNode> {
        let made = self.machines.values().filter_map(|machine| {
            let (id, name) = (machine.node_id()?, machine.desired.id.part.name());
            Some(LinkNode { id, name, is_online: machine.phase == Phase::Ready, ..LinkNode::default() })
        });
        made.chain(self.joined.iter().cloned()).collect()
    }

    pub fn select(&mut self, selection: &Selection) {
        if self.selection.as_ref() != Some(selection) {
            self.note(format_args!("runs select {selection:?}"));
        }
        self.selection = Some(selection.clone());
        self.check_selection();
    }

    /// Checks that all selected nodes have the same numbering and different shards.
    fn check_selection(&mut self) {
        let Some(selection) = &self.selection else { return };
        let selected = self
            .machines
            .values()
            .filter(|machine| machine.serves() && machine.node_id().is_some_and(|id| selection.has(&id)));
        let made = selected.filter_map(|machine| machine.desired.spec.shard().zip(machine.desired.spec.shards()));
        let joined = selection.shards.iter().filter(|(id, _)| selection.has(id));
        let joined = joined.filter_map(|(_, shard)| Some(((*shard)?, selection.total)));
        let mut shards: Vec<(u32, u32)> = made.chain(joined).collect();
        shards.sort_unstable();
        let totals: BTreeSet<u32> = shards.iter().map(|(_, total)| *total).collect();
        let are_double = shards.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if totals.len() > 1 || are_double {
            self.violations.push(format!("{} ms: a run can select these shards: {shards:?}", self.now_ms));
        }
    }

    /// Keeps a node busy until then, if it serves.
    pub fn give_work(&mut self, id: &ResourceId, until_ms: Millis) {
        if let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.serves()) {
            machine.busy_until_ms = until_ms;
        }
    }

    /// Ends a process; `why` is the reason in observations.
    pub fn crash(&mut self, id: &ResourceId, why: &str) {
        let now_ms = self.now_ms;
        let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.phase != Phase::Stopping) else {
            return;
        };
        let served = machine.serves();
        machine.enter(Phase::Failed { why: why.to_owned() }, now_ms);
        self.note(format_args!("{id} crashed"));
        self.note_failure(served, id);
    }

    /// Makes a resource start without ever becoming ready.
    pub fn hang(&mut self, id: &ResourceId) {
        let now_ms = self.now_ms;
        if let Some(machine) = self.machines.get_mut(id) {
            machine.enter(Phase::Starting, now_ms);
        }
    }

    /// Deletes a machine with its resource.
    pub fn lose(&mut self, id: &ResourceId) {
        if let Some(machine) = self.machines.remove(id) {
            self.note(format_args!("{id} is lost"));
            self.note_failure(machine.serves(), id);
        }
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        if self.journal.len() == MAX_JOURNAL_LINES {
            self.journal.pop_front();
        }
        self.journal.push_back(format!("{} ms: {what} ({} serve)", self.now_ms, self.serving()));
    }

    fn note_failure(&mut self, served: bool, id: &ResourceId) {
        if let Some(key) = id.node_key().filter(|_| served) {
            self.disruptions.failed(key);
        }
    }

    /// Executes all due events, in order of time.
    pub fn advance(&mut self, now_ms: Millis) {
        loop {
            let effect = self.in_progress.keys().next().map(|(at_ms, _)| *at_ms);
            let turns =
                self.machines.iter().filter_map(|(id, machine)| Some((machine.next_change.as_ref()?.0, id.clone())));
            let turn = turns.min();
            let turn_ms = turn.as_ref().map(|(at_ms, _)| *at_ms);
            let next_ms = [effect, turn_ms].into_iter().flatten().min().filter(|at_ms| *at_ms <= now_ms);
            let Some(next_ms) = next_ms else { break };
            self.now_ms = self.now_ms.max(next_ms);
            if effect == Some(next_ms) {
                if let Some(((_, ticket), action)) = self.in_progress.pop_first() {
                    let outcome = self.apply(&action);
                    self.outcomes.insert(ticket, outcome);
                }
            } else if let Some((_, id)) = turn {
                self.turn(&id);
                self.check_selection();
            }
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    fn turn(&mut self, id: &ResourceId) {
        let now_ms = self.now_ms;
        let Some(machine) = self.machines.get_mut(id) else { return };
        match machine.next_change.take() {
            Some((_, Some(phase))) => {
                machine.enter(phase, now_ms);
                let (serves, shard) = (machine.serves(), machine.desired.spec.shard());
                let became = format!("{id} is {:?}", machine.phase);
                self.note(became);
                if let Some(key) = id.node_key().filter(|_| serves) {
                    let serving = self.serving();
                    self.disruptions.serves(key, shard, serving);
                }
            }
            Some((_, None)) => {
                self.machines.remove(id);
                self.note(format_args!("{id} is deleted"));
            }
            None => {}
        }
    }

    /// Sends an action, which takes effect at `at_ms` even if its caller has ended.
    pub(super) fn send(&mut self, action: Action, at_ms: Millis) -> u64 {
        self.next_ticket += 1;
        self.in_progress.insert((at_ms, self.next_ticket), action);
        self.next_ticket
    }

    pub(super) fn take_outcome(&mut self, ticket: u64) -> Option<Outcome> {
        self.outcomes.remove(&ticket)
    }

    /// Applies an action now.
    pub fn apply(&mut self, action: &Action) -> Outcome {
        let id = action.id().clone();
        if let Some(why) = self.sites.get(&id.site).and_then(|site| site.unreachable.clone()) {
            return Outcome::Failed { why };
        }
        if let Err(refused) = self.check_order(action) {
            return refused;
        }
        let served = self.machines.get(&id).filter(|machine| machine.serves() && !machine.is_coordinator());
        let served = served.map(|machine| machine.desired.spec.shard());
        let outcome = self.act(&action.verb);
        let serves = self.machines.get(&id).is_some_and(Machine::serves);
        let (fence, serial) = (action.order.fence, action.order.serial);
        self.note(format_args!("{} by {fence}/{serial}: {outcome:?}", action.verb));
        if let Some(shard) = served.filter(|_| !serves) {
            let serving = self.serving();
            self.disruptions.stopped(action.order.serial, shard, serving);
        }
        self.check_selection();
        outcome
    }

    fn check_order(&mut self, action: &Action) -> Result<(), Outcome> {
        let id = action.id();
        let fence = self.fences.entry(id.federation.clone()).or_default();
        let last = self.orders.get(id).copied().unwrap_or_default();
        if action.order.fence < *fence || action.order < last {
            return Err(Outcome::Refused {
                why: "a later controller or a later action was applied already".to_owned(),
                retry: true,
            });
        }
        *fence = action.order.fence;
        let repeated = action.order == last && last != Order::default();
        self.orders.insert(id.clone(), action.order);
        if repeated { Err(Outcome::Done) } else { Ok(()) }
    }

    fn act(&mut self, verb: &Verb) -> Outcome {
        let refused = |why: &str| Outcome::Refused { why: why.to_owned(), retry: true };
        let phase = self.machines.get(verb.id()).map(|machine| machine.phase.clone());
        match (verb, phase) {
            (Verb::Create(_) | Verb::Replace(_) | Verb::Restart { .. }, Some(Phase::Stopping)) => {
                refused("it is still stopping")
            }
            (Verb::Create(desired), None) => self.create(desired),
            (Verb::Create(desired) | Verb::Replace(desired), Some(phase)) => {
                let same = self.machines[&desired.id].desired.generation == desired.generation;
                match (same, phase, verb) {
                    (true, Phase::Starting, _) => Outcome::Started,
                    (true, _, _) => Outcome::Done,
                    (false, _, Verb::Create(_)) => refused("it has another generation"),
                    (false, _, _) => self.start(desired.clone()),
                }
            }
            (Verb::Replace(_) | Verb::Restart { .. }, None) => refused("it does not exist"),
            (Verb::Restart { id, instance, .. }, Some(_)) => match self.machines[id].instance == *instance {
                true => self.start(self.machines[id].desired.clone()),
                false => Outcome::Done,
            },
            (Verb::Drain { .. } | Verb::Delete { .. }, None) => Outcome::Done,
            (Verb::Drain { id }, Some(_)) => {
                self.machines.entry(id.clone()).and_modify(|machine| machine.draining = true);
                Outcome::Done
            }
            (Verb::Delete { id }, Some(_)) => self.stop(&id.clone()),
        }
    }

    fn create(&mut self, desired: &Desired) -> Outcome {
        let site = &desired.id.site;
        let nodes = self.nodes_at(site);
        match self.sites.get(site) {
            None => Outcome::Refused { why: format!("there is no site {site}"), retry: false },
            Some(SiteState { refuses: Some(why), .. }) if desired.spec.shard().is_some() => {
                Outcome::Refused { why: why.clone(), retry: false }
            }
            Some(SiteState { max_nodes: Some(room), .. }) if nodes >= *room && desired.spec.shard().is_some() => {
                Outcome::Refused { why: format!("the quota of {room} nodes is used up"), retry: true }
            }
            Some(_) => self.start(desired.clone()),
        }
    }

    fn nodes_at(&self, site: &Name) -> u32 {
        let nodes = self.machines.keys().filter(|id| id.site == *site && id.node_key().is_some());
        u32::try_from(nodes.count()).unwrap_or(u32::MAX)
    }

    fn start(&mut self, desired: Desired) -> Outcome {
        self.instances += 1;
        let at_ms = self.now_ms + self.random.between(START_MS.0, START_MS.1);
        let fails = self.random.permille(self.faults.start_fails);
        let phase = if fails { Phase::Failed { why: "it did not start".to_owned() } } else { Phase::Ready };
        let id = desired.id.clone();
        let machine = Machine {
            desired,
            phase: Phase::Starting,
            since_ms: self.now_ms,
            instance: self.instances,
            draining: false,
            busy_until_ms: 0,
            next_change: Some((at_ms, Some(phase))),
        };
        self.machines.insert(id.clone(), machine);
        self.check_unique(&id);
        Outcome::Started
    }

    fn stop(&mut self, id: &ResourceId) -> Outcome {
        let at_ms = self.now_ms + self.random.between(STOP_MS.0, STOP_MS.1);
        let now_ms = self.now_ms;
        if let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.phase != Phase::Stopping) {
            machine.enter(Phase::Stopping, now_ms);
            machine.next_change = Some((at_ms, None));
        }
        Outcome::Started
    }

    /// Checks that no two nodes have the same shard, and that there is only one coordinator.
    fn check_unique(&mut self, id: &ResourceId) {
        let shard = self.machines[id].desired.spec.shard();
        let same = |other: &ResourceId, machine: &Machine| {
            other != id && other.federation == id.federation && machine.desired.spec.shard() == shard
        };
        let doubles: BTreeSet<String> = self
            .machines
            .iter()
            .filter(|(other, machine)| same(other, machine))
            .map(|(other, _)| other.to_string())
            .collect();
        for other in doubles {
            self.violations.push(format!("{} ms: {id} and {other} have the same shard, {shard:?}", self.now_ms));
        }
    }

    /// Observes a site as its driver. Resources that cannot be observed are not reported as absent.
    pub fn observe(&mut self, federation: &Name, site: &Name) -> Observation {
        let Some(state) = self.sites.get(site) else {
            return Observation::Unreachable { why: format!("there is no site {site}") };
        };
        if let Some(why) = &state.unreachable {
            return Observation::Unreachable { why: why.clone() };
        }
        let free_nodes =
            state.max_nodes.filter(|_| !state.hides_limit).map(|room| room.saturating_sub(self.nodes_at(site)));
        let capacity = Capacity { free_nodes, gpus: state.gpus };
        let sizes = state.sizes.clone();
        let complete = !self.random.permille(self.faults.partial);
        let mut resources = BTreeMap::new();
        let ours = self.machines.iter().filter(|(id, _)| id.federation == *federation && id.site == *site);
        for (id, machine) in ours {
            if complete || self.random.permille(500) {
                let facts = machine.facts(self.now_ms, &self.training);
                resources.insert(id.clone(), Presence::Present { generation: Some(machine.desired.generation), facts });
            } else if self.random.permille(500) {
                resources.insert(id.clone(), Presence::Unknown { why: "its state cannot be read".to_owned() });
            }
        }
        Observation::Reached(ObservedSite { resources, complete, capacity, sizes })
    }
}
