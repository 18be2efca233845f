//! The desired size of each pool: from the document, from its scaling policy, or from its site.
//!
//! The cooldown applies to policies; a count in the document applies at once. No policy removes a busy node: it waits until a node is
//! idle.

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_spec::{ConfigTemplate, Federation, Name, Pool, Scaling, ScalingPolicy, SiteRule};

use super::Step;
use super::retry::{millis, words};
use crate::Millis;
use crate::ledger::{Ledger, PoolMemory};
use crate::observed::{Facts, Observed, Phase, Presence};
use crate::report::Weight;
use crate::resource::{Part, ResourceId};
use crate::scaling::{REQUIRED_NODES_SETTINGS, Resize, Size, cooldown_ms, for_waiting_runs};

/// Observed activity.
struct Activity {
    runs: Option<u32>,
    round_ms: Option<Millis>,
    /// How many nodes the runs wait for.
    required_nodes: Option<u32>,
    /// Desired nodes of other pools.
    others: u32,
    /// Some nodes of the pool are or may be busy.
    busy: bool,
    /// How many busy nodes take new work, and so must not be removed.
    busy_serving: u32,
    /// Some nodes of the pool start or cannot be observed, so that their number may change.
    in_motion: bool,
}

/// Inputs of the size of one pool.
struct Case<'a> {
    pool: &'a Pool,
    scaling: &'a Scaling,
    activity: Activity,
    now_ms: Millis,
}

pub(super) fn counts(
    federation: &Federation,
    observed: &Observed,
    known: &BTreeMap<ResourceId, Presence>,
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
        let target = match &pool.scaling {
            None => pool.count,
            Some(scaling) => {
                let activity = activity(federation, pool, known, others);
                let case = Case { pool, scaling, activity, now_ms };
                match pool.is_sized_by(site) {
                    true => case.size_of_site(observed.size(&site.name, &pool.name), memory, &mut step),
                    false => case.target(memory, &mut step),
                }
            }
        };
        if target != memory.count {
            memory.count = target;
            memory.changed_ms = now_ms;
        }
        counts.insert(pool.name.clone(), memory.count);
    }
    (counts, step)
}

