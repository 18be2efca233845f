//! The cloud with its lock and clock, shared by servers, hypervisors and tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use trellis_clock::now_ms;

use crate::cloud::{Cloud, Id};
use crate::faults::{Faults, Server};
use crate::gate;

/// Maximum interval between two checks of a waiting caller.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub struct Shared {
    cloud: Mutex<Cloud>,
    changed: Notify,
    /// `/service` responses, short and extended, from the time when they became stale.
    stale: Mutex<BTreeMap<Id, (Value, Value)>>,
}

impl Shared {
    pub fn new(cloud: Cloud) -> Shared {
        Shared { cloud: Mutex::new(cloud), changed: Notify::new(), stale: Mutex::new(BTreeMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Cloud> {
        // A panic of a test does not make the cloud unusable for others.
        self.cloud.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Acts on the current cloud.
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

    /// Waits until `look` returns a value; `None` after the timeout.
    pub async fn wait<R>(&self, limit: Duration, mut look: impl FnMut(&Cloud) -> Option<R>) -> Option<R> {
        let waiting = async {
            loop {
                if let Some(found) = look(&self.lock()) {
                    return found;
                }
                // A change between the check and the wait is found by the next check.
                let _ = tokio::time::timeout(POLL_INTERVAL, self.changed.notified()).await;
            }
        };
        tokio::time::timeout(limit, waiting).await.ok()
    }
}
