//! Lists pods to find out why they do not start, which of them block a rolling update, and which drain towards a
//! deleted SuperLink. Pods are not watched, because a watch would cache most objects of a cluster.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};
use trellis_kube::federation::Federation;
use trellis_kube::object::{Object, Owner};
use trellis_kube::pods::{blocking, start_failures};
use trellis_kube::progress::Progress;
use trellis_kube::render::{instance_labels, node_labels};
use trellis_kube::status::Failure;

use crate::cache::{Key, Seen};
use crate::context::Context;
use crate::kinds::{EVENT, Kind, POD};
use crate::stored::Fresh;

/// Poll interval for the pods of a federation that is not ready.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A sample suffices: the cause that blocks one pod of a workload usually blocks all of them.
const MAX_PODS: u32 = 200;
const MAX_EVENTS: u32 = 200;
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// Grace period for nodes of a deleted federation, to stop their apps.
const DELETED_GRACE_S: u32 = 10;
/// Poll interval for the nodes of a deleted federation, and the time limit: the cluster deletes a workload before its
/// pods.
const DELETED_INTERVAL: Duration = Duration::from_secs(2);
const DELETED_LIMIT: Duration = Duration::from_secs(120);

/// Last results for federations that are not ready, and deletion times of federations.
#[derive(Default)]
pub struct PodChecks {
    last: Mutex<HashMap<Key, (Instant, Vec<Failure>)>>,
    deleted: Mutex<HashMap<Key, Instant>>,
}

/// Result of one check.
#[derive(Default)]
pub struct Found {
    pub failures: Vec<Failure>,
    /// Pods that were deleted to unblock a new revision.
    pub replaced: Vec<String>,
    pub requeue_after: Option<Duration>,
}

impl PodChecks {
    fn recent(&self, key: &Key) -> Option<Found> {
        let last = self.last.lock().expect("the lock is never poisoned");
        let (at, failures) = last.get(key)?;
        let requeue_after = CHECK_INTERVAL.checked_sub(at.elapsed())?;
        Some(Found { failures: failures.clone(), requeue_after: Some(requeue_after), ..Found::default() })
    }

    fn remember(&self, key: &Key, failures: &[Failure]) {
        let now = (Instant::now(), failures.to_vec());
        self.last.lock().expect("the lock is never poisoned").insert(key.clone(), now);
    }

    fn forget(&self, key: &Key) {
        self.last.lock().expect("the lock is never poisoned").remove(key);
    }

    /// Time since the federation was first seen as deleted.
    fn deleted_for(&self, key: &Key) -> Duration {
        let mut deleted = self.deleted.lock().expect("the lock is never poisoned");
        deleted.entry(key.clone()).or_insert_with(Instant::now).elapsed()
    }

    fn is_over(&self, key: &Key) {
        self.deleted.lock().expect("the lock is never poisoned").remove(key);
    }
}

/// Reports why workloads of a federation are not ready, and deletes pods that block a corrected workload.
pub async fn check(context: &Context, key: &Key, federation: &Federation, seen: &Seen) -> Found {
    context.pod_checks.is_over(key);
    let owner = Owner { name: &federation.name, uid: &federation.uid };
    let lagging: Vec<&Object> =
        seen.objects.values().filter(|object| object.is_of(owner) && is_lagging(object)).collect();
    if lagging.is_empty() {
        context.pod_checks.forget(key);
        return Found::default();
    }
    if let Some(recent) = context.pod_checks.recent(key) {
        return recent;
    }
    let labels = selector(&instance_labels(&key.name));
    let pods = list(context, &POD, &key.namespace, ListParams::default().labels(&labels).limit(MAX_PODS))
        .await
        .unwrap_or_default();
    let failed = ListParams::default().fields("reason=FailedCreate").limit(MAX_EVENTS);
    let events = list(context, &EVENT, &key.namespace, failed).await.unwrap_or_default();
    let now = jiff::Timestamp::now();
    let mut found = Found { requeue_after: Some(CHECK_INTERVAL), ..Found::default() };
    for workload in lagging {
        for pod in blocking(workload, &pods, now) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            match context.delete_pod(&key.namespace, pod, None).await {
                Ok(()) => found.replaced.push(format!("pod {name}: it cannot start and keeps the corrected one out")),
                Err(error) => tracing::warn!(federation = %key, pod = name, %error, "a pod could not be deleted"),
            }
        }
        let about = workload.identity();
        found.failures.extend(start_failures(workload, &pods, &events, now).into_iter().map(|failure| Failure {
            about: Some(about.clone()),
            reason: failure.reason,
            message: failure.message,
            permanent: true,
        }));
    }
    context.pod_checks.remember(key, &found.failures);
    found
}

/// Shortens the grace period of nodes of a deleted federation: no SuperLink is left to receive their replies. Returns
/// the delay until the next check, or `None` if no pod is left or `DELETED_LIMIT` has passed.
pub async fn release(context: &Context, key: &Key) -> Option<Duration> {
    let labels = selector(&node_labels(&key.name));
    let pods = list(context, &POD, &key.namespace, ListParams::default().labels(&labels).limit(MAX_PODS)).await;
    for pod in pods.iter().flatten() {
        let grace_s = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
        // A pod that is not being deleted stays: objects may outlive their federation (orphan deletion).
        if grace_s.is_some_and(|grace_s| grace_s > DELETED_GRACE_S.into())
            && let Err(error) = context.delete_pod(&key.namespace, pod, Some(DELETED_GRACE_S)).await
        {
            tracing::warn!(federation = %key, %error, "a node of a deleted federation drains in vain");
        }
    }
    if pods.is_some_and(|pods| pods.is_empty()) || context.pod_checks.deleted_for(key) > DELETED_LIMIT {
        context.pod_checks.is_over(key);
        return None;
    }
    Some(DELETED_INTERVAL)
}

fn is_lagging(workload: &Object) -> bool {
    let progress = Progress::of(&workload.0);
    matches!(workload.0["kind"].as_str(), Some("StatefulSet" | "DaemonSet")) && progress.ready < progress.desired
}

fn selector(labels: &Map<String, Value>) -> String {
    let pairs = labels.iter().map(|(label, value)| format!("{label}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// Returns an empty list on errors, such as a missing permission or an unreachable API server: the status then has
/// fewer details, and the reconcile continues.
async fn list(context: &Context, kind: &Kind, namespace: &str, which: ListParams) -> Option<Vec<Value>> {
    let api: Api<Fresh> = context.api(kind, Some(namespace));
    match timeout(LIST_LIMIT, api.list(&which)).await {
        Ok(Ok(found)) => Some(found.items.into_iter().map(|fresh| fresh.object).collect()),
        Ok(Err(error)) => {
            tracing::warn!(kind = kind.plural, namespace, %error, "cannot be listed");
            None
        }
        Err(_) => {
            tracing::warn!(kind = kind.plural, namespace, "the API server did not answer in time");
            None
        }
    }
}