/// Whether a policy or schedule sets the size. Then nodes are not removed by index.
pub(super) fn is_scaled(pool: &Pool) -> bool {
    let is_automatic = |scaling: &Scaling| scaling.policy != ScalingPolicy::Manual || !scaling.rules.is_empty();
    pool.scaling.as_ref().is_some_and(is_automatic)
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

fn activity(federation: &Federation, pool: &Pool, known: &BTreeMap<ResourceId, Presence>, others: u32) -> Activity {
    let coordinator = known.iter().filter(|(id, _)| id.part == Part::Coordinator);
    let coordinator: Vec<&Facts> = coordinator.filter_map(|(_, presence)| presence.facts()).collect();
    let runs = coordinator.iter().find_map(|facts| facts.runs);
    let of_pool = |id: &ResourceId| matches!(&id.part, Part::Node(key) if key.pool == pool.name);
    let nodes: Vec<&Presence> = known.iter().filter(|(id, _)| of_pool(id)).map(|(_, presence)| presence).collect();
    let moves = |presence: &Presence| presence.facts().is_none_or(|facts| facts.phase == Phase::Starting);
    let busy = nodes.iter().filter(|presence| is_busy(presence, runs));
    let serving = busy.clone().filter(|presence| presence.facts().is_some_and(|facts| !facts.draining));
    Activity {
        runs,
        round_ms: coordinator.iter().find_map(|facts| facts.round_ms),
        required_nodes: coordinator
            .iter()
            .find_map(|facts| facts.required_nodes)
            .or_else(|| required_nodes(federation)),
        others,
        busy: busy.clone().next().is_some(),
        busy_serving: u32::try_from(serving.count()).unwrap_or(u32::MAX),
        in_motion: nodes.iter().any(|presence| moves(presence)),
    }
}

/// A node that does not report whether it is busy counts as busy while any run may be active.
fn is_busy(presence: &Presence, runs: Option<u32>) -> bool {
    presence.facts().is_some_and(|facts| match facts.phase {
        Phase::Ready => facts.busy.unwrap_or(runs != Some(0)),
        Phase::Starting | Phase::Failed { .. } | Phase::Stopping => facts.busy == Some(true),
    })
}

/// How many nodes runs wait for by the training defaults of the document.
fn required_nodes(federation: &Federation) -> Option<u32> {
    let setting = |key: &str| match federation.training.defaults.get(key) {
        Some(ConfigTemplate::Int(nodes)) => u32::try_from(*nodes).ok(),
        _ => None,
    };
    REQUIRED_NODES_SETTINGS.into_iter().filter_map(setting).max()
}

impl Case<'_> {
    fn about(&self) -> String {
        format!("pool {}", self.pool.name)
    }

    /// The site scales the pool: its size, within bounds; the last known size if it reports none.
    fn size_of_site(&self, size: Option<u32>, memory: &PoolMemory, step: &mut Step) -> u32 {
        let before = within(self.pool, memory.count);
        let Some(size) = size else { return before };
        let target = within(self.pool, size);
        if target != size {
            let Scaling { min, max, .. } = self.scaling;
            step.report(
                Weight::Note,
                self.about(),
                format!("the site scaled it to {size} nodes, but {min} to {max} are allowed"),
            );
        }
        // A site that is still creating nodes has not scaled down.
        if target < before && self.activity.in_motion { before } else { target }
    }

    /// The desired size by the policy, after cooldown, without removing busy nodes.
    fn target(&self, memory: &mut PoolMemory, step: &mut Step) -> u32 {
        if self.scaling.policy == ScalingPolicy::Manual && self.scaling.rules.is_empty() {
            return within(self.pool, self.pool.count);
        }
        let before = within(self.pool, memory.count);
        let (target, due_ms) = match self.scaling.policy {
            ScalingPolicy::Manual => (self.scheduled(step), None),
            _ => match self.by_policy(before, memory, step) {
                Some(target) => (target, self.cooldown_end(before, memory)),
                None => {
                    let text = format!("stays at {before} nodes: the number of active runs is unknown");
                    step.report(Weight::Waits, self.about(), text);
                    (before, None)
                }
            },
        };
        let busy = self.activity.busy_serving;
        let at_work = busy.min(self.scaling.max);
        let size = Resize { from: before, to: target, at_work, due_ms, now_ms: self.now_ms }.decide();
        match size {
            Size::Changed(_) => {}
            Size::CoolingDown { until_ms, .. } => {
                let wait = words(until_ms - self.now_ms);
                let text = format!("scales from {before} to {target} nodes after the cooldown, in {wait}");
                step.report(Weight::Waits, self.about(), text);
                step.wake_at(until_ms);
            }
            Size::AtWork(_) => {
                let text =
                    format!("scales from {before} to {target} nodes once busy nodes have finished; {busy} are busy");
                step.report(Weight::Waits, self.about(), text);
            }
        }
        size.count()
    }

    /// `None`: unknown.
    fn by_policy(&self, before: u32, memory: &mut PoolMemory, step: &mut Step) -> Option<u32> {
        let runs = self.activity.runs?;
        let target = match &self.scaling.policy {
            ScalingPolicy::Manual => self.pool.count,
            ScalingPolicy::PerRun { nodes } => nodes.saturating_mul(runs),
            ScalingPolicy::Idle { after } => {
                self.idle_target(*after, runs > 0 || self.activity.busy, before, memory, step)
            }
            ScalingPolicy::RoundTime { .. } | ScalingPolicy::Waiting if runs == 0 => self.pool.count,
            ScalingPolicy::RoundTime { longest } => {
                let slow = self.activity.round_ms.is_some_and(|round_ms| round_ms > millis(*longest));
                before.saturating_add(u32::from(slow))
            }
            ScalingPolicy::Waiting => {
                let needed = |required| for_waiting_runs(before, required, self.activity.others);
                self.activity.required_nodes.map_or(before, needed)
            }
        };
        Some(within(self.pool, target))
    }

    /// `None`: a size that a change of the document put out of bounds is corrected at once.
    fn cooldown_end(&self, before: u32, memory: &PoolMemory) -> Option<Millis> {
        let round_ms = match self.scaling.policy {
            ScalingPolicy::RoundTime { .. } | ScalingPolicy::Waiting => self.activity.round_ms,
            ScalingPolicy::Manual | ScalingPolicy::PerRun { .. } | ScalingPolicy::Idle { .. } => None,
        };
        let cooldown_ms = cooldown_ms(millis(self.scaling.cooldown), round_ms);
        (before == memory.count).then(|| memory.changed_ms.saturating_add(cooldown_ms))
    }

    /// The count of the schedule that was due last, or the count of the document before the first.
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

    fn idle_target(&self, after: Duration, active: bool, before: u32, memory: &mut PoolMemory, step: &mut Step) -> u32 {
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
