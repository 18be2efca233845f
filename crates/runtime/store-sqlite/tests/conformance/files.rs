//! Object files: removed with their objects, never before, and swept after a crash.

use std::sync::mpsc::channel;

use bytes::Bytes;
use trellis_core::conformance::{await_one, change, id, submit};
use trellis_core::object::{Content, Object};
use trellis_core::port::Store;
use trellis_core::refusal::{Kind, Refusal};

use super::{RUNTIME, SCOPE, count_files, file, keep, open, place, place_file, see, settle};

#[test]
fn the_file_of_a_deleted_object_is_removed_after_the_commit() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    let (gone, kept) = (place(&store, "gone", b"large"), place(&store, "kept", b"also large"));
    let (started_tx, deleted) = channel();
    let (go, wait) = channel::<()>();
    let job = submit(&store, move |tx| {
        tx.delete_object(SCOPE, id("gone"))?;
        let _ = started_tx.send(());
        let _ = wait.recv();
        Ok(())
    });
    await_one(&deleted);
    assert_eq!(file(&store, &gone).as_deref(), Some(&b"large"[..]), "before the commit a crash must not lose it");
    drop(go);
    await_one(&job).unwrap();
    settle(&store);
    assert_eq!(file(&store, &gone), None);
    assert_eq!(file(&store, &kept).as_deref(), Some(&b"also large"[..]));
    assert_eq!(count_files(directory.path()), 1);
}

#[test]
fn a_rolled_back_deletion_leaves_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    let name = place(&store, "one", b"large");
    let refused = change(&store, |tx| {
        tx.delete_object(SCOPE, id("one"))?;
        Err::<(), _>(Refusal::new(Kind::Denied, "no"))
    });
    assert_eq!(refused.unwrap_err().kind, Kind::Denied);
    settle(&store);
    assert_eq!(file(&store, &name).as_deref(), Some(&b"large"[..]));
    assert!(see(&store, |read| read.content(id("one"))).is_some());
}

#[test]
fn a_discarded_file_is_removed_with_the_commit() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    let name = place_file(&store, "spare", b"a second copy");
    let spare = Content::Large { name: name.clone(), bytes: 13 };
    let refused = {
        let spare = spare.clone();
        change(&store, move |tx| {
            tx.discard(&spare);
            Err::<(), _>(Refusal::new(Kind::Denied, "no"))
        })
    };
    assert_eq!(refused.unwrap_err().kind, Kind::Denied);
    settle(&store);
    assert!(file(&store, &name).is_some(), "the job was rolled back");
    for _ in 0..2 {
        let spare = spare.clone();
        keep(&store, move |tx| {
            tx.discard(&spare);
            tx.discard(&Content::Inline(b"nothing to remove"[..].into()));
            Ok(())
        });
        settle(&store);
        assert_eq!(count_files(directory.path()), 0);
    }
}

#[test]
fn an_object_that_is_deleted_and_stored_again_keeps_its_new_file() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    let old = place(&store, "phoenix", b"bytes");
    let new = place_file(&store, "phoenix", b"bytes");
    assert_ne!(old, new);
    let content = Content::Large { name: new.clone(), bytes: 5 };
    keep(&store, move |tx| {
        tx.delete_object(SCOPE, id("phoenix"))?;
        tx.insert_object(&Object { references: 1, has_content: true, ..Object::new(SCOPE, id("phoenix")) }, &[])?;
        tx.put_content(id("phoenix"), &content)
    });
    settle(&store);
    assert_eq!((file(&store, &old), file(&store, &new)), (None, Some(b"bytes".to_vec())));
}

#[test]
fn only_orphans_of_a_crash_are_removed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    let kept = place(&store, "kept", b"kept");
    place_file(&store, "placed and never committed", b"orphan");
    let mut upload = store.objects().upload();
    RUNTIME.block_on(upload.write(Bytes::from_static(b"half of it"))).unwrap();
    std::mem::forget(upload); // A crash leaves the upload like this.
    assert_eq!(count_files(directory.path()), 3);
    drop(store);

    let (store, _announced) = open(directory.path());
    assert_eq!(count_files(directory.path()), 1);
    assert_eq!(file(&store, &kept).as_deref(), Some(&b"kept"[..]));
}

#[test]
fn only_the_owner_can_read_the_state() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(&directory.path().join("state"));
    place(&store, "one", b"large");
    let mut seen = 0;
    let mut look = vec![directory.path().join("state")];
    while let Some(path) = look.pop() {
        let metadata = path.metadata().unwrap();
        let others = metadata.permissions().mode() & 0o077;
        let is_log = path.extension().is_some_and(|extension| extension == "db-wal" || extension == "db-shm");
        assert!(others == 0 || is_log, "{} is accessible to others: {others:o}", path.display());
        seen += 1;
        if metadata.is_dir() {
            look.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 6, "database, log, lock, directories and a file");
}
