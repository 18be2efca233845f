//! Messages that never arrive: the SuperLink answers for the node, once and for good.

use trellis_core::conformance::id;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_core::message::{MAX_DELIVERIES, Reply, State};
use trellis_core::object::Arrival;
use trellis_core::{app, control, fleet, upkeep};

use super::scene::{APP, INTERVAL_S, RUN, Scene, T0, TTL_S, encode, key, node_scope, reply};

/// Time at which a node that was last online at [`T0`] is offline.
const OFFLINE: f64 = T0 + 2.0 * INTERVAL_S;

/// Collects one error twice, confirms it, and checks that nothing is left.
fn one_error(scene: &Scene, asked: MessageId, now: f64) -> (i64, Reply) {
    assert_eq!(scene.waiting(&[asked], now), 0, "a reply that will never arrive ends the wait");
    let replies = scene.collect(&[asked], now);
    assert_eq!(replies.len(), 1);
    let state = scene.dump();
    for later in [0.0, 1.0, 10.0 * TTL_S, -10.0 * TTL_S] {
        assert_eq!(scene.collect(&[asked], now + later), replies, "another answer {later} s later");
        assert_eq!(scene.dump(), state, "a retry {later} s later changed the state");
    }
    let reply = replies.into_iter().next().unwrap();
    assert_eq!((reply.envelope.src, reply.envelope.dst), (NodeId::SUPERLINK, NodeId::SUPERLINK));
    assert_eq!((reply.reply_to, reply.envelope.run, reply.ready), (asked, RUN, true));
    assert_eq!(reply.envelope.src_task, None, "the SuperLink has no task");
    let confirmed = reply.envelope.id;
    for _ in 0..2 {
        scene.ok(move |tx| app::confirm_reply(tx, RUN, confirmed));
        assert_eq!(scene.see(|read| read.reply(confirmed)), None);
        assert_eq!(scene.see(|read| read.instruction(asked)), None);
    }
    (reply.envelope.error.as_ref().expect("an error").code, reply)
}

#[test]
fn a_node_that_is_offline() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    assert_eq!(scene.waiting(&[instruction], OFFLINE.next_down()), 1);
    assert_eq!(scene.collect(&[instruction], OFFLINE.next_down()), []);
    let (code, reply) = one_error(&scene, instruction, OFFLINE);
    assert_eq!(code, 5);
    assert_eq!(reply.envelope.ttl_s, TTL_S - 2.0 * INTERVAL_S, "the rest of the instruction's TTL");
    assert_eq!((&reply.envelope.group_id[..], &reply.envelope.message_type[..]), ("1", "train"));
    assert_eq!(reply.envelope.dst_task, Some(7), "the task that sent the instruction");
    assert_eq!(scene.objects(), 0);
}

#[test]
fn a_node_that_left() {
    let scene = Scene::running(&[11, 12]);
    let (left, gone) = (scene.send("i1(model)", 11, T0), scene.send("i2(model)", 12, T0));
    scene.ok(|tx| fleet::deactivate(tx, NodeId(11), T0 + 1.0));
    scene.ok(|tx| fleet::unregister(tx, NodeId(12), T0 + 1.0));
    assert_eq!(one_error(&scene, left, T0 + 1.0).0, 5);
    assert_eq!(one_error(&scene, gone, T0 + 1.0).0, 5);
    assert_eq!(scene.objects(), 0);
}

#[test]
fn a_node_that_left_with_an_incomplete_reply() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    scene.pull(11, T0);
    scene.push_reply(11, reply(11, "r(update)", instruction, T0), T0);
    assert_eq!(scene.arrive_from(node_scope(11), id("update"), vec![]), Arrival::Stored);
    let collected = scene.collect(&[instruction], OFFLINE);
    assert_eq!(collected[0].envelope.error.as_ref().unwrap().code, 5);
    assert_eq!(scene.objects(), 3, "the instruction and the error; nothing of the incomplete reply");
    let late = scene.arrive_from(node_scope(11), id("r"), vec![id("update")]);
    assert_eq!(late, Arrival::Unannounced, "the rest arrives too late");
    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc", OFFLINE));
    assert_eq!(scene.pull(11, OFFLINE), None, "an answered instruction is not delivered");
    let before = scene.dump();
    let late = scene.push_reply(11, reply(11, "r(update)", instruction, OFFLINE), OFFLINE);
    assert_eq!(late, fleet::PushOutcome::Ignored("the instruction is answered already"));
    assert_eq!(scene.dump(), before);
    assert_eq!(one_error(&scene, instruction, OFFLINE).0, 5, "the error stays");
}

#[test]
fn an_unknown_message() {
    let scene = Scene::running(&[11]);
    let (code, reply) = one_error(&scene, id("unknown"), T0);
    assert_eq!((code, &reply.envelope.message_type[..], reply.envelope.ttl_s), (3, "system", 0.0));
    assert_eq!(reply.envelope.dst_task, None, "the sender is unknown");
    assert_eq!(scene.objects(), 0);
}

