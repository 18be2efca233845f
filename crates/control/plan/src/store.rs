//! The store port: what is wanted, the ledger, the status, and who may act: one controller at a time.
//!
//! A lease has a fence, which is greater than that of all leases before it, also of a federation of the same name that
//! was deleted: drivers remember. A store that forgets may begin with the time. Whoever holds no lease any more is found out
//! at the next save, and by the drivers, which refuse actions with an earlier fence.

use crate::Millis;
use crate::driver::Call;
use crate::ledger::Ledger;
use crate::planner::Wanted;
use crate::status::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub fence: u64,
    pub until_ms: Millis,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    pub wanted: Wanted,
    pub ledger: Ledger,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another controller acts for this federation.
    #[error("the federation belongs to another controller until {until_ms} ms")]
    Held { until_ms: Millis },
    /// The lease is over, and perhaps another's.
    #[error("the lease with fence {fence} is over")]
    Lost { fence: u64 },
    #[error("the store does not work: {0}")]
    Broken(String),
}

/// What is kept for one federation.
pub trait Store: Send + Sync {
    /// Takes the lease or, where `holder` has it, extends it with the same fence.
    fn lease<'a>(&'a self, holder: &'a str, now_ms: Millis, lasts_ms: Millis) -> Call<'a, Result<Lease, StoreError>>;

    fn read(&self) -> Call<'_, Result<Kept, StoreError>>;

    /// Both or none, durable before it answers, and only for who holds the lease.
    fn save<'a>(&'a self, lease: &'a Lease, ledger: &'a Ledger, status: &'a Status)
    -> Call<'a, Result<(), StoreError>>;

    /// Gives the lease back, so that the next one need not wait for its end.
    fn release<'a>(&'a self, lease: &'a Lease) -> Call<'a, Result<(), StoreError>>;
}
