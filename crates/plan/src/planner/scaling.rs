//! How many nodes each pool has now: what the document says, or what its scaling policy makes of what is at work.
//!
//! The cooldown is for policies, which change their mind; a count that a user wrote holds at once.

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_spec::{Federation, Name, Pool, Scaling, ScalingPolicy};

use super::Step;
use super::pace::{millis, words};
use crate::Millis;
use crate::ledger::{Ledger, PoolMemory};
use crate::observed::{Facts, Sighting};
use crate::report::Weight;
use crate::resource::{Part, ResourceId};

/// What is at work, as far as it can be seen.
struct Activity {
    runs: Option<u32>,
    busy: bool,
}

pub(super) fn counts(
    federation: &Federation,
    known: &BTreeMap<ResourceId, Sighting>,
    ledger: &mut Ledger,
    now_ms: Millis,
) -> (BTreeMap<Name, u32>, Step) {
    let mut step = Step::default();
    let mut counts = BTreeMap::new();
    for pool in &federation.pools {
        let fresh = PoolMemory { count: within(pool, pool.count), changed_ms: now_ms, idle_since_ms: None };
        let memory = ledger.pools.entry(pool.name.clone()).or_insert(fresh);
        let goal = match &pool.scaling {
            None => pool.count,
            Some(scaling) => goal(pool, scaling, &activity(pool, known), memory, now_ms, &mut step),
        };
        if goal != memory.count {
            memory.count = goal;
            memory.changed_ms = now_ms;
        }
        counts.insert(pool.name.clone(), memory.count);
    }
    (counts, step)
}

fn within(pool: &Pool, count: u32) -> u32 {
    pool.scaling.as_ref().map_or(count, |scaling| count.clamp(scaling.min, scaling.max))
}

fn activity(pool: &Pool, known: &BTreeMap<ResourceId, Sighting>) -> Activity {
    let facts = |part: fn(&Part, &Name) -> bool| {
        known.iter().filter(move |(id, _)| part(&id.part, &pool.name)).filter_map(|(_, sighting)| sighting.facts())
    };
    let busy = |facts: &Facts| facts.busy == Some(true);
    Activity {
        runs: facts(|part, _| *part == Part::Coordinator).find_map(|facts| facts.runs),
        busy: facts(|part, pool| matches!(part, Part::Node(key) if key.pool == *pool)).any(busy),
    }
}

/// The count that the pool is to have, with the cooldown kept.
fn goal(
    pool: &Pool,
    scaling: &Scaling,
    activity: &Activity,
    memory: &mut PoolMemory,
    now_ms: Millis,
    step: &mut Step,
) -> u32 {
    let before = within(pool, memory.count);
    let unseen = |step: &mut Step| {
        let text = format!("keeps {before} nodes: how many runs are at work could not be seen");
        step.tell(Weight::Waits, format!("pool {}", pool.name), text);
        before
    };
    let goal = match (&scaling.policy, activity.runs) {
        (ScalingPolicy::Manual, _) => return within(pool, pool.count),
        (_, None) => return unseen(step),
        (ScalingPolicy::PerRun { nodes }, Some(runs)) => within(pool, nodes.saturating_mul(runs)),
        (ScalingPolicy::Idle { after }, Some(runs)) => {
            idle_goal(pool, *after, runs > 0 || activity.busy, before, memory, now_ms, step)
        }
    };
    let due_ms = memory.changed_ms.saturating_add(millis(scaling.cooldown));
    // What is out of bounds since the document changed does not wait.
    if goal == before || before != memory.count || now_ms >= due_ms {
        return goal;
    }
    let wait = words(due_ms - now_ms);
    let text = format!("would go from {before} to {goal} nodes: the cooldown lasts another {wait}");
    step.tell(Weight::Waits, format!("pool {}", pool.name), text);
    step.wake_at(due_ms);
    before
}

fn idle_goal(
    pool: &Pool,
    after: Duration,
    active: bool,
    before: u32,
    memory: &mut PoolMemory,
    now_ms: Millis,
    step: &mut Step,
) -> u32 {
    if active {
        memory.idle_since_ms = None;
        return within(pool, pool.count);
    }
    let since_ms = *memory.idle_since_ms.get_or_insert(now_ms);
    let due_ms = since_ms.saturating_add(millis(after));
    if now_ms >= due_ms {
        return within(pool, 0);
    }
    step.wake_at(due_ms);
    before
}
