//! Tracks trainings by the messages of the SuperLink: instructions, replies, start and end of runs.
//!
//! Without clock, store and log: time is an argument, and methods return the events.
//!
//! A round starts with train instructions. It ends when all replies to its evaluation arrived, when the next round
//! starts, or with the run, because no message announces whether an evaluation follows. Its number comes from the
//! ServerApp (in the message's group, or in the settings for clients); otherwise rounds are counted.

use std::collections::{HashMap, HashSet};

use trellis_core::Seconds;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_core::run::Outcome;
use trellis_wire::report::TrainingReport;

use super::event::{Event, NodeText};
use super::facts::Facts;
use super::measure::{Measured, ReplyValues};
use super::round::{Kind, Mark, Phase, Round};
use super::tally::Failure;

/// A training that waits for clients without progress for this long is reported as stalled.
pub const STALLED_AFTER_S: f64 = 600.0;
/// Maximum number of tracked runs. Each has a running ServerApp, so there are never many.
const MAX_RUNS: usize = 1024;

/// A pushed instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    pub message: MessageId,
    pub node: NodeId,
    pub group_id: String,
    pub kind: Kind,
}

/// The state of a run that started before this process.
#[derive(Debug, Clone)]
pub struct Resumed<'a> {
    /// When the run started.
    pub since: Seconds,
    /// Instructions without a reply.
    pub awaited: &'a [Instruction],
    /// Their round.
    pub round: Option<u64>,
    /// When the oldest of them was sent.
    pub round_since: Seconds,
}

/// An event with its run and strategy.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvent {
    pub run: RunId,
    pub strategy: Option<String>,
    pub event: Event,
}

/// The status of training as a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Idle = 0,
    Running = 1,
    /// The last run ended as intended: completed, or stopped by its user.
    Complete = 2,
    Failed = 3,
}

/// The values of the newest running training, or of the last one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gauges {
    pub status: Status,
    /// Whether a run was seen since the SuperLink started.
    pub has_run: bool,
    pub strategy: Option<String>,
    pub round_current: u64,
    pub round_total: Option<u64>,
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
    /// Selected and responding clients of the last complete phase (training or evaluation).
    pub clients_selected: usize,
    pub clients_responded: usize,
    /// Instructions of all runs without a reply.
    pub replies_awaited: usize,
}

#[derive(Debug)]
struct Run {
    facts: Facts,
    /// Later runs have higher numbers.
    order: u64,
    started_at: Seconds,
    progress_at: Seconds,
    round: Option<Round>,
    /// The number of the last finished round.
    last_number: u64,
    loss: Option<f64>,
    accuracy: Option<f64>,
    participation: (usize, usize),
    /// Instructions outside of rounds.
    others: Phase,
    /// The round that was reported as stalled.
    stalled: Option<u64>,
    /// Reports of rounds to store.
    reports: Vec<Observed>,
}

/// The observed report of a round whose ServerApp sends no reports.
#[derive(Debug)]
pub struct Observed {
    pub report: TrainingReport,
    /// The round started before this process: an earlier report of it is more complete.
    pub is_rest: bool,
}

/// All running trainings, and the values of the last finished one.
#[derive(Debug, Default)]
pub struct Training {
    runs: HashMap<RunId, Run>,
    started: u64,
    last: Gauges,
    reports: Vec<(RunId, Observed)>,
}

impl Training {
    /// The ServerApp of the run started. Idempotent.
    pub fn run_started(&mut self, run: RunId, facts: Facts, now: Seconds) -> Vec<RunEvent> {
        let Some(new) = self.admit(run, facts, now) else { return Vec::new() };
        let Facts { strategy, num_rounds, min_clients, .. } = new.facts.clone();
        vec![new.run_event(run, Event::TrainingStart { strategy, num_rounds, min_clients })]
    }

    /// The run was running when the SuperLink started; earlier events were reported by the previous process.
    pub fn run_resumed(&mut self, run: RunId, facts: Facts, resumed: &Resumed<'_>, now: Seconds) {
        let Some(run) = self.admit(run, facts, resumed.since) else { return };
        run.progress_at = now;
        run.ask(resumed.awaited, resumed.round_since, &mut Vec::new());
        if let Some(round) = &mut run.round {
            round.number = resumed.round.or(round.number);
            round.is_resumed = true;
            run.report_start(&mut Vec::new());
        }
    }

    fn admit(&mut self, run: RunId, facts: Facts, started_at: Seconds) -> Option<&mut Run> {
        if self.runs.contains_key(&run) || self.runs.len() >= MAX_RUNS {
            return None;
        }
        self.started += 1;
        Some(self.runs.entry(run).or_insert(Run::new(facts, self.started, started_at)))
    }

