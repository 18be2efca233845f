//! The measurements: the load on a server and the resulting metrics.

pub mod bulk;
pub mod idle;
pub mod requests;
pub mod round;

use std::time::{Duration, Instant};

use crate::Failure;
use crate::client::Transport;
use crate::superlink::{Contender, SuperLink};
use crate::table::{Cell, Metric};

pub const MB: f64 = 1e6;

/// One measurement with its sizes. Each gets a new server.
#[derive(Clone)]
pub enum Measurement {
    Requests(requests::Requests),
    Idle(idle::Idle),
    Round(round::Round),
    Bulk(bulk::Bulk),
}

/// The values of the metrics, in order, and notes.
pub struct Outcome {
    pub cells: Vec<Cell>,
    pub notes: Vec<String>,
    /// All requested work was done.
    pub complete: bool,
}

impl Measurement {
    pub fn title(&self) -> String {
        match self {
            Measurement::Requests(requests) => requests.title(),
            Measurement::Idle(idle) => idle.title(),
            Measurement::Round(round) => round.title(),
            Measurement::Bulk(bulk) => bulk.title(),
        }
    }

    /// The title in a few words.
    pub fn label(&self) -> String {
        match self {
            Measurement::Requests(_) => "requests".to_owned(),
            Measurement::Idle(idle) => format!("{} idle nodes", idle.nodes),
            Measurement::Round(round) => format!("round of {} nodes", round.nodes),
            Measurement::Bulk(_) => "large model".to_owned(),
        }
    }

    /// Returns the metrics. Targets depend on the transport, because the original does.
    pub fn metrics(&self, transport: Transport) -> Vec<Metric> {
        match self {
            Measurement::Requests(requests) => requests.metrics(transport),
            Measurement::Idle(idle) => idle.metrics(transport),
            Measurement::Round(round) => round.metrics(transport),
            Measurement::Bulk(bulk) => bulk.metrics(transport),
        }
    }

    /// Returns the number of attempts to get a complete outcome. The original with its database sometimes loses a large
    /// reply, and then there is nothing to compare with.
    pub fn attempts(&self, contender: Contender) -> usize {
        match (self, contender) {
            (Measurement::Bulk(_), Contender::Memory | Contender::Database) => 3,
            _ => 1,
        }
    }

    pub fn nodes(&self) -> usize {
        match self {
            Measurement::Requests(requests) => requests.in_flight,
            Measurement::Idle(idle) => idle.nodes,
            Measurement::Round(round) => round.nodes,
            Measurement::Bulk(bulk) => bulk.nodes,
        }
    }

    pub async fn run(&self, server: &SuperLink) -> Result<Outcome, Failure> {
        match self {
            Measurement::Requests(requests) => requests.run(server).await,
            Measurement::Idle(idle) => idle.run(server).await,
            Measurement::Round(round) => round.run(server).await,
            Measurement::Bulk(bulk) => bulk.run(server).await,
        }
    }
}

/// Measures CPU time of server and generator, and wall time.
pub struct Watch {
    began: Instant,
    server: Duration,
    generator: Duration,
}

pub struct Spent {
    pub wall_s: f64,
    pub server_cpu_s: f64,
    pub generator_cpu_s: f64,
}

impl Watch {
    pub fn start(server: &SuperLink) -> Result<Self, Failure> {
        let generator = crate::process::cpu_time(std::process::id())?;
        Ok(Self { server: server.cpu_time()?, generator, began: Instant::now() })
    }

    pub fn stop(&self, server: &SuperLink) -> Result<Spent, Failure> {
        let wall_s = self.began.elapsed().as_secs_f64();
        let generator = crate::process::cpu_time(std::process::id())?;
        Ok(Spent {
            wall_s,
            server_cpu_s: (server.cpu_time()? - self.server).as_secs_f64(),
            generator_cpu_s: (generator - self.generator).as_secs_f64(),
        })
    }
}
