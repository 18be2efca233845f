//! Termination of processes: SIGTERM, a grace period, SIGKILL.

use std::time::Duration;

use futures_util::future::join_all;
use trellis_plan::ResourceId;

use crate::mark::{Mark, Marked, scan};
use crate::process::{Exit, Process};
use crate::recipe::Program;
use crate::shared::Shared;

/// A SuperLink completes open calls for up to 10 s.
const GRACE_PERIOD: Duration = Duration::from_secs(15);
/// The kernel needs time to free the memory of large processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Terminates processes. Returns `false` if some are still alive after SIGKILL, for example in an uninterruptible system call.
pub async fn terminate(processes: &[Process]) -> bool {
    processes.iter().for_each(Process::terminate);
    let ended = || join_all(processes.iter().map(Process::ended));
    if tokio::time::timeout(GRACE_PERIOD, ended()).await.is_ok() {
        return true;
    }
    processes.iter().for_each(Process::kill);
    tokio::time::timeout(KILL_TIMEOUT, ended()).await.is_ok()
}

/// Runs a cleanup program, with the same time limit as the termination of a process.
pub async fn run(shared: &Shared, id: &ResourceId, instance: u64, program: &Program) {
    let mark = Mark { home: shared.home.hash(), id: id.clone(), instance, role: None };
    let name = program.path.display();
    match Process::start(&shared.program, program, &mark, &shared.home.log(id)) {
        Err(error) => tracing::warn!(part = %id, "{name} cannot be started: {error}"),
        Ok(process) => match tokio::time::timeout(GRACE_PERIOD, process.ended()).await {
            Ok(Exit::Code(0)) => {}
            Ok(exit) => tracing::warn!(part = %id, "{name}: {exit}"),
            Err(_) => {
                process.kill();
                tracing::warn!(part = %id, "{name} timed out and was killed");
            }
        },
    }
}

/// Terminates processes that programs of a part left behind.
pub async fn terminate_leftovers(shared: &Shared, id: &ResourceId) -> bool {
    terminate_marked(shared, id, |marked| !marked.is_program).await
}

/// Terminates all processes with the mark of a part.
pub async fn terminate_all(shared: &Shared, id: &ResourceId) -> bool {
    terminate_marked(shared, id, |_| true).await
}

async fn terminate_marked(shared: &Shared, id: &ResourceId, is_selected: impl Fn(&Marked) -> bool) -> bool {
    let marked = match scan(&shared.home.hash()) {
        Ok(marked) => marked,
        Err(error) => {
            tracing::warn!(part = %id, "cannot list processes: {error}");
            return false;
        }
    };
    let selected = marked.into_iter().filter(|marked| marked.mark.id == *id && is_selected(marked));
    let processes: Vec<Process> = selected.filter_map(|marked| Process::find(marked.process)).collect();
    terminate(&processes).await
}
