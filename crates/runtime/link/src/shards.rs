//! Which part of the data each node has, and which nodes are not selected, as a control plane assigns it. In memory only: the
//! control plane assigns again after a restart, and nodes keep the shard that they were last told.
//!
//! A run keeps the assignment of its last selection, so that all nodes of a round work with one numbering.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use trellis_core::id::{NodeId, RunId};

/// One numbering of the data.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    pub total: u32,
    /// Nodes that ask for their shard; `None`: there is none for the node.
    pub shards: HashMap<NodeId, Option<u32>>,
    /// Nodes that runs must not select.
    pub left_out: HashSet<NodeId>,
    /// No others than these may be selected: a node that comes may have another numbering.
    pub only: Option<HashSet<NodeId>>,
}

/// The answer to a node that asks for its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shard {
    /// No control plane assigns shards.
    Unassigned,
    /// There is none for the node.
    None {
        total: u32,
    },
    /// The control plane does not know the node yet.
    Pending,
    Assigned {
        shard: u32,
        total: u32,
    },
}

#[derive(Default)]
pub struct Shards {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Assignment>>,
    of_runs: HashMap<RunId, Arc<Assignment>>,
    /// Nodes that have asked.
    asking: HashSet<NodeId>,
}

impl Shards {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Replaces the assignment. Assignments of runs that are over are forgotten.
    pub fn assign(&self, assignment: Assignment, is_over: impl Fn(RunId) -> bool) {
        let mut state = self.state();
        state.of_runs.retain(|run, _| !is_over(*run));
        state.current = Some(Arc::new(assignment));
    }

    /// Leaves the nodes that a run may select now, and keeps the assignment for that run.
    pub fn select(&self, run: RunId, nodes: &mut Vec<NodeId>) {
        let mut state = self.state();
        let Some(current) = state.current.clone() else { return };
        let waits = |node: &NodeId| state.asking.contains(node) && !current.shards.contains_key(node);
        let may = |node: &NodeId| current.only.as_ref().is_none_or(|only| only.contains(node));
        nodes.retain(|node| may(node) && !current.left_out.contains(node) && !waits(node));
        state.of_runs.insert(run, current);
    }

    /// The shard of a node, in a run. The second value: the node asks for the first time.
    pub fn ask(&self, node: NodeId, run: Option<RunId>) -> (Shard, bool) {
        let mut state = self.state();
        let is_first = state.asking.insert(node);
        let of_run = run.and_then(|run| state.of_runs.get(&run)).filter(|of_run| of_run.shards.contains_key(&node));
        let shard = match of_run.or(state.current.as_ref()) {
            None => Shard::Unassigned,
            Some(assignment) => match assignment.shards.get(&node) {
                None => Shard::Pending,
                Some(None) => Shard::None { total: assignment.total },
                Some(Some(shard)) => Shard::Assigned { shard: *shard, total: assignment.total },
            },
        };
        (shard, is_first)
    }

    pub fn asks(&self, node: NodeId) -> bool {
        self.state().asking.contains(&node)
    }

    /// The node is gone for good.
    pub fn forget(&self, node: NodeId) {
        self.state().asking.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId(1);

    fn assignment(total: u32, shards: &[(u64, Option<u32>)], left_out: &[u64]) -> Assignment {
        Assignment {
            total,
            shards: shards.iter().map(|(node, shard)| (NodeId(*node), *shard)).collect(),
            left_out: left_out.iter().map(|node| NodeId(*node)).collect(),
            only: None,
        }
    }

    fn selected(shards: &Shards, run: RunId) -> Vec<u64> {
        let mut nodes = [1, 2, 3, 4].map(NodeId).to_vec();
        shards.select(run, &mut nodes);
        nodes.into_iter().map(|node| node.0).collect()
    }

    #[test]
    fn without_a_control_plane_everybody_is_selected() {
        let shards = Shards::default();
        assert_eq!(shards.ask(NodeId(4), None), (Shard::Unassigned, true));
        assert_eq!(selected(&shards, RUN), [1, 2, 3, 4]);
    }

    #[test]
    fn nodes_that_are_left_out_or_wait_for_a_shard_are_not_selected() {
        let shards = Shards::default();
        shards.assign(assignment(3, &[(3, None)], &[2]), |_| false);
        assert_eq!(shards.ask(NodeId(3), None).0, Shard::None { total: 3 }, "all shards are held");
        assert_eq!(shards.ask(NodeId(4), None), (Shard::Pending, true));
        assert_eq!(shards.ask(NodeId(4), None), (Shard::Pending, false));
        assert_eq!(selected(&shards, RUN), [1, 3], "1 does not ask");
        shards.forget(NodeId(4));
        assert_eq!(selected(&shards, RUN), [1, 3, 4]);
        let only = Some([1, 2].map(NodeId).into());
        shards.assign(Assignment { only, ..assignment(3, &[], &[2]) }, |_| false);
        assert_eq!(selected(&shards, RUN), [1], "while a new numbering rolls");
    }

    #[test]
    fn a_run_keeps_the_numbering_of_its_selection() {
        let shards = Shards::default();
        shards.assign(assignment(3, &[(4, Some(2))], &[]), |_| false);
        selected(&shards, RUN);
        shards.assign(assignment(5, &[(4, Some(2)), (3, Some(4))], &[]), |_| false);
        let told = |node, run| shards.ask(NodeId(node), run).0;
        assert_eq!(told(4, Some(RUN)), Shard::Assigned { shard: 2, total: 3 });
        assert_eq!(told(4, None), Shard::Assigned { shard: 2, total: 5 });
        assert_eq!(told(3, Some(RUN)), Shard::Assigned { shard: 4, total: 5 }, "the selection did not have it");
        selected(&shards, RUN);
        assert_eq!(told(4, Some(RUN)), Shard::Assigned { shard: 2, total: 5 });
        shards.assign(assignment(6, &[(4, Some(2))], &[]), |run| run == RUN);
        assert_eq!(told(4, Some(RUN)), Shard::Assigned { shard: 2, total: 6 }, "the run is over");
    }
}