    /// The ServerApp pushed these instructions in one call.
    pub fn instructions_pushed(&mut self, run: RunId, instructions: &[Instruction], now: Seconds) -> Vec<RunEvent> {
        self.with(run, now, |run, events| {
            run.ask(instructions, now, events);
            true
        })
    }

    /// Returns whether the settings of this instruction should be read for the round.
    pub fn wants_round_of(&self, run: RunId, message: MessageId) -> bool {
        let round = self.runs.get(&run).and_then(|run| run.round.as_ref());
        round.is_some_and(|round| !round.is_reported && round.number.is_none() && round.awaits(message))
    }

    /// The settings of an instruction of the current round were read.
    pub fn round_looked_up(&mut self, run: RunId, number: Option<u64>, now: Seconds) -> Vec<RunEvent> {
        self.with(run, now, |run, events| {
            if let Some(round) = run.round.as_mut().filter(|round| !round.is_reported) {
                round.number = number.or(round.number);
                run.report_start(events);
            }
            true
        })
    }

    /// The ServerApp collected the reply to this instruction: an error, or values. Idempotent.
    pub fn reply_collected(
        &mut self,
        run: RunId,
        message: MessageId,
        failure: Option<Failure<'_>>,
        reply_values: &ReplyValues,
        now: Seconds,
    ) -> Vec<RunEvent> {
        self.with(run, now, |run, events| run.reply(message, failure, reply_values, now, events))
    }

    /// The reply to this instruction arrived; the ServerApp has not collected it.
    pub fn reply_arrived(&mut self, run: RunId, message: MessageId, now: Seconds) {
        if let Some(round) = self.runs.get_mut(&run).and_then(|run| run.round.as_mut()) {
            round.train.came(message, now);
            round.evaluate.came(message, now);
        }
    }

    /// Returns the observed rounds that are not stored yet, oldest first.
    pub fn take_reports(&mut self) -> Vec<(RunId, Observed)> {
        std::mem::take(&mut self.reports)
    }

    pub fn run_finished(&mut self, run: RunId, outcome: Outcome, now: Seconds) -> Vec<RunEvent> {
        let status = if outcome == Outcome::Failed { Status::Failed } else { Status::Complete };
        let events = self.with(run, now, |run, events| run.finish(now, events));
        match self.runs.remove(&run) {
            Some(ended) => self.last = Gauges { status, ..ended.gauges() },
            // The run ended before its ServerApp started.
            None => self.last.status = status,
        }
        events
    }

    /// Checks for stalled trainings. `connected` is the number of online nodes.
    pub fn tick(&mut self, connected: usize, now: Seconds) -> Vec<RunEvent> {
        let mut all = Vec::new();
        for (id, run) in &mut self.runs {
            let mut events = Vec::new();
            run.check_stalled(connected, now, &mut events);
            all.extend(events.into_iter().map(|event| run.run_event(*id, event)));
        }
        all
    }

    pub fn gauges(&self) -> Gauges {
        let newest = self.runs.values().max_by_key(|run| run.order);
        let mut gauges = newest.map_or_else(|| self.last.clone(), Run::gauges);
        gauges.replies_awaited = self.runs.values().map(Run::awaited).sum();
        gauges
    }

    /// Applies an event to a tracked run; `happen` returns whether the run made progress.
    fn with(
        &mut self,
        id: RunId,
        now: Seconds,
        happen: impl FnOnce(&mut Run, &mut Vec<Event>) -> bool,
    ) -> Vec<RunEvent> {
        let Some(run) = self.runs.get_mut(&id) else { return Vec::new() };
        let mut events = Vec::new();
        if happen(run, &mut events) {
            run.progress_at = now;
        }
        self.reports.extend(run.reports.drain(..).map(|observed| (id, observed)));
        events.into_iter().map(|event| run.run_event(id, event)).collect()
    }
}

impl Run {
    fn new(facts: Facts, order: u64, started_at: Seconds) -> Run {
        Run {
            facts,
            order,
            started_at,
            progress_at: started_at,
            round: None,
            last_number: 0,
            loss: None,
            accuracy: None,
            participation: (0, 0),
            others: Phase::default(),
            stalled: None,
            reports: Vec::new(),
        }
    }

    fn run_event(&self, run: RunId, event: Event) -> RunEvent {
        RunEvent { run, strategy: self.facts.strategy.clone(), event }
    }

