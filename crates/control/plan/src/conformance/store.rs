//! The guarantees of every store.

use std::sync::Arc;

use trellis_spec::Name;

use crate::Millis;
use crate::driver::Call;
use crate::inventory::Inventory;
use crate::ledger::{Ledger, PoolMemory};
use crate::observed::Observed;
use crate::planner::{DesiredState, plan};
use crate::status::Status;
use crate::store::{Lease, Store, StoreError};

const LEASE_MS: Millis = 10_000;

/// A store under test, for a new federation. `now_ms` is the time of its clock.
pub struct StoreSubject {
    pub store: Arc<dyn Store>,
    pub now_ms: Millis,
}

pub type StoreCase = (&'static str, fn(&StoreSubject) -> Call<'_, ()>);

/// All cases. Each needs a subject of its own.
pub fn store_cases() -> Vec<StoreCase> {
    vec![
        ("the first ledger is empty", |subject| Box::pin(empty(subject))),
        ("a saved ledger is read unchanged", |subject| Box::pin(whole(subject))),
        ("a second controller is refused and receives the end of the lease", |subject| Box::pin(held(subject))),
        ("the holder extends its lease, with the same fence", |subject| Box::pin(extended(subject))),
        ("another controller gets an expired lease, with a later fence", |subject| Box::pin(ended(subject))),
        ("another controller gets a released lease at once", |subject| Box::pin(given_back(subject))),
        ("a controller without the lease cannot save", |subject| Box::pin(lost(subject))),
    ]
}

async fn lease(subject: &StoreSubject, holder: &str, after_ms: Millis) -> Result<Lease, StoreError> {
    subject.store.lease(holder, subject.now_ms + after_ms, LEASE_MS).await
}

/// A ledger and a status with content.
fn written(serial: u64) -> (Ledger, Status) {
    let name = Name::new("pool").expect("a name");
    let mut ledger = Ledger { serial, ..Ledger::default() };
    ledger.pools.insert(name.clone(), PoolMemory { count: 3, changed_ms: Millis::MAX, idle_since_ms: Some(7) });
    let (observed, inventory) = (Observed::default(), Inventory::default());
    let status = plan(&DesiredState::Deleted(name), &observed, &inventory, &ledger, 0, 0).status;
    (ledger, status)
}

async fn ledger(subject: &StoreSubject) -> Ledger {
    subject.store.read().await.expect("the store can be read").ledger
}

async fn empty(subject: &StoreSubject) {
    assert_eq!(ledger(subject).await, Ledger::default());
}

async fn whole(subject: &StoreSubject) {
    let lease = lease(subject, "one", 0).await.expect("the lease is free");
    let (kept, status) = written(42);
    subject.store.save(&lease, &kept, &status).await.expect("the holder saves");
    assert_eq!(ledger(subject).await, kept);
}

async fn held(subject: &StoreSubject) {
    let first = lease(subject, "one", 0).await.expect("the lease is free");
    assert_eq!(first.until_ms, subject.now_ms + LEASE_MS);
    assert_eq!(lease(subject, "two", 1).await, Err(StoreError::Held { until_ms: first.until_ms }));
}

async fn extended(subject: &StoreSubject) {
    let first = lease(subject, "one", 0).await.expect("the lease is free");
    let later = lease(subject, "one", 1_000).await.expect("the holder extends it");
    assert_eq!(later, Lease { fence: first.fence, until_ms: first.until_ms + 1_000 });
}

async fn ended(subject: &StoreSubject) {
    let first = lease(subject, "one", 0).await.expect("the lease is free");
    let second = lease(subject, "two", LEASE_MS).await.expect("the lease has ended");
    assert!(second.fence > first.fence);
    // The first holder lost the lease in between, so it gets a later fence, too.
    let third = lease(subject, "one", 2 * LEASE_MS).await.expect("the lease has ended");
    assert!(third.fence > second.fence);
}

async fn given_back(subject: &StoreSubject) {
    let first = lease(subject, "one", 0).await.expect("the lease is free");
    subject.store.release(&first).await.expect("the holder releases it");
    let second = lease(subject, "two", 1).await.expect("the lease is free");
    assert!(second.fence > first.fence);
}

async fn lost(subject: &StoreSubject) {
    let first = lease(subject, "one", 0).await.expect("the lease is free");
    let second = lease(subject, "two", LEASE_MS).await.expect("the lease has ended");
    let (kept, status) = written(1);
    subject.store.save(&second, &kept, &status).await.expect("the holder saves");
    let (late, status) = written(2);
    let refused = subject.store.save(&first, &late, &status).await;
    assert_eq!(refused, Err(StoreError::Lost { fence: first.fence }));
    assert_eq!(ledger(subject).await, kept);
    let refused = subject.store.release(&first).await;
    assert_eq!(refused, Err(StoreError::Lost { fence: first.fence }));
}
