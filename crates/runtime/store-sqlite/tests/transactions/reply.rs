//! Replies: one per instruction, however many are sent, by any node and at any time.

use trellis_core::conformance::id;
use trellis_core::fleet::{self, NewReply, PushOutcome};
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_core::message::{Envelope, State, TTL_TOLERANCE_S};
use trellis_core::object::Arrival;
use trellis_core::refusal::Kind;
use trellis_core::run::ServerApp;
use trellis_core::{app, control};

use super::scene::{APP, INTERVAL_S, RUN, Scene, T0, TTL_S, key, node_scope, reply, tree};

/// A node with a confirmed instruction.
fn at_work() -> (Scene, MessageId) {
    let scene = Scene::running(&[11, 12]);
    let instruction = scene.send("i(model(a))", 11, T0);
    assert_eq!(scene.pull(11, T0), Some(instruction));
    scene.confirm(11, instruction);
    (scene, instruction)
}

fn announced(missing: &[&str]) -> PushOutcome {
    PushOutcome::Announced { missing: missing.iter().map(|label| id(label)).collect() }
}

/// Checks that the reply is ignored and changes nothing.
fn ignored(scene: &Scene, node: u64, reply: NewReply, now: f64) -> &'static str {
    let before = scene.dump();
    let taken = scene.push_reply(node, reply, now);
    assert_eq!(scene.dump(), before, "an ignored reply changed the state");
    match taken {
        PushOutcome::Ignored(why) => why,
        PushOutcome::Announced { .. } => panic!("taken"),
    }
}

#[test]
fn a_restarted_node_gets_its_confirmed_instructions_again() {
    let (scene, instruction) = at_work();
    assert_eq!(scene.pull(11, T0 + 1.0), None);
    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc", T0 + 2.0));
    assert_eq!(scene.state_of(instruction), Some(State::Ready));
    let (again, whole) = scene.ok(|tx| fleet::pull(tx, NodeId(11), T0 + 2.0)).unwrap();
    assert_eq!((again.envelope.id, whole), (instruction, tree("i(model(a))")));
    assert!(scene.see(|read| read.object(APP, id("i"))).unwrap().is_complete(), "with all its objects");
    scene.confirm(11, instruction);
    let reply = scene.answer(11, "r(update)", instruction, T0 + 3.0);
    assert_eq!(scene.collect(&[instruction], T0 + 3.0)[0].envelope.id, reply);
}

#[test]
fn a_restart_deletes_only_the_incomplete_reply_of_the_node() {
    let (scene, instruction) = at_work();
    let other = scene.send("i2(model(a))", 12, T0);
    assert_eq!(scene.pull(12, T0), Some(other));
    scene.confirm(12, other);
    let taken = scene.push_reply(11, reply(11, "r(update(x y))", instruction, T0 + 1.0), T0 + 1.0);
    assert_eq!(taken, announced(&["x", "y", "update", "r"]));
    scene.push_reply(12, reply(12, "other(update(x y))", other, T0 + 1.0), T0 + 1.0);
    for node in [11, 12] {
        scene.arrive_from(node_scope(node), id("x"), vec![]);
    }

    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc", T0 + 2.0));
    assert_eq!(scene.see(|read| read.reply(id("r"))), None);
    for gone in ["r", "x"] {
        assert_eq!(scene.see(|read| read.object(node_scope(11), id(gone))), None);
    }
    assert!(
        scene.see(|read| read.object(node_scope(12), id("x"))).unwrap().has_content,
        "the other node's reply has it too"
    );
    assert!(scene.see(|read| read.has_content(id("x"))));
    assert_eq!(scene.state_of(other), Some(State::Answering), "the other node did not restart");
    let late = scene.arrive_from(node_scope(11), id("r"), vec![id("update")]);
    assert_eq!(late, Arrival::Unannounced, "content from the old process");
    assert_eq!(scene.pull(11, T0 + 2.0), Some(instruction));
}

