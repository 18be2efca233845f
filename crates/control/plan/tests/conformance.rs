//! The simulated driver and store pass the conformance suites.

mod given;

use std::sync::{Arc, Mutex};

use trellis_plan::conformance::{StoreSubject, Subject, driver_cases, store_cases};
use trellis_plan::simulated::{Random, SimulatedDriver, SimulatedStore, VirtualClock, World, block_on};
use trellis_plan::{
    Capabilities, Desired, DesiredState, Driver, Inventory, Observed, Part, ResourceId, Spec, Verb, plan,
};

const START_MS: u64 = 1_000_000;

/// The desired state of the planner for this id.
fn desired(id: &ResourceId, variant: u32) -> Desired {
    let mut federation = given::federation();
    federation.name = id.federation.clone();
    federation.sites = vec![given::site(id.site.as_str())];
    federation.coordinator.extra_args = vec![variant.to_string()];
    let pool = id.node_key().map_or("pool", |key| key.pool.as_str());
    let mut pool = given::pool(pool, 0, 3);
    pool.extra_args = vec![variant.to_string()];
    federation.pools = vec![pool];
    let wants = wanted_of(Arc::new(federation));
    wants.into_iter().find(|desired| desired.id == *id).unwrap_or_else(|| panic!("{id} is not desired"))
}

/// The coordinator and its nodes, as two plans in an empty world create them.
fn wanted_of(federation: Arc<trellis_spec::Federation>) -> Vec<Desired> {
    let mut world = World::new(1, federation.sites.iter().map(|site| site.name.clone()));
    let wanted = DesiredState::Federation(Arc::clone(&federation));
    let inventory = Inventory { program: "0.1.0".to_owned(), ..Inventory::default() };
    let mut ledger = trellis_plan::Ledger::default();
    let mut found = Vec::new();
    for now_ms in [START_MS, START_MS + 60_000] {
        world.advance(now_ms);
        let site = &federation.sites[0].name;
        let observed = Observed { sites: [(site.clone(), world.observe(&federation.name, site))].into(), link: None };
        let planned = plan(&wanted, &observed, &inventory, &ledger, now_ms, 0);
        ledger = planned.ledger.clone();
        for action in &planned.actions {
            world.apply(action);
            if let Verb::Create(desired) = &action.verb {
                found.push(desired.clone());
            }
        }
    }
    assert!(matches!(found[0].spec, Spec::Coordinator(_)) && found[0].id.part == Part::Coordinator);
    found
}

#[test]
fn driver() {
    for (name, case) in driver_cases() {
        for drain in [true, false] {
            println!("{name}");
            let clock = VirtualClock::new(START_MS);
            let site = given::name("lab");
            let world = Arc::new(Mutex::new(World::new(7, [site.clone()])));
            let capabilities = Capabilities { drain, ..Capabilities::ALL };
            let driver: Arc<dyn Driver> = Arc::new(SimulatedDriver::new(world, Arc::clone(&clock), capabilities));
            let subject = Subject { driver, clock: Arc::clone(&clock) as _, site, desired: Box::new(desired) };
            block_on(&clock, case(&subject));
        }
    }
}

#[test]
fn store() {
    for (name, case) in store_cases() {
        println!("{name}");
        // The clock of the store stands still: leases end by the time that callers pass.
        let clock = VirtualClock::new(START_MS);
        let world = Arc::new(Mutex::new(World::new(Random::new(1).number(), [])));
        let wanted = DesiredState::Deleted(given::name("demo"));
        let store = Arc::new(SimulatedStore::new(wanted, world, Arc::clone(&clock)));
        block_on(&clock, case(&StoreSubject { store, now_ms: START_MS }));
    }
}
