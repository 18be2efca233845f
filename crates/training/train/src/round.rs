//! The state machine of a phase (training or evaluation) of a round: the selected nodes, the state of each, and the next step.
//! Replies are folded in the order of node ids, whatever the order of arrival, so the result is deterministic.
//!
//! Pure: it knows nothing of links, clocks or numbers. The caller reports events and executes the steps.

use std::collections::BTreeMap;
use std::fmt;

use trellis_core::id::NodeId;

/// When a phase succeeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The number of replies that ends the phase; it does not wait for further nodes.
    pub enough: usize,
    /// Whether a phase with failed nodes has a result.
    pub accept_failures: bool,
    /// The fraction of the nodes that must answer.
    pub min_completion_rate: f64,
}

impl Rules {
    /// Waits for all nodes, and accepts failures.
    pub fn all(asked: usize) -> Rules {
        Rules { enough: asked, accept_failures: true, min_completion_rate: 0.0 }
    }
}

/// Why the reply of a node does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The node answered with an error.
    Error,
    /// Its reply cannot be used.
    Rejected,
    /// It did not answer before the deadline.
    Late,
    /// The SuperLink could not deliver the instruction, or no longer knows the node.
    Unreachable,
    /// Enough other nodes had answered. Not a failure of the node.
    NotNeeded,
}

