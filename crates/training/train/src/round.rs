//! One phase of a round, training or evaluation, as a machine: who was asked, what became of each, and what is to be done
//! next. Replies are folded in the order of node ids, whatever the order in which they come: that makes the result the same.
//!
//! Pure: it knows nothing of links, clocks or numbers. Who drives it tells what happened and does what it says.

use std::collections::BTreeMap;
use std::fmt;

use trellis_core::id::NodeId;

/// When a phase is good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// So many replies are enough; the nodes that have not answered by then are not waited for.
    pub enough: usize,
    /// A phase in which a node failed counts all the same.
    pub accept_failures: bool,
    /// Share of the nodes that must answer.
    pub min_completion_rate: f64,
}

impl Rules {
    /// All asked nodes are waited for, and each may fail.
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
    /// It did not answer in time.
    Late,
    /// The SuperLink could not deliver the instruction, or has lost the node.
    Unreachable,
    /// Enough others had answered. Nobody's fault.
    NotNeeded,
}

impl FailureKind {
    /// Flower's numbers for errors: 3 to 5 come from the SuperLink, in the place of a node that it cannot reach.
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
enum Fate {
    /// Asked.
    Waiting,
    /// Its reply is at the SuperLink, and on its way here.
    Arriving,
    /// Its reply is here and good, and waits for its turn.
    Here,
    Folded,
    Failed(Failure),
}

impl Fate {
    fn is_settled(&self) -> bool {
        matches!(self, Fate::Folded | Fate::Failed(_))
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something happens.
    Wait,
    /// The reply of this node is next.
    Fold(NodeId),
    /// Everything is folded.
    Finish,
    /// The phase has no result, and what was folded is to be forgotten.
    Void(String),
}

/// A phase on its way.
#[derive(Debug, Clone)]
pub struct Phase {
    rules: Rules,
    nodes: BTreeMap<NodeId, Fate>,
    /// Every node before this one is settled.
    turn: Option<NodeId>,
    /// Replies that are on their way here.
    arriving: usize,
    /// Replies that count.
    good: usize,
    /// Nodes that failed, those that were not needed left aside.
    faults: usize,
}

impl Phase {
    /// `asked` are all nodes that get an instruction.
    pub fn new(asked: &[NodeId], rules: Rules) -> Phase {
        let nodes: BTreeMap<NodeId, Fate> = asked.iter().map(|node| (*node, Fate::Waiting)).collect();
        let turn = nodes.keys().next().copied();
        Phase { rules, nodes, turn, arriving: 0, good: 0, faults: 0 }
    }

    /// The SuperLink has a reply of the node. `false`: it is not wanted, or not any more.
    pub fn arrives(&mut self, node: NodeId) -> bool {
        self.change(node, Fate::Arriving, |fate| *fate == Fate::Waiting)
    }

    /// The reply is here, and good.
    pub fn accept(&mut self, node: NodeId) {
        self.change(node, Fate::Here, |fate| *fate == Fate::Arriving);
        if self.good >= self.rules.enough {
            let reason = || Failure { kind: FailureKind::NotNeeded, reason: String::new() };
            self.fail_where(|fate| matches!(fate, Fate::Waiting | Fate::Arriving), reason);
        }
    }

    /// There will be no good reply of the node.
    pub fn fail(&mut self, node: NodeId, kind: FailureKind, reason: impl Into<String>) {
        let failed = Fate::Failed(Failure { kind, reason: reason.into() });
        self.change(node, failed, |fate| matches!(fate, Fate::Waiting | Fate::Arriving));
    }

    /// The time is up. A reply that is on its way here was in time.
    pub fn deadline(&mut self, limit_s: f64) {
        let late = || Failure { kind: FailureKind::Late, reason: format!("no reply within {limit_s} s") };
        self.fail_where(|fate| *fate == Fate::Waiting, late);
    }

    /// What to do now. To be asked again after each step until it says to wait, or the phase is over.
    pub fn step(&mut self) -> Step {
        if let Some(why) = self.is_void() {
            return Step::Void(why);
        }
        while let Some(node) = self.turn {
            match self.nodes.get(&node) {
                Some(Fate::Here) => {
                    self.nodes.insert(node, Fate::Folded);
                    return Step::Fold(node);
                }
                Some(fate) if !fate.is_settled() => return Step::Wait,
                _ => self.turn = self.nodes.range(after(node)).next().map(|(node, _)| *node),
            }
        }
        match self.good {
            0 => Step::Void("no node sent a reply that counts".to_owned()),
            _ => Step::Finish,
        }
    }

