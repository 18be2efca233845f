//! Guarantees of the controller: one acts at a time, an unreachable site does not delay others, and wake-ups take effect.

mod given;

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trellis_plan::simulated::{Executor, SimulatedDriver, SimulatedStore, VirtualClock, World, block_on};
use trellis_plan::{
    Action, Call, Capabilities, Clock, Controller, Desired, DesiredState, Driver, Ledger, Observation, Outcome,
    Reconciled, Rendering, RunMetrics, Settings, Spec,
};
use trellis_spec::{Federation, Name, Scaling, ScalingPolicy};

const START_MS: u64 = 1_000_000;
/// Longer than any test takes.
const LONG_MS: u64 = 60_000;

/// A driver that never responds.
struct Silent;

impl Driver for Silent {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn observe<'a>(&'a self, _: &'a Name, _: &'a Name) -> Call<'a, Observation> {
        Box::pin(pending())
    }

    fn apply<'a>(&'a self, _: &'a Action) -> Call<'a, Outcome> {
        Box::pin(pending())
    }
}

/// A driver that records the desired state and renders a preview.
struct Listening {
    inner: Arc<dyn Driver>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Driver for Listening {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation> {
        self.inner.observe(federation, site)
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        self.inner.apply(action)
    }

    fn set_desired(&self, federation: &Name, site: &Name, wanted: &[&Desired]) {
        let names: Vec<String> = wanted.iter().map(|desired| desired.id.part.name()).collect();
        self.heard.lock().expect("a list").push(format!("{federation} at {site}: {}", names.join(" ")));
    }

    fn preview(&self, _: &Name, site: &Name, wanted: &[Desired]) -> Vec<Rendering> {
        let line = |desired: &Desired| match &desired.spec {
            Spec::Coordinator(_) => "coordinator\n".to_owned(),
            Spec::Node(node) => format!("{} calls {}\n", desired.id.part.name(), node.coordinator),
        };
        vec![Rendering { title: format!("all of {site}"), text: wanted.iter().map(line).collect() }]
    }
}

struct Bench {
    clock: Arc<VirtualClock>,
    world: Arc<Mutex<World>>,
    store: Arc<SimulatedStore>,
    federation: Federation,
    drivers: BTreeMap<Name, Arc<dyn Driver>>,
}

impl Bench {
    fn new() -> Bench {
        let mut federation = given::federation();
        federation.sites = vec![given::site("lab")];
        federation.pools = vec![given::pool("clinic", 0, 2)];
        let clock = VirtualClock::new(START_MS);
        let lab = given::name("lab");
        let world = Arc::new(Mutex::new(World::new(3, [lab.clone()])));
        let wanted = DesiredState::Federation(Arc::new(federation.clone()));
        let store = Arc::new(SimulatedStore::new(wanted, Arc::clone(&world), Arc::clone(&clock)));
        let driver = SimulatedDriver::new(Arc::clone(&world), Arc::clone(&clock), Capabilities::ALL);
        let drivers = BTreeMap::from([(lab, Arc::new(driver) as Arc<dyn Driver>)]);
        Bench { clock, world, store, federation, drivers }
    }

    fn controller(&self, holder: &str) -> Controller {
        Controller {
            drivers: self.drivers.clone(),
            store: Arc::clone(&self.store) as _,
            clock: Arc::clone(&self.clock) as _,
            fleet: None,
            settings: Settings { holder: holder.to_owned(), ..Settings::default() },
        }
    }

    fn want(&mut self, change: impl Fn(&mut Federation)) {
        change(&mut self.federation);
        self.store.set_desired(DesiredState::Federation(Arc::new(self.federation.clone())));
    }

