//! The measurements: what each one does to a server and which numbers come out.

pub mod bulk;
pub mod idle;
pub mod requests;
pub mod round;

use std::time::{Duration, Instant};

use crate::Failure;
use crate::line::Transport;
use crate::superlink::{Contender, SuperLink};
use crate::table::{Cell, Metric};

pub const MB: f64 = 1e6;

/// One measurement with its sizes. Every one gets a fresh server.
#[derive(Clone)]
pub enum Measurement {
    Requests(requests::Requests),
    Idle(idle::Idle),
    Round(round::Round),
    Bulk(bulk::Bulk),
}

/// The numbers, in the order of the metrics, and what is worth saying about them.
pub struct Outcome {
    pub cells: Vec<Cell>,
    pub notes: Vec<String>,
    /// Whether all that was asked for was done.
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

    /// The title in a word or two.
    pub fn label(&self) -> String {
        match self {
            Measurement::Requests(_) => "requests".to_owned(),
            Measurement::Idle(idle) => format!("{} idle nodes", idle.nodes),
            Measurement::Round(round) => format!("round of {} nodes", round.nodes),
            Measurement::Bulk(_) => "large model".to_owned(),
        }
    }

    /// What is promised depends on the transport, for so do the originals.
    pub fn metrics(&self, transport: Transport) -> Vec<Metric> {
        match self {
            Measurement::Requests(requests) => requests.metrics(transport),
            Measurement::Idle(idle) => idle.metrics(transport),
            Measurement::Round(round) => round.metrics(transport),
            Measurement::Bulk(bulk) => bulk.metrics(transport),
        }
    }

    /// How often the original may try for a complete outcome. With its database it loses a large reply now and then,
    /// and there would be nothing to compare with.
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

/// The server's (and the generator's) CPU time and the wall time from here on.
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
