//! Metrics for Prometheus: counters, updated as the node works, and gauges, set from the status at each scrape.
//!
//! Names are a contract (docs/monitoring.md). No label contains an id. This module knows nothing of HTTP.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use trellis_core::Seconds;
use trellis_sandbox::Enforcement;

use super::{AppEnd, Direction, Dropped, Ending, Gpu, Link, Status, Transport, count_by_state};

/// The content type of a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const APP_BUCKETS_S: [f64; 11] = [0.005, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
/// The buckets separate replies that waited for a broken link from others.
const DELAY_BUCKETS_S: [f64; 9] = [0.005, 0.05, 0.5, 5.0, 30.0, 60.0, 300.0, 3600.0, 43200.0];

type Real = Gauge<f64, AtomicU64>;

macro_rules! labels {
    ($($name:ident { $field:ident }),+ $(,)?) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name {
            $field: &'static str,
        }
    )+};
}
labels!(
    OfTransport { transport },
    OfOutcome { outcome },
    OfReason { reason },
    OfDirection { direction },
    OfState { state },
    OfLevel { level }
);

pub struct Metrics {
    registry: Registry,
    /// A scrape sets gauges, so scrapes are serialised.
    scraping: Mutex<()>,
    connections: Family<OfTransport, Counter>,
    connection_failures: Counter,
    received: Counter,
    done: Family<OfOutcome, Counter>,
    app_seconds: Histogram,
    delivered: Counter,
    delivery_delay_seconds: Histogram,
    dropped: Family<OfReason, Counter>,
    transferred: Family<OfDirection, Counter>,
    apps_ended: Family<OfReason, Counter>,
    at_scrape: AtScrape,
}

/// Gauges that are set at each scrape.
#[derive(Default)]
struct AtScrape {
    connected: Gauge,
    draining: Gauge,
    runs: Gauge,
    under_way: Gauge,
    replies_waiting: Gauge,
    reply_bytes_waiting: Gauge,
    oldest_reply_age_seconds: Real,
    apps: Family<OfState, Gauge>,
    app_memory_bytes: Gauge,
    gpus: Gauge,
    gpu_missing: Gauge,
    sandbox: Family<OfLevel, Gauge>,
    disk_bytes: Gauge,
    disk_limit_bytes: Gauge,
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl AtScrape {
    fn new(r: &mut Registry) -> AtScrape {
        let mut gauge = |name: &str, help: &str| register(r, name, help, Gauge::default());
        AtScrape {
            connected: gauge("connected", "1: the link to the SuperLink works"),
            draining: gauge("draining", "1: the node takes no new instructions"),
            runs: gauge("runs", "Runs that the node has worked for and that are not over"),
            under_way: gauge("instructions_under_way", "Instructions received and not yet carried out"),
            replies_waiting: gauge("replies_waiting", "Replies that wait for the link"),
            reply_bytes_waiting: gauge("reply_bytes_waiting", "Size of the replies that wait for the link"),
            app_memory_bytes: gauge("app_memory_bytes", "Memory of all apps that this node started"),
            gpus: gauge("gpus", "GPUs that apps see, if some were requested"),
            gpu_missing: gauge("gpu_missing", "1: a requested GPU is missing"),
            disk_bytes: gauge("disk_bytes", "Disk space of messages, replies and their objects"),
            disk_limit_bytes: gauge("disk_limit_bytes", "Limit of that disk space"),
            oldest_reply_age_seconds: register(
                r,
                "oldest_reply_age_seconds",
                "How long the oldest reply waits for the link",
                Real::default(),
            ),
            apps: register(r, "apps", "Apps that there are", Family::default()),
            sandbox: register(r, "sandbox", "1: this is what apps are restricted by", Family::default()),
        }
    }

    fn fill(&self, status: &Status, now: Seconds) {
        self.connected.set(matches!(status.link, Link::Connected { .. }).into());
        self.draining.set(status.draining.into());
        self.runs.set(status.runs.len() as i64);
        self.under_way.set(status.instructions_under_way as i64);
        self.replies_waiting.set(status.replies.waiting as i64);
        self.reply_bytes_waiting.set(status.replies.bytes as i64);
        self.oldest_reply_age_seconds.set(status.replies.oldest_at.map_or(0.0, |oldest| (now - oldest).max(0.0)));
        for (state, count) in count_by_state(&status.apps) {
            self.apps.get_or_create(&OfState { state }).set(count);
        }
        self.app_memory_bytes.set(status.apps.iter().filter_map(|app| app.rss_bytes).sum::<u64>() as i64);
        let (gpus, missing) = match &status.gpu {
            Gpu::NotAsked => (0, false),
            Gpu::Ready { devices } => (devices.len(), false),
            Gpu::Missing { .. } => (0, true),
        };
        self.gpus.set(gpus as i64);
        self.gpu_missing.set(missing.into());
        if let Some(sandbox) = &status.sandbox {
            for level in Enforcement::ALL {
                self.sandbox.get_or_create(&OfLevel { level: level.word() }).set((sandbox.level == level).into());
            }
        }
        self.disk_bytes.set(status.disk.used_bytes as i64);
        self.disk_limit_bytes.set(status.disk.limit_bytes as i64);
    }
}

impl Metrics {
    pub fn new(version: &str) -> Metrics {
        let mut registry = Registry::with_prefix("trellis_node");
        let r = &mut registry;
        r.register("build", "The version of this program", Info::new([("version", version.to_owned())]));
        // The encoder appends `_total` to the names of counters.
        let metrics = Metrics {
            connections: register(r, "connections", "Times the link came up", Family::default()),
            connection_failures: register(r, "connection_failures", "Tries that failed", Counter::default()),
            received: register(r, "instructions_received", "Instructions received", Counter::default()),
            done: register(r, "instructions", "Instructions that ended", Family::default()),
            app_seconds: register(r, "app_duration_seconds", "Work of an app", Histogram::new(APP_BUCKETS_S)),
            delivered: register(r, "replies_delivered", "Replies that the SuperLink has", Counter::default()),
            delivery_delay_seconds: register(
                r,
                "reply_delay_seconds",
                "From a reply that is ready to its delivery",
                Histogram::new(DELAY_BUCKETS_S),
            ),
            dropped: register(r, "replies_dropped", "Replies that will never be delivered", Family::default()),
            transferred: register(r, "object_bytes", "Bytes of objects over the link", Family::default()),
            apps_ended: register(r, "apps_ended", "Apps that are no longer there", Family::default()),
            at_scrape: AtScrape::new(r),
            scraping: Mutex::default(),
            registry,
        };
        metrics.show_zeros();
        metrics
    }

