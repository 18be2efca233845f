//! How many nodes each pool has now: what the document says, what its scaling policy makes of what is at work, or what its
//! site decided.
//!
//! The cooldown is for policies, which change their mind; a count that a user wrote holds at once. No policy takes a node
//! that is at work: it waits until one is idle.

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_spec::{ConfigTemplate, Federation, Name, Pool, Scaling, ScalingPolicy, SiteRule};

use super::Step;
use super::pace::{millis, words};
use crate::Millis;
use crate::ledger::{Ledger, PoolMemory};
use crate::observed::{Facts, Observed, Phase, Sighting};
use crate::report::Weight;
use crate::resource::{Part, ResourceId};

/// What runs wait for where they say nothing themselves.
const WAITED_FOR: [&str; 2] = ["min-available-nodes", "min-train-nodes"];

/// What is at work, as far as it can be seen.
struct Activity {
    runs: Option<u32>,
    round_ms: Option<Millis>,
    /// Nodes that runs want to see.
    waits_for: Option<u32>,
    /// Nodes of other pools that are wanted.
    others: u32,
    /// Some of the pool are at work, or may be.
    busy: bool,
    /// How many of those take new work.
    to_be_spared: u32,
    /// Some of the pool come or cannot be seen: how many there are is not settled.
    in_motion: bool,
}

/// Everything that the count of one pool depends on.
struct Case<'a> {
    pool: &'a Pool,
    scaling: &'a Scaling,
    activity: Activity,
    now_ms: Millis,
}

pub(super) fn counts(
    federation: &Federation,
    observed: &Observed,
    known: &BTreeMap<ResourceId, Sighting>,
    ledger: &mut Ledger,
    now_ms: Millis,
) -> (BTreeMap<Name, u32>, Step) {
    let mut step = Step::default();
    let mut counts: BTreeMap<Name, u32> = federation.pools.iter().map(|pool| remembered(pool, ledger)).collect();
    for pool in &federation.pools {
        let site = &federation.sites[pool.site];
        let fresh = PoolMemory { count: within(pool, pool.count), changed_ms: now_ms, idle_since_ms: None };
        let memory = ledger.pools.entry(pool.name.clone()).or_insert(fresh);
        let others = counts.iter().filter(|(name, _)| **name != pool.name).map(|(_, count)| *count).sum();
        let goal = match &pool.scaling {
            None => pool.count,
            Some(scaling) => {
                let activity = activity(federation, pool, known, others);
                let case = Case { pool, scaling, activity, now_ms };
                match pool.is_sized_by(site) {
                    true => case.as_the_site_decided(observed.size(&site.name, &pool.name), memory, &mut step),
                    false => case.goal(memory, &mut step),
                }
            }
        };
        if goal != memory.count {
            memory.count = goal;
            memory.changed_ms = now_ms;
        }
        counts.insert(pool.name.clone(), memory.count);
    }
    (counts, step)
}

/// The pool decides by itself how many there are, and so who goes is not by number.
pub(super) fn is_scaled(pool: &Pool) -> bool {
    let by_itself = |scaling: &Scaling| scaling.policy != ScalingPolicy::Manual || !scaling.rules.is_empty();
    pool.scaling.as_ref().is_some_and(by_itself)
}

fn remembered(pool: &Pool, ledger: &Ledger) -> (Name, u32) {
    let count = match is_scaled(pool) {
        true => ledger.pools.get(&pool.name).map_or(pool.count, |memory| memory.count),
        false => pool.count,
    };
    (pool.name.clone(), within(pool, count))
}

fn within(pool: &Pool, count: u32) -> u32 {
    pool.scaling.as_ref().map_or(count, |scaling| count.clamp(scaling.min, scaling.max))
}

fn activity(federation: &Federation, pool: &Pool, known: &BTreeMap<ResourceId, Sighting>, others: u32) -> Activity {
    let coordinator = known.iter().filter(|(id, _)| id.part == Part::Coordinator);
    let coordinator: Vec<&Facts> = coordinator.filter_map(|(_, sighting)| sighting.facts()).collect();
    let runs = coordinator.iter().find_map(|facts| facts.runs);
    let of_pool = |id: &ResourceId| matches!(&id.part, Part::Node(key) if key.pool == pool.name);
    let nodes: Vec<&Sighting> = known.iter().filter(|(id, _)| of_pool(id)).map(|(_, sighting)| sighting).collect();
    let moves = |sighting: &Sighting| sighting.facts().is_none_or(|facts| facts.phase == Phase::Starting);
    let at_work = nodes.iter().filter(|sighting| is_at_work(sighting, runs));
    let spared = at_work.clone().filter(|sighting| sighting.facts().is_some_and(|facts| !facts.draining));
    Activity {
        runs,
        round_ms: coordinator.iter().find_map(|facts| facts.round_ms),
        waits_for: coordinator.iter().find_map(|facts| facts.waits_for).or_else(|| waited_for(federation)),
        others,
        busy: at_work.clone().next().is_some(),
        to_be_spared: u32::try_from(spared.count()).unwrap_or(u32::MAX),
        in_motion: nodes.iter().any(|sighting| moves(sighting)),
    }
}

/// A node that does not say so is at work while any run is, as far as anybody knows.
fn is_at_work(sighting: &Sighting, runs: Option<u32>) -> bool {
    sighting.facts().is_some_and(|facts| match facts.phase {
        Phase::Ready => facts.busy.unwrap_or(runs != Some(0)),
        Phase::Starting | Phase::Failed { .. } | Phase::Stopping => facts.busy == Some(true),
    })
}

