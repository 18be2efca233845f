//! The cost of an idle fleet: every node polls and sends heartbeats at the official pace.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{MB, Outcome, Spent, Watch};
use crate::Failure;
use crate::call::Tally;
use crate::client::Transport;
use crate::fleet::{self, Pulse};
use crate::pacing::Jitter;
use crate::process;
use crate::serverapp;
use crate::stats::Samples;
use crate::superlink::SuperLink;
use crate::table::{Better, Cell, Metric, Target};

/// First polls and heartbeats are spread over one heartbeat interval to avoid a wave after the start.
const SPREAD: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_secs(5);
/// Maximum time of a measurement, even if polls are held longer.
const MAX_OBSERVATION: Duration = Duration::from_secs(150);
const LIST_LIMIT: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);
/// Above either limit a server is overloaded: its CPU time is not comparable.
const OVERLOAD_HEARTBEAT_MS: f64 = 1000.0;
const OVERLOAD_FAILED_SHARE: f64 = 0.01;

#[derive(Clone)]
pub struct Idle {
    pub nodes: usize,
    pub duration: Duration,
}

impl Idle {
    pub fn title(&self) -> String {
        format!("{} idle nodes, official pacing", crate::table::short(self.nodes as f64))
    }

    pub fn metrics(&self, transport: Transport) -> Vec<Metric> {
        let over_grpc = |target| if transport == Transport::Grpc { target } else { Target::None };
        let at_full_size = |target| if self.nodes >= 10_000 { target } else { Target::None };
        let per_node = over_grpc(Target::Factor { memory: Some(15.0), database: Some(100.0) });
        let cpu = over_grpc(at_full_size(Target::AtMost(25.0)));
        let resident = over_grpc(at_full_size(Target::AtMost(600.0)));
        let all_held = at_full_size(Target::AtLeast(self.nodes as f64));
        vec![
            Metric::new("nodes online at the end", Better::Neither, all_held),
            Metric::new("server CPU, % of one core", Better::Lower, cpu),
            Metric::new("server CPU us per node and second", Better::Lower, per_node),
            Metric::new("RSS MB", Better::Lower, resident),
            Metric::new("heartbeat p99 ms", Better::Lower, Target::None),
            Metric::new("failed calls", Better::Neither, Target::AtMost(0.0)),
            Metric::new("nodes registered per second", Better::Higher, Target::None),
        ]
    }

    /// Waits for the measurement time. If polls are held, waits until every node got an answer and polled again,
    /// because that is part of the cost of a held poll.
    async fn observe(&self, pulse: &Pulse) {
        let began = Instant::now();
        tokio::time::sleep(self.duration).await;
        while pulse.polls.load(Ordering::Relaxed) < self.nodes && began.elapsed() < MAX_OBSERVATION {
            tokio::time::sleep(SECOND).await;
        }
    }

    pub async fn run(&self, server: &SuperLink) -> Result<Outcome, Failure> {
        let tally = Arc::new(Tally::default());
        let began = Instant::now();
        let nodes = fleet::join(&server.addresses, self.nodes, &tally).await?;
        let registered_per_s = self.nodes as f64 / began.elapsed().as_secs_f64();

        let pulse = Arc::new(Pulse::default());
        let mut tasks = JoinSet::new();
        fleet::spawn_heartbeats(&nodes, SPREAD, &pulse, &mut tasks);
        for node in &nodes {
            let (node, pulse, mut jitter) = (node.clone(), pulse.clone(), Jitter::new(!node.id));
            tasks.spawn(async move {
                tokio::time::sleep(jitter.duration_below(SPREAD)).await;
                fleet::wait_for_message(&node, &pulse).await;
            });
        }
        tokio::time::sleep(SPREAD + SETTLE).await;

        tally.reset();
        pulse.reset();
        let watch = Watch::start(server)?;
        self.observe(&pulse).await;
        let spent = watch.stop(server)?;
        let heartbeats = pulse.heartbeats.lock().expect("no panic while counting").clone();
        let seen = Seen {
            polls: pulse.polls.load(Ordering::Relaxed),
            heartbeats,
            failed: tally.failed(),
            resident_bytes: server.memory()?.resident,
            descriptors: process::open_descriptors(server.pid())?,
            online: online_nodes(server).await,
            registered_per_s,
        };
        drop(tasks);
        Ok(self.outcome(seen, &spent, &tally))
    }

    fn outcome(&self, mut seen: Seen, spent: &Spent, tally: &Tally) -> Outcome {
        let heartbeat_p99_ms = seen.heartbeats.percentile(99.0).unwrap_or(f64::NAN);
        let calls = (seen.polls + seen.heartbeats.len()) as f64;
        let overloaded = heartbeat_p99_ms > OVERLOAD_HEARTBEAT_MS || seen.failed as f64 > OVERLOAD_FAILED_SHARE * calls;
        let cpu_share = spent.server_cpu_s / spent.wall_s;
        let cell = |value: f64| {
            if overloaded { Cell::Incomparable(value, "overloaded".to_owned()) } else { Cell::Number(value) }
        };
        let cells = vec![
            seen.online.as_ref().map_or(Cell::Missing("not told".to_owned()), |&nodes| Cell::Number(nodes as f64)),
            cell(cpu_share * 100.0),
            cell(cpu_share * 1e6 / self.nodes as f64),
            cell(seen.resident_bytes as f64 / MB),
            cell(heartbeat_p99_ms),
            (seen.failed as f64).into(),
            seen.registered_per_s.into(),
        ];
        let mut notes = vec![format!(
            "{} polls and {} heartbeats in {:.0} s, {} retries; server with {} descriptors open; generator {:.2} cores \
             busy",
            seen.polls,
            seen.heartbeats.len(),
            spent.wall_s,
            tally.retries(),
            seen.descriptors,
            spent.generator_cpu_s / spent.wall_s
        )];
        notes.extend(tally.errors().into_iter().map(|(text, count)| format!("{count} x {text}")));
        notes.extend(seen.online.err().map(|error| format!("the nodes were not listed: {error}")));
        Outcome { cells, notes, complete: true }
    }
}

/// The observations of an idle fleet.
struct Seen {
    polls: usize,
    /// In milliseconds.
    heartbeats: Samples,
    failed: u64,
    resident_bytes: u64,
    descriptors: usize,
    online: Result<usize, Failure>,
    registered_per_s: f64,
}

/// Asks the server for its online nodes: a server that holds its nodes should also be able to list them.
async fn online_nodes(server: &SuperLink) -> Result<usize, Failure> {
    let nodes = tokio::time::timeout(LIST_LIMIT, serverapp::list_nodes(&server.addresses)).await??;
    Ok(nodes.iter().filter(|node| node.status == "online").count())
}
