//! Follows trainings by what passes through the SuperLink: instructions, replies, the beginning and end of runs.
//!
//! Knows no clock, no store and no log: time is an argument, what is worth telling is returned.
//!
//! A round begins with instructions to train. It ends when all replies to its evaluation are in, when the next round
//! begins, or with the run: whether an evaluation follows a training nobody tells beforehand. Its number is the one the
//! ServerApp gave it (in the message's group, or in the settings for the clients); where it gave none, rounds are counted.

use std::collections::{HashMap, HashSet};

use trellis_core::Seconds;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_core::run::Outcome;
use trellis_wire::report::TrainingReport;

use super::event::{Event, NodeText};
use super::facts::Facts;
use super::measure::{Measured, Said};
use super::round::{Kind, Mark, Phase, Round};
use super::tally::Failure;

/// A training that waits for clients and makes no progress for this long is told to be stalled.
pub const STALLED_AFTER_S: f64 = 600.0;
/// Runs followed at once. Each has a ServerApp at work, so there are never many.
const MAX_RUNS: usize = 1024;

/// An instruction as it passes.
#[derive(Debug, Clone)]
pub struct Instruction {
    pub message: MessageId,
    pub node: NodeId,
    pub group_id: String,
    pub kind: Kind,
}

/// Where a run stands that this process did not see from its beginning.
#[derive(Debug, Clone)]
pub struct Resumed<'a> {
    /// When the run began.
    pub since: Seconds,
    /// Instructions without reply.
    pub awaited: &'a [Instruction],
    /// The round that they say they belong to.
    pub round: Option<u64>,
    /// When the oldest of them was sent.
    pub round_since: Seconds,
}

/// What is worth telling, of which run and strategy.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub run: RunId,
    pub strategy: Option<String>,
    pub event: Event,
}

/// What training is doing, as one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Idle = 0,
    Running = 1,
    /// The last one ended as wished: completed, or stopped by its user.
    Complete = 2,
    Failed = 3,
}

/// The state of training now: that of the newest run at work, or else that of the last one that ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gauges {
    pub status: Status,
    /// Whether there was a run at all since the SuperLink started.
    pub has_run: bool,
    pub strategy: Option<String>,
    pub round_current: u64,
    pub round_total: Option<u64>,
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
    /// Clients asked in the last phase (training or evaluation) that is through, and those of them that did the work.
    pub clients_selected: usize,
    pub clients_responded: usize,
    /// Instructions of all runs that no reply came to yet.
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
    /// The number of the last round that ended.
    last_number: u64,
    loss: Option<f64>,
    accuracy: Option<f64>,
    participation: (usize, usize),
    /// Instructions that belong to no round.
    others: Phase,
    /// The round whose standstill was told.
    stalled: Option<u64>,
    /// Reports of rounds that are to be kept.
    reports: Vec<Observed>,
}

/// What was seen of a round of a training whose ServerApp does not report.
#[derive(Debug)]
pub struct Observed {
    pub report: TrainingReport,
    /// The round began before this process: what is known of it from then counts more.
    pub is_rest: bool,
}

/// All trainings at work, and the numbers of the last one that ended.
#[derive(Debug, Default)]
pub struct Training {
    runs: HashMap<RunId, Run>,
    started: u64,
    last: Gauges,
    reports: Vec<(RunId, Observed)>,
}

impl Training {
    /// The ServerApp of the run is at work. Said again, it changes nothing.
    pub fn run_started(&mut self, run: RunId, facts: Facts, now: Seconds) -> Vec<Told> {
        let Some(new) = self.admit(run, facts, now) else { return Vec::new() };
        let Facts { strategy, num_rounds, min_clients, .. } = new.facts.clone();
        vec![new.told(run, Event::TrainingStart { strategy, num_rounds, min_clients })]
    }

    /// The run was at work when the SuperLink started: what began before was told by the one before.
    pub fn run_resumed(&mut self, run: RunId, facts: Facts, resumed: &Resumed<'_>, now: Seconds) {
        let Some(run) = self.admit(run, facts, resumed.since) else { return };
        run.progress_at = now;
        run.ask(resumed.awaited, resumed.round_since, &mut Vec::new());
        if let Some(round) = &mut run.round {
            round.number = resumed.round.or(round.number);
            round.is_resumed = true;
            run.tell_round(&mut Vec::new());
        }
    }

    fn admit(&mut self, run: RunId, facts: Facts, started_at: Seconds) -> Option<&mut Run> {
        if self.runs.contains_key(&run) || self.runs.len() >= MAX_RUNS {
            return None;
        }
        self.started += 1;
        Some(self.runs.entry(run).or_insert(Run::new(facts, self.started, started_at)))
    }

    /// The ServerApp sent these, all at once.
    pub fn instructions_pushed(&mut self, run: RunId, instructions: &[Instruction], now: Seconds) -> Vec<Told> {
        self.with(run, now, |run, told| {
            run.ask(instructions, now, told);
            true
        })
    }