    /// Nodes that are still to be heard from.
    pub fn waiting(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, fate)| **fate == Fate::Waiting).map(|(node, _)| *node).collect()
    }

    /// Replies that are needed beyond those that are here or on their way.
    pub fn needed(&self) -> usize {
        self.rules.enough.saturating_sub(self.good + self.arriving)
    }

    /// Whether nobody before this node is to be waited for.
    pub fn is_next(&self, node: NodeId) -> bool {
        self.nodes.range(..node).all(|(_, fate)| fate.is_settled())
    }

    pub fn asked(&self) -> usize {
        self.nodes.len()
    }

    /// Replies that count.
    pub fn good(&self) -> usize {
        self.good
    }

    /// Why the others do not, in the order of node ids.
    pub fn failures(&self) -> impl Iterator<Item = (NodeId, &Failure)> {
        self.nodes.iter().filter_map(|(node, fate)| match fate {
            Fate::Failed(failure) => Some((*node, failure)),
            _ => None,
        })
    }

    fn change(&mut self, node: NodeId, to: Fate, from: impl Fn(&Fate) -> bool) -> bool {
        match self.nodes.get_mut(&node) {
            Some(fate) if from(fate) => {
                self.arriving -= usize::from(*fate == Fate::Arriving);
                match &to {
                    Fate::Arriving => self.arriving += 1,
                    Fate::Here => self.good += 1,
                    Fate::Failed(failure) if failure.kind != FailureKind::NotNeeded => self.faults += 1,
                    _ => {}
                }
                *fate = to;
                true
            }
            _ => false,
        }
    }

    fn fail_where(&mut self, which: impl Fn(&Fate) -> bool, failure: impl Fn() -> Failure) {
        let nodes: Vec<NodeId> = self.nodes.iter().filter(|(_, fate)| which(fate)).map(|(node, _)| *node).collect();
        for node in nodes {
            self.change(node, Fate::Failed(failure()), |_| true);
        }
    }

    /// Known as early as it can be: nobody is waited for in vain.
    fn is_void(&self) -> Option<String> {
        let faults = self.faults;
        if faults == 0 {
            return None;
        }
        if !self.rules.accept_failures {
            return Some(format!("{faults} of {} nodes failed, and failures are not accepted", self.asked()));
        }
        let reachable = (self.asked() - faults) as f64 / self.asked() as f64;
        (reachable < self.rules.min_completion_rate).then(|| {
            let least = self.rules.min_completion_rate;
            format!("{faults} of {} nodes failed, and a share of {least} must answer", self.asked())
        })
    }
}

