//! What `on_commit` hears.

use std::sync::mpsc::channel;

use trellis_core::conformance::{await_one, change, submit};
use trellis_core::id::RunId;
use trellis_core::port::Topic;
use trellis_core::refusal::{Kind, Refusal};

use super::{keep, open};

#[test]
fn the_topics_of_one_commit_come_once_each_and_those_of_refused_jobs_never() {
    let directory = tempfile::tempdir().unwrap();
    let (store, announced) = open(directory.path());
    let (go, wait) = channel::<()>();
    let (here, started) = channel();
    let first = submit(&store, move |tx| {
        tx.wake(Topic::Launch);
        let _ = here.send(());
        let _ = wait.recv();
        Ok(())
    });
    await_one(&started);
    // Piled up behind the first one, they share its commit.
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
    let mut want = vec![Topic::Launch];
    want.extend((0..5).map(|n| Topic::Log(RunId(n))));
    let mut heard = await_one(&announced);
    heard.sort_unstable();
    want.sort_unstable();
    assert_eq!(heard, want);
}

#[test]
fn a_refused_job_alone_announces_nothing() {
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