    /// Names of the parts that exist.
    fn there(&self) -> Vec<String> {
        let world = self.world.lock().expect("the world");
        world.machines().keys().map(|id| id.part.name()).collect()
    }
}

type Results = Arc<Mutex<Vec<Reconciled>>>;

/// Spawns the reconcile loop of a controller. Returns the task and the results of its reconciles.
fn run(executor: &mut Executor<'static>, controller: Controller) -> (u64, Results) {
    run_until(executor, controller, pending())
}

fn run_until(
    executor: &mut Executor<'static>,
    mut controller: Controller,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (u64, Results) {
    let results = Results::default();
    let recorded = Arc::clone(&results);
    let mut host = given::FixedHost(move |result: &Reconciled| recorded.lock().expect("a list").push(result.clone()));
    let task = executor.spawn(async move { controller.run(&mut host, stop).await.expect("the lease is released") });
    (task, results)
}

#[test]
fn one_acts_and_the_other_takes_over() {
    let bench = Bench::new();
    let mut executor = Executor::new(Arc::clone(&bench.clock));
    let (first, _) = run(&mut executor, bench.controller("first"));
    executor.run_until(START_MS + 1_000);
    let (_, second) = run(&mut executor, bench.controller("second"));
    executor.run_until(START_MS + LONG_MS);
    assert_eq!(bench.there(), ["coordinator", "clinic-0", "clinic-1"]);
    assert!(
        second.lock().expect("a list").iter().all(|result| matches!(result, Reconciled::Standby { .. })),
        "{second:?}"
    );
    executor.crash(first);
    executor.run_until(START_MS + 2 * LONG_MS + Settings::default().lease_ms);
    assert!(
        matches!(second.lock().expect("a list").last(), Some(Reconciled::Acted { planned, .. }) if planned.status.ready.met)
    );
}

#[test]
fn a_stopped_controller_releases_its_lease() {
    let bench = Bench::new();
    let mut executor = Executor::new(Arc::clone(&bench.clock));
    let stop_ms = START_MS + 20_000;
    let clock = Arc::clone(&bench.clock);
    let stop = async move { clock.sleep_until(stop_ms).await };
    let (first, results) = run_until(&mut executor, bench.controller("first"), stop);
    executor.run_until(stop_ms);
    assert!(matches!(results.lock().expect("a list").last(), Some(Reconciled::Acted { .. })));
    let second = bench.controller("second");
    executor.run_until(stop_ms + 1_000);
    assert!(!executor.is_running(first));
    assert!(matches!(block_on(&bench.clock, second.reconcile()), Reconciled::Acted { .. }));
}

#[test]
fn a_silent_site_does_not_hold_up_the_others() {
    let mut bench = Bench::new();
    bench.drivers.insert(given::name("edge"), Arc::new(Silent));
    bench.want(|federation| {
        federation.sites.push(given::site("edge"));
        federation.pools.push(given::pool("van", 1, 1));
    });
    let mut executor = Executor::new(Arc::clone(&bench.clock));
    run(&mut executor, bench.controller("only"));
    executor.run_until(START_MS + 10 * LONG_MS);
    assert_eq!(bench.there(), ["coordinator", "clinic-0", "clinic-1"]);
    let status = bench.store.status().expect("a status");
    let edge = status.sites.iter().find(|site| site.name == "edge").expect("the site");
    assert_eq!(edge.why.as_deref(), Some("no answer after 30 s"));
}

#[test]
fn a_site_without_a_driver_is_told() {
    let mut bench = Bench::new();
    bench.want(|federation| federation.sites.push(given::site("edge")));
    block_on(&bench.clock, bench.controller("only").reconcile());
    let status = bench.store.status().expect("a status");
    assert!(status.stalled.message.contains("no driver is configured"), "{:?}", status.stalled);
}

#[test]
fn another_document_is_seen_at_once() {
    let mut bench = Bench::new();
    let mut executor = Executor::new(Arc::clone(&bench.clock));
    run(&mut executor, bench.controller("only"));
    executor.run_until(START_MS + LONG_MS);
    bench.want(|federation| federation.pools[0].count = 3);
    executor.run_until(bench.clock.now_ms() + 1_000);
    assert!(bench.there().contains(&"clinic-2".to_owned()), "{:?}", bench.there());
}

#[test]
fn a_controller_whose_work_is_done_ends() {
    let bench = Bench::new();
    let mut executor = Executor::new(Arc::clone(&bench.clock));
    let (task, _) = run(&mut executor, bench.controller("only"));
    executor.run_until(START_MS + LONG_MS);
    assert!(executor.is_running(task), "a federation is reconciled until it is deleted");
    bench.store.set_desired(DesiredState::Deleted(bench.federation.name.clone()));
    executor.run_until(START_MS + 2 * LONG_MS);
    assert_eq!(bench.there(), Vec::<String>::new());
    assert!(!executor.is_running(task));
}

#[test]
fn it_may_run_on_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    let mut controller = Bench::new().controller("only");
    is_send(&controller.reconcile());
    is_send(&controller.release_lease());
    is_send(&controller.run(&mut given::FixedHost(|_: &Reconciled| ()), pending()));
}

#[test]
fn a_driver_hears_what_is_wanted_before_it_is_asked_and_shows_what_it_would_send() {
    let mut bench = Bench::new();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    for driver in bench.drivers.values_mut() {
        *driver = Arc::new(Listening { inner: Arc::clone(driver), heard: Arc::clone(&heard) });
    }
    let wanted = DesiredState::Federation(Arc::new(bench.federation.clone()));
    let (controller, ledger) = (bench.controller("one"), Ledger::default());
    let preview = block_on(&bench.clock, controller.preview(&wanted, &ledger));
    let renderings = controller.render(&bench.federation, &preview.observed, &ledger);
    let [(site, rendering)] = &renderings[..] else { panic!("{renderings:?}") };
    assert_eq!((site.as_str(), rendering.title.as_str()), ("lab", "all of lab"));
    // The preview includes parts that cannot be created yet.
    let expected =
        "coordinator\nclinic-0 calls address-of-the-coordinator:9092\nclinic-1 calls address-of-the-coordinator:9092\n";
    assert_eq!(rendering.text, expected);
    assert_eq!(
        *heard.lock().expect("a list"),
        Vec::<String>::new(),
        "a preview must not pass the desired state to drivers"
    );

    let mut executor = Executor::new(Arc::clone(&bench.clock));
    run(&mut executor, bench.controller("one"));
    executor.run_until(START_MS + LONG_MS);
    let heard = heard.lock().expect("a list");
    assert_eq!(heard.first().map(String::as_str), Some("demo at lab: coordinator"));
    assert_eq!(heard.last().map(String::as_str), Some("demo at lab: coordinator clinic-0 clinic-1"));
}

#[test]
fn what_was_heard_of_rounds_counts_where_the_driver_cannot_say() {
    let mut bench = Bench::new();
    bench.want(|federation| {
        let policy = ScalingPolicy::RoundTime { longest: Duration::from_secs(10) };
        federation.pools[0].scaling =
            Some(Scaling { min: 1, max: 3, policy, cooldown: Duration::ZERO, rules: Vec::new() });
    });
    bench.world.lock().expect("the world").training.runs = Some(1);
    let mut controller = bench.controller("one");
    controller.settings.run_metrics = RunMetrics { round_ms: Some(11_000), required_nodes: None };
    let mut executor = Executor::new(Arc::clone(&bench.clock));
    run(&mut executor, controller);
    executor.run_until(START_MS + 2 * LONG_MS);
    assert_eq!(bench.there(), ["coordinator", "clinic-0", "clinic-1", "clinic-2"]);
}