impl FailureKind {
    /// Maps Flower's error codes. The SuperLink sends 3 to 5 on behalf of unreachable nodes.
    pub fn of_error(code: i64) -> FailureKind {
        match code {
            3..=5 => FailureKind::Unreachable,
            _ => FailureKind::Error,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            FailureKind::Error => "error",
            FailureKind::Rejected => "rejected",
            FailureKind::Late => "late",
            FailureKind::Unreachable => "unreachable",
            FailureKind::NotNeeded => "not-needed",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FailureKind::Error => write!(f, "failed: {}", self.reason),
            FailureKind::Rejected => write!(f, "sent a reply that cannot be used: {}", self.reason),
            FailureKind::Late => write!(f, "did not answer in time: {}", self.reason),
            FailureKind::Unreachable => write!(f, "could not be reached: {}", self.reason),
            FailureKind::NotNeeded => f.write_str("was not waited for: enough others had answered"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NodeState {
    /// The instruction was sent.
    Waiting,
    /// The reply is being received.
    Receiving,
    /// The reply was accepted and waits for its turn.
    Accepted,
    Folded,
    Failed(Failure),
}

impl NodeState {
    fn is_settled(&self) -> bool {
        matches!(self, NodeState::Folded | NodeState::Failed(_))
    }
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Wait for an event.
    Wait,
    /// Fold the reply of this node.
    Fold(NodeId),
    /// All replies are folded.
    Finish,
    /// The phase has no result; discard folded replies. Has the reason.
    Void(String),
}

/// A phase in progress.
#[derive(Debug, Clone)]
pub struct Phase {
    rules: Rules,
    nodes: BTreeMap<NodeId, NodeState>,
    /// The first node that is not settled.
    turn: Option<NodeId>,
    /// Replies in transfer.
    receiving: usize,
    /// Accepted replies.
    good: usize,
    /// Failed nodes, without those that were not needed.
    failed: usize,
}

impl Phase {
    /// `asked` are the nodes that receive an instruction.
    pub fn new(asked: &[NodeId], rules: Rules) -> Phase {
        let nodes: BTreeMap<NodeId, NodeState> = asked.iter().map(|node| (*node, NodeState::Waiting)).collect();
        let turn = nodes.keys().next().copied();
        Phase { rules, nodes, turn, receiving: 0, good: 0, failed: 0 }
    }

    /// A reply of the node is available. Returns whether it should be received.
    pub fn arrives(&mut self, node: NodeId) -> bool {
        self.change(node, NodeState::Receiving, |state| *state == NodeState::Waiting)
    }

    /// The reply was received and is usable.
    pub fn accept(&mut self, node: NodeId) {
        self.change(node, NodeState::Accepted, |state| *state == NodeState::Receiving);
        if self.good >= self.rules.enough {
            let reason = || Failure { kind: FailureKind::NotNeeded, reason: String::new() };
            self.fail_where(|state| matches!(state, NodeState::Waiting | NodeState::Receiving), reason);
        }
    }

    /// The node will have no usable reply.
    pub fn fail(&mut self, node: NodeId, kind: FailureKind, reason: impl Into<String>) {
        let failed = NodeState::Failed(Failure { kind, reason: reason.into() });
        self.change(node, failed, |state| matches!(state, NodeState::Waiting | NodeState::Receiving));
    }

    /// The deadline has passed. Replies in transfer are still in time.
    pub fn deadline(&mut self, limit_s: f64) {
        let late = || Failure { kind: FailureKind::Late, reason: format!("no reply within {limit_s} s") };
        self.fail_where(|state| *state == NodeState::Waiting, late);
    }

    /// The next step. Called repeatedly until it waits or the phase has ended.
    pub fn step(&mut self) -> Step {
        if let Some(reason) = self.is_void() {
            return Step::Void(reason);
        }
        while let Some(node) = self.turn {
            match self.nodes.get(&node) {
                Some(NodeState::Accepted) => {
                    self.nodes.insert(node, NodeState::Folded);
                    return Step::Fold(node);
                }
                Some(state) if !state.is_settled() => return Step::Wait,
                _ => self.turn = self.nodes.range(after(node)).next().map(|(node, _)| *node),
            }
        }
        match self.good {
            0 => Step::Void("no node sent a usable reply".to_owned()),
            _ => Step::Finish,
        }
    }

    /// The nodes that have not answered yet.
    pub fn waiting(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, state)| **state == NodeState::Waiting).map(|(node, _)| *node).collect()
    }

    /// The number of replies that are required in addition to the accepted ones and those in transfer.
    pub fn needed(&self) -> usize {
        self.rules.enough.saturating_sub(self.good + self.receiving)
    }

    /// Whether all nodes before this one are settled.
    pub fn is_next(&self, node: NodeId) -> bool {
        self.nodes.range(..node).all(|(_, state)| state.is_settled())
    }

    pub fn asked(&self) -> usize {
        self.nodes.len()
    }

    /// The number of accepted replies.
    pub fn good(&self) -> usize {
        self.good
    }

    /// The failures of the other nodes, sorted by node id.
    pub fn failures(&self) -> impl Iterator<Item = (NodeId, &Failure)> {
        self.nodes.iter().filter_map(|(node, state)| match state {
            NodeState::Failed(failure) => Some((*node, failure)),
            _ => None,
        })
    }

    fn change(&mut self, node: NodeId, to: NodeState, from: impl Fn(&NodeState) -> bool) -> bool {
        match self.nodes.get_mut(&node) {
            Some(state) if from(state) => {
                self.receiving -= usize::from(*state == NodeState::Receiving);
                match &to {
                    NodeState::Receiving => self.receiving += 1,
                    NodeState::Accepted => self.good += 1,
                    NodeState::Failed(failure) if failure.kind != FailureKind::NotNeeded => self.failed += 1,
                    _ => {}
                }
                *state = to;
                true
            }
            _ => false,
        }
    }

    fn fail_where(&mut self, which: impl Fn(&NodeState) -> bool, failure: impl Fn() -> Failure) {
        let nodes: Vec<NodeId> = self.nodes.iter().filter(|(_, state)| which(state)).map(|(node, _)| *node).collect();
        for node in nodes {
            self.change(node, NodeState::Failed(failure()), |_| true);
        }
    }

    /// Detects a failed phase as early as possible, so that it does not wait in vain.
    fn is_void(&self) -> Option<String> {
        let failed = self.failed;
        if failed == 0 {
            return None;
        }
        if !self.rules.accept_failures {
            return Some(format!("{failed} of {} nodes failed, and failures are not accepted", self.asked()));
        }
        let reachable = (self.asked() - failed) as f64 / self.asked() as f64;
        (reachable < self.rules.min_completion_rate).then(|| {
            let min = self.rules.min_completion_rate;
            format!("{failed} of {} nodes failed, and at least a fraction of {min} must answer", self.asked())
        })
    }
}

fn after(node: NodeId) -> (std::ops::Bound<NodeId>, std::ops::Bound<NodeId>) {
    (std::ops::Bound::Excluded(node), std::ops::Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays events and returns the resulting steps, as text. `+3`: the reply of node 3 is available; `*3`: it is usable; `-3`: the
    /// node fails; `!`: the deadline.
    fn play(asked: &[u64], rules: Rules, events: &str) -> String {
        let asked: Vec<NodeId> = asked.iter().map(|id| NodeId(*id)).collect();
        let mut phase = Phase::new(&asked, rules);
        let mut steps = Vec::new();
        for event in events.split_whitespace() {
            let node = || NodeId(event[1..].parse().expect("the number of a node"));
            match event.as_bytes()[0] {
                b'+' => drop(phase.arrives(node())),
                b'*' => phase.accept(node()),
                b'-' => phase.fail(node(), FailureKind::Error, "it failed"),
                b'!' => phase.deadline(60.0),
                _ => unreachable!("{event}"),
            }
            loop {
                let step = phase.step();
                let (text, is_last) = match &step {
                    Step::Wait => (".".to_owned(), true),
                    Step::Fold(node) => (node.to_string(), false),
                    Step::Finish => ("finish".to_owned(), true),
                    Step::Void(reason) => (format!("void: {reason}"), true),
                };
                steps.push(text);
                if is_last {
                    break;
                }
            }
        }
        steps.join(" ")
    }

    #[test]
    fn replies_are_folded_in_the_order_of_nodes() {
        let all = Rules::all(3);
        for (name, events, expected) in [
            ("in order", "+1 *1 +2 *2 +3 *3", ". 1 . . 2 . . 3 finish"),
            ("backwards", "+3 *3 +2 *2 +1 *1", ". . . . . 1 2 3 finish"),
            ("in parallel", "+2 +1 +3 *3 *1 *2", ". . . . 1 . 2 3 finish"),
            ("a failure unblocks the next node", "+2 *2 -1 +3 *3", ". . 2 . . 3 finish"),
            ("a failure at the end", "+1 *1 +2 *2 -3", ". 1 . . 2 . finish"),
            ("unusable after it arrived", "+1 -1 +2 *2 +3 *3", ". . . 2 . . 3 finish"),
            ("the deadline passes", "+3 *3 +1 *1 !", ". . . 1 . 3 finish"),
            ("in transfer at the deadline", "+1 *1 +3 ! *3", ". 1 . . . 3 finish"),
            ("no reply", "!", "void: no node sent a usable reply"),
            ("all fail", "-1 -2 -3", ". . void: no node sent a usable reply"),
            (
                "a reply of an unknown node, and a duplicate",
                "+9 *9 +1 *1 *1 +1 +2 *2 +3 *3",
                ". . . 1 . . . . 2 . . 3 finish",
            ),
            ("a reply after the failure", "-1 +1 *1 +2 *2 +3 *3", ". . . . 2 . . 3 finish"),
        ] {
            assert_eq!(play(&[3, 1, 2], all, events), expected, "{name}");
        }
    }

    #[test]
    fn a_phase_ends_with_enough_replies() {
        let two = Rules { enough: 2, ..Rules::all(3) };
        for (name, events, expected) in [
            ("the first two", "+1 *1 +2 *2", ". 1 . . 2 finish"),
            ("the last two", "+3 *3 +2 *2", ". . . 2 3 finish"),
            ("one is in transfer too late", "+1 +2 +3 *3 *2 *1", ". . . . 2 3 finish finish"),
            ("one fails, two are left", "-1 +2 *2 +3 *3", ". . 2 . . 3 finish"),
            ("two fail: one reply remains", "-1 -2 +3 *3", ". . . 3 finish"),
        ] {
            assert_eq!(play(&[1, 2, 3], two, events), expected, "{name}");
        }
    }

    #[test]
    fn some_phases_have_no_result() {
        let strict = Rules { accept_failures: false, ..Rules::all(4) };
        let half = Rules { min_completion_rate: 0.5, ..Rules::all(4) };
        let strict_and_enough = Rules { enough: 2, ..strict };
        let not_accepted = "void: 1 of 4 nodes failed, and failures are not accepted";
        for (name, rules, events, expected) in [
            ("one failure", strict, "+1 *1 -2", format!(". 1 . {not_accepted}")),
            ("one is late", strict, "+1 *1 +2 *2 +3 *3 !", format!(". 1 . . 2 . . 3 . {not_accepted}")),
            ("not needed is not a failure", strict_and_enough, "+1 *1 +2 *2", ". 1 . . 2 finish".to_owned()),
            ("half may fail", half, "-1 -2 +3 *3 +4 *4", ". . . 3 . . 4 finish".to_owned()),
            (
                "more than half failed: the phase ends without the last node",
                half,
                "+4 *4 -1 -2 -3",
                ". . . . void: 3 of 4 nodes failed, and at least a fraction of 0.5 must answer".to_owned(),
            ),
        ] {
            assert_eq!(play(&[1, 2, 3, 4], rules, events), expected, "{name}");
        }
    }

    #[test]
    fn failures_describe_each_node() {
        let mut phase = Phase::new(&[1, 2, 3, 4].map(NodeId), Rules { enough: 2, ..Rules::all(4) });
        phase.fail(NodeId(4), FailureKind::of_error(5), "gone");
        phase.arrives(NodeId(2));
        assert_eq!((phase.waiting(), phase.needed()), (vec![NodeId(1), NodeId(3)], 1), "one is in transfer");
        assert!(phase.is_next(NodeId(1)) && !phase.is_next(NodeId(2)));
        phase.accept(NodeId(2));
        phase.arrives(NodeId(1));
        phase.accept(NodeId(1));
        assert_eq!((phase.asked(), phase.good(), phase.needed()), (4, 2, 0));
        let failures: Vec<String> = phase.failures().map(|(node, failure)| format!("node {node} {failure}")).collect();
        assert_eq!(
            failures,
            ["node 3 was not waited for: enough others had answered", "node 4 could not be reached: gone",]
        );
    }
}
