//! Instructions and replies, and their queries.

use super::{AWKWARD_IDS, Case, NOW, Subject, awkward_envelope, commit, envelope, id, query, sorted};
use crate::id::{NodeId, RunId};
use crate::message::{Envelope, Instruction, MAX_DELIVERIES, Reply, State};

pub(super) const CASES: &[Case] = &[
    ("instructions round-trip in every state", instructions_round_trip),
    ("putting an instruction again updates it", update),
    ("deleting an instruction is idempotent", deleted),
    ("the oldest ready or unconfirmed instruction is delivered next", deliverable),
    ("an instruction at its delivery limit is skipped", hopeless),
    ("confirmed and answering instructions are in progress", in_progress),
    ("instructions are found by run", of_run),
    ("a run waits for a node while an instruction is unanswered", waiting_for),
    ("unanswered instructions expire at their end, not before", expired),
    ("the limit of expired instructions holds", expired_limit),
    ("replies round-trip and are found by their instruction", replies),
    ("answered instructions are those with a ready reply, per run", answered),
];

const RUN: RunId = RunId(1 << 63);
const NODE: NodeId = NodeId(u64::MAX);

fn put(subject: &Subject<'_>, instructions: Vec<Instruction>) {
    commit(subject, move |tx| instructions.iter().try_for_each(|instruction| tx.put_instruction(instruction)));
}

fn ready(label: &str) -> Instruction {
    Instruction::restore(envelope(label, RUN, NODE), 0, State::Ready)
}

/// One instruction for `dst` in each state, labelled with the state's name.
fn in_every_state(dst: NodeId) -> Vec<Instruction> {
    let restore =
        |state: State| Instruction::restore(envelope(&format!("{} {dst}", state.name())[..], RUN, dst), 1, state);
    State::ALL.into_iter().map(restore).collect()
}

fn instructions_round_trip(subject: &Subject<'_>) {
    let mut instructions: Vec<Instruction> = State::ALL
        .into_iter()
        .zip(AWKWARD_IDS.into_iter().cycle())
        .map(|(state, n)| Instruction::restore(awkward_envelope(state.name(), RunId(n), NodeId(!n)), u32::MAX, state))
        .collect();
    let nothing = Envelope { group_id: String::new(), message_type: String::new(), ..envelope("plain", RUN, NODE) };
    instructions.push(Instruction::new(nothing));
    put(subject, instructions.clone());
    for instruction in &instructions {
        let found = query(subject, |read| read.instruction(instruction.envelope.id));
        assert_eq!(found.as_ref(), Some(instruction));
    }
    assert_eq!(query(subject, |read| read.instruction(id("unknown"))), None);
    assert_eq!(query(subject, |read| read.reply(id("plain"))), None, "an instruction is not a reply");
}

fn update(subject: &Subject<'_>) {
    for (state, deliveries) in State::ALL.into_iter().zip(0..) {
        let instruction = Instruction::restore(awkward_envelope("one", RUN, NODE), deliveries, state);
        put(subject, vec![instruction.clone()]);
        assert_eq!(query(subject, |read| read.instruction(id("one"))), Some(instruction));
    }
    assert_eq!(query(subject, |read| read.instructions_of_run(RUN)), [id("one")]);
}

fn deleted(subject: &Subject<'_>) {
    put(subject, vec![ready("gone"), ready("kept")]);
    for _ in 0..2 {
        commit(subject, |tx| tx.delete_instruction(id("gone")));
        assert_eq!(query(subject, |read| read.instruction(id("gone"))), None);
        assert_eq!(query(subject, |read| read.deliverable(NODE)), Some(ready("kept")));
        assert_eq!(query(subject, |read| read.instructions_of_run(RUN)), [id("kept")]);
    }
}

