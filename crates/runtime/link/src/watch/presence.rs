//! Which nodes are there, and what is told of their coming and going. Pure: who is online is decided in the core and
//! said here.

use std::collections::HashSet;

use trellis_core::id::NodeId;

use super::event::{Event, NodeText};

/// Why a node is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It said goodbye.
    Deactivated,
    /// It, or its owner, ended its membership.
    Unregistered,
    /// It is silent.
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
    /// Nodes that a look found on the other side than `online` has them. Found so twice, they have moved.
    doubted: HashSet<NodeId>,
    /// The first look only learns: those nodes came before this process.
    has_looked: bool,
}

impl Presence {
    /// A node's process began, perhaps again.
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

    /// Compares with the nodes that were online a moment ago. Somebody may have come or gone since that moment, so a
    /// difference counts when the next look finds it too.
    pub fn look(&mut self, online: &[NodeId]) -> Vec<Event> {
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

    fn told(events: impl IntoIterator<Item = Event>) -> String {
        events.into_iter().map(|event| event.to_string()).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn coming_and_going() {
        let mut presence = Presence::default();
        let (a, b, c) = (NodeId(7), NodeId(8), NodeId(9));
        assert_eq!(told(presence.look(&[a])), "", "those found at the start came before us");
        assert_eq!(told([presence.joined(b, Some("10.0.0.1:1".into()))]), "node 8 joined from 10.0.0.1:1");
        assert_eq!(presence.connected(), 2);

        assert_eq!(told(presence.look(&[a])), "", "b may have come after the moment of this look");
        assert_eq!(told(presence.look(&[a, b])), "");
        assert_eq!(told(presence.look(&[b])), "");
        assert_eq!(told(presence.look(&[b])), "node 7 left: no heartbeat");
        assert_eq!(told(presence.look(&[b])), "", "told once");

        assert_eq!(told(presence.look(&[a, b, c])), "");
        assert_eq!(told(presence.look(&[a, b, c])), "node 7 joined; node 9 joined");
        assert_eq!(told(presence.left(c, Departure::Deactivated)), "node 9 left: deactivated");
        assert_eq!(told(presence.left(c, Departure::Unregistered)), "", "it is gone already");
        assert_eq!(told(presence.look(&[a, b, c])), "", "a look from before it left");
        assert_eq!(told(presence.look(&[a, b])), "");
        assert_eq!(presence.connected(), 2);
    }
}
