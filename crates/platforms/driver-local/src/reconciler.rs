//! The reconciler of one part: executes the next step of its record, and detects when it becomes ready and when it ends. It restarts
//! nothing by itself; the planner decides.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use trellis_clock::now_ms;
use trellis_files::private;

use crate::launch::{Launched, launch, with_log_tail};
use crate::part::{Failure, Part, Running, Step, blocking, write};
use crate::probe::Depth;
use crate::process::Exit;
use crate::recipe::Probe;
use crate::record::Record;
use crate::shared::Shared;
use crate::{enrolment, termination, tls};

/// Poll interval of the readiness probe.
const POLL_INTERVAL: Duration = Duration::from_millis(15);
/// After this many polls, the interval is longer.
const FAST_POLLS: u32 = 600;
const SLOW_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Delay before a failed removal is retried.
const REMOVE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Runs until the part is removed.
pub async fn run(shared: Arc<Shared>, part: Arc<Part>) {
    loop {
        let step = part.lock().await.next();
        match step {
            Step::Terminate(processes) => {
                if !termination::terminate(&processes).await {
                    tracing::warn!(part = %part.id, "some of its processes are still alive after SIGKILL");
                }
                let mut state = part.lock().await;
                processes
                    .iter()
                    .filter(|process| !process.is_alive())
                    .for_each(|process| state.remove_running(process));
            }
            Step::Launch => match launch(&shared, &part).await {
                Launched::Started | Launched::Superseded => {}
                Launched::Failed(why) => fail(&shared, &part, why).await,
            },
            Step::Watch(instance) => watch(&shared, &part, instance).await,
            Step::Wait => part.changed.notified().await,
            Step::Remove => match remove(&shared, &part).await {
                Ok(()) => return shared.wake(&part.id.federation),
                Err(error) => {
                    tracing::warn!(part = %part.id, "cannot remove the part: {error}");
                    tokio::time::sleep(REMOVE_RETRY_DELAY).await;
                }
            },
        }
    }
}

async fn fail(shared: &Shared, part: &Part, why: String) {
    tracing::warn!(part = %part.id, "{why}");
    part.lock().await.failure = Some(Failure { why, since_ms: now_ms() });
    shared.wake(&part.id.federation);
}

/// Waits until a program of the instance ends or the record changes, and notifies when the instance becomes ready. Returns at
/// once if an order replaced the instance since the step was chosen.
async fn watch(shared: &Shared, part: &Part, instance: u64) {
    let (running, probe) = {
        let state = part.lock().await;
        if state.record.instance != instance {
            return;
        }
        let own = state.running.iter().filter(|running| running.instance == instance);
        let is_ready = state.ready_ms.is_some();
        let probe = state.recipe.as_ref().map(|recipe| recipe.probe.clone()).filter(|_| !is_ready);
        (own.cloned().collect::<Vec<Running>>(), probe)
    };
    tokio::select! {
        (role, exit) = first_ended(&running) => ended(shared, part, instance, role, exit).await,
        () = part.changed.notified() => {}
        () = until_ready(probe) => {
            became_ready(part, instance).await;
            shared.wake(&part.id.federation);
        }
    }
}

async fn first_ended(running: &[Running]) -> (Option<usize>, Exit) {
    if running.is_empty() {
        return (None, Exit::Unknown);
    }
    let ends = running.iter().map(|running| {
        Box::pin(async move {
            let exit = running.process.ended().await;
            (running.role, exit)
        })
    });
    select_all(ends).await.0
}

async fn became_ready(part: &Part, instance: u64) {
    let mut state = part.lock().await;
    if state.record.instance == instance {
        state.ready_ms = Some(now_ms());
    }
}

/// Records the end of a program as the failure of its instance. The instance that replaces it has not failed.
async fn ended(shared: &Shared, part: &Part, instance: u64, role: Option<usize>, exit: Exit) {
    let (what, from) = {
        let mut state = part.lock().await;
        state.running.retain(|running| running.process.is_alive());
        if state.record.instance != instance {
            return;
        }
        let other = role.filter(|role| *role > 0);
        let program = other.and_then(|role| Some(state.recipe.as_ref()?.programs.get(role)?.path.clone()));
        let what = match program {
            Some(path) => format!("its program {}: {exit}", path.display()),
            None => exit.to_string(),
        };
        (what, state.log_from)
    };
    fail(shared, part, with_log_tail(&what, &shared.home.log(&part.id), from)).await;
}