fn deliverable(subject: &Subject<'_>) {
    // Other instructions come first, to detect a store that checks only the first of the node, or all nodes.
    put(subject, in_every_state(NodeId(5)));
    let undeliverable =
        in_every_state(NODE).into_iter().filter(|i| !matches!(i.state(), State::Ready | State::Delivered));
    put(subject, undeliverable.collect());
    assert_eq!(query(subject, |read| read.deliverable(NODE)), None);

    put(subject, vec![ready("z first")]);
    put(subject, vec![ready("a second"), ready("m third")]);
    let next = || query(subject, |read| read.deliverable(NODE)).map(|instruction| instruction.envelope.id);
    assert_eq!(next(), Some(id("z first")), "in order of arrival");
    let delivered = Instruction::restore(envelope("z first", RUN, NODE), 1, State::Delivered);
    put(subject, vec![delivered.clone()]);
    assert_eq!(
        query(subject, |read| read.deliverable(NODE)),
        Some(delivered),
        "an unconfirmed instruction keeps its place"
    );
    put(subject, vec![Instruction::restore(envelope("z first", RUN, NODE), 1, State::Confirmed)]);
    assert_eq!(next(), Some(id("a second")));
    put(subject, vec![Instruction::restore(envelope("z first", RUN, NODE), 1, State::Ready)]);
    assert_eq!(next(), Some(id("z first")), "after a restart of the node it keeps its place");
}

fn hopeless(subject: &Subject<'_>) {
    for state in [State::Ready, State::Delivered] {
        let at = |deliveries| Instruction::restore(envelope("poison", RUN, NODE), deliveries, state);
        put(subject, vec![at(MAX_DELIVERIES - 1)]);
        assert_eq!(query(subject, |read| read.deliverable(NODE)), Some(at(MAX_DELIVERIES - 1)));
        put(subject, vec![at(MAX_DELIVERIES)]);
        assert!(at(MAX_DELIVERIES).is_undeliverable());
        assert_eq!(query(subject, |read| read.deliverable(NODE)), None);
    }
    put(subject, vec![ready("healthy")]);
    assert_eq!(
        query(subject, |read| read.deliverable(NODE)),
        Some(ready("healthy")),
        "the next instruction is not blocked"
    );
}

fn in_progress(subject: &Subject<'_>) {
    put(subject, in_every_state(NodeId(5)));
    assert_eq!(query(subject, |read| read.in_progress(NODE)), []);
    let all = in_every_state(NODE);
    put(subject, all.clone());
    let working = |i: &Instruction| matches!(i.state(), State::Confirmed | State::Answering);
    let expected: Vec<Instruction> = all.into_iter().filter(working).collect();
    assert_eq!(query(subject, |read| read.in_progress(NODE)), expected);
}

fn of_run(subject: &Subject<'_>) {
    let other = RunId(RUN.0 + 1);
    let mut instructions = in_every_state(NODE);
    instructions.extend(in_every_state(NodeId(5)));
    let expected: Vec<_> = instructions.iter().map(|instruction| instruction.envelope.id).collect();
    instructions.push(Instruction::new(envelope("of the other", other, NODE)));
    put(subject, instructions);
    assert_eq!(sorted(query(subject, |read| read.instructions_of_run(RUN))), sorted(expected));
    assert_eq!(query(subject, |read| read.instructions_of_run(other)), [id("of the other")]);
    assert_eq!(query(subject, |read| read.instructions_of_run(RunId(0))), []);
}

fn waiting_for(subject: &Subject<'_>) {
    let other = RunId(3);
    let answered = in_every_state(NODE).pop().expect("answered is the last");
    assert_eq!(answered.state(), State::Answered);
    put(subject, in_every_state(NodeId(5)));
    put(subject, vec![answered]);
    assert_eq!(query(subject, |read| read.runs_waiting_for(NODE)), [], "answered, or for another node");
    put(subject, vec![Instruction::new(envelope("of the other", other, NODE))]);
    assert_eq!(query(subject, |read| read.runs_waiting_for(NODE)), [other]);
    put(subject, in_every_state(NODE));
    let mut runs = query(subject, |read| read.runs_waiting_for(NODE));
    runs.sort_unstable();
    assert_eq!(runs, [other, RUN], "each once");
}