    /// Whether somebody should look up the round in the settings of this instruction.
    pub fn wants_round_of(&self, run: RunId, message: MessageId) -> bool {
        let round = self.runs.get(&run).and_then(|run| run.round.as_ref());
        round.is_some_and(|round| !round.is_told && round.number.is_none() && round.awaits(message))
    }

    /// The settings of an instruction of the current round were looked into.
    pub fn round_looked_up(&mut self, run: RunId, number: Option<u64>, now: Seconds) -> Vec<Told> {
        self.with(run, now, |run, told| {
            if let Some(round) = run.round.as_mut().filter(|round| !round.is_told) {
                round.number = number.or(round.number);
                run.tell_round(told);
            }
            true
        })
    }

    /// The ServerApp got the reply to this instruction: an error, or numbers. Got again, it changes nothing.
    pub fn reply_taken(
        &mut self,
        run: RunId,
        message: MessageId,
        failure: Option<Failure<'_>>,
        said: &Said,
        now: Seconds,
    ) -> Vec<Told> {
        self.with(run, now, |run, told| run.reply(message, failure, said, now, told))
    }

    /// The reply to this instruction is here; the ServerApp has not got it yet.
    pub fn reply_came(&mut self, run: RunId, message: MessageId, now: Seconds) {
        if let Some(round) = self.runs.get_mut(&run).and_then(|run| run.round.as_mut()) {
            round.train.came(message, now);
            round.evaluate.came(message, now);
        }
    }

    /// What was seen of rounds and is not kept yet, oldest first.
    pub fn take_reports(&mut self) -> Vec<(RunId, Observed)> {
        std::mem::take(&mut self.reports)
    }

    pub fn run_finished(&mut self, run: RunId, outcome: Outcome, now: Seconds) -> Vec<Told> {
        let status = if outcome == Outcome::Failed { Status::Failed } else { Status::Complete };
        let told = self.with(run, now, |run, told| run.finish(now, told));
        match self.runs.remove(&run) {
            Some(ended) => self.last = Gauges { status, ..ended.gauges() },
            // It ended before its ServerApp was at work.
            None => self.last.status = status,
        }
        told
    }

    /// Time passes. `connected` is the number of nodes that are online.
    pub fn tick(&mut self, connected: usize, now: Seconds) -> Vec<Told> {
        let mut all = Vec::new();
        for (id, run) in &mut self.runs {
            let mut told = Vec::new();
            run.look_for_standstill(connected, now, &mut told);
            all.extend(told.into_iter().map(|event| run.told(*id, event)));
        }
        all
    }

    pub fn gauges(&self) -> Gauges {
        let newest = self.runs.values().max_by_key(|run| run.order);
        let mut gauges = newest.map_or_else(|| self.last.clone(), Run::gauges);
        gauges.replies_awaited = self.runs.values().map(Run::awaited).sum();
        gauges
    }

