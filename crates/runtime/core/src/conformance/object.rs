//! Objects: counters, ordered children, small and large content.

use bytes::Bytes;

use super::{Case, SCOPE, Subject, commit, id, query};
use crate::id::{NodeId, ObjectId, RunId};
use crate::object::{Content, Object, Scope};

const SAME_RUN: Scope = Scope { sender: NodeId(1 << 63), ..SCOPE };
const OTHER_RUN: Scope = Scope { run: RunId(7), ..SCOPE };

pub(super) const CASES: &[Case] = &[
    ("objects round-trip with counters and ordered children", objects_round_trip),
    ("an update changes the counters only", update),
    ("content round-trips", content),
    ("a deleted object leaves no edges to its children", deleted),
    ("a deleted object can be inserted again with other children", again),
    ("objects with one id in several scopes are independent", scoped),
    ("content is stored once, until the last object with its id is deleted", shared_content),
];

fn object(label: &str) -> Object {
    Object::new(SCOPE, id(label))
}

fn insert(subject: &Subject<'_>, object: Object, children: &[&str]) {
    let children: Vec<ObjectId> = children.iter().map(|child| id(child)).collect();
    commit(subject, move |tx| tx.insert_object(&object, &children));
}

fn put_content(subject: &Subject<'_>, label: &'static str, content: Content) {
    commit(subject, move |tx| tx.put_content(id(label), &content));
}

fn labels(ids: &[&str]) -> Vec<ObjectId> {
    ids.iter().map(|label| id(label)).collect()
}

fn objects_round_trip(subject: &Subject<'_>) {
    let leaf = Object { references: u32::MAX, waiting: 0, has_content: true, ..object("leaf") };
    let root = Object {
        references: 1,
        waiting: u32::MAX,
        has_content: false,
        height: 8,
        tree_objects: 1 << 40,
        ..object("root")
    };
    insert(subject, leaf, &[]);
    insert(subject, root, &["z", "leaf", "a", "m"]);
    insert(subject, object("other root"), &["leaf"]);
    assert_eq!(query(subject, |read| read.object(SCOPE, id("leaf"))), Some(leaf));
    assert_eq!(query(subject, |read| read.object(SCOPE, id("root"))), Some(root));
    assert_eq!(query(subject, |read| read.object(SCOPE, id("z"))), None, "a child is not inserted with its parent");
    assert_eq!(query(subject, |read| read.children(SCOPE, id("root"))), labels(&["z", "leaf", "a", "m"]));
    assert_eq!(query(subject, |read| read.children(SCOPE, id("leaf"))), []);
    let mut parents = query(subject, |read| read.parents(SCOPE, id("leaf")));
    parents.sort_unstable();
    assert_eq!(parents, labels(&["other root", "root"]));
    assert_eq!(query(subject, |read| read.parents(SCOPE, id("root"))), []);
    assert_eq!(query(subject, |read| read.object_count()), 3);
}

fn update(subject: &Subject<'_>) {
    insert(subject, object("one"), &["child"]);
    insert(subject, object("two"), &["child"]);
    put_content(subject, "one", Content::Inline(Bytes::from_static(b"bytes")));
    let counted = Object { references: 7, waiting: 3, has_content: true, ..object("one") };
    commit(subject, move |tx| tx.update_object(&counted));
    assert_eq!(query(subject, |read| read.object(SCOPE, id("one"))), Some(counted));
    assert_eq!(query(subject, |read| read.object(SCOPE, id("two"))), Some(object("two")));
    assert_eq!(query(subject, |read| read.children(SCOPE, id("one"))), labels(&["child"]));
    assert!(query(subject, |read| read.content(id("one"))).is_some());
    assert_eq!(query(subject, |read| read.object_count()), 2);
}

