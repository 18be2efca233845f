//! Watching from outside: a call that is held until a run or a node changes. It says what to look at, not how it is.

use std::cmp::Reverse;
use std::time::Duration;

use trellis_core::id::RunId;
use trellis_core::port::Topic;
use trellis_core::refusal::{Kind, Refusal};
use trellis_wire::call::{Changed, DEFAULT_WAIT_S, Watch};

use crate::changes::Since;
use crate::link::{Link, STOPPING};

/// A call is held at most this long, whatever it asks for.
const MAX_WAIT_S: u64 = 60;
/// Of the finished runs as many are named to somebody who knows nothing.
const MAX_FINISHED: usize = 100;

fn changed(Since { at, runs, nodes }: Since) -> Changed {
    Changed { at, runs: runs.iter().map(ToString::to_string).collect(), nodes }
}

/// Held until something changed, or the hold is over.
pub async fn watch(link: &Link, asked: Watch) -> Result<Changed, Refusal> {
    let Some(after) = asked.after else { return everything(link) };
    let hold = Duration::from_secs(asked.wait_s.unwrap_or(DEFAULT_WAIT_S).min(MAX_WAIT_S));
    let look = || {
        let Some(since) = link.changes.since(&after) else { return everything(link).map(Some) };
        Ok((!since.is_nothing()).then(|| changed(since)))
    };
    match link.room.wait(Topic::Changes, hold, hold, look).await? {
        Some(changed) => Ok(changed),
        // Who hears "nothing" asks again at once.
        None if link.room.is_closed() => Err(Refusal::new(Kind::Transient, STOPPING)),
        None => Ok(Changed { at: after, runs: Vec::new(), nodes: false }),
    }
}

/// What somebody looks at first: the runs at work, and those that ended last.
fn everything(link: &Link) -> Result<Changed, Refusal> {
    // The moment before the look: what changes meanwhile is told again rather than not at all.
    let at = link.changes.now();
    let (mut finished, mut runs): (Vec<_>, Vec<_>) =
        link.read(|view| view.runs())?.into_iter().partition(|run| run.state().is_finished());
    finished.sort_unstable_by_key(|run| Reverse(run.finished_at.map(|at| (at * 1e6) as i64)));
    runs.extend(finished.into_iter().take(MAX_FINISHED));
    let runs: Vec<RunId> = runs.into_iter().map(|run| run.id).collect();
    Ok(changed(Since { at, runs, nodes: true }))
}
