//! Scaled pools with random seeds: their sizes stay within bounds, and no busy node is removed.

mod given;

use std::sync::Arc;
use std::time::Duration;

use trellis_plan::simulated::{Random, World};
use trellis_plan::{DesiredState, Inventory, Ledger, Observed, Planned, Presence, ResourceId, Verb, plan};
use trellis_spec::{Change, Expression, Federation, MetricRule, Scaling, ScalingPolicy, Schedule, SiteRule};

const SEEDS: u64 = 200;
const STEPS: u32 = 60;
const STEP_MS: (u64, u64) = (500, 90_000);
const WORK_MS: (u64, u64) = (1_000, 400_000);

fn scaling(random: &mut Random, is_cloud: bool) -> Scaling {
    let min = random.between(u64::from(is_cloud), 2) as u32;
    let max = min + random.between(1, 5) as u32;
    let schedule = |at: &str, count| SiteRule::Schedule { at: Schedule::parse(at).expect("a schedule"), count };
    let metric = || {
        let when = Expression::parse("CPU > 80").expect("a condition");
        SiteRule::Metric(MetricRule { when, period_s: 60, periods: 3, change: Change::By(1), cooldown_s: None })
    };
    let rules = match is_cloud {
        true => vec![metric()],
        false => vec![schedule("*/10 * * * *", max + 3), schedule("5-59/10 * * * *", 0)],
    };
    let (policy, rules) = match random.between(0, 4) {
        0 => (ScalingPolicy::PerRun { nodes: 2 }, Vec::new()),
        1 => (ScalingPolicy::Idle { after: Duration::from_secs(60) }, Vec::new()),
        2 => (ScalingPolicy::RoundTime { longest: Duration::from_secs(60) }, Vec::new()),
        3 => (ScalingPolicy::Waiting, Vec::new()),
        _ => (ScalingPolicy::Manual, rules),
    };
    Scaling { min, max, policy, cooldown: Duration::from_secs(random.between(0, 120)), rules }
}

fn federation(random: &mut Random) -> Federation {
    let mut federation = given::federation();
    federation.sites = vec![given::site("lab"), given::site("cloud")];
    federation.sites[1].config = given::cloud().into();
    for (index, name) in ["clinic", "van"].into_iter().enumerate() {
        let scaling = scaling(random, index == 1);
        let count = random.between(scaling.min.into(), scaling.max.into()) as u32;
        let mut pool = given::pool(name, index, count);
        pool.scaling = Some(scaling);
        federation.pools.push(pool);
    }
    federation.training.partitions = Some(20);
    // Longer than any work of this test, so that no busy node is removed after the drain timeout.
    federation.upgrade.drain_timeout = Duration::from_secs(3600);
    federation
}

struct Case {
    federation: Arc<Federation>,
    world: World,
    ledger: Ledger,
    now_ms: u64,
    random: Random,
    seed: u64,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut random = Random::new(seed);
        let federation = Arc::new(federation(&mut random));
        let world = World::new(random.number(), federation.sites.iter().map(|site| site.name.clone()));
        Case { federation, world, ledger: Ledger::default(), now_ms: 1_000_000, random, seed }
    }

    fn happen(&mut self) {
        self.now_ms += self.random.between(STEP_MS.0, STEP_MS.1);
        self.world.advance(self.now_ms);
        let known = self.random.permille(900);
        self.world.training.runs = known.then(|| self.random.between(0, 3) as u32);
        self.world.training.round_ms = self.random.permille(500).then(|| self.random.between(1_000, 200_000));
        self.world.training.required_nodes = self.random.permille(500).then(|| self.random.between(0, 20) as u32);
        let size = self.random.between(0, 12) as u32;
        self.world.sites.entry(given::name("cloud")).or_default().sizes.insert(given::name("van"), size);
        let nodes: Vec<ResourceId> =
            self.world.machines().keys().filter(|id| id.node_key().is_some()).cloned().collect();
        for id in nodes {
            if self.random.permille(200) {
                let until_ms = self.now_ms + self.random.between(WORK_MS.0, WORK_MS.1);
                self.world.give_work(&id, until_ms);
            }
        }
    }

    fn observe(&mut self) -> Observed {
        let sites = self.federation.sites.clone();
        let look =
            |site: &trellis_spec::Site| (site.name.clone(), self.world.observe(&self.federation.name, &site.name));
        Observed { sites: sites.iter().map(look).collect(), link: None }
    }

    fn step(&mut self) {
        let observed = self.observe();
        let wanted = DesiredState::Federation(Arc::clone(&self.federation));
        let inventory = Inventory { program: "0.1.0".to_owned(), ..Inventory::default() };
        let planned = plan(&wanted, &observed, &inventory, &self.ledger, self.now_ms, self.seed);
        self.check(&planned, &observed);
        self.ledger = planned.ledger.clone();
        for action in &planned.actions {
            let outcome = self.world.apply(action);
            self.ledger.record(action, &outcome);
        }
    }

    fn check(&self, planned: &Planned, observed: &Observed) {
        let seed = self.seed;
        for pool in &self.federation.pools {
            let count = planned.ledger.pools[&pool.name].count;
            let scaling = pool.scaling.as_ref().expect("all are scaled");
            assert!((scaling.min..=scaling.max).contains(&count), "seed {seed}: {count} of {scaling:?}\n{planned}");
        }
        for action in &planned.actions {
            let Presence::Present { facts, .. } = observed.presence(action.id()) else { continue };
            if matches!(action.verb, Verb::Delete { .. }) {
                assert!(action.id().node_key().is_some(), "seed {seed}: the coordinator stays\n{planned}");
                assert_ne!(facts.busy, Some(true), "seed {seed}: {} is busy\n{planned}", action.verb);
            }
            // Only a site drains busy nodes; policies choose idle ones.
            if matches!(action.verb, Verb::Drain { .. }) && action.id().site == self.federation.sites[0].name {
                assert_ne!(facts.busy, Some(true), "seed {seed}: {} is busy\n{planned}", action.verb);
            }
        }
        assert_eq!(self.world.violations, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn pools_that_scale_themselves_stay_within_bounds_and_spare_those_at_work() {
    let mut deleted = 0;
    for seed in 0..SEEDS {
        let mut case = Case::new(seed);
        for _ in 0..STEPS {
            case.happen();
            let before = case.world.machines().len();
            case.step();
            deleted += usize::from(case.world.machines().len() < before);
        }
        deleted += usize::from(case.ledger.serial > 10);
    }
    assert!(deleted > SEEDS as usize / 2, "they did change: {deleted}");
}
