//! Watches the SuperLink at work: tells events in the log and keeps the numbers for `/metrics`.
//!
//! The handlers of calls say here what has happened, after it is durable. Nothing waits for it and nothing depends on
//! it: what is kept here may be lost with the process, and is then learned again from the state.

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
pub use measure::{Numbers, Said, numbers, round_of, said};
use metrics::{Metrics, Snapshot};
pub use presence::Departure;
use presence::Presence;
pub use round::Kind;
pub use tally::Failure;
pub use training::{Instruction, Observed, Resumed};
use training::{Told, Training};

/// The one who watches. Shared by all front ends.
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
    /// An instruction as the ServerApp sent it.
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

    /// A node's process began: it was activated.
    pub fn node_joined(&self, node: NodeId, address: Option<SocketAddr>) {
        let event = self.scene().presence.joined(node, address.map(|address| address.to_string()));
        log(None, &event);
    }

    pub fn node_left(&self, node: NodeId, why: Departure) {
        let event = self.scene().presence.left(node, why);
        event.iter().for_each(|event| log(None, event));
    }

    /// The nodes that are online by the state: finds out who fell silent, and whether somebody did. To be called every few
    /// seconds.
    pub fn nodes_online(&self, online: &[NodeId]) -> bool {
        let events = self.scene().presence.look(online);
        events.iter().for_each(|event| log(None, event));
        !events.is_empty()
    }

    /// The run's ServerApp got its inputs. May be said again.
    pub fn run_started(&self, run: RunId, facts: Facts, now: Seconds) {
        let told = self.scene().training.run_started(run, facts, now);
        self.tell(told);
    }

    /// The run was at work when this process started.
    pub fn run_resumed(&self, run: RunId, facts: Facts, resumed: &Resumed<'_>, now: Seconds) {
        self.scene().training.run_resumed(run, facts, resumed, now);
    }

    /// The ServerApp sent these in one call.
    pub fn instructions_pushed(&self, run: RunId, instructions: &[Instruction], now: Seconds) {
        let told = self.scene().training.instructions_pushed(run, instructions, now);
        self.tell(told);
    }

    /// A node got an instruction. `look_up` finds the round that its settings name ([`numbers`], [`round_of`]); it is
    /// called once in a round.
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
        let told = self.scene().training.round_looked_up(run, number, now);
        self.tell(told);
    }

    /// The ServerApp gets the reply to `instruction`: a failure, or numbers. May be said again.
    pub fn reply_taken(
        &self,
        run: RunId,
        instruction: MessageId,
        failure: Option<Failure<'_>>,
        said: &Said,
        now: Seconds,
    ) {
        let told = self.scene().training.reply_taken(run, instruction, failure, said, now);
        self.tell(told);
    }

    /// A node sends the reply to `instruction`.
    pub fn reply_came(&self, run: RunId, instruction: MessageId, now: Seconds) {
        self.scene().training.reply_came(run, instruction, now);
    }

    /// What was seen of rounds, to be kept; each is told once.
    pub fn take_reports(&self) -> Vec<(RunId, Observed)> {
        self.scene().training.take_reports()
    }

    /// The ServerApp saved the model of a round.
    pub fn checkpoint_saved(&self, run: RunId, round: u64, path: String, size_bytes: Option<u64>) {
        self.metrics.checkpoint_saved();
        log(Some(run), &Event::CheckpointSaved { round, path, size_bytes });
    }

    pub fn run_finished(&self, run: RunId, outcome: Outcome, now: Seconds) {
        let told = self.scene().training.run_finished(run, outcome, now);
        self.tell(told);
    }

    /// Time passes; to be called every few seconds.
    pub fn tick(&self, now: Seconds) {
        let told = {
            let mut scene = self.scene();
            let connected = scene.presence.connected();
            scene.training.tick(connected, now)
        };
        self.tell(told);
    }

    /// The text for `/metrics`, labelled [`metrics::CONTENT_TYPE`].
    pub fn scrape(&self, snapshot: &Snapshot) -> String {
        let (gauges, connected) = {
            let scene = self.scene();
            (scene.training.gauges(), scene.presence.connected())
        };
        self.metrics.scrape(&gauges, connected, snapshot)
    }

    fn tell(&self, told: Vec<Told>) {
        for Told { run, strategy, event } in told {
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

/// The sentence is for people; name and data are for programs.
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

    /// What passes through the SuperLink is what a scrape says.
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
        watch.instruction_delivered(run, asked[1].message, || panic!("looked up once in a round"), 1.0);
        let said = Said { numbers: vec![("loss".into(), 0.5)], ..Said::default() };
        watch.reply_taken(run, asked[0].message, None, &said, 2.0);
        let away = Failure { code: 5, reason: "offline" };
        watch.reply_taken(run, asked[1].message, Some(away), &Said::default(), 7.0);
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
