//! Large content: upload, read, and removal with the last reference.

use std::time::Instant;

use bytes::Bytes;

use super::{Case, SCOPE, Subject, TIMEOUT, block_on, change, commit, id, query};
use crate::id::ObjectId;
use crate::object::{Content, Object};
use crate::refusal::{Kind, Refusal};

pub(super) const CASES: &[Case] = &[
    ("large content round-trips, whole and in blocks", round_trip),
    ("each upload has a unique name", names),
    ("large content is removed with its last object", deleted),
    ("discarded large content is removed after the commit", discarded),
    ("open content is readable to its end after its removal", read_while_removed),
];

const BLOCK_BYTES: usize = 300_000;

/// Blocks with different content.
fn blocks(count: usize) -> Vec<Bytes> {
    (0..count).map(|n| Bytes::from(vec![n as u8 + 1; BLOCK_BYTES + n])).collect()
}

fn upload(subject: &Subject<'_>, id: ObjectId, blocks: &[Bytes]) -> String {
    let mut upload = subject.store.objects().upload();
    for block in blocks {
        block_on(upload.write(block.clone())).expect("write a block");
    }
    block_on(upload.finish(id)).expect("finish an upload")
}

fn whole(subject: &Subject<'_>, name: &str, bytes: u64) -> Option<Bytes> {
    block_on(subject.store.objects().read(name, bytes)).ok()
}

fn in_blocks(subject: &Subject<'_>, name: &str, before_reading: impl FnOnce()) -> Vec<u8> {
    let mut blocks = block_on(subject.store.objects().open(name)).expect("open content");
    before_reading();
    let mut read = Vec::new();
    while let Some(block) = block_on(std::future::poll_fn(|cx| blocks.poll_next(cx))) {
        read.extend_from_slice(&block.expect("read a block"));
    }
    read
}

/// Stores an object with large content. Returns the name and size of the content.
fn store(subject: &Subject<'_>, label: &'static str) -> (String, u64) {
    let blocks = blocks(2);
    let (name, bytes) = (upload(subject, id(label), &blocks), blocks.iter().map(|block| block.len() as u64).sum());
    let content = Content::Large { name: name.clone(), bytes };
    commit(subject, move |tx| {
        tx.insert_object(&Object { references: 1, has_content: true, ..Object::new(SCOPE, id(label)) }, &[])?;
        tx.put_content(id(label), &content)
    });
    (name, bytes)
}

/// Waits until content is removed: a store removes it after the commit.
fn assert_removed(subject: &Subject<'_>, name: &str, bytes: u64) {
    let end = Instant::now() + TIMEOUT;
    while whole(subject, name, bytes).is_some() {
        assert!(Instant::now() < end, "{name} was not removed");
        commit(subject, |_| Ok(()));
    }
}

fn round_trip(subject: &Subject<'_>) {
    for count in [0, 1, 7] {
        let blocks = blocks(count);
        let (sent, name) = (blocks.concat(), upload(subject, id("large"), &blocks));
        let read = whole(subject, &name, sent.len() as u64).expect("stored content");
        assert!(read == sent, "{count} blocks: content differs");
        assert!(in_blocks(subject, &name, || ()) == sent, "{count} blocks: content differs");
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
    commit(subject, |_| Ok(()));
    assert!(whole(subject, &gone, bytes).is_some(), "the deletion was rolled back");
    commit(subject, |tx| tx.delete_object(SCOPE, id("gone")));
    assert_removed(subject, &gone, bytes);
    assert!(whole(subject, &kept, bytes).is_some());
    assert!(query(subject, |read| read.has_content(id("kept"))));
}

fn discarded(subject: &Subject<'_>) {
    let (spare, bytes) = (upload(subject, id("spare"), &blocks(1)), BLOCK_BYTES as u64);
    let content = Content::Large { name: spare.clone(), bytes };
    commit(subject, move |tx| {
        tx.discard(&content);
        tx.discard(&Content::Inline(Bytes::from_static(b"nothing to remove")));
        Ok(())
    });
    assert_removed(subject, &spare, bytes);
}

fn read_while_removed(subject: &Subject<'_>) {
    let (name, bytes) = store(subject, "large");
    let remove = || {
        commit(subject, |tx| tx.delete_object(SCOPE, id("large")));
        assert_removed(subject, &name, bytes);
    };
    assert!(in_blocks(subject, &name, remove) == blocks(2).concat(), "content differs");
}
