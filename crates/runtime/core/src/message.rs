//! Instructions (from the ServerApp to a node) and the replies to them.
//!
//! An instruction is handed out only when all its objects are here, and handed out again until its node has confirmed
//! it. It counts as answered only when all objects of a reply are here. So neither side ever waits for an object, and a
//! crash of any of the three leaves the message where the next question finds it.

use crate::id::{MessageId, NodeId, RunId};
use crate::{Illegal, Seconds};

/// An instruction handed out this often in vain (it takes its node down, or never gets through) is given up.
pub const MAX_DELIVERIES: u32 = 10;
/// A reply may outlive its instruction by this much, for the sake of floating-point sums.
pub const TTL_TOLERANCE_S: f64 = 0.1;
/// Messages dated earlier than this come from a broken clock (2025-02-28, as in Flower).
pub const EARLIEST_CREATED_AT: Seconds = 1_740_700_800.0;

/// What both kinds of message say about themselves.
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
    /// The task of the run that sent it and the one that is to get it: Flower 1.30 and later name them. The core hands
    /// them back unread.
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

    /// What is wrong with the parts that every message needs; empty when nothing is.
    pub fn faults(&self) -> Vec<&'static str> {
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
    /// Some of its objects are still missing.
    Incomplete,
    Ready,
    /// Handed to the node, which has not said that it got everything.
    Delivered,
    /// The node has everything and is at work.
    Confirmed,
    /// A reply was announced; some of its objects are still missing.
    Answering,
    Answered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The last missing object of the instruction arrived.
    Complete,
    Pull,
    Confirm,
    /// The node's process is a new one and remembers nothing.
    NodeRestarts,
    AnnounceReply,
    /// The last missing object of the reply arrived, or the SuperLink answers in the node's place.
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

/// The step `event` makes.
pub fn next(state: State, event: Event) -> Result<State, Illegal> {
    use Event::*;
    use State::*;
    match (state, event) {
        (Incomplete | Ready, Complete) => Ok(Ready),
        (Ready | Delivered, Pull) => Ok(Delivered),
        // A confirmation may be repeated, and may arrive after the node was thought to be lost.
        (Ready | Delivered | Confirmed, Confirm) => Ok(Confirmed),
        (Answering | Answered, Confirm) => Ok(state),
        (Confirmed | Answering, NodeRestarts) => Ok(Ready),
        (Incomplete | Ready | Delivered | Answered, NodeRestarts) => Ok(state),
        // A reply whose objects never came gives way to the next one.
        (Ready | Delivered | Confirmed | Answering, AnnounceReply) => Ok(Answering),
        (Incomplete | Ready | Delivered | Confirmed | Answering, Answer) => Ok(Answered),
        (Delivered | Confirmed | Answering | Answered, Complete)
        | (Incomplete | Confirmed | Answering | Answered, Pull)
        | (Incomplete, Confirm)
        | (Incomplete | Answered, AnnounceReply)
        | (Answered, Answer) => Err(Illegal { state: state.name(), event: event.name() }),
    }
}

/// An instruction as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    pub envelope: Envelope,
    /// How often it was handed out.
    pub deliveries: u32,
    state: State,
}

impl Instruction {
    pub fn new(envelope: Envelope) -> Instruction {
        Instruction { envelope, deliveries: 0, state: State::Incomplete }
    }

    /// Puts a kept instruction back into memory. For stores.
    pub fn restore(envelope: Envelope, deliveries: u32, state: State) -> Instruction {
        Instruction { envelope, deliveries, state }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// It was handed out so often that its node will not manage it.
    pub fn is_hopeless(&self) -> bool {
        self.deliveries >= MAX_DELIVERIES && matches!(self.state, State::Ready | State::Delivered)
    }

    pub fn apply(&mut self, event: Event) -> Result<(), Illegal> {
        self.state = next(self.state, event)?;
        if event == Event::Pull {
            self.deliveries += 1;
        }
        Ok(())
    }
}

/// A reply as it is kept. It is ready when all its objects are here; then it is handed out as often as it is asked for,
/// until the ServerApp confirms it.
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
            for (event, want) in events.into_iter().zip(&row[1..]) {
                assert_eq!(next(state, event).map_or("-", State::name), *want, "{state:?} + {event:?}");
            }
        }
    }

    #[test]
    fn faults_name_everything_that_is_wrong() {
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
        assert_eq!(nothing.faults().len(), 6);
        let sound = Envelope {
            run: RunId(1),
            src: NodeId(1),
            dst: NodeId(2),
            ttl_s: 1.0,
            message_type: "train".into(),
            created_at: EARLIEST_CREATED_AT,
            ..nothing
        };
        assert!(sound.faults().is_empty());
    }
}
