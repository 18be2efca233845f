//! One round of a training: instructions, replies and mean values. `training` decides when a round starts and ends.

use std::collections::{HashMap, HashSet};

use trellis_core::Seconds;
use trellis_core::id::{MessageId, NodeId};

use super::measure::Measured;
use super::tally::Tally;

/// Maximum number of tracked unanswered instructions per phase. Further instructions are delivered, but their replies
/// are not counted.
pub const MAX_AWAITED: usize = 1 << 17;

/// The purpose of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Train,
    Evaluate,
    /// Queries and other message types of apps: not part of a round.
    Other,
}

impl Kind {
    /// A message type is a category and an optional action after a dot.
    pub fn of(message_type: &str) -> Kind {
        match message_type.split('.').next() {
            Some("train") => Kind::Train,
            Some("evaluate") => Kind::Evaluate,
            _ => Kind::Other,
        }
    }
}

/// A mean over clients, weighted by their examples as in FedAvg; unweighted if a client sends no count.
#[derive(Debug, Default)]
pub struct Mean {
    weighted_sum: f64,
    weights: f64,
    sum: f64,
    count: u32,
    unweighted: bool,
}

impl Mean {
    pub fn add(&mut self, value: f64, weight: Option<f64>) {
        self.sum += value;
        self.count += 1;
        match weight {
            Some(weight) => {
                self.weighted_sum += value * weight;
                self.weights += weight;
            }
            None => self.unweighted = true,
        }
    }

    pub fn value(&self) -> Option<f64> {
        match (self.count, self.unweighted) {
            (0, _) => None,
            (_, false) => Some(self.weighted_sum / self.weights),
            (count, true) => Some(self.sum / f64::from(count)),
        }
    }
}

/// A tracked instruction.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub node: NodeId,
    pub at: Seconds,
    /// When the SuperLink got its reply; the ServerApp collects it later.
    pub came_at: Option<Seconds>,
}

/// The instructions of one kind in a round, with their results.
#[derive(Debug, Default)]
pub struct Phase {
    selected: HashSet<NodeId>,
    responded: HashSet<NodeId>,
    awaited: HashMap<MessageId, Asked>,
    pub tally: Tally,
    loss: Mean,
    accuracy: Mean,
    examples: Option<f64>,
}

impl Phase {
    pub fn ask(&mut self, message: MessageId, node: NodeId, now: Seconds) {
        if self.awaited.len() < MAX_AWAITED {
            self.selected.insert(node);
            self.awaited.insert(message, Asked { node, at: now, came_at: None });
            self.tally.asked(now);
        }
    }

    /// Records the arrival of a reply.
    pub fn came(&mut self, message: MessageId, now: Seconds) {
        if let Some(asked) = self.awaited.get_mut(&message) {
            asked.came_at.get_or_insert(now);
        }
    }

    /// Removes an instruction at its first reply.
    pub fn take(&mut self, message: MessageId) -> Option<Asked> {
        self.awaited.remove(&message)
    }

    /// Returns the nodes without a reply, in order.
    pub fn unanswered(&self) -> impl Iterator<Item = NodeId> {
        let mut nodes: Vec<NodeId> = self.awaited.values().map(|asked| asked.node).collect();
        nodes.sort_unstable();
        nodes.into_iter()
    }

    pub fn answered(&mut self, node: NodeId, measured: Measured) {
        self.responded.insert(node);
        if let Some(loss) = measured.loss {
            self.loss.add(loss, measured.examples);
        }
        if let Some(accuracy) = measured.accuracy {
            self.accuracy.add(accuracy, measured.examples);
        }
        if let Some(examples) = measured.examples {
            *self.examples.get_or_insert(0.0) += examples;
        }
    }

    pub fn awaits(&self, message: MessageId) -> bool {
        self.awaited.contains_key(&message)
    }

    pub fn has_asked(&self, node: NodeId) -> bool {
        self.selected.contains(&node)
    }

    pub fn awaited(&self) -> usize {
        self.awaited.len()
    }

    pub fn selected(&self) -> usize {
        self.selected.len()
    }

    pub fn responded(&self) -> usize {
        self.responded.len()
    }

    pub fn is_used(&self) -> bool {
        !self.selected.is_empty()
    }

    pub fn is_complete(&self) -> bool {
        self.is_used() && self.awaited.is_empty()
    }

    pub fn loss(&self) -> Option<f64> {
        self.loss.value()
    }

    pub fn accuracy(&self) -> Option<f64> {
        self.accuracy.value()
    }

    pub fn examples(&self) -> Option<u64> {
        self.examples.map(|number| number as u64)
    }
}

/// How a ServerApp marks the instructions of a round: older strategies put the round into each message, newer ones do
/// not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    Group(String),
    None,
}

impl Mark {
    pub fn of(group_id: &str) -> Mark {
        if group_id.is_empty() { Mark::None } else { Mark::Group(group_id.to_owned()) }
    }

