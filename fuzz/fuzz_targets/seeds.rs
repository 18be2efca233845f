//! Real objects to start from: the recorded ones, and a body for each kind in the form the target wants.

use std::sync::OnceLock;

use bytes::Bytes;
use trellis_wire::object::{self, ObjectKind};

const RECORDED: [&str; 3] = [
    include_str!("../../crates/runtime/wire/tests/data/objects.jsonl"),
    include_str!("../../crates/runtime/wire/tests/data/made.jsonl"),
    include_str!("../../crates/runtime/wire/tests/data/errors.jsonl"),
];

pub fn all() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let objects: Vec<Vec<u8>> = RECORDED.iter().flat_map(|text| text.lines()).filter_map(recorded).collect();
        let bodies = objects.iter().map(|object| body_of(object)).chain(named_bodies());
        let bodies: Vec<_> = bodies.collect();
        objects.into_iter().chain(bodies).collect()
    })
}

/// `None` for an object that was too large to record.
fn recorded(line: &str) -> Option<Vec<u8>> {
    let row: serde_json::Value = serde_json::from_str(line).expect("a row of JSON");
    let hex = row["hex"].as_str()?.as_bytes();
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    hex.chunks_exact(2).map(byte).collect()
}

fn body_of(object: &[u8]) -> Vec<u8> {
    let (header, body) = object::decode(&Bytes::copy_from_slice(object)).expect("a recorded object");
    with_choice(header.kind, header.children.len().min(2), &body)
}

fn named_bodies() -> impl Iterator<Item = Vec<u8>> {
    [ObjectKind::ArrayRecord, ObjectKind::RecordDict].into_iter().flat_map(|kind| {
        [
            with_choice(kind, 1, b"{\"a\": \"\x01\", \"\\u00e4\": \"\x01\"}"),
            with_choice(kind, 2, b"{\"\\ud83d\\ude00\": \"\x02\", \"b\": \"\x01\"}"),
        ]
    })
}

/// The first byte that makes the target take the rest as a body of this kind, with so many children.
fn with_choice(kind: ObjectKind, children: usize, body: &[u8]) -> Vec<u8> {
    let position = ObjectKind::ALL.iter().position(|&other| other == kind).expect("all kinds are listed");
    let choice = (position + children * ObjectKind::ALL.len()) as u8;
    [&[choice], body].concat()
}
