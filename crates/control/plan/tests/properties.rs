//! Properties of every plan, for random documents and worlds.

mod given;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use trellis_plan::simulated::{Random, World};
use trellis_plan::{
    Capabilities, DesiredState, Inventory, Ledger, NodeKey, Observation, Observed, Planned, Presence, ResourceId,
    ShardTable, Verb, plan,
};
use trellis_spec::Federation;

const MAX_STEPS: u32 = 1_000;
const SCALINGS: u32 = 10_000;

/// A federation and its simulated world.
struct Case {
    federation: Federation,
    world: World,
    inventory: Inventory,
    ledger: Ledger,
    now_ms: u64,
}

impl Case {
    fn new(random: &mut Random) -> Case {
        let federation = given::random::federation(random);
        let world = World::new(random.number(), federation.sites.iter().map(|site| site.name.clone()));
        let capabilities = federation.sites.iter().map(|site| (site.name.clone(), Capabilities::ALL)).collect();
        let inventory = Inventory { program: "0.1.0".to_owned(), capabilities };
        Case { federation, world, inventory, ledger: Ledger::default(), now_ms: 1_000 }
    }

    fn observe(&mut self) -> Observed {
        self.world.advance(self.now_ms);
        let sites = self.federation.sites.iter().map(|site| &site.name);
        let world = &mut self.world;
        let sites = sites.map(|site| (site.clone(), world.observe(&self.federation.name, site))).collect();
        Observed { sites, link: Some(self.world.link_nodes().into()) }
    }

    fn plan(&mut self, observed: &Observed) -> Planned {
        let wanted = DesiredState::Federation(Arc::new(self.federation.clone()));
        plan(&wanted, observed, &self.inventory, &self.ledger, self.now_ms, 7)
    }

    /// Plans and applies. Returns whether there were actions.
    fn step(&mut self) -> bool {
        let observed = self.observe();
        let planned = self.plan(&observed);
        self.ledger = planned.ledger.clone();
        if let Some(selection) = &planned.selection {
            self.world.select(selection);
        }
        for action in &planned.actions {
            let outcome = self.world.apply(action);
            self.ledger.record(action, &outcome);
        }
        self.now_ms += 1_000;
        !planned.actions.is_empty() || planned.status.reconciling.met
    }

    fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            if !self.step() {
                return;
            }
        }
        let observed = self.observe();
        panic!("it does not settle:\n{}", self.plan(&observed));
    }

    /// Changes the document while an earlier change is in progress.
    fn disturb(&mut self, random: &mut Random) {
        given::random::change(&mut self.federation, random);
        for _ in 0..random.between(0, 20) {
            self.step();
        }
    }
}