fn after(node: NodeId) -> (std::ops::Bound<NodeId>, std::ops::Bound<NodeId>) {
    (std::ops::Bound::Excluded(node), std::ops::Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays what happens, in words, and gives all steps that follow, in words: `+3` the reply of node 3 arrives, `*3` it is
    /// good, `-3` the node fails, `!` the time is up.
    fn play(asked: &[u64], rules: Rules, story: &str) -> String {
        let asked: Vec<NodeId> = asked.iter().map(|id| NodeId(*id)).collect();
        let mut phase = Phase::new(&asked, rules);
        let mut steps = Vec::new();
        for event in story.split_whitespace() {
            let node = || NodeId(event[1..].parse().expect("the number of a node"));
            match event.as_bytes()[0] {
                b'+' => drop(phase.arrives(node())),
                b'*' => phase.accept(node()),
                b'-' => phase.fail(node(), FailureKind::Error, "it broke"),
                b'!' => phase.deadline(60.0),
                _ => unreachable!("{event}"),
            }
            loop {
                let step = phase.step();
                let (told, is_last) = match &step {
                    Step::Wait => (".".to_owned(), true),
                    Step::Fold(node) => (node.to_string(), false),
                    Step::Finish => ("finish".to_owned(), true),
                    Step::Void(why) => (format!("void: {why}"), true),
                };
                steps.push(told);
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
        for (name, story, expected) in [
            ("in order", "+1 *1 +2 *2 +3 *3", ". 1 . . 2 . . 3 finish"),
            ("backwards", "+3 *3 +2 *2 +1 *1", ". . . . . 1 2 3 finish"),
            ("in parallel", "+2 +1 +3 *3 *1 *2", ". . . . 1 . 2 3 finish"),
            ("a failure lets the next one pass", "+2 *2 -1 +3 *3", ". . 2 . . 3 finish"),
            ("a failure at the end", "+1 *1 +2 *2 -3", ". 1 . . 2 . finish"),
            ("rejected after it arrived", "+1 -1 +2 *2 +3 *3", ". . . 2 . . 3 finish"),
            ("the time is up", "+3 *3 +1 *1 !", ". . . 1 . 3 finish"),
            ("on its way when the time is up", "+1 *1 +3 ! *3", ". 1 . . . 3 finish"),
            ("nobody", "!", "void: no node sent a reply that counts"),
            ("all fail", "-1 -2 -3", ". . void: no node sent a reply that counts"),
            (
                "a reply of nobody, and one that comes twice",
                "+9 *9 +1 *1 *1 +1 +2 *2 +3 *3",
                ". . . 1 . . . . 2 . . 3 finish",
            ),
            ("a reply after the failure", "-1 +1 *1 +2 *2 +3 *3", ". . . . 2 . . 3 finish"),
        ] {
            assert_eq!(play(&[3, 1, 2], all, story), expected, "{name}");
        }
    }

    #[test]
    fn enough_is_enough() {
        let two = Rules { enough: 2, ..Rules::all(3) };
        for (name, story, expected) in [
            ("the first two", "+1 *1 +2 *2", ". 1 . . 2 finish"),
            ("the last two", "+3 *3 +2 *2", ". . . 2 3 finish"),
            ("one is on its way, and comes too late", "+1 +2 +3 *3 *2 *1", ". . . . 2 3 finish finish"),
            ("one fails, two are left", "-1 +2 *2 +3 *3", ". . 2 . . 3 finish"),
            ("two fail: what there is counts", "-1 -2 +3 *3", ". . . 3 finish"),
        ] {
            assert_eq!(play(&[1, 2, 3], two, story), expected, "{name}");
        }
    }

    #[test]
    fn some_phases_have_no_result() {
        let strict = Rules { accept_failures: false, ..Rules::all(4) };
        let half = Rules { min_completion_rate: 0.5, ..Rules::all(4) };
        let strict_and_enough = Rules { enough: 2, ..strict };
        let not_accepted = "void: 1 of 4 nodes failed, and failures are not accepted";
        for (name, rules, story, expected) in [
            ("one failure", strict, "+1 *1 -2", format!(". 1 . {not_accepted}")),
            ("one is late", strict, "+1 *1 +2 *2 +3 *3 !", format!(". 1 . . 2 . . 3 . {not_accepted}")),
            ("not needed is no failure", strict_and_enough, "+1 *1 +2 *2", ". 1 . . 2 finish".to_owned()),
            ("half may fail", half, "-1 -2 +3 *3 +4 *4", ". . . 3 . . 4 finish".to_owned()),
            (
                "more than half failed: nobody waits for the last",
                half,
                "+4 *4 -1 -2 -3",
                ". . . . void: 3 of 4 nodes failed, and a share of 0.5 must answer".to_owned(),
            ),
        ] {
            assert_eq!(play(&[1, 2, 3, 4], rules, story), expected, "{name}");
        }
    }

    #[test]
    fn what_became_of_each_node_is_told() {
        let mut phase = Phase::new(&[1, 2, 3, 4].map(NodeId), Rules { enough: 2, ..Rules::all(4) });
        phase.fail(NodeId(4), FailureKind::of_error(5), "gone");
        phase.arrives(NodeId(2));
        assert_eq!((phase.waiting(), phase.needed()), (vec![NodeId(1), NodeId(3)], 1), "one is on its way");
        assert!(phase.is_next(NodeId(1)) && !phase.is_next(NodeId(2)));
        phase.accept(NodeId(2));
        phase.arrives(NodeId(1));
        phase.accept(NodeId(1));
        assert_eq!((phase.asked(), phase.good(), phase.needed()), (4, 2, 0));
        let told: Vec<String> = phase.failures().map(|(node, why)| format!("node {node} {why}")).collect();
        assert_eq!(
            told,
            ["node 3 was not waited for: enough others had answered", "node 4 could not be reached: gone",]
        );
    }
}
