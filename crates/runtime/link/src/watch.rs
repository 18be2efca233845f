//! Observes the SuperLink: logs events and counts metrics for `/metrics`.
//!
//! Handlers of calls report what happened after it is durable. Nothing depends on the watch: a crash may lose its data,
//! which is then restored from the state.

mod event;
mod facts;
mod measure;
pub mod metrics;
mod presence;
mod round;
pub mod survey;
mod tally;
mod training;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use trellis_core::Seconds;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_core::message::Envelope;
use trellis_core::run::Outcome;

use event::Event;
pub use facts::Facts;
pub use measure::{Numbers, ReplyValues, numbers, reply_values, round_of};
use metrics::{Metrics, Snapshot};
pub use presence::Departure;
use presence::Presence;
pub use round::Kind;
pub use tally::Failure;
pub use training::{Instruction, Observed, Resumed};
use training::{RunEvent, Training};

/// The observer, shared by all front ends.
pub struct Watch {
    scene: Mutex<Scene>,
    pub metrics: Metrics,
}

#[derive(Default)]
struct Scene {
    presence: Presence,
    training: Training,
}

impl Instruction {
    /// An instruction as sent by the ServerApp.
    pub fn of(envelope: &Envelope) -> Instruction {
        Instruction {
            message: envelope.id,
            node: envelope.dst,
            group_id: envelope.group_id.clone(),
            kind: Kind::of(&envelope.message_type),
        }
    }
}

impl Watch {
    /// `version` is that of the program.
    pub fn new(version: &str) -> Watch {
        Watch { scene: Mutex::default(), metrics: Metrics::new(version) }
    }

    /// Records the enforcement level of the sandbox of Python ServerApps.
    pub fn sandbox(&self, level: trellis_sandbox::Enforcement) {
        self.metrics.sandbox(level);
    }

    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().expect("no holder panics")
    }

    /// A node was activated.
    pub fn node_joined(&self, node: NodeId, address: Option<SocketAddr>) {
        let event = self.scene().presence.joined(node, address.map(|address| address.to_string()));
        log(None, &event);
    }

    pub fn node_left(&self, node: NodeId, why: Departure) {
        let event = self.scene().presence.left(node, why);
        event.iter().for_each(|event| log(None, event));
    }

    /// Takes the nodes that are online according to the state, detects nodes without heartbeats, and returns whether
    /// there were changes. Call it every few seconds.
    pub fn nodes_online(&self, online: &[NodeId]) -> bool {
        let events = self.scene().presence.observe(online);
        events.iter().for_each(|event| log(None, event));
        !events.is_empty()
    }

    /// The run's ServerApp pulled its inputs. Idempotent.
    pub fn run_started(&self, run: RunId, facts: Facts, now: Seconds) {
        let events = self.scene().training.run_started(run, facts, now);
        self.log_events(events);
    }

    /// The run was running when this process started.
    pub fn run_resumed(&self, run: RunId, facts: Facts, resumed: &Resumed<'_>, now: Seconds) {
        self.scene().training.run_resumed(run, facts, resumed, now);
    }

    /// The ServerApp pushed these instructions in one call.
    pub fn instructions_pushed(&self, run: RunId, instructions: &[Instruction], now: Seconds) {
        let events = self.scene().training.instructions_pushed(run, instructions, now);
        self.log_events(events);
    }

    /// A node got an instruction. `look_up` reads the round from its settings ([`numbers`], [`round_of`]); it is called
    /// once per round.
    pub fn instruction_delivered(
        &self,
        run: RunId,
        message: MessageId,
        look_up: impl FnOnce() -> Option<u64>,
        now: Seconds,
    ) {
        if !self.scene().training.wants_round_of(run, message) {
            return;
        }
        let number = look_up();
        let events = self.scene().training.round_looked_up(run, number, now);
        self.log_events(events);
    }

    /// The ServerApp collects the reply to `instruction`: a failure, or values. Idempotent.
    pub fn reply_collected(
        &self,
        run: RunId,
        instruction: MessageId,
        failure: Option<Failure<'_>>,
        reply_values: &ReplyValues,
        now: Seconds,
    ) {
        let events = self.scene().training.reply_collected(run, instruction, failure, reply_values, now);
        self.log_events(events);
    }

    /// A node sends the reply to `instruction`.
    pub fn reply_arrived(&self, run: RunId, instruction: MessageId, now: Seconds) {
        self.scene().training.reply_arrived(run, instruction, now);
    }

    /// Returns the observed rounds to store, each once.
    pub fn take_reports(&self) -> Vec<(RunId, Observed)> {
        self.scene().training.take_reports()
    }

    /// The ServerApp saved the model of a round.
    pub fn checkpoint_saved(&self, run: RunId, round: u64, path: String, size_bytes: Option<u64>) {
        self.metrics.checkpoint_saved();
        log(Some(run), &Event::CheckpointSaved { round, path, size_bytes });
    }

    pub fn run_finished(&self, run: RunId, outcome: Outcome, now: Seconds) {
        let events = self.scene().training.run_finished(run, outcome, now);
        self.log_events(events);
    }

    /// Checks for stalled trainings. Call it every few seconds.
    pub fn tick(&self, now: Seconds) {
        let events = {
            let mut scene = self.scene();
            let connected = scene.presence.connected();
            scene.training.tick(connected, now)
        };
        self.log_events(events);
    }

    /// Returns the text for `/metrics`, with content type [`metrics::CONTENT_TYPE`].
    pub fn scrape(&self, snapshot: &Snapshot) -> String {
        let (gauges, connected) = {
            let scene = self.scene();
            (scene.training.gauges(), scene.presence.connected())
        };
        self.metrics.scrape(&gauges, connected, snapshot)
    }

    fn log_events(&self, events: Vec<RunEvent>) {
        for RunEvent { run, strategy, event } in events {
            match event {
                Event::TrainingStart { .. } => self.metrics.training_started(strategy.as_deref()),
                Event::ClientFailure { .. } => self.metrics.client_failed(),
                Event::RoundEnd { round_duration_seconds, .. } => {
                    self.metrics.round_ended(strategy.as_deref(), round_duration_seconds);
                }
                _ => {}
            }
            log(Some(run), &event);
        }
    }
}

