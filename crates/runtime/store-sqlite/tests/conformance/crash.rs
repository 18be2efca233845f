//! A process killed at any moment has stored every acknowledged job, and no part of another.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use trellis_core::conformance::{change, submit};
use trellis_core::id::RunId;
use trellis_core::refusal::Refusal;

use super::{context, open, see};

const STATE: &str = "TRELLIS_TEST_STATE_TO_FILL";
/// Concurrent jobs: several share a commit, and a kill hits all stages.
const IN_FLIGHT: usize = 16;

/// The process that [`acknowledged_jobs_survive_kill_9`] kills. Prints each acknowledged number.
#[test]
#[ignore = "a part of acknowledged_jobs_survive_kill_9, which starts it in a process of its own"]
fn fill_until_killed() {
    let Some(state) = std::env::var_os(STATE) else { return };
    let (store, _announced) = open(Path::new(&state));
    let (queue, submitted) = channel::<(u64, Receiver<Result<(), Refusal>>)>();
    std::thread::spawn(move || {
        for (n, result) in submitted {
            if result.recv().unwrap().is_ok() {
                println!("acknowledged {n}");
            }
        }
    });
    for n in 0.. {
        let job = submit(&store, move |tx| {
            tx.put_context(RunId(n), &n.to_be_bytes())?;
            // A second row in another part of the database: both or none.
            tx.append_log(RunId(n), 1.0, "x")
        });
        queue.send((n, job)).unwrap();
        if (n as usize).is_multiple_of(IN_FLIGHT) {
            change(&store, |_| Ok(())).unwrap();
        }
    }
}

#[test]
fn acknowledged_jobs_survive_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for kill_after in [1, 2, 7, 50, 333] {
        let last = fill_and_kill(directory.path(), kill_after);
        acknowledged = acknowledged.max(last);
        let (store, _announced) = open(directory.path());
        for n in 0..=acknowledged {
            assert_eq!(context(&store, n), Some(n.to_be_bytes().to_vec()), "job {n} was acknowledged");
        }
        // Jobs without acknowledgement may be stored, but only as a whole.
        for n in 0..acknowledged + 1000 {
            let line = see(&store, |read| read.log_after(RunId(n), 0.0, 100)).is_some();
            assert_eq!(context(&store, n).is_some(), line, "half of job {n}");
        }
    }
}

/// Starts the child on `state`, kills it after so many acknowledgements, and returns the last number.
fn fill_and_kill(state: &Path, kill_after: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::fill_until_killed", "--exact", "--ignored", "--nocapture"])
        .env(STATE, state)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut last = None;
    let mut heard = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        if let Some(n) = line.unwrap().strip_prefix("acknowledged ") {
            last = Some(n.parse().unwrap());
            heard += 1;
            if heard == kill_after {
                child.kill().unwrap(); // SIGKILL. The output before the kill is read to the end.
            }
        }
    }
    child.wait().unwrap();
    assert!(heard >= kill_after, "the child ended after {heard} acknowledgements");
    last.expect("an acknowledgement")
}