    pub fn number(&self) -> Option<u64> {
        match self {
            Mark::Group(group) => group.parse().ok(),
            Mark::None => None,
        }
    }
}

#[derive(Debug)]
pub struct Round {
    pub mark: Mark,
    /// Unknown until a message names it.
    pub number: Option<u64>,
    /// Its start was reported, or must not be.
    pub is_reported: bool,
    /// It started before this process, which knows only the rest of it.
    pub is_resumed: bool,
    pub started_at: Seconds,
    pub last_reply_at: Seconds,
    pub train: Phase,
    pub evaluate: Phase,
}

impl Round {
    pub fn new(mark: Mark, number: Option<u64>, now: Seconds) -> Round {
        Round {
            mark,
            number,
            is_reported: false,
            is_resumed: false,
            started_at: now,
            last_reply_at: now,
            train: Phase::default(),
            evaluate: Phase::default(),
        }
    }

    /// Returns whether new train instructions start another round. The mark decides if the app sets one. Otherwise:
    /// training is complete, or a node gets more to train before any evaluation.
    pub fn is_over_for(&self, mark: &Mark, nodes: &[NodeId]) -> bool {
        match mark {
            Mark::Group(_) => *mark != self.mark,
            Mark::None => {
                self.evaluate.is_used()
                    || self.train.is_complete()
                    || nodes.iter().any(|node| self.train.has_asked(*node))
            }
        }
    }

    pub fn phase(&mut self, kind: Kind) -> &mut Phase {
        if kind == Kind::Evaluate { &mut self.evaluate } else { &mut self.train }
    }

    pub fn awaits(&self, message: MessageId) -> bool {
        self.train.awaits(message) || self.evaluate.awaits(message)
    }

    pub fn awaited(&self) -> usize {
        self.train.awaited() + self.evaluate.awaited()
    }

    /// Returns the loss of the evaluation, or else of the training.
    pub fn loss(&self) -> Option<f64> {
        self.evaluate.loss().or_else(|| self.train.loss())
    }

    pub fn accuracy(&self) -> Option<f64> {
        self.evaluate.accuracy().or_else(|| self.train.accuracy())
    }

    /// Returns the time until the last reply, or until now if replies are missing.
    pub fn duration_s(&self, now: Seconds) -> f64 {
        let end = if self.awaited() == 0 { self.last_reply_at } else { now };
        (end - self.started_at).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means() {
        let mean = |values: &[(f64, Option<f64>)]| {
            let mut mean = Mean::default();
            values.iter().for_each(|(value, weight)| mean.add(*value, *weight));
            mean.value()
        };
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[(1.0, Some(1.0)), (5.0, Some(3.0))]), Some(4.0), "weighted by examples");
        assert_eq!(mean(&[(1.0, None), (5.0, Some(3.0))]), Some(3.0), "unweighted if a weight is missing");
        assert!(
            mean(&[(f64::NAN, Some(1.0)), (5.0, Some(3.0))]).is_some_and(f64::is_nan),
            "NaN of a diverged model is kept"
        );
    }

    #[test]
    fn kinds() {
        for (message_type, kind) in [
            ("train", Kind::Train),
            ("train.distil", Kind::Train),
            ("evaluate", Kind::Evaluate),
            ("query", Kind::Other),
            ("trainer", Kind::Other),
            ("get_parameters", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of(message_type), kind, "{message_type:?}");
        }
    }

    #[test]
    fn a_phase_tracks_a_limited_number_of_instructions() {
        let mut phase = Phase::default();
        for number in 0..MAX_AWAITED as u64 + 1 {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&number.to_le_bytes());
            phase.ask(MessageId::new(id), NodeId(number), 0.0);
        }
        assert_eq!((phase.awaited(), phase.selected()), (MAX_AWAITED, MAX_AWAITED));
    }

    /// Checks every mark in every stage of a round.
    #[test]
    fn when_a_round_is_over() {
        let (node, other) = (NodeId(1), NodeId(2));
        let message = MessageId::new([1; 32]);
        let table = "
            stage      unmarked-same-node  unmarked-other-node  marked-1  marked-2
            asked      over                -                    -         over
            trained    over                over                 -         over
            evaluating over                over                 -         over";
        let rows = table.trim().lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        for row in rows {
            let mut round = Round::new(Mark::of("1"), Some(1), 0.0);
            round.train.ask(message, node, 0.0);
            if row[0] != "asked" {
                round.train.take(message);
            }
            if row[0] == "evaluating" {
                round.evaluate.ask(message, node, 0.0);
            }
            let questions = [(Mark::None, node), (Mark::None, other), (Mark::of("1"), other), (Mark::of("2"), other)];
            for ((mark, node), want) in questions.into_iter().zip(&row[1..]) {
                let is_over = round.is_over_for(&mark, &[node]);
                assert_eq!(if is_over { "over" } else { "-" }, *want, "{} {mark:?} {node:?}", row[0]);
            }
        }
    }
}