    fn gauges(&self) -> Gauges {
        let current = self.round.as_ref().filter(|round| round.is_reported).and_then(|round| round.number);
        Gauges {
            status: Status::Running,
            has_run: true,
            strategy: self.facts.strategy.clone(),
            round_current: current.unwrap_or(self.last_number),
            round_total: self.facts.num_rounds,
            loss: self.loss,
            accuracy: self.accuracy,
            clients_selected: self.participation.0,
            clients_responded: self.participation.1,
            replies_awaited: self.awaited(),
        }
    }

    fn awaited(&self) -> usize {
        self.others.awaited() + self.round.as_ref().map_or(0, Round::awaited)
    }

    /// Processes new instructions. Instructions of one group are processed together: an app may send a node several.
    fn ask(&mut self, instructions: &[Instruction], now: Seconds, events: &mut Vec<Event>) {
        for group in distinct(instructions.iter().map(|asked| asked.group_id.as_str())) {
            let of = |kind| -> Vec<&Instruction> {
                instructions.iter().filter(|asked| asked.kind == kind && asked.group_id == group).collect()
            };
            self.train(&of(Kind::Train), now, events);
            self.evaluate(&of(Kind::Evaluate), now, events);
            of(Kind::Other).iter().for_each(|asked| self.others.ask(asked.message, asked.node, now));
        }
        if self.round.as_ref().is_some_and(|round| round.number.is_some()) {
            self.report_start(events);
        }
    }

    fn train(&mut self, asked: &[&Instruction], now: Seconds, events: &mut Vec<Event>) {
        let Some(first) = asked.first() else { return };
        let mark = Mark::of(&first.group_id);
        let nodes: Vec<NodeId> = asked.iter().map(|asked| asked.node).collect();
        if self.round.as_ref().is_none_or(|round| round.is_over_for(&mark, &nodes)) {
            self.close(now, events);
            let number = mark.number();
            self.round = Some(Round::new(mark, number, now));
        }
        if let Some(round) = &mut self.round {
            asked.iter().for_each(|asked| round.train.ask(asked.message, asked.node, now));
        }
    }

    /// Adds an evaluation to the current round, or counts it alone if there is no round.
    fn evaluate(&mut self, asked: &[&Instruction], now: Seconds, events: &mut Vec<Event>) {
        let Some(first) = asked.first() else { return };
        let mark = Mark::of(&first.group_id);
        let is_other = |round: &Round| mark != Mark::None && round.mark != Mark::None && mark != round.mark;
        if self.round.as_ref().is_none_or(is_other) {
            self.close(now, events);
            let number = mark.number();
            self.round = Some(Round::new(mark, number, now));
        }
        // Missing replies to the training are not awaited any more.
        if self.round.as_ref().is_some_and(|round| round.train.awaited() > 0 && !round.evaluate.is_used()) {
            self.observe(true);
        }
        if let Some(round) = &mut self.round {
            asked.iter().for_each(|asked| round.evaluate.ask(asked.message, asked.node, now));
        }
    }

    /// Reports the start of the current round once. Without a number it is the next one. An evaluation without a round
    /// has no start, and evaluates the model of the last round.
    fn report_start(&mut self, events: &mut Vec<Event>) {
        let Some(round) = self.round.as_mut().filter(|round| !round.is_reported) else { return };
        round.is_reported = true;
        let trains = round.train.is_used();
        let number = *round.number.get_or_insert(self.last_number + u64::from(trains));
        if trains {
            events.push(Event::RoundStart {
                round: number,
                num_clients_selected: round.train.selected(),
                strategy: self.facts.strategy.clone(),
            });
        }
    }

    fn reply(
        &mut self,
        message: MessageId,
        failure: Option<Failure<'_>>,
        reply_values: &ReplyValues,
        now: Seconds,
        events: &mut Vec<Event>,
    ) -> bool {
        let kind = match &self.round {
            Some(round) if round.train.awaits(message) => Kind::Train,
            Some(round) if round.evaluate.awaits(message) => Kind::Evaluate,
            _ if self.others.awaits(message) => Kind::Other,
            _ => return false,
        };
        if kind != Kind::Other {
            self.report_start(events);
        }
        let number = self.number();
        let phase = match (&mut self.round, kind) {
            (Some(round), Kind::Train | Kind::Evaluate) => {
                round.last_reply_at = now;
                round.phase(kind)
            }
            _ => &mut self.others,
        };
        let Some(asked) = phase.take(message) else { return false };
        match failure {
            Some(failure) => {
                phase.tally.failed(asked, &failure, now);
                events.push(Event::ClientFailure {
                    round: number,
                    node_id: NodeText(asked.node),
                    error_type: error_type(failure.code),
                });
            }
            None => {
                let measured = Measured::of(kind, &reply_values.numbers);
                phase.tally.answered(asked, reply_values, measured.examples, now);
                phase.answered(asked.node, measured);
            }
        }
        if kind != Kind::Other && phase.is_complete() {
            self.participation = (phase.selected(), phase.responded());
            match kind {
                Kind::Evaluate => self.close(now, events),
                _ => self.observe(false),
            }
        }
        true
    }

