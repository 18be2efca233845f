//! The driver port on the simulated world: calls take time, fail, and lose their responses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trellis_spec::Name;

use super::time::VirtualClock;
use super::world::World;
use crate::Millis;
use crate::action::{Action, Outcome};
use crate::clock::Clock;
use crate::driver::{Call, Driver};
use crate::inventory::Capabilities;
use crate::observed::Observation;

const OBSERVE_MS: (Millis, Millis) = (1, 50);
const ANSWER_MS: (Millis, Millis) = (1, 200);

pub struct SimulatedDriver {
    world: Arc<Mutex<World>>,
    clock: Arc<VirtualClock>,
    capabilities: Capabilities,
}

impl SimulatedDriver {
    pub fn new(world: Arc<Mutex<World>>, clock: Arc<VirtualClock>, capabilities: Capabilities) -> SimulatedDriver {
        SimulatedDriver { world, clock, capabilities }
    }

    /// The world at the current time.
    fn world(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.advance(self.clock.now_ms());
        world
    }
}

impl Driver for SimulatedDriver {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation> {
        Box::pin(async move {
            let (seen, takes_ms) = {
                let mut world = self.world();
                (world.observe(federation, site), world.random.between(OBSERVE_MS.0, OBSERVE_MS.1))
            };
            // The observation is slightly outdated when it arrives.
            self.clock.sleep_until(self.clock.now_ms() + takes_ms).await;
            seen
        })
    }

    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome> {
        Box::pin(async move {
            let now_ms = self.clock.now_ms();
            let (ticket, answer_ms) = {
                let mut world = self.world();
                let faults = world.faults;
                if world.random.permille(faults.action_fails) {
                    return Outcome::Failed { why: "the action failed".to_owned() };
                }
                let slow_ms = world.random.between(0, faults.slow_ms);
                let lost = world.random.permille(faults.answer_lost);
                let takes_ms = world.random.between(ANSWER_MS.0, ANSWER_MS.1);
                let answer_ms = if lost { Millis::MAX } else { now_ms + slow_ms + takes_ms };
                (world.send(action.clone(), now_ms + slow_ms), answer_ms)
            };
            self.clock.sleep_until(answer_ms).await;
            let outcome = self.world().take_outcome(ticket);
            outcome.unwrap_or_else(|| Outcome::Failed { why: "the response was lost".to_owned() })
        })
    }
}