fn expired(subject: &Subject<'_>) {
    let instructions = in_every_state(NODE);
    let end = instructions[0].envelope.expires_at();
    let open = instructions.iter().filter(|instruction| instruction.state() != State::Answered);
    let expected: Vec<_> = open.map(|instruction| instruction.envelope.id).collect();
    assert_eq!(expected.len(), State::ALL.len() - 1);
    put(subject, instructions);
    assert_eq!(query(subject, |read| read.expired_instructions(end.next_down(), 100)), []);
    assert_eq!(sorted(query(subject, |read| read.expired_instructions(end, 100))), sorted(expected));
    assert_eq!(query(subject, |read| read.expired_instructions(NOW - 1e9, 100)), [], "the clock went backwards");
}

fn expired_limit(subject: &Subject<'_>) {
    put(subject, (0..20).map(|n| ready(&n.to_string())).collect());
    for limit in [0, 1, 19, 20, 21] {
        let mut found = query(subject, |read| read.expired_instructions(f64::MAX, limit));
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), limit.min(20));
    }
}

fn replies(subject: &Subject<'_>) {
    let (plain, question) = (envelope("reply", RUN, NodeId::SUPERLINK), id("question"));
    for ready in [false, true] {
        let reply = Reply { envelope: plain.clone(), reply_to: question, ready };
        let other =
            Reply { envelope: awkward_envelope("other reply", RunId(7), NODE), reply_to: id("other question"), ready };
        for kept in [reply.clone(), other.clone()] {
            commit(subject, move |tx| tx.put_reply(&kept));
        }
        for reply in [reply, other] {
            let run = reply.envelope.run;
            assert_eq!(query(subject, |read| read.reply(reply.envelope.id)).as_ref(), Some(&reply));
            assert_eq!(query(subject, |read| read.replies_of_run(run)), [reply.envelope.id]);
            assert_eq!(query(subject, |read| read.reply_to(reply.reply_to)), Some(reply));
        }
    }
    assert_eq!(query(subject, |read| read.reply(question)), None, "an instruction is not a reply");
    assert_eq!(query(subject, |read| read.reply_to(id("reply"))), None);
    for _ in 0..2 {
        commit(subject, |tx| tx.delete_reply(id("reply")));
        assert_eq!(query(subject, |read| read.reply(id("reply"))), None);
        assert_eq!(query(subject, |read| read.reply_to(question)), None);
        assert_eq!(query(subject, |read| read.replies_of_run(RUN)), []);
    }
    let again = Reply { envelope: envelope("reply 2", RUN, NodeId::SUPERLINK), reply_to: question, ready: false };
    let kept = again.clone();
    commit(subject, move |tx| tx.put_reply(&kept));
    assert_eq!(query(subject, |read| read.reply_to(question)), Some(again), "after a deletion, a new reply is stored");
}

fn answered(subject: &Subject<'_>) {
    assert_eq!(query(subject, |read| read.answered_instructions(RUN)), []);
    let reply = |label: &str, run, ready| Reply {
        envelope: envelope(label, run, NodeId::SUPERLINK),
        reply_to: id(&format!("{label}?")),
        ready,
    };
    let other = RunId(RUN.0 + 1);
    let mut replies =
        vec![reply("a", RUN, true), reply("b", RUN, false), reply("c", RUN, true), reply("d", other, true)];
    let kept = replies.clone();
    commit(subject, move |tx| kept.iter().try_for_each(|reply| tx.put_reply(reply)));
    let found = |run| sorted(query(subject, |read| read.answered_instructions(run)));
    assert_eq!((found(RUN), found(other)), (vec![id("a?"), id("c?")], vec![id("d?")]));
    replies[1].ready = true;
    let ready = replies.swap_remove(1);
    commit(subject, move |tx| {
        tx.put_reply(&ready)?;
        tx.delete_reply(id("a"))
    });
    assert_eq!(found(RUN), [id("b?"), id("c?")]);
}
