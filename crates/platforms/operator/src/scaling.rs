//! Queries SuperLinks for the scaling rules in [`trellis_kube::scaling`], and exports the results as metrics for
//! autoscalers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, timeout};
use trellis_kube::federation::Federation;
use trellis_kube::object::Identity;
use trellis_kube::scaling::{Activity, Memory, Metric, decide, needed_nodes, scaled};
use trellis_plan::scaling::REQUIRED_NODES_SETTINGS;
use trellis_wire::call::ListNodes;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;

use crate::cache::{Key, Seen};
use crate::context::{Context, Findings};
use crate::metrics::Metrics;
use crate::reach::{Reach, Reached};
use crate::runs::report;

/// Interval of queries to a SuperLink.
const QUERY_INTERVAL: Duration = Duration::from_secs(15);
/// Timeout of all queries in one reconcile.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
const ONLINE: &str = "online";
const FINISHED: &str = "finished";

type Real = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFederation {
    namespace: String,
    federation: String,
}

/// The last query results.
#[derive(Default)]
pub struct Activities {
    last: Mutex<HashMap<Key, (Instant, Activity)>>,
    runs: Family<OfFederation, Gauge>,
    nodes_online: Family<OfFederation, Gauge>,
    nodes_waiting: Family<OfFederation, Gauge>,
    nodes_wanted: Family<OfFederation, Gauge>,
    round_seconds: Family<OfFederation, Real>,
}

/// Sizes of pools that differ from the resource.
#[derive(Debug, Clone, Default)]
pub struct Sizes {
    pub sizes: BTreeMap<String, i32>,
    pub findings: Findings,
}

impl Activities {
    /// Autoscalers depend on the names.
    pub fn register(&self, metrics: &Metrics) {
        metrics.register("federation_runs", "Active runs", self.runs.clone());
        metrics.register("federation_nodes_online", "Nodes that are online", self.nodes_online.clone());
        let help = "Nodes that runs wait for, beyond those that are online";
        metrics.register("federation_nodes_waiting", help, self.nodes_waiting.clone());
        let help = "Nodes that the scaled pool needs for the active runs; 0 without a run";
        metrics.register("federation_nodes_wanted", help, self.nodes_wanted.clone());
        let help = "Duration of the last round of the active runs, the longest of several; 0 without a run";
        metrics.register("federation_round_seconds", help, self.round_seconds.clone());
    }

    pub fn forget(&self, key: &Key) {
        self.last.lock().expect("the lock is never poisoned").remove(key);
        self.export(key, &Activity::default(), None);
    }

    fn recent(&self, key: &Key) -> Option<Activity> {
        let last = self.last.lock().expect("the lock is never poisoned");
        last.get(key).filter(|(at, _)| at.elapsed() < QUERY_INTERVAL).map(|(_, activity)| *activity)
    }

    fn store(&self, key: &Key, activity: Activity, wanted: Option<u32>) {
        self.last.lock().expect("the lock is never poisoned").insert(key.clone(), (Instant::now(), activity));
        self.export(key, &activity, wanted);
    }

    /// Unknown values have no sample. Without runs the value is zero: an autoscaler that gets no sample keeps the pool
    /// as large as it is.
    fn export(&self, key: &Key, activity: &Activity, wanted: Option<u32>) {
        let label = OfFederation { namespace: key.namespace.clone(), federation: key.name.clone() };
        let whole = |family: &Family<OfFederation, Gauge>, value: Option<f64>| match value {
            Some(value) => drop(family.get_or_create(&label).set(value as i64)),
            None => drop(family.remove(&label)),
        };
        whole(&self.runs, activity.value(Metric::Runs));
        whole(&self.nodes_online, activity.online.map(f64::from));
        whole(&self.nodes_waiting, activity.value(Metric::Waiting));
        whole(&self.nodes_wanted, wanted.map(f64::from));
        let round_s = if activity.runs == Some(0) { Some(0.0) } else { activity.value(Metric::RoundTime) };
        match round_s {
            Some(seconds) => drop(self.round_seconds.get_or_create(&label).set(seconds)),
            None => drop(self.round_seconds.remove(&label)),
        }
    }
}

pub async fn sizes(context: &Context, federation: &Federation, seen: &Seen) -> Sizes {
    if scaled(federation).is_none() {
        return Sizes::default();
    }
    let key = Key { namespace: federation.namespace.clone(), name: federation.name.clone() };
    let activity = match context.activities.recent(&key) {
        Some(activity) => activity,
        None => {
            let activity = query(context, federation).await;
            context.activities.store(&key, activity, needed_nodes(federation, &activity));
            activity
        }
    };
    let now = Timestamp::now().as_second();
    let memory = Memory::read(&seen.resource["status"]);
    let Some(decision) = decide(federation, &activity, &memory, now) else { return Sizes::default() };
    let mut findings = Findings { requeue_after: Some(QUERY_INTERVAL), ..Findings::default() };
    findings.fields.insert("scaling".to_owned(), decision.status(replicas(federation, seen, &decision.pool)));
    if memory.desired.is_some_and(|before| before != decision.size) {
        tracing::info!(federation = %key, pool = decision.pool, nodes = decision.size, "scaled: {}", decision.why);
    }
    Sizes { sizes: BTreeMap::from([(decision.pool, decision.size)]), findings }
}