    /// Something happens to a run that is followed; `true`: it got on by that.
    fn with(&mut self, id: RunId, now: Seconds, happen: impl FnOnce(&mut Run, &mut Vec<Event>) -> bool) -> Vec<Told> {
        let Some(run) = self.runs.get_mut(&id) else { return Vec::new() };
        let mut events = Vec::new();
        if happen(run, &mut events) {
            run.progress_at = now;
        }
        self.reports.extend(run.reports.drain(..).map(|observed| (id, observed)));
        events.into_iter().map(|event| run.told(id, event)).collect()
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

    fn told(&self, run: RunId, event: Event) -> Told {
        Told { run, strategy: self.facts.strategy.clone(), event }
    }

    fn gauges(&self) -> Gauges {
        let current = self.round.as_ref().filter(|round| round.is_told).and_then(|round| round.number);
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

    /// The ServerApp asks for work. Instructions of one group are looked at together: an app may send a node several.
    fn ask(&mut self, instructions: &[Instruction], now: Seconds, told: &mut Vec<Event>) {
        for group in distinct(instructions.iter().map(|asked| asked.group_id.as_str())) {
            let of = |kind| -> Vec<&Instruction> {
                instructions.iter().filter(|asked| asked.kind == kind && asked.group_id == group).collect()
            };
            self.train(&of(Kind::Train), now, told);
            self.evaluate(&of(Kind::Evaluate), now, told);
            of(Kind::Other).iter().for_each(|asked| self.others.ask(asked.message, asked.node, now));
        }
        if self.round.as_ref().is_some_and(|round| round.number.is_some()) {
            self.tell_round(told);
        }
    }

    fn train(&mut self, asked: &[&Instruction], now: Seconds, told: &mut Vec<Event>) {
        let Some(first) = asked.first() else { return };
        let mark = Mark::of(&first.group_id);
        let nodes: Vec<NodeId> = asked.iter().map(|asked| asked.node).collect();
        if self.round.as_ref().is_none_or(|round| round.is_over_for(&mark, &nodes)) {
            self.close(now, told);
            let number = mark.number();
            self.round = Some(Round::new(mark, number, now));
        }
        if let Some(round) = &mut self.round {
            asked.iter().for_each(|asked| round.train.ask(asked.message, asked.node, now));
        }
    }

    /// An evaluation belongs to the round at hand. Without one it stands alone, and is no round.
    fn evaluate(&mut self, asked: &[&Instruction], now: Seconds, told: &mut Vec<Event>) {
        let Some(first) = asked.first() else { return };
        let mark = Mark::of(&first.group_id);
        let is_other = |round: &Round| mark != Mark::None && round.mark != Mark::None && mark != round.mark;
        if self.round.as_ref().is_none_or(is_other) {
            self.close(now, told);
            let number = mark.number();
            self.round = Some(Round::new(mark, number, now));
        }
        // Replies to the training that are missing by now are not waited for.
        if self.round.as_ref().is_some_and(|round| round.train.awaited() > 0 && !round.evaluate.is_used()) {
            self.observe(true);
        }
        if let Some(round) = &mut self.round {
            asked.iter().for_each(|asked| round.evaluate.ask(asked.message, asked.node, now));
        }
    }

    /// Tells the start of the round at hand, once. Where nobody gave it a number, it is the next one. An evaluation that
    /// stands alone has no start to be told, and evaluates what the last round left.
    fn tell_round(&mut self, told: &mut Vec<Event>) {
        let Some(round) = self.round.as_mut().filter(|round| !round.is_told) else { return };
        round.is_told = true;
        let trains = round.train.is_used();
        let number = *round.number.get_or_insert(self.last_number + u64::from(trains));
        if trains {
            told.push(Event::RoundStart {
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
        said: &Said,
        now: Seconds,
        told: &mut Vec<Event>,
    ) -> bool {
        let kind = match &self.round {
            Some(round) if round.train.awaits(message) => Kind::Train,
            Some(round) if round.evaluate.awaits(message) => Kind::Evaluate,
            _ if self.others.awaits(message) => Kind::Other,
            _ => return false,
        };
        if kind != Kind::Other {
            self.tell_round(told);
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
                told.push(Event::ClientFailure {
                    round: number,
                    node_id: NodeText(asked.node),
                    error_type: error_type(failure.code),
                });
            }
            None => {
                let measured = Measured::of(kind, &said.numbers);
                phase.tally.answered(asked, said, measured.examples, now);
                phase.answered(asked.node, measured);
            }
        }
        if kind != Kind::Other && phase.is_complete() {
            self.participation = (phase.selected(), phase.responded());
            match kind {
                Kind::Evaluate => self.close(now, told),
                _ => self.observe(false),
            }
        }
        true
    }

    /// The number of the round at hand, or of the last one.
    fn number(&self) -> u64 {
        self.round.as_ref().and_then(|round| round.number).unwrap_or(self.last_number)
    }

    /// Reports the round at hand as it stands; `is_over`: nobody waits for what is missing. Said again of the same round, the
    /// later one counts.
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

    fn close(&mut self, now: Seconds, told: &mut Vec<Event>) {
        self.tell_round(told);
        self.observe(true);
        let Some(round) = self.round.take() else { return };
        let number = round.number.unwrap_or(self.last_number);
        self.last_number = number;
        self.loss = round.loss().or(self.loss);
        self.accuracy = round.accuracy().or(self.accuracy);
        let last = if round.evaluate.is_used() { &round.evaluate } else { &round.train };
        self.participation = (last.selected(), last.responded());
        if round.evaluate.responded() > 0 {
            told.push(Event::EvaluationResult {
                round: number,
                loss: round.evaluate.loss(),
                accuracy: round.evaluate.accuracy(),
                num_examples: round.evaluate.examples(),
            });
        }
        if round.train.is_used() {
            told.push(Event::RoundEnd {
                round: number,
                num_clients_responded: round.train.responded(),
                aggregated_loss: round.loss(),
                aggregated_accuracy: round.accuracy(),
                round_duration_seconds: milliseconds(round.duration_s(now)),
            });
        }
    }

    fn finish(&mut self, now: Seconds, told: &mut Vec<Event>) -> bool {
        self.close(now, told);
        told.push(Event::TrainingEnd {
            total_rounds: self.last_number,
            final_loss: self.loss,
            final_accuracy: self.accuracy,
            total_duration_seconds: milliseconds((now - self.started_at).max(0.0)),
        });
        true
    }

    /// Either replies are missing, or the app waits for more clients than there are.
    fn look_for_standstill(&mut self, connected: usize, now: Seconds, told: &mut Vec<Event>) {
        let waited_s = now - self.progress_at;
        let too_few = self.facts.min_clients.is_some_and(|wanted| (connected as u64) < wanted);
        if waited_s < STALLED_AFTER_S || (self.awaited() == 0 && !too_few) {
            return;
        }
        self.tell_round(told);
        let at_hand = self.round.as_ref().filter(|round| round.awaited() > 0).and_then(|round| round.number);
        let round = at_hand.unwrap_or(self.number() + 1);
        if self.stalled == Some(round) {
            return;
        }
        self.stalled = Some(round);
        let asked = self.round.as_ref().map_or(0, |round| round.train.selected().max(round.evaluate.selected()));
        told.push(Event::TrainingStalled {
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