    /// Creates all label values from the start, so that a rate over the first count is correct.
    fn show_zeros(&self) {
        for transport in [Transport::Grpc, Transport::Http] {
            drop(self.connections.get_or_create(&of_transport(transport)));
        }
        for ending in [Ending::Replied, Ending::Failed, Ending::Postponed] {
            drop(self.done.get_or_create(&of_ending(ending)));
        }
        for why in [Dropped::Expired, Dropped::Refused] {
            drop(self.dropped.get_or_create(&of_dropped(why)));
        }
        for direction in [Direction::Received, Direction::Sent] {
            drop(self.transferred.get_or_create(&of_direction(direction)));
        }
        for why in [AppEnd::Unneeded, AppEnd::Memory, AppEnd::Timeout, AppEnd::Crashed] {
            drop(self.apps_ended.get_or_create(&of_app_end(why)));
        }
    }

    pub fn link_up(&self, transport: Transport) {
        self.connections.get_or_create(&of_transport(transport)).inc();
    }

    pub fn link_lost(&self) {
        self.connection_failures.inc();
    }

    pub fn instruction_received(&self) {
        self.received.inc();
    }

    pub fn instruction_done(&self, ending: Ending, runtime: Option<Duration>) {
        self.done.get_or_create(&of_ending(ending)).inc();
        if let Some(runtime) = runtime {
            self.app_seconds.observe(runtime.as_secs_f64());
        }
    }

    pub fn reply_delivered(&self, age: Duration) {
        self.delivered.inc();
        self.delivery_delay_seconds.observe(age.as_secs_f64());
    }

    pub fn reply_dropped(&self, why: Dropped) {
        self.dropped.get_or_create(&of_dropped(why)).inc();
    }

    pub fn transferred(&self, direction: Direction, bytes: u64) {
        self.transferred.get_or_create(&of_direction(direction)).inc_by(bytes);
    }

    pub fn app_ended(&self, why: AppEnd) {
        self.apps_ended.get_or_create(&of_app_end(why)).inc();
    }

    pub fn scrape(&self, status: &Status, now: Seconds) -> String {
        let _one_at_a_time = self.scraping.lock().expect("no holder panics");
        self.at_scrape.fill(status, now);
        let mut written = String::with_capacity(8 << 10);
        text::encode(&mut written, &self.registry).expect("a text takes everything");
        written
    }
}

fn of_transport(transport: Transport) -> OfTransport {
    OfTransport { transport: transport.word() }
}

fn of_ending(ending: Ending) -> OfOutcome {
    let outcome = match ending {
        Ending::Replied => "replied",
        Ending::Failed => "failed",
        Ending::Postponed => "postponed",
    };
    OfOutcome { outcome }
}

fn of_dropped(why: Dropped) -> OfReason {
    let reason = match why {
        Dropped::Expired => "expired",
        Dropped::Refused => "refused",
    };
    OfReason { reason }
}

fn of_direction(direction: Direction) -> OfDirection {
    let direction = match direction {
        Direction::Received => "received",
        Direction::Sent => "sent",
    };
    OfDirection { direction }
}

fn of_app_end(why: AppEnd) -> OfReason {
    let reason = match why {
        AppEnd::Unneeded => "unneeded",
        AppEnd::Memory => "memory",
        AppEnd::Timeout => "timeout",
        AppEnd::Crashed => "crashed",
    };
    OfReason { reason }
}
