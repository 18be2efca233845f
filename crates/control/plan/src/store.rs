//! The store port: the desired state, the ledger, the status, and the lease that lets one controller act at a time.
//!
//! The fence of a lease is greater than those of all earlier leases, including leases of a deleted federation of the same name,
//! because drivers remember fences. A store that forgets can start fences at the current time. A controller that lost its lease is
//! detected at the next save, and by the drivers, which refuse actions with an earlier fence.

use crate::Millis;
use crate::driver::Call;
use crate::ledger::Ledger;
use crate::planner::DesiredState;
use crate::status::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub fence: u64,
    pub until_ms: Millis,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub desired: DesiredState,
    pub ledger: Ledger,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another controller holds the lease.
    #[error("another controller holds the lease until {until_ms} ms")]
    Held { until_ms: Millis },
    /// The lease has expired, and another controller may hold it.
    #[error("the lease with fence {fence} has expired")]
    Lost { fence: u64 },
    #[error("the store failed: {0}")]
    Broken(String),
}

/// The stored state of one federation.
pub trait Store: Send + Sync {
    /// Acquires the lease, or extends it with the same fence if `holder` has it.
    fn lease<'a>(&'a self, holder: &'a str, now_ms: Millis, lasts_ms: Millis) -> Call<'a, Result<Lease, StoreError>>;

    fn read(&self) -> Call<'_, Result<Stored, StoreError>>;

    /// Saves both atomically and durably. Fails without the lease.
    fn save<'a>(&'a self, lease: &'a Lease, ledger: &'a Ledger, status: &'a Status)
    -> Call<'a, Result<(), StoreError>>;

    /// Releases the lease, so that the next controller need not wait for its end.
    fn release<'a>(&'a self, lease: &'a Lease) -> Call<'a, Result<(), StoreError>>;
}
