//! Prometheus metrics: counters, and gauges that are set at a scrape.
//!
//! Names are a contract with dashboards and alerts (docs/monitoring.md, deploy/monitoring). No label contains an id or
//! a round. Counting with a known label does not allocate. Independent of HTTP.

mod label;
mod process;
mod snapshot;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use trellis_core::census::Census;
use trellis_sandbox::Enforcement;

pub use label::{Api, FrontEnd, Reason, Transport, Version};
pub use snapshot::{Certificate, Snapshot};

use super::training::Gauges;

/// The content type of a scrape over HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum number of distinguished strategies; further strategies are counted together.
const MAX_STRATEGIES: usize = 32;
const UNKNOWN_STRATEGY: &str = "unknown";
const OTHER_STRATEGY: &str = "other";

const ROUND_BUCKETS_S: [f64; 8] = [1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
const CALL_BUCKETS_S: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];
const CLIENT_BUCKETS_S: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
const COMMIT_BUCKETS_S: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

type Real = Gauge<f64, AtomicU64>;

/// A finished call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Call {
    pub api: Api,
    /// The name of the call from a fixed list, never text of a peer.
    pub rpc: &'static str,
    pub transport: Transport,
    pub version: Version,
    /// The status code in the notation of the transport.
    pub code: &'static str,
}