fn content(subject: &Subject<'_>) {
    let large: Vec<u8> = (0..5u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let contents = [
        ("empty", Content::Inline(Bytes::new())),
        ("zeros", Content::Inline(Bytes::from_static(&[0, 0, 0]))),
        ("large", Content::Inline(Bytes::from(large))),
        ("file", Content::Large { name: "ab/cd.1-2".into(), bytes: (1 << 40) + 1 }),
        ("empty file", Content::Large { name: "ef/gh.3-4".into(), bytes: 0 }),
    ];
    for (label, content) in contents {
        insert(subject, object(label), &[]);
        assert_eq!(query(subject, |read| read.content(id(label))), None, "{label}: no content yet");
        put_content(subject, label, content.clone());
        assert!(query(subject, |read| read.content(id(label))) == Some(content), "{label}: content differs");
    }
}

fn deleted(subject: &Subject<'_>) {
    insert(subject, object("child"), &[]);
    insert(subject, object("parent"), &["child"]);
    insert(subject, object("grandparent"), &["parent"]);
    put_content(subject, "parent", Content::Inline(Bytes::from_static(b"bytes")));
    for _ in 0..2 {
        commit(subject, |tx| tx.delete_object(SCOPE, id("parent")));
        assert_eq!(query(subject, |read| read.object(SCOPE, id("parent"))), None);
        assert_eq!(query(subject, |read| read.content(id("parent"))), None);
        assert_eq!(query(subject, |read| read.children(SCOPE, id("parent"))), []);
        assert_eq!(query(subject, |read| read.parents(SCOPE, id("child"))), []);
        assert_eq!(query(subject, |read| read.object(SCOPE, id("child"))), Some(object("child")));
        assert_eq!(query(subject, |read| read.object_count()), 2);
    }
}

fn again(subject: &Subject<'_>) {
    insert(subject, object("phoenix"), &["a", "b"]);
    put_content(subject, "phoenix", Content::Inline(Bytes::from_static(b"old")));
    commit(subject, |tx| tx.delete_object(SCOPE, id("phoenix")));
    let second = Object { references: 2, ..object("phoenix") };
    insert(subject, second, &["c"]);
    assert_eq!(query(subject, |read| read.object(SCOPE, id("phoenix"))), Some(second));
    assert_eq!(query(subject, |read| read.children(SCOPE, id("phoenix"))), labels(&["c"]));
    assert_eq!(query(subject, |read| read.content(id("phoenix"))), None, "the old content was deleted with the object");
    put_content(subject, "phoenix", Content::Inline(Bytes::from_static(b"new")));
    let expected = Some(Content::Inline(Bytes::from_static(b"new")));
    assert_eq!(query(subject, |read| read.content(id("phoenix"))), expected);
}

fn scoped(subject: &Subject<'_>) {
    let in_scope = |scope: Scope, references: u32| Object { scope, references, ..object("model") };
    insert(subject, in_scope(SCOPE, 1), &["a", "b"]);
    insert(subject, in_scope(SAME_RUN, 2), &["b"]);
    insert(subject, in_scope(OTHER_RUN, 3), &[]);
    let with_content = Object { has_content: true, ..in_scope(SAME_RUN, 4) };
    commit(subject, move |tx| tx.update_object(&with_content));
    for (scope, expected, children) in [
        (SCOPE, in_scope(SCOPE, 1), &["a", "b"][..]),
        (SAME_RUN, with_content, &["b"][..]),
        (OTHER_RUN, in_scope(OTHER_RUN, 3), &[][..]),
    ] {
        assert_eq!(query(subject, |read| read.object(scope, id("model"))), Some(expected));
        assert_eq!(query(subject, |read| read.children(scope, id("model"))), labels(children));
        let parents = query(subject, |read| read.parents(scope, id("b")));
        assert_eq!(parents.len(), usize::from(children.contains(&"b")), "{scope:?}");
    }
    assert_eq!(
        query(subject, |read| read.object_with_content(SCOPE.run, id("model"))),
        Some(with_content),
        "of any sender"
    );
    assert_eq!(query(subject, |read| read.object_with_content(OTHER_RUN.run, id("model"))), None, "of this run only");
    commit(subject, |tx| tx.delete_object(SAME_RUN, id("model")));
    assert_eq!(query(subject, |read| read.object(SAME_RUN, id("model"))), None);
    assert_eq!(query(subject, |read| read.children(SAME_RUN, id("model"))), []);
    assert_eq!(query(subject, |read| read.children(SCOPE, id("model"))), labels(&["a", "b"]));
    assert_eq!(query(subject, |read| read.object_with_content(SCOPE.run, id("model"))), None);
}

fn shared_content(subject: &Subject<'_>) {
    for scope in [SCOPE, SAME_RUN, OTHER_RUN] {
        insert(subject, Object { scope, ..object("model") }, &[]);
    }
    assert!(!query(subject, |read| read.has_content(id("model"))));
    put_content(subject, "model", Content::Inline(Bytes::from_static(b"bytes")));
    for scope in [SAME_RUN, SCOPE] {
        commit(subject, move |tx| tx.delete_object(scope, id("model")));
        assert!(query(subject, |read| read.has_content(id("model"))), "another scope refers to it");
    }
    commit(subject, |tx| tx.delete_object(OTHER_RUN, id("model")));
    assert!(!query(subject, |read| read.has_content(id("model"))));
    assert_eq!(query(subject, |read| read.content(id("model"))), None);
}
