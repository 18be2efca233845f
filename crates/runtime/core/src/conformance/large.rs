//! Content too large for a row: in and out in blocks, there as long as a row names it.

use std::time::Instant;

use bytes::Bytes;

use super::{Case, PATIENCE, SCOPE, Subject, block_on, change, id, keep, see};
use crate::id::ObjectId;
use crate::object::{Content, Object};
use crate::refusal::{Kind, Refusal};

pub(super) const CASES: &[Case] = &[
    ("large content comes back byte for byte, whole and in blocks", round_trip),
    ("each upload has a name of its own", names),
    ("large content goes with the last object that names it", deleted),
    ("large content that is not needed goes with the commit that says so", discarded),
    ("content that was opened is read to its end, although it is removed", read_while_removed),
];

const BLOCK_BYTES: usize = 300_000;

/// Bytes that differ from block to block.
fn blocks(count: usize) -> Vec<Bytes> {
    (0..count).map(|n| Bytes::from(vec![n as u8 + 1; BLOCK_BYTES + n])).collect()
}

fn upload(subject: &Subject<'_>, id: ObjectId, blocks: &[Bytes]) -> String {
    let mut upload = subject.store.objects().upload();
    for block in blocks {
        block_on(upload.write(block.clone())).expect("a block is taken");
    }
    block_on(upload.finish(id)).expect("an upload is finished")
}

fn whole(subject: &Subject<'_>, name: &str, bytes: u64) -> Option<Bytes> {
    block_on(subject.store.objects().read(name, bytes)).ok()
}

fn in_blocks(subject: &Subject<'_>, name: &str, before_reading: impl FnOnce()) -> Vec<u8> {
    let mut blocks = block_on(subject.store.objects().open(name)).expect("content is opened");
    before_reading();
    let mut read = Vec::new();
    while let Some(block) = block_on(std::future::poll_fn(|cx| blocks.poll_next(cx))) {
        read.extend_from_slice(&block.expect("a block is read"));
    }
    read
}

/// Stores an object with large content; says its name and its bytes.
fn store(subject: &Subject<'_>, label: &'static str) -> (String, u64) {
    let blocks = blocks(2);
    let (name, bytes) = (upload(subject, id(label), &blocks), blocks.iter().map(|block| block.len() as u64).sum());
    let content = Content::Large { name: name.clone(), bytes };
    keep(subject, move |tx| {
        tx.insert_object(&Object { references: 1, here: true, ..Object::new(SCOPE, id(label)) }, &[])?;
        tx.put_content(id(label), &content)
    });
    (name, bytes)
}

/// Waits until content is removed, which a store does after the commit.
fn assert_removed(subject: &Subject<'_>, name: &str, bytes: u64) {
    let end = Instant::now() + PATIENCE;
    while whole(subject, name, bytes).is_some() {
        assert!(Instant::now() < end, "{name} was never removed");
        keep(subject, |_| Ok(()));
    }
}

fn round_trip(subject: &Subject<'_>) {
    for count in [0, 1, 7] {
        let blocks = blocks(count);
        let (sent, name) = (blocks.concat(), upload(subject, id("large"), &blocks));
        let read = whole(subject, &name, sent.len() as u64).expect("it is there");
        assert!(read == sent, "{count} blocks: not as they came");
        assert!(in_blocks(subject, &name, || ()) == sent, "{count} blocks: not as they came");
    }
    assert_eq!(whole(subject, "never-stored", 1), None);
}

fn names(subject: &Subject<'_>) {
    let (one, other) = (upload(subject, id("large"), &blocks(1)), upload(subject, id("large"), &blocks(1)));
    assert_ne!(one, other);
    block_on(subject.store.objects().remove(&one));
    block_on(subject.store.objects().remove(&one));
    assert_eq!(whole(subject, &one, BLOCK_BYTES as u64), None);
    assert!(whole(subject, &other, BLOCK_BYTES as u64).is_some());
}

fn deleted(subject: &Subject<'_>) {
    let ((gone, bytes), (kept, _)) = (store(subject, "gone"), store(subject, "kept"));
    let refused = change(subject.store, |tx| {
        tx.delete_object(SCOPE, id("gone"))?;
        Err::<(), _>(Refusal::new(Kind::Denied, "no"))
    });
    assert_eq!(refused.unwrap_err().kind, Kind::Denied);
    keep(subject, |_| Ok(()));
    assert!(whole(subject, &gone, bytes).is_some(), "the job that deleted it was refused");
    keep(subject, |tx| tx.delete_object(SCOPE, id("gone")));
    assert_removed(subject, &gone, bytes);
    assert!(whole(subject, &kept, bytes).is_some());
    assert!(see(subject, |read| read.has_content(id("kept"))));
}

fn discarded(subject: &Subject<'_>) {
    let (spare, bytes) = (upload(subject, id("spare"), &blocks(1)), BLOCK_BYTES as u64);
    let content = Content::Large { name: spare.clone(), bytes };
    keep(subject, move |tx| {
        tx.discard(&content);
        tx.discard(&Content::Inline(Bytes::from_static(b"nothing to remove")));
        Ok(())
    });
    assert_removed(subject, &spare, bytes);
}

fn read_while_removed(subject: &Subject<'_>) {
    let (name, bytes) = store(subject, "large");
    let remove = || {
        keep(subject, |tx| tx.delete_object(SCOPE, id("large")));
        assert_removed(subject, &name, bytes);
    };
    assert!(in_blocks(subject, &name, remove) == blocks(2).concat(), "not as it came");
}
