//! The end of processes: they are asked, get time, and are ended.

use std::time::Duration;

use futures_util::future::join_all;
use trellis_plan::ResourceId;

use crate::mark::{Mark, Marked, scan};
use crate::process::{Ending, Process};
use crate::recipe::Program;
use crate::world::World;

/// A SuperLink lets calls end for 10 s.
const GRACE: Duration = Duration::from_secs(15);
/// Even the kernel needs a moment for large ones.
const KILLED: Duration = Duration::from_secs(5);

/// Ends processes. `false`: some are there all the same, which only the kernel can explain.
pub async fn end(processes: &[Process]) -> bool {
    processes.iter().for_each(Process::terminate);
    let ended = || join_all(processes.iter().map(Process::ended));
    if tokio::time::timeout(GRACE, ended()).await.is_ok() {
        return true;
    }
    processes.iter().for_each(Process::kill);
    tokio::time::timeout(KILLED, ended()).await.is_ok()
}

/// Runs a program that tidies up. It has as much time as a process has to end.
pub async fn run(world: &World, id: &ResourceId, instance: u64, program: &Program) {
    let mark = Mark { home: world.home.hash(), id: id.clone(), instance, role: None };
    let name = program.path.display();
    match Process::start(&world.program, program, &mark, &world.home.log(id)) {
        Err(error) => tracing::warn!(part = %id, "{name} cannot be started: {error}"),
        Ok(process) => match tokio::time::timeout(GRACE, process.ended()).await {
            Ok(Ending::Exited(0)) => {}
            Ok(ending) => tracing::warn!(part = %id, "{name}: {ending}"),
            Err(_) => {
                process.kill();
                tracing::warn!(part = %id, "{name} takes too long, and was ended");
            }
        },
    }
}

/// Ends what programs of a part started and left behind.
pub async fn end_leftovers(world: &World, id: &ResourceId) -> bool {
    end_marked(world, id, |marked| !marked.is_program).await
}

/// Ends everything that carries the mark of a part.
pub async fn end_all(world: &World, id: &ResourceId) -> bool {
    end_marked(world, id, |_| true).await
}

async fn end_marked(world: &World, id: &ResourceId, is_meant: impl Fn(&Marked) -> bool) -> bool {
    let marked = match scan(&world.home.hash()) {
        Ok(marked) => marked,
        Err(error) => {
            tracing::warn!(part = %id, "processes cannot be listed: {error}");
            return false;
        }
    };
    let meant = marked.into_iter().filter(|marked| marked.mark.id == *id && is_meant(marked));
    let processes: Vec<Process> = meant.filter_map(|marked| Process::find(marked.process)).collect();
    end(&processes).await
}
