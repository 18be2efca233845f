//! The steps and their frequencies. A number selects one of the candidates at that moment, so that a minimised sequence
//! stays valid.

use proptest::collection::vec;
use proptest::prelude::*;

pub(crate) const NODES: usize = 3;
pub(crate) const RUNS: usize = 2;
/// Shared message bodies.
pub(crate) const BODIES: usize = 5;
/// Maximum versions of a reply.
const VERSIONS: usize = 3;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Register {
        node: usize,
    },
    Activate {
        node: usize,
    },
    Heartbeat {
        node: usize,
    },
    Deactivate {
        node: usize,
    },
    Unregister {
        node: usize,
    },
    AppHeartbeat {
        run: usize,
    },
    PushMessage {
        run: usize,
        node: usize,
        body: usize,
    },
    /// A retry of a push after a lost answer.
    PushAgain {
        message: usize,
    },
    /// Content of some of the missing objects.
    Arrive {
        pick: usize,
        many: usize,
    },
    /// Content with other children than announced.
    ArriveWrong {
        pick: usize,
    },
    Pull {
        node: usize,
    },
    Confirm {
        node: usize,
        message: usize,
    },
    PushReply {
        message: usize,
        version: usize,
        body: usize,
    },
    /// A reply from a node that did not get the instruction.
    PushForeignReply {
        message: usize,
        body: usize,
    },
    Collect {
        run: usize,
    },
    CollectUnknown {
        run: usize,
    },
    ConfirmReplies {
        run: usize,
    },
    Hangup {
        run: usize,
    },
    PushOutputs {
        run: usize,
    },
    ProcessGone {
        run: usize,
    },
    Stop {
        run: usize,
    },
    Tick,
    Recover,
    /// Seconds, forward or backward.
    Wait {
        seconds: i32,
    },
}

pub(crate) fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..=max)
}

fn step() -> impl Strategy<Value = Step> {
    let (node, run, body) = (0..NODES, 0..RUNS, 0..BODIES);
    let message = 0..1000usize;
    let pick = 0..1000usize;
    prop_oneof![
        1 => node.clone().prop_map(|node| Step::Register { node }),
        3 => node.clone().prop_map(|node| Step::Activate { node }),
        6 => node.clone().prop_map(|node| Step::Heartbeat { node }),
        1 => node.clone().prop_map(|node| Step::Deactivate { node }),
        1 => node.clone().prop_map(|node| Step::Unregister { node }),
        4 => run.clone().prop_map(|run| Step::AppHeartbeat { run }),
        12 => (run.clone(), node.clone(), body.clone()).prop_map(|(run, node, body)| Step::PushMessage { run, node, body }),
        3 => message.clone().prop_map(|message| Step::PushAgain { message }),
        16 => (pick.clone(), 1..20usize).prop_map(|(pick, many)| Step::Arrive { pick, many }),
        2 => pick.prop_map(|pick| Step::ArriveWrong { pick }),
        12 => node.clone().prop_map(|node| Step::Pull { node }),
        6 => (node, message.clone()).prop_map(|(node, message)| Step::Confirm { node, message }),
        12 => (message.clone(), 0..VERSIONS, body.clone())
            .prop_map(|(message, version, body)| Step::PushReply { message, version, body }),
        1 => (message, body).prop_map(|(message, body)| Step::PushForeignReply { message, body }),
        5 => run.clone().prop_map(|run| Step::Collect { run }),
        1 => run.clone().prop_map(|run| Step::CollectUnknown { run }),
        4 => run.clone().prop_map(|run| Step::ConfirmReplies { run }),
        1 => run.clone().prop_map(|run| Step::Hangup { run }),
        1 => run.clone().prop_map(|run| Step::PushOutputs { run }),
        1 => run.clone().prop_map(|run| Step::ProcessGone { run }),
        1 => run.prop_map(|run| Step::Stop { run }),
        4 => Just(Step::Tick),
        2 => Just(Step::Recover),
        8 => prop_oneof![6 => 0..10, 2 => -100..100, 1 => -2000..2000].prop_map(|seconds| Step::Wait { seconds }),
    ]
}
