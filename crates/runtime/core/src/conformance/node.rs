//! Nodes and the SuperLink's heartbeat.

use super::{AWKWARD_IDS, AWKWARD_TEXT, Case, NOW, Subject, commit, query};
use crate::id::NodeId;
use crate::node::{Event, Node, State};

pub(super) const CASES: &[Case] = &[
    ("nodes round-trip in every state", nodes_round_trip),
    ("an unknown node is not found", unknown),
    ("putting a node again updates it", update),
    ("a node is online before its deadline, and offline at it", online),
    ("the heartbeat of the SuperLink is stored", alive_at),
];

const INTERVAL_S: f64 = 30.5;

fn registered(id: u64) -> Node {
    let mut node = Node::register(NodeId(id), (AWKWARD_TEXT, ""), &key(id), 0.0, NOW);
    node.name = AWKWARD_TEXT.into();
    node.location = "a place".into();
    node
}

/// Keys are bytes, not text.
fn key(id: u64) -> Vec<u8> {
    [&[0, 0xff, b'\''], id.to_be_bytes().as_slice()].concat()
}

/// One node in each state.
fn in_every_state() -> Vec<Node> {
    let steps: [&[Event]; 5] = [
        &[],
        &[Event::Activate { interval_s: INTERVAL_S }],
        &[Event::Activate { interval_s: INTERVAL_S }, Event::Deactivate],
        &[Event::Unregister],
        &[Event::Activate { interval_s: INTERVAL_S }, Event::Deactivate, Event::Unregister],
    ];
    let nodes = AWKWARD_IDS.into_iter().zip(steps).map(|(id, steps)| {
        let mut node = registered(id);
        for (step, later) in steps.iter().zip(1..) {
            node.apply(*step, NOW + 0.1 * f64::from(later)).expect("the step is legal");
            node.client = AWKWARD_TEXT.into();
        }
        node
    });
    nodes.collect()
}

fn nodes_round_trip(subject: &Subject<'_>) {
    let nodes = in_every_state();
    let kept = nodes.clone();
    commit(subject, move |tx| kept.iter().try_for_each(|node| tx.put_node(node)));
    for node in &nodes {
        assert_eq!(query(subject, |read| read.node(node.id)).as_ref(), Some(node));
        assert_eq!(query(subject, |read| read.node_by_key(&node.public_key)).as_ref(), Some(node));
    }
    let mut all = query(subject, |read| read.nodes());
    all.sort_by_key(|node| node.id);
    assert_eq!(all, nodes);
}

fn unknown(subject: &Subject<'_>) {
    commit(subject, |tx| tx.put_node(&registered(7)));
    assert_eq!(query(subject, |read| read.node(NodeId(8))), None);
    assert_eq!(query(subject, |read| read.node_by_key(b"")), None);
    assert_eq!(query(subject, |read| read.node_by_key(&key(7)[..10])), None, "part of a key is another key");
}

fn update(subject: &Subject<'_>) {
    let mut node = registered(u64::MAX);
    let steps = [
        Event::Activate { interval_s: INTERVAL_S },
        Event::Heartbeat { interval_s: 2.0 * INTERVAL_S },
        Event::Deactivate,
        Event::Heartbeat { interval_s: INTERVAL_S },
        Event::Extend { interval_s: INTERVAL_S },
        Event::Unregister,
    ];
    for (step, later) in steps.into_iter().zip(1..) {
        node.apply(step, NOW + f64::from(later)).expect("the step is legal");
        node.client = format!("http 1.{later}.0");
        let kept = node.clone();
        commit(subject, move |tx| tx.put_node(&kept));
        assert_eq!(query(subject, |read| read.node(node.id)).as_ref(), Some(&node), "after {step:?}");
    }
    assert_eq!(query(subject, |read| read.nodes()).len(), 1);
    assert_eq!(node.state(), State::Unregistered);
}

fn online(subject: &Subject<'_>) {
    let nodes = in_every_state();
    let until = nodes.iter().find_map(|node| match node.state() {
        State::Online { until } => Some((node.id, until)),
        _ => None,
    });
    let (id, until) = until.expect("one of them is online");
    commit(subject, move |tx| nodes.iter().try_for_each(|node| tx.put_node(node)));
    assert_eq!(query(subject, |read| read.online_nodes(NOW - 1e6)), [id], "the clock went backwards");
    assert_eq!(query(subject, |read| read.online_nodes(until.next_down())), [id]);
    assert_eq!(query(subject, |read| read.online_nodes(until)), []);
}

fn alive_at(subject: &Subject<'_>) {
    assert_eq!(query(subject, |read| read.alive_at()), None);
    for now in [NOW, NOW + 0.1, NOW - 1000.0] {
        commit(subject, move |tx| tx.set_alive_at(now));
        assert_eq!(query(subject, |read| read.alive_at()), Some(now));
    }
}