/// What the document makes runs wait for.
fn waited_for(federation: &Federation) -> Option<u32> {
    let setting = |key: &str| match federation.training.defaults.get(key) {
        Some(ConfigTemplate::Int(nodes)) => u32::try_from(*nodes).ok(),
        _ => None,
    };
    WAITED_FOR.into_iter().filter_map(setting).max()
}

impl Case<'_> {
    fn about(&self) -> String {
        format!("pool {}", self.pool.name)
    }

    /// The site runs the rules: what it decided counts, within bounds. Without a word from it, what it decided last.
    fn as_the_site_decided(&self, size: Option<u32>, memory: &PoolMemory, step: &mut Step) -> u32 {
        let before = within(self.pool, memory.count);
        let Some(size) = size else { return before };
        let goal = within(self.pool, size);
        if goal != size {
            let Scaling { min, max, .. } = self.scaling;
            step.tell(
                Weight::Note,
                self.about(),
                format!("its site decided on {size} nodes, and {min} to {max} are allowed"),
            );
        }
        // A site that is still making them has not decided on fewer.
        if goal < before && self.activity.in_motion { before } else { goal }
    }

    /// The count that the pool is to have: with the cooldown kept, and nobody taken out of a round.
    fn goal(&self, memory: &mut PoolMemory, step: &mut Step) -> u32 {
        if self.scaling.policy == ScalingPolicy::Manual && self.scaling.rules.is_empty() {
            return within(self.pool, self.pool.count);
        }
        let before = within(self.pool, memory.count);
        let goal = match self.scaling.policy {
            ScalingPolicy::Manual => self.scheduled(step),
            _ => match self.by_policy(before, memory, step) {
                Some(goal) => self.cooled_down(before, goal, memory, step),
                None => {
                    let text = format!("keeps {before} nodes: how many runs are at work could not be seen");
                    step.tell(Weight::Waits, self.about(), text);
                    before
                }
            },
        };
        self.spare_those_at_work(before, goal, step)
    }

    /// `None`: it cannot be known.
    fn by_policy(&self, before: u32, memory: &mut PoolMemory, step: &mut Step) -> Option<u32> {
        let runs = self.activity.runs?;
        let goal = match &self.scaling.policy {
            ScalingPolicy::Manual => self.pool.count,
            ScalingPolicy::PerRun { nodes } => nodes.saturating_mul(runs),
            ScalingPolicy::Idle { after } => {
                self.idle_goal(*after, runs > 0 || self.activity.busy, before, memory, step)
            }
            ScalingPolicy::RoundTime { .. } | ScalingPolicy::Waiting if runs == 0 => self.pool.count,
            ScalingPolicy::RoundTime { longest } => {
                let slow = self.activity.round_ms.is_some_and(|round_ms| round_ms > millis(*longest));
                before.saturating_add(u32::from(slow))
            }
            ScalingPolicy::Waiting => {
                let missing = self.activity.waits_for.map(|wanted| wanted.saturating_sub(self.activity.others));
                missing.unwrap_or(before).max(before)
            }
        };
        Some(within(self.pool, goal))
    }

    fn cooled_down(&self, before: u32, goal: u32, memory: &PoolMemory, step: &mut Step) -> u32 {
        let due_ms = memory.changed_ms.saturating_add(self.cooldown_ms());
        // What is out of bounds since the document changed does not wait.
        if goal == before || before != memory.count || self.now_ms >= due_ms {
            return goal;
        }
        let wait = words(due_ms - self.now_ms);
        let text = format!("would go from {before} to {goal} nodes: the cooldown lasts another {wait}");
        step.tell(Weight::Waits, self.about(), text);
        step.wake_at(due_ms);
        before
    }

    /// What a change does to rounds is seen after two of them.
    fn cooldown_ms(&self) -> Millis {
        let by_document = millis(self.scaling.cooldown);
        match self.scaling.policy {
            ScalingPolicy::RoundTime { .. } | ScalingPolicy::Waiting => {
                by_document.max(self.activity.round_ms.unwrap_or(0).saturating_mul(2))
            }
            ScalingPolicy::Manual | ScalingPolicy::PerRun { .. } | ScalingPolicy::Idle { .. } => by_document,
        }
    }

    /// Nobody is taken out of a round to be fewer; also who was to go, was not told yet, and has work again, stays.
    fn spare_those_at_work(&self, before: u32, goal: u32, step: &mut Step) -> u32 {
        let busy = self.activity.to_be_spared;
        let least = busy.min(self.scaling.max);
        if goal >= least {
            return goal;
        }
        let text =
            format!("would go from {before} to {goal} nodes: {busy} are at work, and stay until they have finished");
        step.tell(Weight::Waits, self.about(), text);
        least
    }

    /// As many as the schedule says that was due last; before any was, as many as the document says.
    fn scheduled(&self, step: &mut Step) -> u32 {
        let mut last = None;
        for rule in &self.scaling.rules {
            let SiteRule::Schedule { at, count } = rule else { continue };
            last = last.max(at.last_until(self.now_ms).map(|at_ms| (at_ms, *count)));
            if let Some(at_ms) = at.next_after(self.now_ms) {
                step.wake_at(at_ms);
            }
        }
        within(self.pool, last.map_or(self.pool.count, |(_, count)| count))
    }

    fn idle_goal(&self, after: Duration, active: bool, before: u32, memory: &mut PoolMemory, step: &mut Step) -> u32 {
        if active {
            memory.idle_since_ms = None;
            return within(self.pool, self.pool.count);
        }
        let since_ms = *memory.idle_since_ms.get_or_insert(self.now_ms);
        let due_ms = since_ms.saturating_add(millis(after));
        if self.now_ms >= due_ms {
            return within(self.pool, 0);
        }
        step.wake_at(due_ms);
        before
    }
}
