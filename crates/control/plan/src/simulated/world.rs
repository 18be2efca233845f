//! What happens in the simulated world: machines start, work, fail and stop; actions take effect when their time comes.

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
const MOST_JOURNAL_LINES: usize = 200;

#[derive(Debug, Clone, Default)]
pub struct SiteState {
    /// `Some`: it cannot be reached, and why.
    pub cut: Option<String>,
    /// Most nodes that it holds.
    pub room: Option<u32>,
    /// It says how many that is only to those who ask for more.
    pub hides_room: bool,
    /// `Some`: it makes no nodes, and why.
    pub refuses: Option<String>,
    pub gpus: Option<u32>,
    /// Pools whose size it decides itself.
    pub sizes: BTreeMap<Name, u32>,
}

/// What the coordinator tells of its runs.
#[derive(Debug, Clone, Default)]
pub struct Training {
    /// At work; `None`: it cannot say.
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
    /// Nodes that joined the SuperLink from elsewhere.
    pub joined: Vec<LinkNode>,
    /// Which nodes runs may select, as the SuperLink was last told.
    selection: Option<Selection>,
    /// What must never be, as it was found.
    pub violations: Vec<String>,
    /// The last things that happened, for who wonders how it came to this.
    pub journal: VecDeque<String>,
    machines: BTreeMap<ResourceId, Machine>,
    /// The last action that was carried out, for each resource.
    orders: BTreeMap<ResourceId, Order>,
    fences: BTreeMap<Name, u64>,
    /// Actions under way: when they take effect.
    under_way: BTreeMap<(Millis, u64), Action>,
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
            under_way: BTreeMap::new(),
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

    /// Nodes that work and take work.
    pub fn serving(&self) -> u32 {
        let serving =
            self.machines.values().filter(|machine| machine.desired.spec.shard().is_some() && machine.serves());
        u32::try_from(serving.count()).unwrap_or(u32::MAX)
    }

    /// All nodes that the SuperLink has.
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

    /// Nodes of two numberings, or two nodes of one shard, must never be selected together.
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

    /// Gives a node work until then. One that drains, or does not run, takes none.
    pub fn give_work(&mut self, id: &ResourceId, until_ms: Millis) {
        if let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.serves()) {
            machine.busy_until_ms = until_ms;
        }
    }

    /// Lets a process end by itself; `why` is what its driver would say.
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

    /// Lets something start and never become ready.
    pub fn hang(&mut self, id: &ResourceId) {
        let now_ms = self.now_ms;
        if let Some(machine) = self.machines.get_mut(id) {
            machine.enter(Phase::Starting, now_ms);
        }
    }

    /// Lets a machine vanish with all that is on it.
    pub fn lose(&mut self, id: &ResourceId) {
        if let Some(machine) = self.machines.remove(id) {
            self.note(format_args!("{id} is lost"));
            self.note_failure(machine.serves(), id);
        }
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        if self.journal.len() == MOST_JOURNAL_LINES {
            self.journal.pop_front();
        }
        self.journal.push_back(format!("{} ms: {what} ({} serve)", self.now_ms, self.serving()));
    }

    fn note_failure(&mut self, served: bool, id: &ResourceId) {
        if let Some(key) = id.node_key().filter(|_| served) {
            self.disruptions.failed(key);
        }
    }

    /// Lets everything happen that is due, in the order of time.
    pub fn advance(&mut self, now_ms: Millis) {
        loop {
            let effect = self.under_way.keys().next().map(|(at_ms, _)| *at_ms);
            let turns = self.machines.iter().filter_map(|(id, machine)| Some((machine.turns.as_ref()?.0, id.clone())));
            let turn = turns.min();
            let turn_ms = turn.as_ref().map(|(at_ms, _)| *at_ms);
            let next_ms = [effect, turn_ms].into_iter().flatten().min().filter(|at_ms| *at_ms <= now_ms);
            let Some(next_ms) = next_ms else { break };
            self.now_ms = self.now_ms.max(next_ms);
            if effect == Some(next_ms) {
                if let Some(((_, ticket), action)) = self.under_way.pop_first() {
                    let outcome = self.carry_out(&action);
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
        match machine.turns.take() {
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
                self.note(format_args!("{id} is gone"));
            }
            None => {}
        }
    }

    /// Sends an action on its way; it takes effect at `at_ms`, whoever still waits for it then.
    pub(super) fn send(&mut self, action: Action, at_ms: Millis) -> u64 {
        self.next_ticket += 1;
        self.under_way.insert((at_ms, self.next_ticket), action);
        self.next_ticket
    }

    pub(super) fn take_outcome(&mut self, ticket: u64) -> Option<Outcome> {
        self.outcomes.remove(&ticket)
    }

    /// Carries an action out now.
    pub fn carry_out(&mut self, action: &Action) -> Outcome {
        let id = action.id().clone();
        if let Some(why) = self.sites.get(&id.site).and_then(|site| site.cut.clone()) {
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
            self.disruptions.took(action.order.serial, shard, serving);
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
                why: "a later controller, or a later action, was here".to_owned(),
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
                refused("it still stops")
            }
            (Verb::Create(desired), None) => self.create(desired),
            (Verb::Create(desired) | Verb::Replace(desired), Some(phase)) => {
                let same = self.machines[&desired.id].desired.generation == desired.generation;
                match (same, phase, verb) {
                    (true, Phase::Starting, _) => Outcome::Started,
                    (true, _, _) => Outcome::Done,
                    (false, _, Verb::Create(_)) => refused("another generation is there"),
                    (false, _, _) => self.start(desired.clone()),
                }
            }
            (Verb::Replace(_) | Verb::Restart { .. }, None) => refused("there is none"),
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
            Some(SiteState { room: Some(room), .. }) if nodes >= *room && desired.spec.shard().is_some() => {
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
            turns: Some((at_ms, Some(phase))),
        };
        self.machines.insert(id.clone(), machine);
        self.look_for_doubles(&id);
        Outcome::Started
    }

    fn stop(&mut self, id: &ResourceId) -> Outcome {
        let at_ms = self.now_ms + self.random.between(STOP_MS.0, STOP_MS.1);
        let now_ms = self.now_ms;
        if let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.phase != Phase::Stopping) {
            machine.enter(Phase::Stopping, now_ms);
            machine.turns = Some((at_ms, None));
        }
        Outcome::Started
    }

    /// Two nodes on one shard, or two coordinators, are what must never be.
    fn look_for_doubles(&mut self, id: &ResourceId) {
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
            self.violations.push(format!("{} ms: {id} and {other} are the same shard, {shard:?}", self.now_ms));
        }
    }

    /// A site as its driver sees it now. What cannot be seen is never told as absent.
    pub fn observe(&mut self, federation: &Name, site: &Name) -> Observation {
        let Some(state) = self.sites.get(site) else {
            return Observation::Unreachable { why: format!("there is no site {site}") };
        };
        if let Some(why) = &state.cut {
            return Observation::Unreachable { why: why.clone() };
        }
        let free_nodes = state.room.filter(|_| !state.hides_room).map(|room| room.saturating_sub(self.nodes_at(site)));
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
                resources.insert(id.clone(), Presence::Unknown { why: "its state could not be read".to_owned() });
            }
        }
        Observation::Reached(ObservedSite { resources, complete, capacity, sizes })
    }
}
