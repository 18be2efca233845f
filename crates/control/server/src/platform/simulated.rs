//! Simulated sites in real time: for trying the control plane out, and for measuring it with more nodes than a machine can hold. Their
//! behaviour is that of `trellis_plan::simulated::World`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trellis_clock::now_ms;
use trellis_plan::simulated::World;
use trellis_plan::{Action, Call, Capabilities, Driver, Millis, Observation, OpenDriver, Outcome, Presence};
use trellis_spec::{Name, Site};

/// As in the local driver.
const MODELS: &str = "models";

/// A world for each federation. It outlives a platform, as real sites do.
#[derive(Debug)]
pub struct SimulatedSites {
    begun_ms: Millis,
    speed: u64,
    worlds: Mutex<BTreeMap<Name, Arc<Mutex<World>>>>,
}

impl SimulatedSites {
    /// `speed`: the acceleration of time. At speed 1 a start takes 0.5 to 8 s.
    pub fn new(speed: u32) -> Arc<SimulatedSites> {
        let speed = u64::from(speed.max(1));
        Arc::new(SimulatedSites { begun_ms: now_ms(), speed, worlds: Mutex::default() })
    }

    /// The world of a federation, for tests that inspect or change it.
    pub fn world(&self, federation: &Name) -> Arc<Mutex<World>> {
        let mut worlds = self.worlds.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = federation.as_str().bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
        Arc::clone(worlds.entry(federation.clone()).or_insert_with(|| Arc::new(Mutex::new(World::new(seed, [])))))
    }

    /// The time in the worlds.
    fn world_ms(&self) -> Millis {
        self.begun_ms + now_ms().saturating_sub(self.begun_ms) * self.speed
    }

    /// The real time of a time in the worlds.
    fn real_ms(&self, world_ms: Millis) -> Millis {
        self.begun_ms + world_ms.saturating_sub(self.begun_ms) / self.speed
    }
}

/// The driver port on simulated sites.
pub struct SimulatedDriver {
    pub sites: Arc<SimulatedSites>,
    /// The state directory of the control plane.
    pub directory: PathBuf,
}

impl OpenDriver for SimulatedDriver {
    fn site(self: Arc<Self>, _site: &Site) -> Arc<dyn Driver> {
        self
    }

    fn has_parts(&self, _federation: &Name, _site: &Name) -> bool {
        true
    }

    fn models_path(&self, federation: &Name) -> Option<PathBuf> {
        Some(self.directory.join(MODELS).join(federation.as_str()))
    }
}

fn current<'a>(world: &'a Mutex<World>, site: &Name, world_ms: Millis) -> MutexGuard<'a, World> {
    let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
    world.sites.entry(site.clone()).or_default();
    world.advance(world_ms);
    world
}

impl Driver for SimulatedDriver {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation> {
        Box::pin(async move {
            let world = self.sites.world(federation);
            let mut observation = current(&world, site, self.sites.world_ms()).observe(federation, site);
            if let Observation::Reached(seen) = &mut observation {
                for presence in seen.resources.values_mut() {
                    if let Presence::Present { facts, .. } = presence {
                        facts.since_ms = self.sites.real_ms(facts.since_ms);
                    }
                }
            }
            observation
        })
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        Box::pin(async move {
            let id = action.id();
            let world = self.sites.world(&id.federation);
            current(&world, &id.site, self.sites.world_ms()).apply(action)
        })
    }
}
