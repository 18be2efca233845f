//! Calls of `on_commit`.

use std::sync::mpsc::channel;

use trellis_core::conformance::{await_one, change, submit};
use trellis_core::id::RunId;
use trellis_core::port::Topic;
use trellis_core::refusal::{Kind, Refusal};

use super::{keep, open};

#[test]
fn a_commit_announces_each_topic_once_and_no_topics_of_rolled_back_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let (store, announced) = open(directory.path());
    let (go, wait) = channel::<()>();
    let (started_tx, started) = channel();
    let first = submit(&store, move |tx| {
        tx.wake(Topic::Launch);
        let _ = started_tx.send(());
        let _ = wait.recv();
        Ok(())
    });
    await_one(&started);
    // Jobs that wait behind the first one share its commit.
    let others: Vec<_> = (0..10)
        .map(|n| {
            submit(&store, move |tx| {
                tx.wake(Topic::Launch);
                tx.wake(Topic::Log(RunId(n)));
                if n < 5 { Ok(()) } else { Err(Refusal::new(Kind::Denied, "no")) }
            })
        })
        .collect();
    drop(go);
    await_one(&first).unwrap();
    let kept = others.iter().filter(|other| await_one(other).is_ok()).count();
    assert_eq!(kept, 5);
    let mut expected = vec![Topic::Launch];
    expected.extend((0..5).map(|n| Topic::Log(RunId(n))));
    let mut heard = await_one(&announced);
    heard.sort_unstable();
    expected.sort_unstable();
    assert_eq!(heard, expected);
}

#[test]
fn a_rolled_back_job_announces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, announced) = open(directory.path());
    let refused = change(&store, |tx| {
        tx.wake(Topic::Launch);
        Err::<(), _>(Refusal::new(Kind::Denied, "no"))
    });
    assert_eq!(refused.unwrap_err().kind, Kind::Denied);
    keep(&store, |tx| {
        tx.wake(Topic::Finished(RunId(1)));
        Ok(())
    });
    drop(store);
    let heard: Vec<Topic> = announced.iter().flatten().collect();
    assert_eq!(heard, [Topic::Finished(RunId(1))]);
}
