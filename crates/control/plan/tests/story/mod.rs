//! A story: lines that begin with `>` are commands to a simulated world; the lines below a command are its output.
//!
//! `step` plans and applies, `plan` only plans, `settle` repeats steps until no action is due, `settle-or-stall` until no action is
//! possible. The other commands change the document or the world.

mod document;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use trellis_plan::simulated::World;
use trellis_plan::{
    Capabilities, DesiredState, Inventory, Ledger, LinkNode, NodeKey, Observation, Observed, Planned, ResourceId, Spec,
    plan,
};
use trellis_spec::{Federation, Name};

use crate::given;

/// A story that does not settle after this many steps has failed.
const MAX_STEPS: u32 = 500;
const START_MS: u64 = 1_000_000;

pub struct Story {
    federation: Federation,
    gone: bool,
    world: World,
    inventory: Inventory,
    ledger: Ledger,
    now_ms: u64,
    hidden: BTreeSet<String>,
    blind: bool,
}

/// Executes a story and returns it with the current output.
pub fn retell(text: &str) -> String {
    let mut story = Story::new();
    let mut told = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            writeln!(told, "{line}").expect("writing to a string");
            told.push_str(&story.tell(command));
        } else if line.starts_with('#') || line.is_empty() {
            writeln!(told, "{line}").expect("writing to a string");
        }
    }
    told
}

impl Story {
    fn new() -> Story {
        let program = "0.1.0".to_owned();
        Story {
            federation: given::federation(),
            gone: false,
            world: World::new(1, []),
            inventory: Inventory { program, capabilities: Default::default() },
            ledger: Ledger::default(),
            now_ms: START_MS,
            hidden: BTreeSet::new(),
            blind: false,
        }
    }

