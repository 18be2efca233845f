//! Tracks which nodes are online, and their events. Pure: the core decides who is online.

use std::collections::HashSet;

use trellis_core::id::NodeId;

use super::event::{Event, NodeText};

/// Why a node left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It was deactivated.
    Deactivated,
    /// It was unregistered by itself or by its owner.
    Unregistered,
    /// Its heartbeats stopped.
    NoHeartbeat,
}

impl Departure {
    fn reason(self) -> &'static str {
        match self {
            Departure::Deactivated => "deactivated",
            Departure::Unregistered => "unregistered",
            Departure::NoHeartbeat => "no heartbeat",
        }
    }
}

#[derive(Debug, Default)]
pub struct Presence {
    online: HashSet<NodeId>,
    /// Nodes whose last observation differs from `online`. A second such observation confirms the change.
    doubted: HashSet<NodeId>,
    /// The first observation only initialises: those nodes joined before this process started.
    has_looked: bool,
}

impl Presence {
    /// A node was activated, perhaps again.
    pub fn joined(&mut self, node: NodeId, address: Option<String>) -> Event {
        self.online.insert(node);
        self.doubted.remove(&node);
        Event::ClientJoin { node_id: NodeText(node), client_address: address }
    }

    pub fn left(&mut self, node: NodeId, why: Departure) -> Option<Event> {
        self.doubted.remove(&node);
        let was_online = self.online.remove(&node);
        was_online.then_some(Event::ClientLeave { node_id: NodeText(node), reason: why.reason() })
    }

    /// Compares with the nodes that were online a moment ago. A node may have joined or left since, so a difference
    /// must be confirmed by the next observation.
    pub fn observe(&mut self, online: &[NodeId]) -> Vec<Event> {
        let found: HashSet<NodeId> = online.iter().copied().collect();
        if !self.has_looked {
            self.has_looked = true;
            self.online.extend(found);
            return Vec::new();
        }
        let differences: HashSet<NodeId> = self.online.symmetric_difference(&found).copied().collect();
        let mut moved: Vec<NodeId> = differences.intersection(&self.doubted).copied().collect();
        moved.sort_unstable();
        self.doubted = differences;
        let mut events = Vec::new();
        for node in moved {
            if found.contains(&node) {
                events.push(self.joined(node, None));
            } else {
                events.extend(self.left(node, Departure::NoHeartbeat));
            }
        }
        events
    }

    pub fn connected(&self) -> usize {
        self.online.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(events: impl IntoIterator<Item = Event>) -> String {
        events.into_iter().map(|event| event.to_string()).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn coming_and_going() {
        let mut presence = Presence::default();
        let (a, b, c) = (NodeId(7), NodeId(8), NodeId(9));
        assert_eq!(reported(presence.observe(&[a])), "", "nodes that were online at the start");
        assert_eq!(reported([presence.joined(b, Some("10.0.0.1:1".into()))]), "node 8 joined from 10.0.0.1:1");
        assert_eq!(presence.connected(), 2);

        assert_eq!(reported(presence.observe(&[a])), "", "b may have joined after this observation");
        assert_eq!(reported(presence.observe(&[a, b])), "");
        assert_eq!(reported(presence.observe(&[b])), "");
        assert_eq!(reported(presence.observe(&[b])), "node 7 left: no heartbeat");
        assert_eq!(reported(presence.observe(&[b])), "", "once");

        assert_eq!(reported(presence.observe(&[a, b, c])), "");
        assert_eq!(reported(presence.observe(&[a, b, c])), "node 7 joined; node 9 joined");
        assert_eq!(reported(presence.left(c, Departure::Deactivated)), "node 9 left: deactivated");
        assert_eq!(reported(presence.left(c, Departure::Unregistered)), "", "it has already left");
        assert_eq!(reported(presence.observe(&[a, b, c])), "", "an observation from before it left");
        assert_eq!(reported(presence.observe(&[a, b])), "");
        assert_eq!(presence.connected(), 2);
    }
}
