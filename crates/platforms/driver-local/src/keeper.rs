//! Does for one part what its record asks for, step by step, and notices when it becomes ready and when it ends. Starts
//! nothing again by itself: that is decided elsewhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use trellis_clock::now_ms;
use trellis_files::private;

use crate::launch::{Launched, launch, told};
use crate::part::{Failure, Part, Running, Step, blocking, write};
use crate::probe::Depth;
use crate::process::Ending;
use crate::recipe::Probe;
use crate::record::Record;
use crate::world::World;
use crate::{ending, enrolment, tls};

/// While something starts it is asked so often whether it works.
const LOOK: Duration = Duration::from_millis(15);
/// What takes longer than so many looks is asked more rarely.
const LOOKS: u32 = 600;
const RARE_LOOK: Duration = Duration::from_millis(250);
/// What could not be taken away is tried again.
const REMOVE_AGAIN: Duration = Duration::from_secs(5);

/// Goes on until nothing of the part is left.
pub async fn keep(world: Arc<World>, part: Arc<Part>) {
    loop {
        let step = part.lock().await.next();
        match step {
            Step::End(processes) => {
                if !ending::end(&processes).await {
                    tracing::warn!(part = %part.id, "some of its processes do not end");
                }
                let mut state = part.lock().await;
                processes.iter().filter(|process| !process.is_alive()).for_each(|process| state.forget(process));
            }
            Step::Launch => match launch(&world, &part).await {
                Launched::Yes | Launched::Turned => {}
                Launched::Failed(why) => fail(&world, &part, why).await,
            },
            Step::Watch(instance) => watch(&world, &part, instance).await,
            Step::Rest => part.changed.notified().await,
            Step::Remove => match remove(&world, &part).await {
                Ok(()) => return world.wake(&part.id.federation),
                Err(error) => {
                    tracing::warn!(part = %part.id, "it cannot be taken away: {error}");
                    tokio::time::sleep(REMOVE_AGAIN).await;
                }
            },
        }
    }
}

async fn fail(world: &World, part: &Part, why: String) {
    tracing::warn!(part = %part.id, "{why}");
    part.lock().await.failure = Some(Failure { why, since_ms: now_ms() });
    world.wake(&part.id.federation);
}

/// Waits until a program of the instance ends or the record changes, and notifies when the instance becomes ready. Returns at
/// once if an order replaced the instance since the step was chosen.
async fn watch(world: &World, part: &Part, instance: u64) {
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
        (role, ending) = first_ended(&running) => ended(world, part, instance, role, ending).await,
        () = part.changed.notified() => {}
        () = until_ready(probe) => {
            became_ready(part, instance).await;
            world.wake(&part.id.federation);
        }
    }
}

async fn first_ended(running: &[Running]) -> (Option<usize>, Ending) {
    if running.is_empty() {
        return (None, Ending::Unseen);
    }
    let ends = running.iter().map(|running| {
        Box::pin(async move {
            let ending = running.process.ended().await;
            (running.role, ending)
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
async fn ended(world: &World, part: &Part, instance: u64, role: Option<usize>, ending: Ending) {
    let (what, from) = {
        let mut state = part.lock().await;
        state.running.retain(|running| running.process.is_alive());
        if state.record.instance != instance {
            return;
        }
        let beside = role.filter(|role| *role > 0);
        let program = beside.and_then(|role| Some(state.recipe.as_ref()?.programs.get(role)?.path.clone()));
        let what = match program {
            Some(path) => format!("{} beside it: {ending}", path.display()),
            None => ending.to_string(),
        };
        (what, state.log_from)
    };
    fail(world, part, told(&what, &world.home.log(&part.id), from)).await;
}

/// Never, where there is nothing to ask, or it was ready already.
async fn until_ready(probe: Option<Probe>) {
    let Some(probe) = probe else { return std::future::pending().await };
    let mut looks = 0;
    while !probe.ask(Depth::Readiness).await.is_ready {
        looks += 1;
        tokio::time::sleep(if looks < LOOKS { LOOK } else { RARE_LOOK }).await;
    }
}

/// Ends everything with the part's mark, and takes away what is its alone. Its record goes last.
async fn remove(world: &Arc<World>, part: &Part) -> io::Result<()> {
    if !ending::end_all(world, &part.id).await {
        return Err(io::Error::other("some of its processes do not end"));
    }
    let (record, recipe) = {
        let state = part.lock().await;
        (state.record.clone(), state.recipe.clone())
    };
    for program in recipe.iter().flat_map(|recipe| &recipe.after) {
        ending::run(world, &part.id, record.instance, program).await;
    }
    if let Some(node_id) = record.node_id.as_deref().filter(|_| has_key(&record)) {
        enrolment::revoke(world, &part.id, node_id).await;
    }
    let orders = world.orders(&part.id.federation)?;
    let mut orders = orders.lock().await;
    orders.gone.insert(part.id.clone(), record.order);
    let (noted, path) = (orders.clone(), world.home.orders(&part.id.federation));
    blocking(move || private::replace_json(&path, &noted)).await?;
    let (cleared, id) = (Arc::clone(world), part.id.clone());
    blocking(move || clear(&cleared, &id)).await?;
    if world.is_last(&part.id) {
        let (last, federation) = (Arc::clone(world), part.id.federation.clone());
        blocking(move || tls::remove(&last.home, &federation)).await?;
    }
    part.lock().await.gone = true;
    world.remove(&part.id);
    Ok(())
}

fn has_key(record: &Record) -> bool {
    use trellis_plan::Spec;
    matches!(record.desired.as_ref().map(|desired| &desired.spec), Some(Spec::Node(spec)) if spec.node_auth)
}

fn clear(world: &World, id: &trellis_plan::ResourceId) -> io::Result<()> {
    let home = &world.home;
    private::remove_directory(&home.part(id), &home.record(id))?;
    // The site's own goes with its last part.
    let _ = home.part(id).parent().map(std::fs::remove_dir);
    Ok(())
}

/// Notes what a SuperLink calls a node, for the time when the node is gone.
pub async fn note_node_id(world: &World, part: &Part, node_id: &str) {
    let mut state = part.lock().await;
    if state.record.node_id.as_deref() == Some(node_id) {
        return;
    }
    let record = Record { node_id: Some(node_id.to_owned()), ..state.record.clone() };
    if write(&world.home, &record).await.is_ok() {
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
        let world = World::new(Home::new(home.path().to_owned()), "/bin/true".into(), Arc::new(|_| {}));
        let id = ResourceId::try_from("demo/local/node/edge-0".to_owned()).expect("an id");
        let record = Record { instance: 2, launched: false, ..Record::found(id.clone(), 1, now_ms()) };
        let part = Part::new(id, State::new(record, Vec::new()));
        watch(&world, &part, 1).await;
        ended(&world, &part, 1, Some(0), Ending::Exited(1)).await;
        assert!(part.lock().await.failure.is_none());
    }
}