    fn tell(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            ["plan"] => return self.plan().to_string(),
            ["step"] => return self.step().to_string(),
            ["settle"] => self.settle(|planned| !planned.status.reconciling.met),
            ["settle-or-stall"] => self.settle(|planned| planned.status.stalled.met && !planned.status.is_in_motion()),
            ["shards"] => return self.shards(),
            ["selected"] => return self.selected(),
            ["join", node, ref how @ ..] => self.join(node, how),
            ["away", node] => self.joined(node).is_online = false,
            ["drain-joined", node] => self.joined(node).drained = true,
            ["revoke", node] => self.world.joined.retain(|joined| joined.name != node),
            ["wait", duration] => self.wait(document::millis(duration)),
            ["delete"] => self.gone = true,
            ["program", version] => version.clone_into(&mut self.inventory.program),
            ["lose-the-ledger"] => self.ledger = Ledger::default(),
            ["crash", part, ref why @ ..] => self.world.crash(&self.id(part), &why.join(" ")),
            ["hang", part] => self.world.hang(&self.id(part)),
            ["lose", part] => self.world.lose(&self.id(part)),
            ["busy", node, duration] => {
                let until_ms = self.now_ms + document::millis(duration);
                self.world.give_work(&self.id(node), until_ms);
            }
            ["runs", "unknown"] => self.world.training.runs = None,
            ["runs", runs] => self.world.training.runs = Some(document::number(runs)),
            ["round", duration] => self.world.training.round_ms = Some(document::millis(duration)),
            ["waits-for", nodes] => self.world.training.required_nodes = Some(document::number(nodes)),
            ["size", site, pool, nodes] => {
                self.site_state(site).sizes.insert(given::name(pool), document::number(nodes));
            }
            ["links"] => return self.links(),
            ["cut", site, ref why @ ..] => self.site_state(site).unreachable = Some(why.join(" ")),
            ["reach", site] => self.site_state(site).unreachable = None,
            ["hide", node] => drop(self.hidden.insert(node.to_owned())),
            ["show", node] => drop(self.hidden.remove(node)),
            ["busy-unknown"] => self.blind = true,
            ["offer", site, ref settings @ ..] => self.capacity(site, settings),
            ref words => document::change(&mut self.federation, words),
        }
        self.build_sites();
        String::new()
    }

    fn build_sites(&mut self) {
        for site in &self.federation.sites {
            self.world.sites.entry(site.name.clone()).or_default();
            self.inventory.capabilities.entry(site.name.clone()).or_insert(Capabilities::ALL);
        }
    }

    fn capacity(&mut self, site: &str, settings: &[&str]) {
        for setting in settings {
            match document::setting(setting) {
                ("gpus", gpus) => self.site_state(site).gpus = Some(document::number(gpus)),
                ("room", room) => self.site_state(site).max_nodes = Some(document::number(room)),
                ("hidden-room", room) => {
                    let state = self.site_state(site);
                    state.hides_limit = true;
                    state.max_nodes = Some(document::number(room));
                }
                ("refuses", "") => self.site_state(site).refuses = None,
                ("refuses", why) => self.site_state(site).refuses = Some(why.to_owned()),
                ("drain", "no") => {
                    self.inventory.capabilities.entry(given::name(site)).and_modify(|can| can.drain = false);
                }
                (other, _) => panic!("a site offers no `{other}`"),
            }
        }
    }

    /// A node joins the SuperLink by itself: one of ours that asks for a shard, unless `own` is given.
    fn join(&mut self, name: &str, how: &[&str]) {
        let (id, name) = (format!("id-of-{name}"), name.to_owned());
        let asks_for_shard = !how.contains(&"own");
        self.world.joined.push(LinkNode { id, name, is_online: true, asks_for_shard, ..LinkNode::default() });
    }

    fn joined(&mut self, name: &str) -> &mut LinkNode {
        let found = self.world.joined.iter_mut().find(|joined| joined.name == name);
        found.unwrap_or_else(|| panic!("no `{name}` joined"))
    }

    /// The nodes that runs select, and the reason for the state of each joined node.
    fn selected(&mut self) -> String {
        let planned = self.plan();
        let selection = planned.selection.expect("the SuperLink is ours");
        let mut told = String::new();
        for node in planned.status.nodes.iter().filter(|node| node.phase == "ready") {
            let machine = self.world.machines().iter().find(|(id, _)| id.part.name() == node.name);
            let made = machine.and_then(|(_, machine)| machine.desired.spec.shard().zip(machine.desired.spec.shards()));
            let joined = node.id.as_ref().and_then(|id| *selection.shards.get(id)?);
            let shard = made.or(joined.map(|shard| (shard, selection.total)));
            let shard = shard.map_or("no shard".to_owned(), |(shard, total)| format!("shard {shard} of {total}"));
            let out = node.id.as_ref().is_some_and(|id| !selection.has(id));
            let out = if out { ", not selected" } else { "" };
            let why = node.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            writeln!(told, "  {}: {shard}{out}{why}", node.name).expect("writing to a string");
        }
        told
    }

    fn site_state(&mut self, site: &str) -> &mut trellis_plan::simulated::SiteState {
        self.world.sites.get_mut(&given::name(site)).unwrap_or_else(|| panic!("there is no site `{site}`"))
    }

    /// The id of a part, at any site.
    fn id(&self, part: &str) -> ResourceId {
        let found = self.world.machines().keys().find(|id| id.part.name() == part);
        let there = || self.world.machines().keys().map(|id| id.part.name()).collect::<Vec<_>>().join(", ");
        found.unwrap_or_else(|| panic!("there is no `{part}`, only {}", there())).clone()
    }

    fn observe(&mut self) -> Observed {
        self.world.advance(self.now_ms);
        let sites: Vec<Name> = self.world.sites.keys().cloned().collect();
        let mut observed = Observed::default();
        for site in sites {
            let mut observation = self.world.observe(&self.federation.name, &site);
            self.blur(&mut observation);
            observed.sites.insert(site, observation);
        }
        observed.link = Some(self.world.link_nodes().into());
        observed
    }

    /// Removes the hidden parts of the story from an observation.
    fn blur(&self, observation: &mut Observation) {
        let Observation::Reached(seen) = observation else { return };
        let before = seen.resources.len();
        seen.resources.retain(|id, _| !self.hidden.contains(&id.part.name()));
        seen.complete &= seen.resources.len() == before;
        for presence in seen.resources.values_mut() {
            if let trellis_plan::Presence::Present { facts, .. } = presence
                && self.blind
            {
                facts.busy = None;
            }
        }
    }

    fn plan(&mut self) -> Planned {
        let observed = self.observe();
        let wanted = match self.gone {
            false => DesiredState::Federation(Arc::new(self.federation.clone())),
            true => DesiredState::Deleted(self.federation.name.clone()),
        };
        plan(&wanted, &observed, &self.inventory, &self.ledger, self.now_ms, 0)
    }

    fn step(&mut self) -> Planned {
        let planned = self.plan();
        self.ledger = planned.ledger.clone();
        if let Some(selection) = &planned.selection {
            self.world.select(selection);
            assert!(self.world.violations.is_empty(), "{:?}", self.world.violations);
        }
        for action in &planned.actions {
            let outcome = self.world.apply(action);
            self.ledger.record(action, &outcome);
        }
        planned
    }

    fn wait(&mut self, duration_ms: u64) {
        self.now_ms += duration_ms;
        self.world.advance(self.now_ms);
    }

    fn settle(&mut self, is_at_rest: fn(&Planned) -> bool) {
        for _ in 0..MAX_STEPS {
            let planned = self.step();
            if planned.actions.is_empty() && is_at_rest(&planned) {
                return;
            }
            self.wait(1_000);
        }
        panic!("it does not settle:\n{}", self.plan());
    }

    /// The connections of each part to the coordinator.
    fn links(&mut self) -> String {
        let mut told = String::new();
        for desired in self.plan().blueprints {
            let (address, tunnel, keepalive) = match &desired.spec {
                Spec::Coordinator(spec) => ("", &spec.tunnel, &spec.keepalive),
                Spec::Node(spec) => (&*spec.coordinator, &spec.tunnel, &spec.keepalive),
            };
            write!(told, "  {} at {}", desired.id.part.name(), desired.id.site).expect("writing to a string");
            if !address.is_empty() {
                write!(told, " calls {address}").expect("writing to a string");
            }
            if let Some(keepalive) = keepalive {
                let (interval, timeout) = (keepalive.interval_s, keepalive.timeout_s);
                write!(told, ", pings every {interval} s for {timeout} s").expect("writing to a string");
            }
            told.push('\n');
            for peer in tunnel.iter().flat_map(|tunnel| &tunnel.peers) {
                let own = tunnel.as_ref().map_or("", |tunnel| &*tunnel.address);
                let by = peer.endpoint.as_deref().unwrap_or("its call");
                let to = peer.allowed.join(" ");
                writeln!(told, "    gateway {own} to {} by {by}: {to}", peer.site).expect("writing to a string");
            }
        }
        told
    }

    fn shards(&self) -> String {
        let total = self.ledger.shards.total(self.federation.training.partitions);
        let line = |(shard, node): (u32, &NodeKey)| format!("  {shard} of {total}: {node}\n");
        self.ledger.shards.holders().map(line).collect()
    }
}
