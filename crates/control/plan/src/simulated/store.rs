//! The store port in memory, with faults. Stores the ledger as text, like real stores.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::time::VirtualClock;
use super::world::World;
use crate::Millis;
use crate::clock::Clock;
use crate::driver::Call;
use crate::ledger::Ledger;
use crate::planner::DesiredState;
use crate::status::Status;
use crate::store::{Lease, Store, StoreError, Stored};

const CALL_MS: (Millis, Millis) = (0, 20);

pub struct SimulatedStore {
    rows: Mutex<Rows>,
    world: Arc<Mutex<World>>,
    clock: Arc<VirtualClock>,
}

struct Rows {
    desired: DesiredState,
    ledger: String,
    status: Option<Status>,
    holder: Option<String>,
    lease: Lease,
}

impl SimulatedStore {
    pub fn new(desired: DesiredState, world: Arc<Mutex<World>>, clock: Arc<VirtualClock>) -> SimulatedStore {
        let lease = Lease { fence: 0, until_ms: 0 };
        let rows = Rows { desired, ledger: Ledger::default().to_json(), status: None, holder: None, lease };
        SimulatedStore { rows: Mutex::new(rows), world, clock }
    }

    /// Replaces the document.
    pub fn set_desired(&self, desired: DesiredState) {
        self.rows().desired = desired;
        self.clock.signal();
    }

    pub fn status(&self) -> Option<Status> {
        self.rows().status.clone()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_time(&self) {
        let takes_ms = self.world().random.between(CALL_MS.0, CALL_MS.1);
        self.clock.sleep_until(self.clock.now_ms() + takes_ms).await;
    }

    /// Whether a save fails; if so, whether it was stored first.
    fn save_fails(&self) -> Option<bool> {
        let mut world = self.world();
        let faults = world.faults;
        let fails = world.random.permille(faults.save_fails);
        fails.then(|| world.random.permille(500))
    }

    fn check(&self, lease: &Lease) -> Result<(), StoreError> {
        let rows = self.rows();
        let held =
            rows.holder.is_some() && rows.lease.fence == lease.fence && self.clock.now_ms() < rows.lease.until_ms;
        if held { Ok(()) } else { Err(StoreError::Lost { fence: lease.fence }) }
    }
}

impl Store for SimulatedStore {
    fn lease<'a>(&'a self, holder: &'a str, now_ms: Millis, lasts_ms: Millis) -> Call<'a, Result<Lease, StoreError>> {
        Box::pin(async move {
            self.take_time().await;
            let mut rows = self.rows();
            let is_live = now_ms < rows.lease.until_ms && rows.holder.is_some();
            let is_own = rows.holder.as_deref() == Some(holder);
            if is_live && !is_own {
                return Err(StoreError::Held { until_ms: rows.lease.until_ms });
            }
            let fence = if is_live && is_own { rows.lease.fence } else { rows.lease.fence + 1 };
            rows.lease = Lease { fence, until_ms: now_ms + lasts_ms };
            rows.holder = Some(holder.to_owned());
            Ok(rows.lease)
        })
    }

    fn read(&self) -> Call<'_, Result<Stored, StoreError>> {
        Box::pin(async move {
            self.take_time().await;
            let rows = self.rows();
            let ledger = Ledger::from_json(&rows.ledger).map_err(StoreError::Broken)?;
            Ok(Stored { desired: rows.desired.clone(), ledger })
        })
    }

    fn save<'a>(
        &'a self,
        lease: &'a Lease,
        ledger: &'a Ledger,
        status: &'a Status,
    ) -> Call<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.take_time().await;
            self.check(lease)?;
            let fails = self.save_fails();
            if fails != Some(false) {
                let mut rows = self.rows();
                rows.ledger = ledger.to_json();
                rows.status = Some(status.clone());
                self.world().disruptions.planned(ledger.serial, status);
            }
            self.take_time().await;
            match fails {
                Some(_) => Err(StoreError::Broken("the disk does not respond".to_owned())),
                None => Ok(()),
            }
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> Call<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.take_time().await;
            self.check(lease)?;
            self.rows().holder = None;
            Ok(())
        })
    }
}