/// The machines, without values that change with time alone.
fn machines(world: &World) -> BTreeMap<ResourceId, (String, u64, bool)> {
    let state = |machine: &trellis_plan::simulated::Machine| {
        (format!("{} {:?}", machine.desired.generation, machine.phase), machine.instance, machine.draining)
    };
    world.machines().iter().map(|(id, machine)| (id.clone(), state(machine))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_as_it_should_be_is_left_alone(seed: u64) {
        let mut random = Random::new(seed);
        let mut case = Case::new(&mut random);
        for _ in 0..4 {
            given::random::change(&mut case.federation, &mut random);
            case.settle();
            case.now_ms += 600_000;
            let observed = case.observe();
            let planned = case.plan(&observed);
            prop_assert_eq!(&planned.actions, &[], "{}", planned);
            prop_assert!(planned.status.ready.met, "{}", planned);
            // The plan of the same observation changes nothing more.
            case.ledger = planned.ledger;
            let again = case.plan(&observed);
            prop_assert_eq!(&again.ledger, &case.ledger);
        }
    }

    #[test]
    fn a_plan_carried_out_twice_is_carried_out_once(seed: u64) {
        let mut random = Random::new(seed);
        let mut case = Case::new(&mut random);
        case.settle();
        for _ in 0..4 {
            case.disturb(&mut random);
            let observed = case.observe();
            let planned = case.plan(&observed);
            case.ledger = planned.ledger.clone();
            for action in &planned.actions {
                case.world.apply(action);
            }
            let once = machines(&case.world);
            for action in &planned.actions {
                case.world.apply(action);
            }
            prop_assert_eq!(&machines(&case.world), &once);
            prop_assert_eq!(&case.world.violations, &Vec::<String>::new());
        }
    }

    #[test]
    fn what_cannot_be_seen_is_neither_made_nor_deleted(seed: u64) {
        let mut random = Random::new(seed);
        let mut case = Case::new(&mut random);
        case.settle();
        for _ in 0..8 {
            case.disturb(&mut random);
            let mut observed = case.observe();
            blind(&mut observed, &mut random);
            let planned = case.plan(&observed);
            for action in &planned.actions {
                let unknown = matches!(observed.presence(action.id()), Presence::Unknown { .. });
                prop_assert!(!unknown, "{} was not observed\n{}", action.verb, planned);
                if let Verb::Create(desired) = &action.verb {
                    let elsewhere = case.world.machines().keys().find(|id| {
                        id.part == desired.id.part && id.site != desired.id.site
                    });
                    prop_assert_eq!(elsewhere, None, "it is created a second time\n{}", planned);
                }
            }
        }
    }
}

/// Removes sites, resources, and completeness from an observation.
fn blind(observed: &mut Observed, random: &mut Random) {
    for observation in observed.sites.values_mut() {
        if random.permille(300) {
            *observation = Observation::Unreachable { why: "no route".to_owned() };
            continue;
        }
        let Observation::Reached(seen) = observation else { continue };
        for presence in seen.resources.values_mut() {
            if random.permille(300) {
                *presence = Presence::Unknown { why: "no answer".to_owned() };
            }
        }
        if random.permille(300) {
            seen.complete = false;
            seen.resources.retain(|_, _| random.permille(500));
        }
    }
}

#[test]
fn shards_over_many_scalings() {
    let mut random = Random::new(20_240_601);
    let mut table = ShardTable::default();
    let mut counts: BTreeMap<&str, u32> = ["north", "south", "east"].map(|pool| (pool, 0)).into();
    let mut most = 0;
    for _ in 0..SCALINGS {
        let pool = ["north", "south", "east"][random.between(0, 2) as usize];
        counts.insert(pool, random.between(0, 12) as u32);
        let keys: Vec<NodeKey> =
            counts.iter().flat_map(|(pool, count)| (0..*count).map(|index| given::key(pool, index))).collect();
        let before: BTreeMap<NodeKey, u32> = table.holders().map(|(shard, node)| (node.clone(), shard)).collect();
        let wanted: Vec<&NodeKey> = keys.iter().collect();
        table.release_others(&wanted.iter().copied().collect());
        let waiting = table.assign(&wanted, None, |_, _| false);
        most = most.max(keys.len());

        let held: BTreeMap<&NodeKey, u32> = table.holders().map(|(shard, node)| (node, shard)).collect();
        let numbers: BTreeSet<u32> = held.values().copied().collect();
        assert_eq!(waiting, Vec::<&NodeKey>::new(), "every wanted node has a number");
        assert_eq!(held.keys().copied().collect::<BTreeSet<_>>(), wanted.into_iter().collect());
        assert_eq!(numbers.len(), keys.len(), "no two have the same");
        assert_eq!(table.total(None) as usize, most, "as many as there ever were");
        assert!(numbers.iter().all(|number| (*number as usize) < most), "all are below the number of shards");
        for (node, shard) in before.iter().filter(|(node, _)| held.contains_key(node)) {
            assert_eq!(held[node], *shard, "{node} keeps its number");
        }
        if keys.len() == most {
            assert_eq!(numbers, (0..most as u32).collect(), "as many nodes as ever: every shard has one");
        }
    }
    assert_eq!(most, 36, "the largest count was tried too");
}
