//! The cloud behind its lock, with the clock: what servers, hypervisors and tests have in common.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use trellis_clock::now_ms;

use crate::cloud::{Cloud, Id};
use crate::faults::{Faults, Server};
use crate::gate;

/// Whoever waits for a change looks at least so often.
const LOOK: Duration = Duration::from_millis(20);

pub struct Shared {
    cloud: Mutex<Cloud>,
    changed: Notify,
    /// `/service` of each service, short and extended, of when it began to be stale.
    stale: Mutex<BTreeMap<Id, (Value, Value)>>,
}

impl Shared {
    pub fn new(cloud: Cloud) -> Shared {
        Shared { cloud: Mutex::new(cloud), changed: Notify::new(), stale: Mutex::new(BTreeMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Cloud> {
        // What a test that panicked left is still a cloud that others may look at.
        self.cloud.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Acts on the cloud of this moment.
    pub fn with<R>(&self, act: impl FnOnce(&mut Cloud) -> R) -> R {
        let mut cloud = self.lock();
        cloud.now_ms = cloud.now_ms.max(now_ms());
        let result = act(&mut cloud);
        drop(cloud);
        self.changed.notify_waiters();
        result
    }

    pub fn faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        let mut cloud = self.lock();
        let before = cloud.faults.gate.stale;
        let result = change(&mut cloud.faults);
        if cloud.faults.gate.stale && !before {
            let shown = cloud.services.values().map(|service| {
                (
                    service.owned.id,
                    (gate::service_json(&cloud, service, false), gate::service_json(&cloud, service, true)),
                )
            });
            *self.stale.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = shown.collect();
        }
        result
    }

    /// Counts a request, and delays it if a fault matches.
    pub async fn take_in(&self, server: Server, request: &str) {
        let delay = {
            let mut cloud = self.lock();
            *cloud.requests.entry((server, request.to_owned())).or_default() += 1;
            cloud.faults.delay(server, request)
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    pub fn stale(&self, service: Id, extended: bool) -> Option<Value> {
        let kept = self.stale.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.get(&service).map(|(short, long)| if extended { long.clone() } else { short.clone() })
    }

    /// Until `look` finds it, or `None` after the limit.
    pub async fn wait<R>(&self, limit: Duration, mut look: impl FnMut(&Cloud) -> Option<R>) -> Option<R> {
        let waiting = async {
            loop {
                if let Some(found) = look(&self.lock()) {
                    return found;
                }
                // What changes between the look and the wait is seen at the next look.
                let _ = tokio::time::timeout(LOOK, self.changed.notified()).await;
            }
        };
        tokio::time::timeout(limit, waiting).await.ok()
    }
}