    /// Returns the number of the current round, or of the last one.
    fn number(&self) -> u64 {
        self.round.as_ref().and_then(|round| round.number).unwrap_or(self.last_number)
    }

    /// Adds a report of the current round; `is_over`: missing replies do not count any more. A later report of the same
    /// round replaces it.
    fn observe(&mut self, is_over: bool) {
        let Some(round) = self.round.as_ref().filter(|_| !self.facts.reports) else { return };
        let phase = |phase: &Phase| phase.is_used().then(|| phase.tally.report(phase, is_over));
        let has_more = round.train.tally.has_more() || round.evaluate.tally.has_more();
        let left_out = if has_more { "clients beyond the first thousand" } else { "" };
        let rest = if round.is_resumed { "The SuperLink was restarted in this round." } else { "" };
        let report = TrainingReport {
            round: round.number.unwrap_or(self.last_number),
            kind: "round".to_owned(),
            strategy: self.facts.strategy.clone().unwrap_or_default(),
            rounds_planned: self.facts.num_rounds.unwrap_or_default(),
            started_at: round.started_at,
            train: phase(&round.train),
            evaluate: phase(&round.evaluate),
            note: rest.to_owned(),
            left_out: left_out.to_owned(),
            ..TrainingReport::default()
        };
        self.reports.push(Observed { report: report.fitted(), is_rest: round.is_resumed });
    }

    fn close(&mut self, now: Seconds, events: &mut Vec<Event>) {
        self.report_start(events);
        self.observe(true);
        let Some(round) = self.round.take() else { return };
        let number = round.number.unwrap_or(self.last_number);
        self.last_number = number;
        self.loss = round.loss().or(self.loss);
        self.accuracy = round.accuracy().or(self.accuracy);
        let last = if round.evaluate.is_used() { &round.evaluate } else { &round.train };
        self.participation = (last.selected(), last.responded());
        if round.evaluate.responded() > 0 {
            events.push(Event::EvaluationResult {
                round: number,
                loss: round.evaluate.loss(),
                accuracy: round.evaluate.accuracy(),
                num_examples: round.evaluate.examples(),
            });
        }
        if round.train.is_used() {
            events.push(Event::RoundEnd {
                round: number,
                num_clients_responded: round.train.responded(),
                aggregated_loss: round.loss(),
                aggregated_accuracy: round.accuracy(),
                round_duration_seconds: milliseconds(round.duration_s(now)),
            });
        }
    }

    fn finish(&mut self, now: Seconds, events: &mut Vec<Event>) -> bool {
        self.close(now, events);
        events.push(Event::TrainingEnd {
            total_rounds: self.last_number,
            final_loss: self.loss,
            final_accuracy: self.accuracy,
            total_duration_seconds: milliseconds((now - self.started_at).max(0.0)),
        });
        true
    }

    /// Stalled: replies are missing, or the app waits for more clients than are online.
    fn check_stalled(&mut self, connected: usize, now: Seconds, events: &mut Vec<Event>) {
        let waited_s = now - self.progress_at;
        let too_few = self.facts.min_clients.is_some_and(|wanted| (connected as u64) < wanted);
        if waited_s < STALLED_AFTER_S || (self.awaited() == 0 && !too_few) {
            return;
        }
        self.report_start(events);
        let at_hand = self.round.as_ref().filter(|round| round.awaited() > 0).and_then(|round| round.number);
        let round = at_hand.unwrap_or(self.number() + 1);
        if self.stalled == Some(round) {
            return;
        }
        self.stalled = Some(round);
        let asked = self.round.as_ref().map_or(0, |round| round.train.selected().max(round.evaluate.selected()));
        events.push(Event::TrainingStalled {
            round,
            waiting_since_seconds: milliseconds(waited_s),
            connected_clients: connected,
            required_clients: self.facts.min_clients.unwrap_or(asked as u64),
        });
    }
}

fn distinct<'a>(groups: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    groups.filter(|group| seen.insert(*group)).collect()
}

fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Flower's names for the errors of messages.
fn error_type(code: i64) -> &'static str {
    match code {
        1 => "load_client_app_exception",
        2 => "client_app_raised_exception",
        3 => "message_unavailable",
        4 => "reply_message_unavailable",
        5 => "node_unavailable",
        6 => "mod_failed_precondition",
        7 => "invalid_fab",
        8 => "client_app_crashed",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests;