macro_rules! labels {
    ($($name:ident { $field:ident: $type:ty }),+ $(,)?) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name {
            $field: $type,
        }
    )+};
}
labels!(
    OfApi { api: Api },
    OfFrontEnd { front_end: FrontEnd },
    OfReason { reason: Reason },
    OfStrategy { strategy: String },
    OfState { state: &'static str },
    OfResult { result: &'static str },
    OfRole { role: &'static str },
    OfLevel { level: &'static str },
);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    state: &'static str,
    version: Version,
}

/// Creates the histograms of a family.
#[derive(Debug, Clone, Copy)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// All metrics. All methods may be called concurrently.
pub struct Metrics {
    registry: Registry,
    /// Scrapes set gauges, so they are serialised.
    scraping: Mutex<()>,
    calls: Family<Call, Counter>,
    call_seconds: Family<OfApi, Histogram, Buckets>,
    calls_held: Family<OfApi, Gauge>,
    calls_refused: Family<OfReason, Counter>,
    connections: Family<OfFrontEnd, Gauge>,
    commits: Family<OfResult, Counter>,
    jobs: Counter,
    commit_seconds: Histogram,
    cache_hits: Counter,
    cache_misses: Counter,
    client_seconds: Histogram,
    round_seconds: Family<OfStrategy, Histogram, Buckets>,
    /// The strategies in `round_seconds`.
    strategies: Mutex<BTreeSet<String>>,
    clients_failed: Counter,
    checkpoints: Counter,
    sandbox: Family<OfLevel, Gauge>,
    at_scrape: AtScrape,
}

/// Gauges that are set at a scrape.
#[derive(Default)]
struct AtScrape {
    round_current: Family<OfStrategy, Gauge>,
    round_total: Family<OfStrategy, Gauge>,
    loss: Family<OfStrategy, Real>,
    accuracy: Family<OfStrategy, Real>,
    clients_connected: Gauge,
    clients_selected: Gauge,
    clients_responded: Gauge,
    replies_awaited: Gauge,
    training_status: Gauge,
    nodes: Family<OfNode, Gauge>,
    runs: Family<OfState, Gauge>,
    instructions: Family<OfState, Gauge>,
    audit_entries: Gauge,
    objects: Gauge,
    object_bytes: Gauge,
    store_works: Gauge,
    store_queue_length: Gauge,
    certificate_expiry: Family<OfRole, Real>,
}

/// Increments a gauge until drop.
#[must_use]
#[derive(Debug)]
pub struct Present(Gauge);

impl Present {
    fn new(gauge: Gauge) -> Present {
        gauge.inc();
        Present(gauge)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Registers a metric and returns it.
fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// `version` is that of the program.
    pub fn new(version: &str) -> Metrics {
        let mut registry = Registry::default();
        let build = Info::new(vec![("version", version.to_owned())]);
        registry.register("trellis_build", "The version of Trellis", build);
        registry.register_collector(Box::new(process::ProcessCollector));
        let checkpoints = register(&mut registry, "fl_checkpoint_saved", "Checkpoints saved", Counter::default());
        let at_scrape = AtScrape::register(&mut registry);
        let r = &mut registry;
        let per_call = Family::new_with_constructor(Buckets(&CALL_BUCKETS_S));
        let per_round = Family::new_with_constructor(Buckets(&ROUND_BUCKETS_S));
        let per_client = Histogram::new(CLIENT_BUCKETS_S);
        let per_commit = Histogram::new(COMMIT_BUCKETS_S);
        // The encoder appends `_total` to the names of counters.
        let metrics = Metrics {
            scraping: Mutex::default(),
            calls: register(r, "trellis_calls", "Calls answered", Family::default()),
            call_seconds: register(r, "trellis_call_duration_seconds", "Work on a call, holding excepted", per_call),
            calls_held: register(
                r,
                "trellis_calls_held",
                "Calls held open until there is an answer",
                Family::default(),
            ),
            calls_refused: register(r, "trellis_calls_refused", "Calls refused", Family::default()),
            connections: register(r, "trellis_connections", "Open connections", Family::default()),
            commits: register(r, "trellis_store_commits", "Commits of the store", Family::default()),
            jobs: register(r, "trellis_store_jobs", "Changes in all commits", Counter::default()),
            commit_seconds: register(r, "trellis_store_commit_duration_seconds", "Time of a commit", per_commit),
            cache_hits: register(r, "trellis_object_cache_hits", "Objects served from memory", Counter::default()),
            cache_misses: register(r, "trellis_object_cache_misses", "Objects read from disk", Counter::default()),
            client_seconds: register(r, "trellis_clientapp_duration_seconds", "Work of a ClientApp", per_client),
            round_seconds: register(r, "fl_round_duration_seconds", "Time of a round", per_round),
            strategies: Mutex::default(),
            clients_failed: register(r, "fl_clients_failed", "Errors in place of replies", Counter::default()),
            checkpoints,
            sandbox: register(r, "trellis_sandbox", "1: this is what ServerApps are restricted by", Family::default()),
            at_scrape,
            registry,
        };
        metrics.show_zeros();
        metrics
    }

    /// Creates all series with zero, so that a rate over the first count is right.
    fn show_zeros(&self) {
        for api in Api::ALL {
            drop(self.calls_held.get_or_create(&OfApi { api: *api }));
        }
        for reason in Reason::ALL {
            drop(self.calls_refused.get_or_create(&OfReason { reason: *reason }));
        }
        for result in ["ok", "failed"] {
            drop(self.commits.get_or_create(&OfResult { result }));
        }
    }

    /// Counts a call and its work time, which is unknown for calls that may be held.
    pub fn call_finished(&self, call: Call, work: Option<Duration>) {
        self.calls.get_or_create(&call).inc();
        if let Some(work) = work {
            self.call_seconds.get_or_create(&OfApi { api: call.api }).observe(work.as_secs_f64());
        }
    }

    pub fn call_refused(&self, reason: Reason) {
        self.calls_refused.get_or_create(&OfReason { reason }).inc();
    }

    /// Counts a held call until drop.
    pub fn call_held(&self, api: Api) -> Present {
        Present::new(self.calls_held.get_or_create_owned(&OfApi { api }))
    }

    /// Counts an open connection until drop.
    pub fn connection_opened(&self, front_end: FrontEnd) -> Present {
        Present::new(self.connections.get_or_create_owned(&OfFrontEnd { front_end }))
    }

    /// Counts an attempted commit with its jobs.
    pub fn commit_finished(&self, jobs: usize, took: Duration, worked: bool) {
        self.commits.get_or_create(&OfResult { result: if worked { "ok" } else { "failed" } }).inc();
        self.jobs.inc_by(jobs as u64);
        self.commit_seconds.observe(took.as_secs_f64());
    }

    pub fn sandbox(&self, enforced: Enforcement) {
        for level in Enforcement::ALL {
            self.sandbox.get_or_create(&OfLevel { level: level.word() }).set((level == enforced).into());
        }
    }

    pub fn object_from_memory(&self) {
        self.cache_hits.inc();
    }

    pub fn object_from_disk(&self) {
        self.cache_misses.inc();
    }

    pub fn checkpoint_saved(&self) {
        self.checkpoints.inc();
    }

    pub fn client_failed(&self) {
        self.clients_failed.inc();
    }

    /// Counts the work time of a ClientApp for one instruction, as reported by its node.
    pub fn clientapp_worked(&self, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            self.client_seconds.observe(seconds);
        }
    }

    /// Creates the series of a strategy with zero.
    pub fn training_started(&self, strategy: Option<&str>) {
        drop(self.round_seconds.get_or_create(&self.of_strategy(strategy)));
    }

    pub fn round_ended(&self, strategy: Option<&str>, seconds: f64) {
        self.round_seconds.get_or_create(&self.of_strategy(strategy)).observe(seconds);
    }

    fn of_strategy(&self, strategy: Option<&str>) -> OfStrategy {
        let mut strategy = strategy.unwrap_or(UNKNOWN_STRATEGY);
        let mut known = self.strategies.lock().expect("no holder panics");
        if !known.contains(strategy) && known.len() >= MAX_STRATEGIES {
            strategy = OTHER_STRATEGY;
        }
        known.insert(strategy.to_owned());
        OfStrategy { strategy: strategy.to_owned() }
    }

    /// Returns all metrics as text, for [`CONTENT_TYPE`]. `connected` is used if the store cannot be read.
    pub fn scrape(&self, training: &Gauges, connected: usize, snapshot: &Snapshot) -> String {
        let _one_at_a_time = self.scraping.lock().expect("no holder panics");
        self.at_scrape.fill_training(training);
        self.at_scrape.fill(snapshot, connected);
        let mut written = String::with_capacity(16 << 10);
        text::encode(&mut written, &self.registry).expect("a text takes everything");
        written
    }
}

impl AtScrape {
    fn register(registry: &mut Registry) -> AtScrape {
        let r = registry;
        AtScrape {
            round_current: register(r, "fl_round_current", "The round at hand, or the last one", Family::default()),
            round_total: register(r, "fl_round_total", "Rounds that the run was asked for", Family::default()),
            loss: register(r, "fl_aggregated_loss", "Mean loss over the clients of a round", Family::default()),
            accuracy: register(r, "fl_aggregated_accuracy", "Mean accuracy over the clients", Family::default()),
            clients_connected: register(r, "fl_clients_connected", "Nodes online", Gauge::default()),
            clients_selected: register(r, "fl_clients_selected", "Clients asked in the last phase", Gauge::default()),
            clients_responded: register(r, "fl_clients_responded", "Those that did the work", Gauge::default()),
            replies_awaited: register(r, "trellis_replies_awaited", "Instructions without reply", Gauge::default()),
            training_status: register(r, "fl_training_status", STATUS_HELP, Gauge::default()),
            nodes: register(r, "trellis_nodes", "Nodes by state and Flower version", Family::default()),
            runs: register(r, "trellis_runs", "Runs by state", Family::default()),
            instructions: register(r, "trellis_instructions", "Instructions by state", Family::default()),
            audit_entries: register(r, "trellis_audit_entries", "Entries in the audit log", Gauge::default()),
            objects: register(r, "trellis_objects", "Objects stored", Gauge::default()),
            object_bytes: register(r, "trellis_object_bytes", "Bytes of objects stored", Gauge::default()),
            store_works: register(r, "trellis_store_works", "1: the last commit worked", Gauge::default()),
            store_queue_length: register(r, "trellis_store_queue_length", "Changes that wait", Gauge::default()),
            certificate_expiry: register(
                r,
                "trellis_tls_certificate_expiry_timestamp_seconds",
                "When the certificate expires, in seconds since 1970",
                Family::default(),
            ),
        }
    }

    /// Sets the known values of the training under its strategy.
    fn fill_training(&self, training: &Gauges) {
        self.clients_selected.set(training.clients_selected as i64);
        self.clients_responded.set(training.clients_responded as i64);
        self.replies_awaited.set(training.replies_awaited as i64);
        self.training_status.set(training.status as i64);
        self.round_current.clear();
        self.round_total.clear();
        self.loss.clear();
        self.accuracy.clear();
        if !training.has_run {
            return;
        }
        let of = OfStrategy { strategy: training.strategy.clone().unwrap_or_else(|| UNKNOWN_STRATEGY.to_owned()) };
        self.round_current.get_or_create(&of).set(training.round_current as i64);
        if let Some(total) = training.round_total {
            self.round_total.get_or_create(&of).set(total as i64);
        }
        if let Some(loss) = training.loss {
            self.loss.get_or_create(&of).set(loss);
        }
        if let Some(accuracy) = training.accuracy {
            self.accuracy.get_or_create(&of).set(accuracy);
        }
    }

    fn fill(&self, snapshot: &Snapshot, connected: usize) {
        self.store_works.set(i64::from(snapshot.store_works));
        self.store_queue_length.set(snapshot.store_queue_length as i64);
        self.certificate_expiry.clear();
        for certificate in &snapshot.certificates {
            self.certificate_expiry.get_or_create(&OfRole { role: certificate.role }).set(certificate.expires_at);
        }
        let online = snapshot.census.as_ref().map_or(connected as u64, Census::nodes_online);
        self.clients_connected.set(online as i64);
        self.nodes.clear();
        self.runs.clear();
        self.instructions.clear();
        if let Some(census) = &snapshot.census {
            self.fill_census(census);
        }
    }

    fn fill_census(&self, census: &Census) {
        let nodes = |state, version| self.nodes.get_or_create_owned(&OfNode { state, version });
        nodes("registered", Version::Unknown).set(census.nodes_registered as i64);
        nodes("offline", Version::Unknown).set(census.nodes_offline as i64);
        for (client, count) in &census.nodes_online_by_client {
            nodes("online", Version::of_client(client)).inc_by(*count as i64);
        }
        let runs = [
            ("pending", census.runs_pending),
            ("starting", census.runs_starting),
            ("running", census.runs_running),
            ("completed", census.runs_completed),
            ("failed", census.runs_failed),
            ("stopped", census.runs_stopped),
        ];
        let instructions = [
            ("incomplete", census.instructions_incomplete),
            ("waiting", census.instructions_waiting),
            ("out", census.instructions_out),
            ("answered", census.instructions_answered),
        ];
        for (family, counts) in [(&self.runs, &runs[..]), (&self.instructions, &instructions[..])] {
            for (state, count) in counts {
                family.get_or_create(&OfState { state }).set(*count as i64);
            }
        }
        self.objects.set(census.objects as i64);
        self.object_bytes.set(census.object_bytes as i64);
        self.audit_entries.set(census.audit_entries as i64);
    }
}

const STATUS_HELP: &str = "0: idle, 1: running, 2: the last run ended as wished, 3: it failed";

#[cfg(test)]
mod tests;
