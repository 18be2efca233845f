//! The cost of one request: a mix of calls that every server answers at once, with a fixed number in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Outcome, Spent, Watch};
use crate::Failure;
use crate::call::{CallError, Tally};
use crate::client::Transport;
use crate::fleet;
use crate::node::SimNode;
use crate::payload::{Beside, Envelope, Model};
use crate::serverapp::ServerApp;
use crate::stats::Samples;
use crate::superlink::SuperLink;
use crate::table::{Better, Cell, Metric, Target, short};
use crate::transfer::ObjectPort;

const MODEL_BYTES: usize = 1024;

#[derive(Clone)]
pub struct Requests {
    /// Each caller cycles through these calls from its own offset.
    pub mix: Vec<Call>,
    pub in_flight: usize,
    pub warm_up: Duration,
    pub duration: Duration,
}

/// A call that servers answer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Call {
    Heartbeat,
    GetRun,
    PullObject,
}

impl Call {
    fn rpc(self) -> &'static str {
        match self {
            Call::Heartbeat => "SendNodeHeartbeat",
            Call::GetRun => "GetRun",
            Call::PullObject => "PullObject (1 KB)",
        }
    }
}

/// Latencies in milliseconds, by position of the call in the mix.
type Latencies = Vec<Samples>;

impl Requests {
    pub fn title(&self) -> String {
        let rpcs: Vec<&str> = self.mix.iter().map(|call| call.rpc()).collect();
        format!("requests: {} in turn, {} in flight", rpcs.join(", "), self.in_flight)
    }

    pub fn metrics(&self, transport: Transport) -> Vec<Metric> {
        let cpu = match transport {
            Transport::Grpc => Target::Factor { memory: Some(3.0), database: Some(10.0) },
            Transport::Http => Target::Factor { memory: Some(12.0), database: Some(20.0) },
        };
        vec![
            Metric::new("server CPU ms per request", Better::Lower, cpu),
            Metric::new("requests/s", Better::Higher, Target::None),
            Metric::new("p50 ms", Better::Lower, Target::None),
            Metric::new("p99 ms", Better::Lower, Target::None),
            Metric::new("failed requests", Better::Neither, Target::AtMost(0.0)),
        ]
    }

    pub async fn run(&self, server: &SuperLink) -> Result<Outcome, Failure> {
        let tally = Arc::new(Tally::default());
        let nodes = fleet::join(&server.addresses, self.in_flight, &tally).await?;
        let app = ServerApp::launch(&server.addresses, tally.clone()).await?;
        let model = Model::generate(MODEL_BYTES, 1, Beside::Config);
        let envelopes: Vec<Envelope> = nodes.iter().map(|node| app.instruction(node.id, "1", &model)).collect();
        app.push(&envelopes, &model).await?;
        let object_id = &model.objects[0].id;

        self.drive(&nodes, app.run_id, object_id, self.warm_up).await?;
        tally.reset();
        let watch = Watch::start(server)?;
        let latencies_ms = self.drive(&nodes, app.run_id, object_id, self.duration).await?;
        let spent = watch.stop(server)?;
        Ok(self.outcome(latencies_ms, &spent, &tally))
    }

    fn outcome(&self, latencies_ms: Latencies, spent: &Spent, tally: &Tally) -> Outcome {
        let busy = |cpu_s: f64| cpu_s / spent.wall_s;
        let mut notes = vec![format!(
            "server {:.2} cores busy, generator {:.2}",
            busy(spent.server_cpu_s),
            busy(spent.generator_cpu_s)
        )];
        let mut all = Samples::default();
        for (call, mut samples) in self.mix.iter().zip(latencies_ms) {
            if let (Some(p50), Some(p99)) = (samples.median(), samples.percentile(99.0)) {
                notes.push(format!("{}: p50 {} ms, p99 {} ms", call.rpc(), short(p50), short(p99)));
            }
            all.merge(samples);
        }
        notes.extend(tally.errors().into_iter().map(|(text, count)| format!("{count} x {text}")));

        let requests = all.len() as f64;
        let percentile = |samples: &mut Samples, percent| {
            samples.percentile(percent).map_or_else(|| Cell::Missing("none answered".to_owned()), Cell::Number)
        };
        let cells = vec![
            (spent.server_cpu_s * 1e3 / requests).into(),
            (requests / spent.wall_s).into(),
            percentile(&mut all, 50.0),
            percentile(&mut all, 99.0),
            (tally.failed() as f64).into(),
        ];
        Outcome { cells, notes, complete: true }
    }

    /// Every node calls without a pause until the time is over.
    async fn drive(
        &self,
        nodes: &[Arc<SimNode>],
        run_id: u64,
        object_id: &str,
        duration: Duration,
    ) -> Result<Latencies, Failure> {
        let until = Instant::now() + duration;
        let mut callers = JoinSet::new();
        for (index, node) in nodes.iter().cloned().enumerate() {
            let (mix, object_id) = (self.mix.clone(), object_id.to_owned());
            callers.spawn(async move {
                let mut latencies_ms = vec![Samples::default(); mix.len()];
                let mut turn = index;
                while Instant::now() < until {
                    let place = turn % mix.len();
                    let began = Instant::now();
                    // The tally counts failures.
                    if call(&node, mix[place], run_id, &object_id).await.is_ok() {
                        latencies_ms[place].add(began.elapsed().as_secs_f64() * 1e3);
                    }
                    turn += 1;
                }
                latencies_ms
            });
        }
        let mut latencies_ms = vec![Samples::default(); self.mix.len()];
        while let Some(caller) = callers.join_next().await {
            for (all, own) in latencies_ms.iter_mut().zip(caller?) {
                all.merge(own);
            }
        }
        Ok(latencies_ms)
    }
}

async fn call(node: &SimNode, which: Call, run_id: u64, object_id: &str) -> Result<(), CallError> {
    match which {
        Call::Heartbeat => node.heartbeat().await,
        Call::GetRun => node.get_run(run_id).await,
        Call::PullObject => node.pull_object(run_id, object_id).await.map(|_| ()),
    }
}
