//! The census.

use bytes::Bytes;

use super::{Case, NOW, SCOPE, Subject, commit, envelope, id, query};
use crate::audit;
use crate::census::Census;
use crate::id::{NodeId, RunId};
use crate::message::{Instruction, Reply, State};
use crate::node::{Event, Node};
use crate::object::{Content, Object};
use crate::run::{self, NewRun, Outcome, Run};

pub(super) const CASES: &[Case] = &[
    ("the census of an empty store is empty", nothing),
    ("nodes are counted by state, online nodes by client", nodes),
    ("runs are counted by state and outcome", runs),
    ("messages are counted by state", messages),
    ("objects and their bytes are counted", objects),
];

const INTERVAL_S: f64 = 30.0;
const ONLINE: Event = Event::Activate { interval_s: INTERVAL_S };

fn count(subject: &Subject<'_>, now: f64) -> Census {
    query(subject, |read| read.census(now))
}

fn nothing(subject: &Subject<'_>) {
    assert_eq!(count(subject, NOW), Census::default());
}

fn nodes(subject: &Subject<'_>) {
    let lives: [(&[Event], &str); 7] = [
        (&[], ""),
        (&[], ""),
        (&[ONLINE], "http 1.42.0"),
        (&[ONLINE], "http 1.42.0"),
        (&[ONLINE], "grpc"),
        (&[ONLINE, Event::Deactivate], "grpc"),
        (&[ONLINE, Event::Unregister], "grpc"),
    ];
    for ((steps, client), number) in lives.into_iter().zip(11..) {
        let mut node = Node::register(NodeId(number), ("", ""), &number.to_be_bytes(), INTERVAL_S, NOW);
        for step in steps {
            node.apply(*step, NOW).expect("the step is legal");
        }
        node.client = client.into();
        commit(subject, move |tx| tx.put_node(&node));
    }
    let end = NOW + 2.0 * INTERVAL_S;
    let by_client = [("grpc".to_owned(), 1), ("http 1.42.0".to_owned(), 2)].into();
    let online =
        Census { nodes_registered: 2, nodes_offline: 1, nodes_online_by_client: by_client, ..Census::default() };
    assert_eq!(count(subject, end.next_down()), online);
    assert_eq!(online.nodes_online(), 3);
    assert_eq!(count(subject, end), Census { nodes_registered: 2, nodes_offline: 4, ..Census::default() });
}

fn runs(subject: &Subject<'_>) {
    let finish = |outcome| run::Event::Finish { outcome, details: String::new() };
    let lives = [
        vec![],
        vec![run::Event::Claim],
        vec![run::Event::Claim, run::Event::LoseLaunch],
        vec![run::Event::PullInputs],
        vec![run::Event::PullInputs, finish(Outcome::Completed)],
        vec![run::Event::PullInputs, finish(Outcome::Failed)],
        vec![finish(Outcome::Failed)],
        vec![finish(Outcome::Stopped)],
        vec![finish(Outcome::Stopped)],
        vec![finish(Outcome::Stopped)],
    ];
    for (steps, number) in lives.into_iter().zip(1..) {
        let mut run = Run::new(RunId(number), NewRun::default(), NOW);
        for step in steps {
            run.apply(step, NOW).expect("the step is legal");
        }
        commit(subject, move |tx| tx.put_run(&run));
    }
    let expected = Census {
        runs_pending: 2,
        runs_starting: 1,
        runs_running: 1,
        runs_completed: 1,
        runs_failed: 2,
        runs_stopped: 3,
        ..Census::default()
    };
    assert_eq!(count(subject, NOW), expected);
}

fn messages(subject: &Subject<'_>) {
    for (state, many) in State::ALL.into_iter().zip([1, 20, 3, 40, 500, 6]) {
        commit(subject, move |tx| {
            (0..many).try_for_each(|n| {
                let label = format!("{} {n}", state.name());
                tx.put_instruction(&Instruction::restore(envelope(&label, RunId(n), NodeId(n)), 1, state))
            })
        });
    }
    for (label, ready) in [("a", true), ("b", false), ("c", true)] {
        let reply = Reply { envelope: envelope(label, RunId(1), NodeId::SUPERLINK), reply_to: id(label), ready };
        commit(subject, move |tx| tx.put_reply(&reply));
    }
    let expected = Census {
        instructions_incomplete: 1,
        instructions_waiting: 20,
        instructions_out: 543,
        instructions_answered: 6,
        replies_ready: 2,
        ..Census::default()
    };
    assert_eq!(count(subject, NOW), expected);
}

fn objects(subject: &Subject<'_>) {
    let contents = [
        ("not here", None),
        ("inline", Some(Content::Inline(Bytes::from_static(b"bytes")))),
        ("file", Some(Content::Large { name: "name".into(), bytes: 1 << 40 })),
    ];
    for (label, content) in contents {
        commit(subject, move |tx| {
            let has_content = content.is_some();
            let object = Object { references: 1, has_content, ..Object::new(SCOPE, id(label)) };
            tx.insert_object(&object, &[])?;
            content.as_ref().map_or(Ok(()), |content| tx.put_content(id(label), content))
        });
    }
    commit(subject, |tx| tx.append_audit(NOW, audit::Event::Login, "", "", "").map(drop));
    let expected = Census { objects: 3, object_bytes: (1 << 40) + 5, audit_entries: 1, ..Census::default() };
    assert_eq!(count(subject, NOW), expected);
    commit(subject, |tx| tx.delete_object(SCOPE, id("file")));
    assert_eq!(count(subject, NOW), Census { objects: 2, object_bytes: 5, ..expected });
}
