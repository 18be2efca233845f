//! Metrics for Prometheus. Dashboards and alerts depend on their names.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::cache::Key;

const PASS_BUCKETS_S: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWrite {
    verb: &'static str,
    kind: String,
    result: &'static str,
}

/// State of a federation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Ready,
    Reconciling,
    Stalled,
}

impl State {
    const ALL: [State; 3] = [State::Ready, State::Reconciling, State::Stalled];

    fn word(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Reconciling => "reconciling",
            State::Stalled => "stalled",
        }
    }
}

pub struct Leading<'a>(&'a Gauge);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

pub struct Metrics {
    registry: Mutex<Registry>,
    passes: Family<OfResult, Counter>,
    pass_seconds: Histogram,
    writes: Family<OfWrite, Counter>,
    watch_failures: Family<OfKind, Counter>,
    federations: Family<OfState, Gauge>,
    states: Mutex<HashMap<Key, State>>,
    waiting: Gauge,
    leading: Gauge,
    events_lost: Counter,
}

impl Metrics {
    #[expect(clippy::new_without_default, reason = "created once, by name")]
    pub fn new() -> Self {
        let metrics = Metrics {
            registry: Mutex::new(Registry::with_prefix("trellis_operator")),
            passes: Family::default(),
            pass_seconds: Histogram::new(PASS_BUCKETS_S),
            writes: Family::default(),
            watch_failures: Family::default(),
            federations: Family::default(),
            states: Mutex::default(),
            waiting: Gauge::default(),
            leading: Gauge::default(),
            events_lost: Counter::default(),
        };
        metrics.register("passes", "Reconciles of a federation, by result", metrics.passes.clone());
        metrics.register("pass_seconds", "Duration of a reconcile", metrics.pass_seconds.clone());
        metrics.register("writes", "Requests to the API server that change something", metrics.writes.clone());
        metrics.register("watch_failures", "Watches that broke and started over", metrics.watch_failures.clone());
        metrics.register("federations", "Federations by state", metrics.federations.clone());
        metrics.register("queue_length", "Federations that wait for a reconcile", metrics.waiting.clone());
        metrics.register("leading", "1 while this operator is the one that acts", metrics.leading.clone());
        metrics.register(
            "events_lost",
            "Events that were dropped because there were too many",
            metrics.events_lost.clone(),
        );
        metrics
    }

    /// Registers a metric of another part.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().expect("the lock is never poisoned").register(name, help, metric);
    }

    pub fn reconcile_ended(&self, took: Duration, succeeded: bool) {
        self.passes.get_or_create(&OfResult { result: if succeeded { "good" } else { "failed" } }).inc();
        self.pass_seconds.observe(took.as_secs_f64());
    }

    pub fn wrote(&self, verb: &'static str, kind: &str, succeeded: bool) {
        let result = if succeeded { "good" } else { "failed" };
        self.writes.get_or_create(&OfWrite { verb, kind: kind.to_owned(), result }).inc();
    }

    pub fn watch_failed(&self, kind: &str) {
        self.watch_failures.get_or_create(&OfKind { kind: kind.to_owned() }).inc();
    }

    pub fn event_lost(&self) {
        self.events_lost.inc();
    }

    /// This operator is the leader while the returned value exists.
    pub fn leading(&self) -> Leading<'_> {
        self.leading.set(1);
        Leading(&self.leading)
    }

    /// `None`: the federation was deleted.
    pub fn set_state(&self, key: &Key, state: Option<State>) {
        let mut states = self.states.lock().expect("the lock is never poisoned");
        match state {
            Some(state) => drop(states.insert(key.clone(), state)),
            None => drop(states.remove(key)),
        }
    }

    /// The response to a scrape.
    pub fn text(&self, waiting: usize) -> String {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let states = self.states.lock().expect("the lock is never poisoned");
        for state in State::ALL {
            let count = states.values().filter(|known| **known == state).count();
            let gauge = self.federations.get_or_create(&OfState { state: state.word() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        drop(states);
        let mut buffer = String::new();
        let registry = self.registry.lock().expect("the lock is never poisoned");
        text::encode(&mut buffer, &registry).expect("writing to memory works");
        buffer
    }
}
