//! One machine of the simulated world, and its observation.

use super::world::Training;
use crate::Millis;
use crate::observed::{Addresses, Facts, Phase};
use crate::resource::{Desired, Part, Spec};

const FIRST_PORT: u64 = 9_000;

/// A coordinator or node.
#[derive(Debug, Clone)]
pub struct Machine {
    pub desired: Desired,
    pub phase: Phase,
    pub since_ms: Millis,
    pub instance: u64,
    pub draining: bool,
    pub busy_until_ms: Millis,
    /// When the phase changes by itself, and the next phase; `None`: the machine is deleted then.
    pub(super) next_change: Option<(Millis, Option<Phase>)>,
}

impl Machine {
    pub fn serves(&self) -> bool {
        self.phase == Phase::Ready && !self.draining
    }

    /// The id in the SuperLink: the simulated one uses the resource id.
    pub fn node_id(&self) -> Option<String> {
        self.desired.id.node_key().map(|_| self.desired.id.to_string())
    }

    pub(super) fn is_coordinator(&self) -> bool {
        self.desired.id.part == Part::Coordinator
    }

    pub(super) fn enter(&mut self, phase: Phase, now_ms: Millis) {
        self.phase = phase;
        self.since_ms = now_ms;
        self.next_change = None;
    }

    pub(super) fn facts(&self, now_ms: Millis, training: &Training) -> Facts {
        let runs = training.runs;
        let version = match &self.desired.spec {
            Spec::Coordinator(spec) => spec.program.clone(),
            Spec::Node(spec) => spec.program.clone(),
        };
        let is_coordinator = self.is_coordinator();
        let host = format!("{}.example", self.desired.id.site);
        let address = |port: u64| is_coordinator.then(|| format!("{host}:{}", FIRST_PORT + port));
        Facts {
            phase: self.phase.clone(),
            busy: Some(if is_coordinator { runs.unwrap_or(0) > 0 } else { now_ms < self.busy_until_ms }),
            draining: self.draining,
            version,
            addresses: Addresses { fleet: address(92), control: address(93), app: address(91), http: None },
            runs: runs.filter(|_| is_coordinator),
            round_ms: training.round_ms.filter(|_| is_coordinator),
            required_nodes: training.required_nodes.filter(|_| is_coordinator),
            shard: self.desired.spec.shard(),
            shards: self.desired.spec.shards(),
            node_id: self.node_id(),
            since_ms: self.since_ms,
            instance: self.instance,
            waiting_for: None,
        }
    }
}
