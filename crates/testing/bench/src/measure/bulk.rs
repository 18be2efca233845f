//! A round with a large model: throughput and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::round::{Stage, lossy, unpaced};
use super::{MB, Outcome, Watch};
use crate::Failure;
use crate::client::Transport;
use crate::process;
use crate::superlink::SuperLink;
use crate::table::{Better, Cell, Metric, Target};

const MEMORY_POLL: Duration = Duration::from_millis(50);
/// Time after the run at which memory must be released.
const RELEASE_TIME: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Bulk {
    pub nodes: usize,
    pub model_bytes: usize,
    pub limit: Duration,
}

impl Bulk {
    pub fn title(&self) -> String {
        format!("{:.0} MB x {} nodes (5 MiB chunks, 2 in flight per node)", self.model_bytes as f64 / MB, self.nodes)
    }

    pub fn metrics(&self, transport: Transport) -> Vec<Metric> {
        let promised = match transport {
            Transport::Grpc => Target::Factor { memory: Some(1.0), database: Some(5.0) },
            Transport::Http => Target::None,
        };
        // Caches and allocator slack may stay, but less than one copy of the model.
        let less_than_one_model = Target::AtMost(self.model_bytes as f64 / MB);
        vec![
            Metric::new("wall s", Better::Lower, promised),
            Metric::new("MB/s", Better::Higher, Target::None),
            Metric::new("server CPU s", Better::Lower, Target::None),
            Metric::new("peak RSS MB", Better::Lower, Target::AtMost(300.0)),
            Metric::new("RSS MB kept 10 s after the run", Better::Lower, less_than_one_model),
            Metric::new("replies lost", Better::Neither, Target::AtMost(0.0)),
        ]
    }

    pub async fn run(&self, server: &SuperLink) -> Result<Outcome, Failure> {
        let stage = Stage::set_up(server, self.nodes, self.model_bytes).await?;
        let before = server.memory()?.resident;
        let highest = Arc::new(AtomicU64::new(before));
        let observer = tokio::spawn(observe_memory(server.pid(), highest.clone()));
        let watch = Watch::start(server)?;
        let phases = unpaced(&stage, "bulk", self.limit).await?;
        let spent = watch.stop(server)?;
        observer.abort();

        // The instruction is uploaded once and downloaded by every node; every reply is uploaded and downloaded.
        let replies: u64 = stage.replies.iter().map(|model| model.bytes()).sum();
        let moved = stage.instruction.bytes() * (1 + self.nodes as u64) + 2 * replies;
        let errors = stage.tally.errors();
        let _heartbeats = stage.finish().await?;
        tokio::time::sleep(RELEASE_TIME).await;
        let after = server.memory()?;

        let mb = |bytes: u64| bytes as f64 / MB;
        let cell = |value: f64| match phases.cut_off {
            true => Cell::Above(value),
            false => lossy(value, phases.lost, self.nodes, self.limit),
        };
        let cells = vec![
            cell(phases.collected_s),
            if phases.lost == 0 { (mb(moved) / phases.collected_s).into() } else { Cell::Missing("-".to_owned()) },
            cell(spent.server_cpu_s),
            mb(after.peak.max(highest.load(Ordering::Relaxed))).into(),
            mb(after.resident.saturating_sub(before)).into(),
            (phases.lost as f64).into(),
        ];
        let mut notes = vec![format!(
            "{:.0} MB moved; push {:.2} s, nodes {:.2} s, collect {:.2} s; RSS MB: before {:.0}, peak {:.0} (seen \
             {:.0}), after {:.0}; generator {:.2} cores busy",
            mb(moved),
            phases.pushed_s,
            phases.answered_s - phases.pushed_s,
            phases.collected_s - phases.answered_s,
            mb(before),
            mb(after.peak),
            mb(highest.load(Ordering::Relaxed)),
            mb(after.resident),
            spent.generator_cpu_s / spent.wall_s
        )];
        notes.extend(errors.into_iter().map(|(text, count)| format!("{count} x {text}")));
        Ok(Outcome { cells, notes, complete: phases.lost == 0 })
    }
}

async fn observe_memory(pid: u32, highest: Arc<AtomicU64>) {
    while let Ok(memory) = process::memory(pid) {
        highest.fetch_max(memory.resident, Ordering::Relaxed);
        tokio::time::sleep(MEMORY_POLL).await;
    }
}