/// Current number of pods.
fn replicas(federation: &Federation, seen: &Seen, pool: &str) -> i64 {
    let name = federation.pool_name(pool);
    let id = Identity { api_version: "apps/v1".to_owned(), kind: "StatefulSet".to_owned(), name };
    seen.objects.get(&id).and_then(|object| object.0["status"]["replicas"].as_i64()).unwrap_or(0)
}

/// A failed query changes nothing.
async fn query(context: &Context, federation: &Federation) -> Activity {
    let queried = timeout(QUERY_TIMEOUT, activity(&context.settings.reach, context, federation)).await;
    match queried {
        Ok(Some(activity)) => activity,
        Ok(None) | Err(_) => Activity::default(),
    }
}

async fn activity(reach: &Reach, context: &Context, federation: &Federation) -> Option<Activity> {
    let reached = reach.superlink(&context.client, federation).await.ok()?;
    let runs = reached.superlink.list_runs(None).await.ok()?;
    let at_work: Vec<&proto::Run> = runs.iter().filter(|run| !is_finished(run)).collect();
    let mut activity = Activity {
        runs: u32::try_from(at_work.len()).ok(),
        round_s: None,
        wanted: at_work.iter().filter_map(|run| nodes_needed_by(run)).max(),
        online: online(&reached).await,
    };
    for run in at_work.iter().filter(|_| reached.is_trellis) {
        if let Ok(training) = report::training(&reached.superlink, run.run_id, 0).await {
            activity.round_s = match (activity.round_s, training.seconds) {
                (Some(one), Some(other)) => Some(f64::max(one, other)),
                (one, other) => one.or(other),
            };
        }
    }
    Some(activity)
}

fn is_finished(run: &proto::Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.status == FINISHED)
}

/// Nodes that a run waits for, from its configuration.
fn nodes_needed_by(run: &proto::Run) -> Option<u32> {
    let number = |key: &&str| match run.override_config.get(*key)?.scalar.as_ref()? {
        Scalar::Sint64(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    REQUIRED_NODES_SETTINGS.iter().filter_map(number).max()
}

/// Draining nodes take no work and are not counted.
async fn online(reached: &Reached) -> Option<u32> {
    let count = match reached.is_trellis {
        true => {
            let nodes = reached.superlink.call(&ListNodes {}).await.ok()?.nodes;
            nodes.iter().filter(|node| node.status == ONLINE && !node.draining).count()
        }
        false => reached.superlink.list_nodes().await.ok()?.iter().filter(|node| node.status == ONLINE).count(),
    };
    u32::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(activity: Activity, wanted: Option<u32>) -> Vec<String> {
        let (activities, metrics) = (Activities::default(), Metrics::new());
        activities.register(&metrics);
        let key = Key { namespace: "team".to_owned(), name: "demo".to_owned() };
        activities.store(&key, activity, wanted);
        let name = "trellis_operator_federation_";
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(name)).map(ToOwned::to_owned).collect()
        };
        let exported = samples(&metrics.text(0));
        activities.forget(&key);
        assert_eq!(samples(&metrics.text(0)), Vec::<String>::new(), "a deleted federation has no samples");
        exported
    }

    fn sample(name: &str, value: &str) -> String {
        format!("{name}{{namespace=\"team\",federation=\"demo\"}} {value}")
    }

    #[test]
    fn unknown_values_have_no_sample() {
        assert_eq!(exported(Activity::default(), None), Vec::<String>::new());
        let first_round = Activity { runs: Some(1), online: Some(2), ..Activity::default() };
        assert_eq!(exported(first_round, None), [sample("runs", "1"), sample("nodes_online", "2")]);
    }

    #[test]
    fn idle_federations_have_samples() {
        let at_work = Activity { runs: Some(1), round_s: Some(2.5), wanted: Some(3), online: Some(2) };
        let expected = [
            ("runs", "1"),
            ("nodes_online", "2"),
            ("nodes_waiting", "1"),
            ("nodes_wanted", "3"),
            ("round_seconds", "2.5"),
        ];
        assert_eq!(exported(at_work, Some(3)), expected.map(|(name, value)| sample(name, value)));
        let idle = Activity { runs: Some(0), online: Some(3), ..Activity::default() };
        let expected = [("runs", "0"), ("nodes_online", "3"), ("nodes_wanted", "0"), ("round_seconds", "0.0")];
        assert_eq!(exported(idle, Some(0)), expected.map(|(name, value)| sample(name, value)));
    }
}
