//! The fleet port on the simulated world.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::world::World;
use crate::driver::Call;
use crate::fleet::Fleet;
use crate::observed::LinkNode;
use crate::planner::Selection;

pub struct SimulatedFleet(pub Arc<Mutex<World>>);

impl SimulatedFleet {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fleet for SimulatedFleet {
    fn nodes(&self) -> Option<Arc<[LinkNode]>> {
        Some(self.world().link_nodes().into())
    }

    fn select<'a>(&'a self, selection: &'a Selection) -> Call<'a, ()> {
        Box::pin(async move { self.world().select(selection) })
    }
}
