//! The command line, and the measurements that it selects.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::Failure;
use crate::client::Transport;
use crate::measure::Measurement;
use crate::measure::bulk::Bulk;
use crate::measure::idle::Idle;
use crate::measure::requests::{Call, Requests};
use crate::measure::round::Round;
use crate::sizes::Sizes;
use crate::superlink::{Contender, Programs};

/// Measures SuperLinks through the wire, side by side on this machine: the original (in memory, and with its database)
/// and trellis, over gRPC as Flower 1.25 speaks it and over HTTP as 1.42 does. Prints one table for each.
#[derive(Parser)]
#[command(name = "trellis-bench", after_help = EXAMPLES)]
pub struct Cli {
    /// What to measure
    #[arg(value_enum, default_value = "all")]
    pub what: What,

    /// Measure over these transports only
    #[arg(long, value_delimiter = ',', value_name = "TRANSPORT")]
    transport: Vec<Transport>,

    /// Measure only these servers
    #[arg(long, value_delimiter = ',', value_name = "SERVER")]
    only: Vec<Contender>,

    /// Virtual environment with flwr 1.25.0, the original over gRPC
    #[arg(long, value_name = "DIR")]
    grpc_venv: Option<PathBuf>,

    /// Virtual environment with flwr 1.42.0, the original over HTTP
    #[arg(long, value_name = "DIR")]
    http_venv: Option<PathBuf>,

    /// The trellis binary
    #[arg(long, value_name = "FILE", default_value = "target/release/trellis")]
    trellis: PathBuf,

    /// Short form: smaller sizes, shorter times; for trying things out, not for quoting
    #[arg(long)]
    quick: bool,

    /// Every measurement of one server is cut off after this long
    #[arg(long, default_value_t = 360, value_name = "S")]
    limit_seconds: u64,

    /// Requests: which calls, in turn
    #[arg(long, value_delimiter = ',', default_value = "heartbeat,get-run,pull-object", value_name = "CALL")]
    mix: Vec<Call>,

    /// Requests: how many at once
    #[arg(long, default_value_t = 32, value_name = "N")]
    in_flight: usize,

    /// Requests: how long [default: 15, HTTP 10, quick 4]
    #[arg(long, value_name = "S")]
    request_seconds: Option<u64>,

    /// Idle fleet: sizes [default: 100,1000,10000, HTTP 100,10000, quick 100]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    idle_nodes: Vec<usize>,

    /// Idle fleet: how long to measure once it is settled [default: 45, HTTP 30, quick 20]
    #[arg(long, value_name = "S")]
    idle_seconds: Option<u64>,

    /// Idle fleet and rounds: the most nodes for the original in memory [default: 10000, HTTP 1000]
    #[arg(long, value_name = "N")]
    memory_max_nodes: Option<usize>,

    /// Idle fleet and rounds: the most nodes for the original with its database
    #[arg(long, default_value_t = 1000, value_name = "N")]
    database_max_nodes: usize,

    /// Small rounds: sizes [default: 10,100,1000, HTTP 100,1000, quick 10,100, quick HTTP 10]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    round_nodes: Vec<usize>,

    /// Rounds: after this long what has not arrived is lost [default: 90, HTTP 180]
    #[arg(long, value_name = "S")]
    round_limit_seconds: Option<u64>,

    /// Large model: how large [default: 100, quick 20]
    #[arg(long, value_name = "MB")]
    model_mb: Option<usize>,

    /// Large model: how many nodes
    #[arg(long, default_value_t = 10, value_name = "N")]
    model_nodes: usize,

    /// Put the results into this file, each between the two marker comments of its transport
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  trellis-bench all --grpc-venv VENV --http-venv VENV --write docs/performance.md
  trellis-bench all --transport http --http-venv VENV --quick
  trellis-bench idle --transport http --only trellis --idle-nodes 10000";

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
    pub fn transports(&self) -> Vec<Transport> {
        let chosen = |transport: &Transport| self.transport.is_empty() || self.transport.contains(transport);
        Transport::ALL.into_iter().filter(chosen).collect()
    }

    pub fn contenders(&self) -> Vec<Contender> {
        let chosen = |contender: &Contender| self.only.is_empty() || self.only.contains(contender);
        Contender::ALL.into_iter().filter(chosen).collect()
    }

    pub fn programs(&self, transport: Transport) -> Programs {
        let official_venv = match transport {
            Transport::Grpc => &self.grpc_venv,
            Transport::Http => &self.http_venv,
        };
        Programs { official_venv: official_venv.clone(), trellis: self.trellis.clone() }
    }