/// Never resolves without a probe: the part has none, or is ready already.
async fn until_ready(probe: Option<Probe>) {
    let Some(probe) = probe else { return std::future::pending().await };
    let mut polls = 0;
    while !probe.run(Depth::Readiness).await.is_ready {
        polls += 1;
        tokio::time::sleep(if polls < FAST_POLLS { POLL_INTERVAL } else { SLOW_POLL_INTERVAL }).await;
    }
}

/// Terminates all processes of the part and deletes everything that only it uses. The record is deleted last.
async fn remove(shared: &Arc<Shared>, part: &Part) -> io::Result<()> {
    if !termination::terminate_all(shared, &part.id).await {
        return Err(io::Error::other("some of its processes are still alive after SIGKILL"));
    }
    let (record, recipe) = {
        let state = part.lock().await;
        (state.record.clone(), state.recipe.clone())
    };
    for program in recipe.iter().flat_map(|recipe| &recipe.after) {
        termination::run(shared, &part.id, record.instance, program).await;
    }
    if let Some(node_id) = record.node_id.as_deref().filter(|_| has_key(&record)) {
        enrolment::revoke(shared, &part.id, node_id).await;
    }
    let orders = shared.orders(&part.id.federation)?;
    let mut orders = orders.lock().await;
    orders.gone.insert(part.id.clone(), record.order);
    let (noted, path) = (orders.clone(), shared.home.orders(&part.id.federation));
    blocking(move || private::replace_json(&path, &noted)).await?;
    let (cleared, id) = (Arc::clone(shared), part.id.clone());
    blocking(move || clear(&cleared, &id)).await?;
    if shared.is_last(&part.id) {
        let (last, federation) = (Arc::clone(shared), part.id.federation.clone());
        blocking(move || tls::remove(&last.home, &federation)).await?;
    }
    part.lock().await.removed = true;
    shared.remove(&part.id);
    Ok(())
}

fn has_key(record: &Record) -> bool {
    use trellis_plan::Spec;
    matches!(record.desired.as_ref().map(|desired| &desired.spec), Some(Spec::Node(spec)) if spec.node_auth)
}

fn clear(shared: &Shared, id: &trellis_plan::ResourceId) -> io::Result<()> {
    let home = &shared.home;
    private::remove_directory(&home.part(id), &home.record(id))?;
    // Removes the directory of the site with its last part.
    let _ = home.part(id).parent().map(std::fs::remove_dir);
    Ok(())
}

/// Stores the id of a node in its SuperLink, which is needed after the node has ended.
pub async fn note_node_id(shared: &Shared, part: &Part, node_id: &str) {
    let mut state = part.lock().await;
    if state.record.node_id.as_deref() == Some(node_id) {
        return;
    }
    let record = Record { node_id: Some(node_id.to_owned()), ..state.record.clone() };
    if write(&shared.home, &record).await.is_ok() {
        state.record = record;
    }
}

#[cfg(test)]
mod tests {
    use trellis_plan::ResourceId;

    use super::*;
    use crate::home::Home;
    use crate::part::State;

    /// An order arrives between the choice of a step and its execution, or while a program of the old instance ends.
    #[tokio::test]
    async fn a_restart_is_not_a_failure() {
        let home = tempfile::tempdir().expect("a directory");
        let shared = Shared::new(Home::new(home.path().to_owned()), "/bin/true".into(), Arc::new(|_| {}));
        let id = ResourceId::try_from("demo/local/node/edge-0".to_owned()).expect("an id");
        let record = Record { instance: 2, launched: false, ..Record::without_desired(id.clone(), 1, now_ms()) };
        let part = Part::new(id, State::new(record, Vec::new()));
        watch(&shared, &part, 1).await;
        ended(&shared, &part, 1, Some(0), Exit::Code(1)).await;
        assert!(part.lock().await.failure.is_none());
    }
}