#[test]
fn a_restart_keeps_answered_instructions() {
    let (scene, instruction) = at_work();
    let reply = scene.answer(11, "r(update)", instruction, T0 + 1.0);
    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc", T0 + 2.0));
    assert_eq!(scene.pull(11, T0 + 2.0), None);
    assert_eq!(scene.collect(&[instruction], T0 + 2.0)[0].envelope.id, reply);
}

#[test]
fn a_second_reply_with_another_id_is_ignored() {
    let (scene, instruction) = at_work();
    let first = scene.answer(11, "r(update)", instruction, T0 + 1.0);
    let why = ignored(&scene, 11, reply(11, "again(update2)", instruction, T0 + 2.0), T0 + 2.0);
    assert_eq!(why, "the instruction is answered already");
    assert_eq!(scene.collect(&[instruction], T0 + 2.0)[0].envelope.id, first);
    assert_eq!(scene.see(|read| read.run(RUN)).unwrap().clientapp_runtime_s, 0.5, "its runtime does not count");
}

#[test]
fn an_accepted_reply_may_be_sent_again() {
    let (scene, instruction) = at_work();
    scene.answer(11, "r(update)", instruction, T0 + 1.0);
    let again = reply(11, "r(update)", instruction, T0 + 1.0);
    let before = scene.dump();
    assert_eq!(scene.push_reply(11, again, T0 + 2.0), announced(&[]), "nothing is missing");
    assert_eq!(scene.dump(), before);
}

#[test]
fn an_incomplete_reply_is_replaced_by_the_next_one() {
    let (scene, instruction) = at_work();
    scene.push_reply(11, reply(11, "r1(shared only1)", instruction, T0 + 1.0), T0 + 1.0);
    assert_eq!(scene.arrive_from(node_scope(11), id("shared"), vec![]), Arrival::Stored);
    let taken = scene.push_reply(11, reply(11, "r2(shared only2)", instruction, T0 + 2.0), T0 + 2.0);
    assert_eq!(taken, announced(&["shared", "only2", "r2"]), "the objects of the first reply were deleted");
    assert_eq!(scene.see(|read| read.reply(id("r1"))), None);
    assert_eq!(scene.see(|read| read.object(node_scope(11), id("only1"))), None);
    assert_eq!(scene.waiting(&[instruction], T0 + 2.0), 1);
    scene.upload_from(node_scope(11), "r2(shared only2)", &["shared", "only2", "r2"].map(id));
    let replies = scene.collect(&[instruction], T0 + 3.0);
    assert_eq!(replies.iter().map(|reply| reply.envelope.id).collect::<Vec<_>>(), [id("r2")]);
}

#[test]
fn a_reply_without_a_valid_instruction_is_ignored() {
    let (scene, instruction) = at_work();
    let later = T0 + TTL_S;
    let unknown = "no such instruction, or it is over";
    let foreign = "the instruction was for another node or run";
    assert_eq!(ignored(&scene, 11, reply(11, "r", id("unknown"), T0), T0), unknown);
    assert_eq!(ignored(&scene, 12, reply(12, "r", instruction, T0), T0), foreign);
    assert_eq!(ignored(&scene, 11, reply(11, "r", instruction, T0), later), "the instruction has expired");
    assert_eq!(ignored(&scene, 11, reply(11, "r", instruction, T0), later + 1e6), "the instruction has expired");

    scene.answer(11, "r(update)", instruction, T0);
    scene.ok(|tx| app::confirm_reply(tx, RUN, id("r")));
    assert_eq!(ignored(&scene, 11, reply(11, "r(update)", instruction, T0), T0), unknown, "collected and confirmed");
}

#[test]
fn a_reply_of_another_run_is_ignored() {
    let (scene, instruction) = at_work();
    let other = RunId(5);
    scene.start(other, T0);
    scene.ok(move |tx| app::claim(tx, other, ServerApp::Flower, [8; 32], T0));
    scene.ok(|tx| app::pull_inputs(tx, &[8; 32], "grpc", T0));
    let mut foreign = reply(11, "r", instruction, T0);
    foreign.envelope.run = other;
    assert_eq!(ignored(&scene, 11, foreign, T0), "the instruction was for another node or run");
}