/// Logs an event: the sentence for people, name and data for programs.
fn log(run: Option<RunId>, event: &Event) {
    let (name, data, run) = (event.name(), event.data(), run.map(|run| run.0));
    if event.is_warning() {
        tracing::warn!(target: "trellis::event", event = name, data, run, "{event}");
    } else {
        tracing::info!(target: "trellis::event", event = name, data, run, "{event}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(number: u8) -> Instruction {
        Instruction {
            message: MessageId::new([number; 32]),
            node: NodeId(u64::from(number)),
            group_id: String::new(),
            kind: Kind::Train,
        }
    }

    /// Checks the metrics after a sequence of calls.
    #[test]
    fn from_calls_to_numbers() {
        let watch = Watch::new("1.2.3");
        let (run, asked) = (RunId(1), [instruction(1), instruction(2)]);
        watch.nodes_online(&[NodeId(1), NodeId(2)]);
        watch.node_joined(NodeId(3), Some(([127, 0, 0, 1], 5).into()));
        watch.node_left(NodeId(2), Departure::Deactivated);
        watch.run_started(run, Facts { strategy: Some("FedAvg".into()), ..Facts::default() }, 0.0);
        watch.instructions_pushed(run, &asked, 1.0);
        watch.instruction_delivered(run, asked[0].message, || Some(6), 1.0);
        watch.instruction_delivered(run, asked[1].message, || panic!("called twice in a round"), 1.0);
        let reply_values = ReplyValues { numbers: vec![("loss".into(), 0.5)], ..ReplyValues::default() };
        watch.reply_collected(run, asked[0].message, None, &reply_values, 2.0);
        let away = Failure { code: 5, reason: "offline" };
        watch.reply_collected(run, asked[1].message, Some(away), &ReplyValues::default(), 7.0);
        watch.checkpoint_saved(run, 6, "models/1/round-000006".to_owned(), None);
        watch.tick(8.0);
        watch.run_finished(run, Outcome::Completed, 9.0);
        let scraped = watch.scrape(&Snapshot::default());
        for sample in [
            "fl_clients_connected 2",
            "fl_clients_failed_total 1",
            "fl_checkpoint_saved_total 1",
            "fl_clients_selected 2",
            "fl_clients_responded 1",
            "fl_round_current{strategy=\"FedAvg\"} 6",
            "fl_aggregated_loss{strategy=\"FedAvg\"} 0.5",
            "fl_round_duration_seconds_sum{strategy=\"FedAvg\"} 6.0",
            "fl_training_status 2",
        ] {
            assert!(scraped.contains(&format!("\n{sample}\n")), "{sample} is not in\n{scraped}");
        }
    }
}
