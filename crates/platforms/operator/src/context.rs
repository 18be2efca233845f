//! State that all parts of the operator share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::core::{ApiResource, DynamicResourceScope};
use kube::{Api, Client, Resource};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trellis_kube::object::Identity;
use trellis_kube::pod_policy::PodPolicy;
use trellis_kube::status::{Condition, Failure};

use crate::cache::{Cache, Key};
use crate::events::Events;
use crate::kinds::Kind;
use crate::lease::LEASE;
use crate::metrics::Metrics;
use crate::pods::PodChecks;
use crate::queue::Queue;
use crate::reach::Reach;
use crate::scaling::Activities;
use crate::watch::Synced;

/// Concurrent reconciles.
pub const WORKERS: usize = 8;
/// Interval of reconciles without a change.
pub const RESYNC: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Empty: all namespaces.
    pub namespaces: Vec<String>,
    /// The namespace of the operator and its lease.
    pub own_namespace: String,
    /// Identity of this operator in the lease.
    pub identity: String,
    pub leader_election: bool,
    pub lease_name: String,
    pub workers: usize,
    pub resync: Duration,
    pub metrics_address: Option<std::net::SocketAddr>,
    pub health_address: Option<std::net::SocketAddr>,
    /// Addresses of SuperLinks, for an operator outside of the cluster.
    pub reach: Reach,
    /// Limits on what authors of federations may request for pods.
    pub pod_policy: PodPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            namespaces: Vec::new(),
            own_namespace: "default".to_owned(),
            identity: format!("trellis-operator-{}", std::process::id()),
            leader_election: false,
            lease_name: LEASE.to_owned(),
            workers: WORKERS,
            resync: RESYNC,
            metrics_address: None,
            health_address: None,
            reach: Reach::default(),
            pod_policy: PodPolicy::default(),
        }
    }
}

impl Settings {
    /// The namespaces to watch; `None` stands for all.
    pub fn scopes(&self) -> Vec<Option<String>> {
        match self.namespaces.is_empty() {
            true => vec![None],
            false => self.namespaces.iter().cloned().map(Some).collect(),
        }
    }
}

/// Results of one step of a reconcile (certificates, sizes).
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub conditions: Vec<Condition>,
    pub failures: Vec<Failure>,
    /// What the reconcile waits for before it applies the objects.
    pub waiting: Vec<String>,
    /// Fields of `.status`.
    pub fields: Map<String, Value>,
    /// Delay until the next reconcile at the latest.
    pub requeue_after: Option<Duration>,
}

/// An object that the API server normalizes to another form than the applied one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normalized {
    pub desired: String,
    pub live: String,
}

pub struct Context {
    pub client: Client,
    pub settings: Settings,
    pub cache: Cache,
    pub queue: Queue,
    pub synced: Synced,
    pub metrics: Metrics,
    pub events: Events,
    pub activities: Activities,
    pub pod_checks: PodChecks,
    pub normalized: Mutex<HashMap<(Key, Identity), Normalized>>,
    /// Consecutive failures.
    pub failure_counts: Mutex<HashMap<Key, u32>>,
    pub stop: CancellationToken,
    tasks: TaskTracker,
}

impl Context {
    pub fn new(client: Client, settings: Settings) -> Arc<Self> {
        let (events, sender) = Events::new(client.clone(), &settings.identity);
        let context = Arc::new(Context {
            client,
            settings,
            cache: Cache::default(),
            queue: Queue::default(),
            synced: Synced::default(),
            metrics: Metrics::new(),
            events,
            activities: Activities::default(),
            pod_checks: PodChecks::default(),
            normalized: Mutex::default(),
            failure_counts: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        context.activities.register(&context.metrics);
        context.spawn(sender);
        context
    }

    pub fn api<K>(&self, kind: &Kind, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
            None => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }

    /// Runs a task until it ends or the operator stops.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Waits until all tasks have ended.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Findings {
    pub fn add(&mut self, other: Findings) {
        self.conditions.extend(other.conditions);
        self.failures.extend(other.failures);
        self.waiting.extend(other.waiting);
        self.fields.extend(other.fields);
        self.requeue_after = [self.requeue_after, other.requeue_after].into_iter().flatten().min();
    }
}