#[test]
fn an_expired_instruction() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    let end = T0 + TTL_S;
    scene.ok(move |tx| fleet::heartbeat(tx, NodeId(11), 1800.0, end - 1.0));
    assert_eq!(scene.waiting(&[instruction], end.next_down()), 1);
    assert_eq!(one_error(&scene, instruction, end).0, 3);
    assert_eq!(scene.objects(), 0);
}

#[test]
fn an_expired_instruction_that_a_tick_deleted_first() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    let end = T0 + TTL_S;
    scene.ok(move |tx| app::heartbeat(tx, &super::scene::HASH, end));
    assert!(!scene.see(|read| upkeep::is_due(read, end.next_down())));
    assert!(scene.see(|read| upkeep::is_due(read, end)));
    scene.twice(move |tx| upkeep::tick(tx, end));
    assert!(!scene.see(|read| upkeep::is_due(read, end)));
    assert_eq!((scene.state_of(instruction), scene.objects()), (None, 0));
    assert_eq!(one_error(&scene, instruction, end).0, 3);
}

#[test]
fn a_node_does_not_get_expired_instructions() {
    let scene = Scene::running(&[11]);
    let old = scene.send("old(model)", 11, T0);
    let new = scene.send("new(model)", 11, T0 + 1.0);
    assert_eq!(scene.pull(11, T0 + TTL_S), Some(new), "the next one, before a tick deleted the old one");
    assert_eq!(scene.state_of(old), None);
    assert_eq!(scene.see(|read| read.object(APP, id("old"))), None);
}

#[test]
fn a_reply_that_expired_before_it_was_collected() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    scene.pull(11, T0);
    let reply = scene.answer(11, "r(update)", instruction, T0 + 1.0);
    let end = T0 + TTL_S;
    assert_eq!(scene.collect(&[instruction], end)[0].envelope.id, reply, "the last moment");
    assert_eq!(one_error(&scene, instruction, end.next_up()).0, 4);
    assert_eq!(scene.objects(), 0);
}

#[test]
fn an_answered_instruction_is_not_deleted_before_it_is_collected() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    scene.answer(11, "r(update)", instruction, T0 + 1.0);
    let late = T0 + 10.0 * TTL_S;
    scene.ok(move |tx| app::heartbeat(tx, &super::scene::HASH, late));
    scene.ok(move |tx| upkeep::tick(tx, late));
    assert_eq!(one_error(&scene, instruction, late).0, 4, "the code for an expired reply");
}

#[test]
fn an_instruction_that_crashes_its_node() {
    let scene = Scene::running(&[11]);
    let poison = scene.send("poison(model)", 11, T0);
    let healthy = scene.send("healthy(model)", 11, T0);
    for _ in 0..MAX_DELIVERIES {
        assert_eq!(scene.waiting(&[poison], T0), 1);
        assert_eq!(scene.pull(11, T0), Some(poison));
        scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc", T0));
    }
    assert_eq!(scene.pull(11, T0), Some(healthy), "the next instruction is not blocked for ever");
    assert_eq!(one_error(&scene, poison, T0).0, 5);
    assert_eq!(scene.state_of(healthy), Some(State::Delivered));
}

#[test]
fn instructions_to_unavailable_nodes_are_refused() {
    let scene = Scene::running(&[11, 12]);
    scene.ok(|tx| fleet::register(tx, NodeId(13), ("aid", "name"), &key(13), T0));
    scene.ok(|tx| fleet::unregister(tx, NodeId(12), T0));
    let messages = [("i1(model)", 11), ("i2(other)", 12), ("i3(other)", 13), ("i4(other)", 14)];
    let pushed = scene.push(&messages, T0);
    assert_eq!(pushed.ids, [Some(id("i1")), None, None, None], "online, unregistered, never active, unknown");
    assert_eq!(pushed.missing, ["model", "i1"].map(id), "objects of refused instructions are not requested");
    assert_eq!(scene.objects(), 2);
    assert_eq!(scene.push(&[("i5", 11)], OFFLINE).ids, [Some(id("i5"))], "an offline node may come back");
}

#[test]
fn errors_are_deleted_with_their_run() {
    let scene = Scene::running(&[11]);
    let instruction = scene.send("i(model)", 11, T0);
    scene.collect(&[instruction, id("unknown"), instruction], OFFLINE);
    assert_eq!(scene.objects(), 4, "the instruction, its children, and two errors");
    scene.ok(|tx| control::stop_run(tx, RUN, OFFLINE));
    scene.nothing_left(RUN);
}

#[test]
fn mixed_answers_keep_the_order_of_the_request() {
    let scene = Scene::running(&[11, 12]);
    let (answered, waiting) = (scene.send("i1", 11, T0), scene.send("i2", 12, T0));
    scene.answer(11, "r", answered, T0);
    let asked = [id("unknown"), waiting, answered];
    assert_eq!(scene.waiting(&asked, T0), 1);
    let reported: Vec<MessageId> = scene.collect(&asked, T0).iter().map(|reply| reply.reply_to).collect();
    assert_eq!(reported, [id("unknown"), answered]);
    let nobody = RunId(404);
    let refusal = scene.refused(move |tx| app::answer_missing(tx, nobody, &[waiting], T0, &encode));
    assert_eq!(refusal.1, "Run ID not found: 404");
}
