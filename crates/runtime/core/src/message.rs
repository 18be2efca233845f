//! Instructions (from the ServerApp to a node) and their replies.
//!
//! An instruction is delivered only after all its objects arrived, and is delivered again until its node confirms it.
//! It is answered only after all objects of a reply arrived. So neither side waits for objects, and after a crash of
//! any side the next poll finds the message.

use crate::id::{MessageId, NodeId, RunId};
use crate::{IllegalTransition, Seconds};

/// Delivery limit: an instruction may crash its node, or never arrive.
pub const MAX_DELIVERIES: u32 = 10;
/// Tolerance for floating-point sums: a reply may outlive its instruction by this much.
pub const TTL_TOLERANCE_S: f64 = 0.1;
/// Messages dated earlier than this come from a broken clock (2025-02-28, as in Flower).
pub const EARLIEST_CREATED_AT: Seconds = 1_740_700_800.0;

/// The metadata of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    pub id: MessageId,
    pub run: RunId,
    pub src: NodeId,
    pub dst: NodeId,
    pub group_id: String,
    pub ttl_s: f64,
    pub message_type: String,
    pub created_at: Seconds,
    /// The sending and the receiving task of the run, from Flower 1.30. The core does not interpret them.
    pub src_task: Option<u64>,
    pub dst_task: Option<u64>,
    pub error: Option<MessageError>,
}

/// The error a message carries instead of content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageError {
    pub code: i64,
    pub reason: String,
}

impl Envelope {
    pub fn expires_at(&self) -> Seconds {
        self.created_at + self.ttl_s
    }

    /// Returns all errors in the required fields.
    pub fn errors(&self) -> Vec<&'static str> {
        let checks = [
            (self.run == RunId(0), "`metadata.run_id` is not set"),
            (!(self.ttl_s > 0.0 && self.ttl_s.is_finite()), "`metadata.ttl` must be higher than zero"),
            (
                !(self.created_at >= EARLIEST_CREATED_AT && self.created_at.is_finite()),
                "`metadata.created_at` must be a time after 2025-02-28",
            ),
            (self.src == NodeId(0), "`metadata.src_node_id` is not set"),
            (self.dst == NodeId(0), "`metadata.dst_node_id` is not set"),
            (self.message_type.is_empty(), "`metadata.message_type` MUST be set"),
        ];
        checks.into_iter().filter_map(|(wrong, what)| wrong.then_some(what)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Objects are missing.
    Incomplete,
    Ready,
    /// Delivered, not confirmed.
    Delivered,
    /// Confirmed: the node has all objects.
    Confirmed,
    /// A reply was announced; objects of it are missing.
    Answering,
    Answered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The last missing object of the instruction arrived.
    Complete,
    Pull,
    Confirm,
    /// The node's process restarted and lost its instructions.
    NodeRestarts,
    AnnounceReply,
    /// The last missing object of the reply arrived, or the SuperLink answers for the node.
    Answer,
}

impl State {
    pub const ALL: [State; 6] =
        [State::Incomplete, State::Ready, State::Delivered, State::Confirmed, State::Answering, State::Answered];

    pub fn name(self) -> &'static str {
        match self {
            State::Incomplete => "incomplete",
            State::Ready => "ready",
            State::Delivered => "delivered",
            State::Confirmed => "confirmed",
            State::Answering => "answering",
            State::Answered => "answered",
        }
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Event::Complete => "complete",
            Event::Pull => "pull",
            Event::Confirm => "confirm",
            Event::NodeRestarts => "node restart",
            Event::AnnounceReply => "announce reply",
            Event::Answer => "answer",
        }
    }
}

/// Returns the next state.
pub fn next(state: State, event: Event) -> Result<State, IllegalTransition> {
    use Event::*;
    use State::*;
    match (state, event) {
        (Incomplete | Ready, Complete) => Ok(Ready),
        (Ready | Delivered, Pull) => Ok(Delivered),
        // A confirmation may be a retry, and may arrive after the node was considered lost.
        (Ready | Delivered | Confirmed, Confirm) => Ok(Confirmed),
        (Answering | Answered, Confirm) => Ok(state),
        (Confirmed | Answering, NodeRestarts) => Ok(Ready),
        (Incomplete | Ready | Delivered | Answered, NodeRestarts) => Ok(state),
        // An incomplete reply is replaced by the next one.
        (Ready | Delivered | Confirmed | Answering, AnnounceReply) => Ok(Answering),
        (Incomplete | Ready | Delivered | Confirmed | Answering, Answer) => Ok(Answered),
        (Delivered | Confirmed | Answering | Answered, Complete)
        | (Incomplete | Confirmed | Answering | Answered, Pull)
        | (Incomplete, Confirm)
        | (Incomplete | Answered, AnnounceReply)
        | (Answered, Answer) => Err(IllegalTransition { state: state.name(), event: event.name() }),
    }
}

/// A stored instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    pub envelope: Envelope,
    /// Number of deliveries.
    pub deliveries: u32,
    state: State,
}

impl Instruction {
    pub fn new(envelope: Envelope) -> Instruction {
        Instruction { envelope, deliveries: 0, state: State::Incomplete }
    }

    /// Restores a stored instruction. For stores.
    pub fn restore(envelope: Envelope, deliveries: u32, state: State) -> Instruction {
        Instruction { envelope, deliveries, state }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The instruction reached its delivery limit.
    pub fn is_undeliverable(&self) -> bool {
        self.deliveries >= MAX_DELIVERIES && matches!(self.state, State::Ready | State::Delivered)
    }

    pub fn apply(&mut self, event: Event) -> Result<(), IllegalTransition> {
        self.state = next(self.state, event)?;
        if event == Event::Pull {
            self.deliveries += 1;
        }
        Ok(())
    }
}

/// A stored reply. It is ready after all its objects arrived, and is returned to the ServerApp until the ServerApp
/// confirms it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub envelope: Envelope,
    pub reply_to: MessageId,
    pub ready: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every state, every event. `-` is refused.
    #[test]
    fn table() {
        use Event::*;
        let events = [Complete, Pull, Confirm, NodeRestarts, AnnounceReply, Answer];
        let table = "
            incomplete  ready  -          -          incomplete  -          answered
            ready       ready  delivered  confirmed  ready       answering  answered
            delivered   -      delivered  confirmed  delivered   answering  answered
            confirmed   -      -          confirmed  ready       answering  answered
            answering   -      -          answering  ready       answering  answered
            answered    -      -          answered   answered    -          -";
        let rows = table.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        for (state, row) in State::ALL.into_iter().zip(rows) {
            assert_eq!(row[0], state.name());
            for (event, expected) in events.into_iter().zip(&row[1..]) {
                assert_eq!(next(state, event).map_or("-", State::name), *expected, "{state:?} + {event:?}");
            }
        }
    }

    #[test]
    fn all_errors_of_an_envelope_are_reported() {
        let nothing = Envelope {
            id: MessageId::new([0; 32]),
            run: RunId(0),
            src: NodeId(0),
            dst: NodeId(0),
            group_id: String::new(),
            ttl_s: f64::NAN,
            message_type: String::new(),
            created_at: f64::NEG_INFINITY,
            src_task: None,
            dst_task: None,
            error: None,
        };
        assert_eq!(nothing.errors().len(), 6);
        let valid = Envelope {
            run: RunId(1),
            src: NodeId(1),
            dst: NodeId(2),
            ttl_s: 1.0,
            message_type: "train".into(),
            created_at: EARLIEST_CREATED_AT,
            ..nothing
        };
        assert!(valid.errors().is_empty());
    }
}
