//! Nodes that accept no new work. In memory only: nodes repeat their status, and a restart of either side resets it.

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

    /// Sets the status of a node. Returns whether it changed.
    pub fn set(&self, node: NodeId, draining: bool) -> bool {
        if draining { self.nodes().insert(node) } else { self.nodes().remove(&node) }
    }

    pub fn has(&self, node: NodeId) -> bool {
        self.nodes().contains(&node)
    }

    /// Removes draining nodes from the list.
    pub fn leave_out(&self, nodes: &mut Vec<NodeId>) {
        let draining = self.nodes();
        nodes.retain(|node| !draining.contains(node));
    }
}
