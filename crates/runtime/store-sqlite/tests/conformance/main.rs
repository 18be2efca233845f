//! Conformance of the store on SQLite, and behaviour that only a store on disk has: restarts, crashes, files, full
//! disks.

mod announcing;
mod crash;
mod files;
mod full_disk;
mod regressions;
mod reopening;
mod upgrading;

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use tokio::runtime::Runtime;
use trellis_core::conformance::{Case, Subject, ask, change, id, suite};
use trellis_core::id::{NodeId, RunId};
use trellis_core::object::{Content, Object, Scope};
use trellis_core::port::{Commit, Read, Store, Topic, Tx};
use trellis_core::refusal::Refusal;
use trellis_store_sqlite::{SqliteStore, StateDirectory};

/// Files are written on the blocking threads of this runtime.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
/// Scope of the objects in these tests.
const SCOPE: Scope = Scope { run: RunId(103), sender: NodeId::SUPERLINK };

/// Opens the state in `path`; the receiver gets the announced topics.
fn open(path: &Path) -> (SqliteStore, Receiver<Vec<Topic>>) {
    listen(StateDirectory::open(path, None).expect("a free directory"))
}

fn listen(directory: StateDirectory) -> (SqliteStore, Receiver<Vec<Topic>>) {
    let (announce, announced) = channel();
    let on_commit = Box::new(move |commit: &Commit<'_>| {
        let _ = announce.send(commit.topics.to_vec());
    });
    (SqliteStore::open(Arc::new(directory), on_commit).expect("a valid state"), announced)
}

fn pass((name, case): Case, (store, announced): (SqliteStore, Receiver<Vec<Topic>>)) {
    println!("case: {name}"); // Shown when the case panics.
    let _in_runtime = RUNTIME.enter();
    case(&Subject { store: &store, announced: &announced });
}

#[test]
fn a_store_in_a_directory_conforms() {
    for case in suite() {
        let directory = tempfile::tempdir().unwrap();
        pass(case, open(directory.path()));
    }
}

#[test]
fn an_ephemeral_store_conforms() {
    for case in suite() {
        pass(case, listen(StateDirectory::ephemeral().unwrap()));
    }
}

#[test]
fn two_ephemeral_stores_are_independent() {
    let (first, _announced) = listen(StateDirectory::ephemeral().unwrap());
    keep(&first, |tx| tx.put_context(RunId(1), b"first"));
    let (second, _announced) = listen(StateDirectory::ephemeral().unwrap());
    assert_eq!(context(&second, 1), None);
    drop(second);
    assert_eq!(context(&first, 1).as_deref(), Some(&b"first"[..]));
}

/// Commits a change.
fn keep(store: &SqliteStore, work: impl FnMut(&mut dyn Tx) -> Result<(), Refusal> + Send + 'static) {
    change(store, work).expect("the change is committed");
}

/// Runs a query that must succeed.
fn see<T>(store: &SqliteStore, question: impl Fn(&dyn Read) -> Result<T, Refusal>) -> T {
    ask(store, question).expect("the query succeeds")
}

fn context(store: &SqliteStore, run: u64) -> Option<Vec<u8>> {
    see(store, |read| read.context(RunId(run))).map(Vec::from)
}

/// Stores an object with a file as a front end does: first the file, then the row.
fn place(store: &SqliteStore, label: &'static str, content: &[u8]) -> String {
    let name = place_file(store, label, content);
    let kept = Content::Large { name: name.clone(), bytes: content.len() as u64 };
    keep(store, move |tx| {
        tx.insert_object(&Object { references: 1, has_content: true, ..Object::new(SCOPE, id(label)) }, &[])?;
        tx.put_content(id(label), &kept)
    });
    name
}

fn place_file(store: &SqliteStore, label: &str, content: &[u8]) -> String {
    RUNTIME.block_on(async {
        let mut upload = store.objects().upload();
        upload.write(Bytes::copy_from_slice(content)).await.unwrap();
        upload.finish(id(label)).await.unwrap()
    })
}

fn file(store: &SqliteStore, name: &str) -> Option<Vec<u8>> {
    RUNTIME.block_on(store.objects().read(name, 0)).ok().map(Vec::from)
}

/// Waits until the writer has finished, including work after `done`.
fn settle(store: &SqliteStore) {
    keep(store, |_| Ok(()));
}

/// Counts the files below `objects/`.
fn count_files(state: &Path) -> usize {
    let mut files = 0;
    let mut directories = vec![state.join("objects")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { directories.push(path) } else { files += 1 }
        }
    }
    files
}

/// Copies a state while the store is open, as after a power failure.
fn copy_state(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.unwrap().path(), to);
        let to = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy_state(&entry, &to);
        } else {
            std::fs::copy(&entry, &to).unwrap();
        }
    }
}