#[test]
fn an_incomplete_instruction_cannot_be_answered() {
    let scene = Scene::running(&[11]);
    scene.push(&[("i(model)", 11)], T0);
    let why = ignored(&scene, 11, reply(11, "r", id("i"), T0), T0);
    assert_eq!(why, "the instruction was never handed out or is answered already");
}

#[test]
fn an_instruction_may_be_answered_without_confirmation() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    scene.pull(11, T0);
    let reply = scene.answer(11, "r(update)", instruction, T0);
    assert_eq!(scene.collect(&[instruction], T0)[0].envelope.id, reply);
    scene.confirm(11, instruction); // A late confirmation.
    assert_eq!(scene.state_of(instruction), Some(State::Answered));
}

#[test]
fn a_reply_may_outlive_its_instruction_by_the_tolerance() {
    let (scene, instruction) = at_work();
    let with_ttl = |label: &str, ttl_s: f64| {
        let mut new = reply(11, label, instruction, T0 + 10.0);
        new.envelope.ttl_s = ttl_s;
        new
    };
    let rest = TTL_S - 10.0;
    let too_long = with_ttl("long", rest + TTL_TOLERANCE_S + 0.01);
    assert_eq!(ignored(&scene, 11, too_long, T0 + 10.0), "the reply would outlive its instruction");
    let fits = [("shorter", rest / 2.0), ("equal", rest), ("tolerated", rest + TTL_TOLERANCE_S - 0.01)];
    for (label, ttl_s) in fits {
        assert_eq!(scene.push_reply(11, with_ttl(label, ttl_s), T0 + 10.0), announced(&[label]));
    }
}

#[test]
fn a_malformed_reply_is_refused_with_all_errors() {
    let (scene, instruction) = at_work();
    let sound = reply(11, "r(update)", instruction, T0);
    let broken = |envelope: Envelope| NewReply { envelope, ..sound.clone() };
    let cases = [
        (broken(Envelope { src: NodeId(12), ..sound.envelope.clone() }), "src_node_id` is not the sending node"),
        (broken(Envelope { dst: NodeId(12), ..sound.envelope.clone() }), "dst_node_id` is not the SuperLink"),
        (broken(Envelope { id: id("x"), ..sound.envelope.clone() }), "message_id` is not the root of the object tree"),
        (broken(Envelope { ttl_s: f64::INFINITY, ..sound.envelope.clone() }), "ttl` must be higher than zero"),
        (broken(Envelope { ttl_s: 0.0, ..sound.envelope.clone() }), "ttl` must be higher than zero"),
        (broken(Envelope { created_at: 1.0, ..sound.envelope.clone() }), "created_at` must be a time after"),
        (broken(Envelope { message_type: String::new(), ..sound.envelope.clone() }), "message_type` MUST be set"),
    ];
    for (new, fault) in cases {
        let (kind, text) = scene.refused(move |tx| fleet::push_reply(tx, NodeId(11), &new, T0));
        assert_eq!(kind, Kind::Invalid);
        assert!(text.contains(fault), "{text}");
    }
}

#[test]
fn only_valid_runtimes_of_nodes_are_added() {
    let scene = Scene::running(&[11]);
    for (runtime_s, n) in [f64::NAN, f64::INFINITY, -5.0, 2.0].into_iter().zip(0..) {
        let instruction = scene.send(&format!("i{n}"), 11, T0);
        let mut new = reply(11, &format!("r{n}"), instruction, T0);
        new.runtime_s = runtime_s;
        scene.push_reply(11, new, T0);
    }
    assert_eq!(scene.see(|read| read.run(RUN)).unwrap().clientapp_runtime_s, 2.0);
    scene.ok(|tx| control::stop_run(tx, RUN, T0));
    scene.nothing_left(RUN);
}
