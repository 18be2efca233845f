//! A store that is reopened, or copied at any moment, has everything that was acknowledged.

use std::sync::mpsc::channel;

use trellis_core::account::{Account, Role};
use trellis_core::audit;
use trellis_core::conformance::{await_one, id, submit};
use trellis_core::id::{NodeId, RunId};
use trellis_core::message::{Envelope, Instruction, Reply, State};
use trellis_core::node::{Event, Node};
use trellis_core::port::{Fab, Read, Traffic, Tx};
use trellis_core::refusal::Refusal;
use trellis_core::run::{self, NewRun, Outcome, Run};
use trellis_core::secret::{Purpose, Secret};
use trellis_core::token::{self, Token};

use super::{SCOPE, context, copy_state, file, keep, open, place, see};

const NOW: f64 = 1_800_000_000.5;
const RUN: RunId = RunId(u64::MAX);
const NODE: NodeId = NodeId(1 << 63);

/// Writes to every table.
fn fill(tx: &mut dyn Tx) -> Result<(), Refusal> {
    let mut node = Node::register(NODE, ("aid", "name"), b"key", 30.0, NOW);
    node.apply(Event::Activate { interval_s: 30.0 }, NOW).unwrap();
    tx.put_node(&node)?;
    let mut run = Run::new(RUN, NewRun::default(), NOW);
    run.apply(run::Event::Finish { outcome: Outcome::Failed, details: "why".into() }, NOW).unwrap();
    tx.put_run(&run)?;
    tx.add_traffic(RUN, Traffic { bytes_sent: 3, bytes_received: 4 })?;
    tx.put_fab(&Fab { hash: "f".into(), content: vec![1; 1 << 20].into(), verifications: vec![2] })?;
    tx.put_context(RUN, b"context")?;
    tx.append_log(RUN, NOW, "a line\n")?;
    tx.put_token(&Token { run: RUN, hash: [7; 32], state: token::State::issue(NOW) })?;
    let envelope = Envelope {
        id: id("instruction"),
        run: RUN,
        src: NodeId::SUPERLINK,
        dst: NODE,
        group_id: "1".into(),
        ttl_s: 60.0,
        message_type: "train".into(),
        created_at: NOW,
        src_task: Some(7),
        dst_task: None,
        error: None,
    };
    tx.put_instruction(&Instruction::restore(envelope.clone(), 3, State::Delivered))?;
    let reply = Envelope { id: id("reply"), ..envelope };
    tx.put_reply(&Reply { envelope: reply, reply_to: id("instruction"), ready: true })?;
    tx.put_account(&Account::new("1", "ann", Role::Runner, NOW))?;
    tx.put_secret(&Secret::new([9; 32], Purpose::Access, "1", "ci", Some(60.0), NOW))?;
    tx.append_audit(NOW, audit::Event::NodeActivated, "node 1", "node 1", "http 1.42.0")?;
    tx.set_alive_at(NOW)
}

/// Everything that [`fill`] and [`place`] wrote, as text.
fn picture(read: &dyn Read) -> Result<String, Refusal> {
    Ok(format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        read.nodes()?,
        read.runs()?,
        read.traffic(RUN)?,
        read.fab("f")?,
        read.context(RUN)?,
        read.log_after(RUN, 0.0, 1000)?,
        read.token(RUN)?,
        read.deliverable(NODE)?,
        read.reply_to(id("instruction"))?,
        read.object(SCOPE, id("object"))?,
        read.content(id("object"))?,
        read.object_count()?,
        read.accounts()?,
        read.secrets()?,
        read.audit_newest(10)?,
        read.alive_at()?,
    ))
}

#[test]
fn everything_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    keep(&store, fill);
    let name = place(&store, "object", b"large");
    let before = see(&store, picture);
    assert!(!before.contains("None\n"), "a query found nothing: {before}");
    for _ in 0..2 {
        drop(open_after_drop(directory.path(), &before, &name));
    }
    drop(store);
    let (store, _announced) = open(directory.path());
    assert_eq!(see(&store, picture), before);
    assert_eq!(file(&store, &name).as_deref(), Some(&b"large"[..]));
}

/// Opens a copy made while the store was open and compares it.
fn open_after_drop(state: &std::path::Path, before: &str, name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_state(state, copy.path());
    assert!(copy.path().join("state.db-wal").metadata().unwrap().len() > 0, "the log is part of the state");
    let (store, _announced) = open(copy.path());
    assert_eq!(see(&store, picture), before);
    assert_eq!(file(&store, name).as_deref(), Some(&b"large"[..]));
    copy
}

#[test]
fn drop_waits_for_submitted_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    let results: Vec<_> =
        (0..1000).map(|n| submit(&store, move |tx| tx.put_context(RunId(n), &n.to_be_bytes()))).collect();
    drop(store);
    assert!(results.iter().all(|result| result.try_recv().is_ok_and(|result| result.is_ok())), "a job is incomplete");
    let (store, _announced) = open(directory.path());
    assert!((0..1000).all(|n| context(&store, n) == Some(n.to_be_bytes().to_vec())));
}

#[test]
fn a_copy_made_during_a_job_has_all_earlier_jobs_and_no_part_of_it() {
    // Larger than the writer's cache, so that the log contains uncommitted pages, and larger than the log before a
    // checkpoint, so that both files matter.
    const LARGE_BYTES: usize = 1 << 20;
    const CONTEXTS: u64 = 24;
    let directory = tempfile::tempdir().unwrap();
    let (store, _announced) = open(directory.path());
    for n in 0..CONTEXTS {
        keep(&store, move |tx| tx.put_context(RunId(n), &vec![1; LARGE_BYTES]));
    }
    let (started_tx, written) = channel();
    let (go, wait) = channel::<()>();
    let job = submit(&store, move |tx| {
        (0..2 * CONTEXTS).try_for_each(|n| tx.put_context(RunId(n), &vec![2; LARGE_BYTES]))?;
        let _ = started_tx.send(());
        let _ = wait.recv();
        Ok(())
    });
    await_one(&written);
    let log_bytes = directory.path().join("state.db-wal").metadata().unwrap().len();
    assert!(log_bytes > (CONTEXTS / 2) * LARGE_BYTES as u64, "uncommitted pages are in the log: {log_bytes} bytes");
    let copy = tempfile::tempdir().unwrap();
    copy_state(directory.path(), copy.path());
    drop(go);
    await_one(&job).unwrap();

    let (crashed, _announced) = open(copy.path());
    for n in 0..2 * CONTEXTS {
        let expected = (n < CONTEXTS).then(|| vec![1; LARGE_BYTES]);
        assert!(context(&crashed, n) == expected, "context {n} of the copy");
        assert!(context(&store, n) == Some(vec![2; LARGE_BYTES]), "context {n} of the original store");
    }
    keep(&crashed, |tx| tx.put_context(RUN, b"and it goes on"));
}
