//! Watches for external observers: a call held until a run or a node changes. It returns what changed, not the new
//! state.

use std::cmp::Reverse;
use std::time::Duration;

use trellis_core::id::RunId;
use trellis_core::port::Topic;
use trellis_core::refusal::{Kind, Refusal};
use trellis_wire::call::{Changed, DEFAULT_WAIT_S, Watch};

use crate::changes::Since;
use crate::link::{Link, STOPPING};

/// Maximum hold time of a watch.
const MAX_WAIT_S: u64 = 60;
/// Maximum number of finished runs in a first answer.
const MAX_FINISHED: usize = 100;

fn changed(Since { at, runs, nodes }: Since) -> Changed {
    Changed { at, runs: runs.iter().map(ToString::to_string).collect(), nodes }
}

/// Waits for a change, up to the hold time.
pub async fn watch(link: &Link, asked: Watch) -> Result<Changed, Refusal> {
    let Some(after) = asked.after else { return everything(link) };
    let hold = Duration::from_secs(asked.wait_s.unwrap_or(DEFAULT_WAIT_S).min(MAX_WAIT_S));
    let look = || {
        let Some(since) = link.changes.since(&after) else { return everything(link).map(Some) };
        Ok((!since.is_nothing()).then(|| changed(since)))
    };
    match link.room.wait(Topic::Changes, hold, hold, look).await? {
        Some(changed) => Ok(changed),
        // A client that gets "no change" polls again at once.
        None if link.room.is_closed() => Err(Refusal::new(Kind::Transient, STOPPING)),
        None => Ok(Changed { at: after, runs: Vec::new(), nodes: false }),
    }
}

/// Returns the initial state: unfinished runs, and the runs that finished last.
fn everything(link: &Link) -> Result<Changed, Refusal> {
    // Taken before the query: a concurrent change is reported twice instead of never.
    let at = link.changes.now();
    let (mut finished, mut runs): (Vec<_>, Vec<_>) =
        link.read(|view| view.runs())?.into_iter().partition(|run| run.state().is_finished());
    finished.sort_unstable_by_key(|run| Reverse(run.finished_at.map(|at| (at * 1e6) as i64)));
    runs.extend(finished.into_iter().take(MAX_FINISHED));
    let runs: Vec<RunId> = runs.into_iter().map(|run| run.id).collect();
    Ok(changed(Since { at, runs, nodes: true }))
}
