//! Nodes that take no new work. They say so themselves, and again and again: this is kept in memory only, and a restart of
//! either side forgets it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use trellis_core::id::NodeId;

#[derive(Default)]
pub struct Draining {
    nodes: Mutex<HashSet<NodeId>>,
}

impl Draining {
    fn nodes(&self) -> MutexGuard<'_, HashSet<NodeId>> {
        self.nodes.lock().expect("no holder panics")
    }

    /// Whether that is news.
    pub fn set(&self, node: NodeId, draining: bool) -> bool {
        if draining { self.nodes().insert(node) } else { self.nodes().remove(&node) }
    }

    pub fn has(&self, node: NodeId) -> bool {
        self.nodes().contains(&node)
    }

    /// Leaves those that take work.
    pub fn leave_out(&self, nodes: &mut Vec<NodeId>) {
        let draining = self.nodes();
        nodes.retain(|node| !draining.contains(node));
    }
}