    /// Says which programs are not where they should be, before anything is started.
    pub fn check(&self) -> Result<(), Failure> {
        let mut problems = Vec::new();
        let contenders = self.contenders();
        if contenders.contains(&Contender::Trellis) && !self.trellis.is_file() {
            problems
                .push(format!("{} does not exist; build it, or say where it is: --trellis", self.trellis.display()));
        }
        if contenders.iter().any(|contender| *contender != Contender::Trellis) {
            problems.extend(self.transports().into_iter().filter_map(|transport| self.missing_original(transport)));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n  ").into()) }
    }

    fn missing_original(&self, transport: Transport) -> Option<String> {
        let (version, flag) = (transport.official_version(), format!("--{}-venv", transport.name().to_lowercase()));
        match self.programs(transport).official_venv {
            None => Some(format!("the original {version} is wanted; give {flag}, or measure --only trellis")),
            Some(venv) if !venv.join("bin/flower-superlink").is_file() => {
                Some(format!("{flag}: {} has no bin/flower-superlink; install flwr {version} there", venv.display()))
            }
            Some(_) => None,
        }
    }

    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_seconds)
    }

    /// The largest fleet this contender is asked to carry.
    pub fn max_nodes(&self, contender: Contender, transport: Transport) -> usize {
        match contender {
            Contender::Memory => self.memory_max_nodes.unwrap_or(self.sizes(transport).memory_max_nodes),
            Contender::Database => self.database_max_nodes,
            Contender::Trellis => usize::MAX,
        }
    }

    pub fn measurements(&self, transport: Transport) -> Vec<Measurement> {
        let sizes = self.sizes(transport);
        let wanted = |what: What| self.what == What::All || self.what == what;
        let mut list = Vec::new();
        if wanted(What::Requests) {
            list.push(Measurement::Requests(self.requests(sizes)));
        }
        if wanted(What::Idle) {
            let duration = seconds(self.idle_seconds, sizes.idle_s);
            let idle = |&nodes: &usize| Measurement::Idle(Idle { nodes, duration });
            list.extend(given_or(&self.idle_nodes, sizes.idle_nodes).iter().map(idle));
        }
        let limit = seconds(self.round_limit_seconds, sizes.round_limit_s);
        if wanted(What::Round) {
            let round = |&nodes: &usize| Measurement::Round(Round { nodes, repeats: repeats(nodes), limit });
            list.extend(given_or(&self.round_nodes, sizes.round_nodes).iter().map(round));
        }
        if wanted(What::Bulk) {
            let model_bytes = self.model_mb.unwrap_or(sizes.model_mb) * 1_000_000;
            list.push(Measurement::Bulk(Bulk { nodes: self.model_nodes, model_bytes, limit }));
        }
        list
    }

    fn sizes(&self, transport: Transport) -> Sizes {
        Sizes::of(transport, self.quick)
    }

    fn requests(&self, sizes: Sizes) -> Requests {
        let warm_up = Duration::from_secs(sizes.warm_up_s);
        let duration = seconds(self.request_seconds, sizes.request_s);
        Requests { mix: self.mix.clone(), in_flight: self.in_flight, warm_up, duration }
    }
}

/// Small rounds are short: repeat them until the CPU time is well above the kernel's 10 ms ticks.
fn repeats(nodes: usize) -> usize {
    match nodes {
        0..50 => 10,
        50..500 => 3,
        _ => 1,
    }
}

fn seconds(given: Option<u64>, default: u64) -> Duration {
    Duration::from_secs(given.unwrap_or(default))
}

fn given_or<'a>(given: &'a [usize], default: &'a [usize]) -> &'a [usize] {
    if given.is_empty() { default } else { given }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn cli(arguments: &[&str]) -> Cli {
        Cli::parse_from(["trellis-bench"].iter().chain(arguments))
    }

    fn titles(transport: Transport, arguments: &[&str]) -> Vec<String> {
        cli(arguments).measurements(transport).iter().map(Measurement::title).collect()
    }

    #[test]
    fn the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn all_measurements_run_by_default() {
        assert_eq!(cli(&[]).transports(), Transport::ALL);
        assert_eq!(titles(Transport::Grpc, &[]).len(), 1 + 3 + 3 + 1);
        assert_eq!(titles(Transport::Grpc, &["--quick"]).len(), 1 + 1 + 2 + 1);
        assert_eq!(titles(Transport::Http, &[]).len(), 1 + 2 + 2 + 1);
        assert_eq!(titles(Transport::Http, &["--quick"]).len(), 1 + 1 + 1 + 1);
        assert_eq!(
            titles(Transport::Http, &["idle", "--idle-nodes", "5,7"]),
            ["5 idle nodes, official pacing", "7 idle nodes, official pacing"]
        );
    }

    #[test]
    fn the_original_is_required_if_it_is_measured() {
        let told = |arguments: &[&str]| {
            let mut cli = cli(arguments);
            cli.trellis = std::env::current_exe().unwrap();
            cli.check().map_err(|error| error.to_string())
        };
        assert_eq!(told(&["--only", "trellis"]), Ok(()));
        let both = told(&["--only", "memory,trellis"]).unwrap_err();
        assert!(both.contains("--grpc-venv") && both.contains("--http-venv"), "{both}");
        let empty = tempfile::tempdir().unwrap();
        let path = empty.path().to_str().unwrap();
        let one = told(&["--transport", "http", "--http-venv", path]).unwrap_err();
        assert!(one.contains("--http-venv") && one.contains("1.42") && !one.contains("1.25"), "{one}");
    }
}
