//! The command line, and the sizes that follow from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::measure::Measurement;
use crate::measure::bulk::Bulk;
use crate::measure::idle::Idle;
use crate::measure::requests::{Call, Requests};
use crate::measure::round::Round;
use crate::superlink::{Contender, Programs};

/// Measures SuperLinks through the wire: the original 1.25.0 (in memory, and with its database) and trellis,
/// side by side on this machine, and prints one table.
#[derive(Parser)]
#[command(name = "trellis-bench", after_help = EXAMPLES)]
pub struct Cli {
    /// What to measure
    #[arg(value_enum, default_value = "all")]
    pub what: What,

    /// Virtual environment with flwr 1.25.0
    #[arg(long, value_name = "DIR")]
    official_venv: PathBuf,

    /// The trellis binary
    #[arg(long, value_name = "FILE", default_value = "target/release/trellis")]
    trellis: PathBuf,

    /// Measure only these servers
    #[arg(long, value_delimiter = ',', value_name = "SERVER")]
    only: Vec<Contender>,

    /// Short form: smaller sizes, shorter times; for trying things out, not for quoting
    #[arg(long)]
    quick: bool,

    /// Requests: which calls, in turn
    #[arg(long, value_delimiter = ',', default_value = "heartbeat,get-run,pull-object", value_name = "CALL")]
    mix: Vec<Call>,

    /// Requests: how many at once
    #[arg(long, default_value_t = 32, value_name = "N")]
    in_flight: usize,

    /// Requests: how long [default: 15, quick 4]
    #[arg(long, value_name = "S")]
    request_seconds: Option<u64>,

    /// Idle fleet: sizes [default: 100,1000,10000, quick 100]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    idle_nodes: Vec<usize>,

    /// Idle fleet: how long to measure once it is settled [default: 45, quick 20]
    #[arg(long, value_name = "S")]
    idle_seconds: Option<u64>,

    /// Idle fleet and rounds: the most nodes for the original in memory
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    memory_max_nodes: usize,

    /// Idle fleet and rounds: the most nodes for the original with its database
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    database_max_nodes: usize,

    /// Small rounds: sizes [default: 10,100,1000, quick 10,100]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    round_nodes: Vec<usize>,

    /// Rounds: after this long what has not arrived is lost
    #[arg(long, default_value_t = 90, value_name = "S")]
    round_limit_seconds: u64,

    /// Large model: how large [default: 100, quick 20]
    #[arg(long, value_name = "MB")]
    model_mb: Option<usize>,

    /// Large model: how many nodes
    #[arg(long, default_value_t = 10, value_name = "N")]
    model_nodes: usize,

    /// Put the result into this file, between the two marker comments
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  trellis-bench all --official-venv ~/.cache/trellis-test/flwr-1.25 --write docs/performance.md
  trellis-bench idle --official-venv VENV --only trellis --idle-nodes 10000
  trellis-bench all --official-venv VENV --quick";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    All,
    /// CPU per request, requests/s, latency
    Requests,
    /// CPU and memory with nodes that have nothing to do
    Idle,
    /// Rounds with a model of 1 KB
    Round,
    /// A round with a large model
    Bulk,
}

impl Cli {
    pub fn programs(&self) -> Programs {
        Programs { official_venv: self.official_venv.clone(), trellis: self.trellis.clone() }
    }

    pub fn contenders(&self) -> Vec<Contender> {
        let chosen = |contender: &Contender| self.only.is_empty() || self.only.contains(contender);
        Contender::ALL.into_iter().filter(chosen).collect()
    }

    /// The largest fleet this contender is asked to carry.
    pub fn max_nodes(&self, contender: Contender) -> usize {
        match contender {
            Contender::Memory => self.memory_max_nodes,
            Contender::Database => self.database_max_nodes,
            Contender::Trellis => usize::MAX,
        }
    }

    pub fn measurements(&self) -> Vec<Measurement> {
        let wanted = |what: What| self.what == What::All || self.what == what;
        let mut list = Vec::new();
        if wanted(What::Requests) {
            list.push(Measurement::Requests(self.requests()));
        }
        if wanted(What::Idle) {
            let duration = self.seconds(self.idle_seconds, 45, 20);
            let sizes = self.sizes(&self.idle_nodes, &[100, 1000, 10_000], &[100]);
            list.extend(sizes.into_iter().map(|nodes| Measurement::Idle(Idle { nodes, duration })));
        }
        if wanted(What::Round) {
            let sizes = self.sizes(&self.round_nodes, &[10, 100, 1000], &[10, 100]);
            list.extend(sizes.into_iter().map(|nodes| Measurement::Round(self.round(nodes))));
        }
        if wanted(What::Bulk) {
            let model_bytes = self.model_mb.unwrap_or(if self.quick { 20 } else { 100 }) * 1_000_000;
            list.push(Measurement::Bulk(Bulk { nodes: self.model_nodes, model_bytes, limit: self.round_limit() }));
        }
        list
    }

    fn requests(&self) -> Requests {
        let warm_up = Duration::from_secs(if self.quick { 1 } else { 3 });
        let duration = self.seconds(self.request_seconds, 15, 4);
        Requests { mix: self.mix.clone(), in_flight: self.in_flight, warm_up, duration }
    }

    /// Small rounds are over in no time: more of them, for CPU times that the kernel's 10 ms ticks can show.
    fn round(&self, nodes: usize) -> Round {
        let repeats = match nodes {
            0..50 => 10,
            50..500 => 3,
            _ => 1,
        };
        Round { nodes, repeats, limit: self.round_limit() }
    }

    fn round_limit(&self) -> Duration {
        Duration::from_secs(self.round_limit_seconds)
    }

    fn seconds(&self, given: Option<u64>, full: u64, quick: u64) -> Duration {
        Duration::from_secs(given.unwrap_or(if self.quick { quick } else { full }))
    }

    fn sizes(&self, given: &[usize], full: &[usize], quick: &[usize]) -> Vec<usize> {
        let default = if self.quick { quick } else { full };
        if given.is_empty() { default.to_vec() } else { given.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn titles(arguments: &[&str]) -> Vec<String> {
        let cli = Cli::parse_from(["trellis-bench", "--official-venv", "venv"].iter().chain(arguments));
        cli.measurements().iter().map(Measurement::title).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_is_measured_unless_told_otherwise() {
        assert_eq!(titles(&[]).len(), 1 + 3 + 3 + 1);
        assert_eq!(titles(&["--quick"]).len(), 1 + 1 + 2 + 1);
        assert_eq!(
            titles(&["idle", "--idle-nodes", "5,7"]),
            ["5 idle nodes, official pacing", "7 idle nodes, official pacing"]
        );
    }
}
