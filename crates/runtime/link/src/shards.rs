//! Shards of the data per node, and nodes that must not be selected, as assigned by a control plane. In memory only:
//! after a restart the control plane assigns again, and nodes keep their last shard.
//!
//! A run keeps the assignment of its last selection, so that all nodes of a round use the same numbering.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use trellis_core::id::{NodeId, RunId};

/// An assignment of shards with one numbering.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    pub total: u32,
    /// Shards of nodes; `None`: no shard for the node.
    pub shards: HashMap<NodeId, Option<u32>>,
    /// Nodes that runs must not select.
    pub left_out: HashSet<NodeId>,
    /// The only nodes that may be selected: a new node may have a shard of another numbering.
    pub only: Option<HashSet<NodeId>>,
}

/// The answer to a node's request for its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shard {
    /// No control plane assigns shards.
    Unassigned,
    /// No shard for the node.
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
    /// Nodes that have requested their shard.
    asking: HashSet<NodeId>,
}

impl Shards {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Replaces the assignment. Removes assignments of finished runs.
    pub fn assign(&self, assignment: Assignment, is_over: impl Fn(RunId) -> bool) {
        let mut state = self.state();
        state.of_runs.retain(|run, _| !is_over(*run));
        state.current = Some(Arc::new(assignment));
    }

    /// Removes nodes that the run must not select now, and stores the assignment for the run.
    pub fn select(&self, run: RunId, nodes: &mut Vec<NodeId>) {
        let mut state = self.state();
        let Some(current) = state.current.clone() else { return };
        let waits = |node: &NodeId| state.asking.contains(node) && !current.shards.contains_key(node);
        let may = |node: &NodeId| current.only.as_ref().is_none_or(|only| only.contains(node));
        nodes.retain(|node| may(node) && !current.left_out.contains(node) && !waits(node));
        state.of_runs.insert(run, current);
    }

    /// Returns the shard of a node in a run, and whether this is the node's first request.
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

    /// Removes a node for good.
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
    fn without_a_control_plane_all_nodes_are_selected() {
        let shards = Shards::default();
        assert_eq!(shards.ask(NodeId(4), None), (Shard::Unassigned, true));
        assert_eq!(selected(&shards, RUN), [1, 2, 3, 4]);
    }

    #[test]
    fn excluded_and_unassigned_nodes_are_not_selected() {
        let shards = Shards::default();
        shards.assign(assignment(3, &[(3, None)], &[2]), |_| false);
        assert_eq!(shards.ask(NodeId(3), None).0, Shard::None { total: 3 }, "all shards are assigned");
        assert_eq!(shards.ask(NodeId(4), None), (Shard::Pending, true));
        assert_eq!(shards.ask(NodeId(4), None), (Shard::Pending, false));
        assert_eq!(selected(&shards, RUN), [1, 3], "node 1 has a configured shard");
        shards.forget(NodeId(4));
        assert_eq!(selected(&shards, RUN), [1, 3, 4]);
        let only = Some([1, 2].map(NodeId).into());
        shards.assign(Assignment { only, ..assignment(3, &[], &[2]) }, |_| false);
        assert_eq!(selected(&shards, RUN), [1], "during a change of the numbering");
    }

    #[test]
    fn a_run_keeps_the_numbering_of_its_selection() {
        let shards = Shards::default();
        shards.assign(assignment(3, &[(4, Some(2))], &[]), |_| false);
        selected(&shards, RUN);
        shards.assign(assignment(5, &[(4, Some(2)), (3, Some(4))], &[]), |_| false);
        let reported = |node, run| shards.ask(NodeId(node), run).0;
        assert_eq!(reported(4, Some(RUN)), Shard::Assigned { shard: 2, total: 3 });
        assert_eq!(reported(4, None), Shard::Assigned { shard: 2, total: 5 });
        assert_eq!(reported(3, Some(RUN)), Shard::Assigned { shard: 4, total: 5 }, "not in the selection of the run");
        selected(&shards, RUN);
        assert_eq!(reported(4, Some(RUN)), Shard::Assigned { shard: 2, total: 5 });
        shards.assign(assignment(6, &[(4, Some(2))], &[]), |run| run == RUN);
        assert_eq!(reported(4, Some(RUN)), Shard::Assigned { shard: 2, total: 6 }, "the run is finished");
    }
}
