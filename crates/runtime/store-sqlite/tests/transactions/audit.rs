//! The audit log: one entry per change.

use trellis_core::audit::{self, MAX_REFUSED, RefusedCall, TRIM_INTERVAL};
use trellis_core::control::{self, NewNode, Reach};
use trellis_core::fleet;
use trellis_core::id::NodeId;

use super::scene::{INTERVAL_S, Scene, T0, key};

const OWNER: (&str, &str) = ("aid", "owner");

/// Compares the log with the expected lines: seconds since the start, actor, event, subject, detail.
pub(crate) fn tells(scene: &Scene, expected: &str) {
    let line = |entry: audit::Entry| {
        let (since, event) = (entry.at - T0, entry.event.name());
        format!("{since} {} {event} {} {}", entry.actor, entry.subject, entry.detail).trim_end().to_owned()
    };
    let reported: Vec<String> = scene.see(|read| read.audit_newest(100)).into_iter().map(line).collect();
    assert_eq!(
        reported,
        expected.trim().lines().map(str::trim).collect::<Vec<_>>(),
        "the log tells:\n{}",
        reported.join("\n")
    );
}

#[test]
fn the_lives_of_two_nodes() {
    let scene = Scene::new();
    let barn = NewNode { key: key(12), name: "barn".into(), location: "north field".into() };
    scene.twice(|tx| fleet::register(tx, NodeId(11), OWNER, &key(11), T0));
    scene.ok(move |tx| control::register_node(tx, NodeId(12), OWNER, &barn, T0 + 1.0));
    scene.twice(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc 1.39.0", T0 + 2.0));
    scene.twice(|tx| fleet::activate(tx, &key(12), INTERVAL_S, "http 1.42.0", T0 + 3.0));
    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc 1.39.0", T0 + 10.0));
    scene.ok(|tx| fleet::heartbeat(tx, NodeId(11), INTERVAL_S, T0 + 11.0));
    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "http 1.40.0", T0 + 20.0));
    scene.ok(|tx| fleet::deactivate(tx, NodeId(11), T0 + 30.0));
    scene.refused(|tx| fleet::deactivate(tx, NodeId(11), T0 + 31.0));
    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "http 1.40.0", T0 + 40.0));
    scene.ok(|tx| fleet::unregister(tx, NodeId(11), T0 + 50.0));
    scene.refused(|tx| fleet::unregister(tx, NodeId(11), T0 + 51.0));
    scene.ok(|tx| control::unregister_node(tx, NodeId(12), ("b", "boss"), Reach::All, T0 + 60.0));
    tells(
        &scene,
        "
        0 node 11 node-registered-by-itself node 11
        1 owner node-registered-by-user node 12 barn at north field
        2 node 11 node-activated node 11 grpc 1.39.0
        3 node 12 node-activated node 12 http 1.42.0
        20 node 11 node-activated node 11 http 1.40.0
        30 node 11 node-deactivated node 11
        40 node 11 node-activated node 11 http 1.40.0
        50 node 11 node-unregistered node 11
        60 boss node-revoked node 12 barn",
    );
}

#[test]
fn a_node_that_returns_after_it_was_offline_is_logged() {
    let scene = Scene::new();
    scene.online(11, T0);
    scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "grpc", T0 + 2.0 * INTERVAL_S));
    tells(
        &scene,
        "
        0 node 11 node-registered-by-itself node 11
        0 node 11 node-activated node 11 grpc
        60 node 11 node-activated node 11 grpc",
    );
}

#[test]
fn refused_calls_name_the_identity_the_peer_and_the_reason() {
    let scene = Scene::new();
    let mut call = RefusedCall {
        identity: "key 1a2b3c4d".into(),
        peer: "192.0.2.7:4711".into(),
        call: "Fleet/PullMessages".into(),
        reason: "the key is not the node's".into(),
        unwritten: 0,
    };
    let first = call.clone();
    scene.ok(move |tx| audit::refused(tx, &first, T0));
    (call.identity, call.unwritten) = (String::new(), 41);
    call.reason = "no signature\u{1b}[2J".into();
    scene.ok(move |tx| audit::refused(tx, &call, T0 + 1.0));
    tells(
        &scene,
        "
        0 key 1a2b3c4d call-refused Fleet/PullMessages from 192.0.2.7:4711: the key is not the node's
        1 unknown call-refused Fleet/PullMessages 41 more not written; from 192.0.2.7:4711: no signature\u{fffd}[2J",
    );
}

/// Refused calls never displace entries about joined nodes and granted rights.
#[test]
fn refused_calls_displace_only_refused_calls() {
    let scene = Scene::new();
    scene.ok(|tx| tx.append_audit(T0, audit::Event::Login, "actor", "", "the first").map(drop));
    scene.ok(|tx| {
        let call = RefusedCall { reason: "no such token".into(), ..Default::default() };
        (0..MAX_REFUSED + 2 * TRIM_INTERVAL).try_for_each(|_| audit::refused(tx, &call, T0))
    });
    let entries = scene.see(|read| read.audit_after(0, usize::MAX));
    assert_eq!(entries[0].detail, "the first");
    let refused = entries.len() as u64 - 1;
    assert!((MAX_REFUSED..MAX_REFUSED + TRIM_INTERVAL).contains(&refused), "{refused}");
}
