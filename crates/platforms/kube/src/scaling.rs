//! The size of the scaled pool of a federation, from the resource or from its rules.
//!
//! The metrics (`roundTime`, `waiting`) and the rules for changes are those of the REST API: [`trellis_plan::scaling`].
//! A size that a user wrote applies at once.

use serde_json::{Value, json};
use trellis_plan::Millis;
use trellis_plan::scaling::{self, Resize, Size};

use crate::federation::{Federation, Mode, Pool, Scaling, ScalingRule};
use crate::run::clock::{seconds, time};

/// Default time between two changes by rules.
pub const COOLDOWN_S: i64 = 300;
const MILLIS_PER_S: u64 = 1000;
/// Default minimum: rules do not empty a pool unless the resource allows it.
pub const MIN_NODES: i32 = 1;

/// Metrics of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Duration of the last round in seconds; of several runs the longest.
    RoundTime,
    /// Nodes that runs wait for, beyond those online.
    Waiting,
    /// Active runs.
    Runs,
}

pub const METRICS: [(&str, Metric); 3] =
    [("roundTime", Metric::RoundTime), ("waiting", Metric::Waiting), ("runs", Metric::Runs)];

impl Metric {
    pub fn read(word: &str) -> Option<Metric> {
        METRICS.iter().find(|(name, _)| *name == word).map(|(_, metric)| *metric)
    }
}

/// Activity that the SuperLink reports; `None`: unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Activity {
    pub runs: Option<u32>,
    pub round_s: Option<f64>,
    /// Nodes that active runs need; of several runs the most.
    pub wanted: Option<u32>,
    pub online: Option<u32>,
}

impl Activity {
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::RoundTime => self.round_s.filter(|_| self.runs != Some(0)),
            Metric::Waiting => Some(f64::from(self.wanted?.saturating_sub(self.online?))),
            Metric::Runs => self.runs.map(f64::from),
        }
    }
}

/// Memory in `.status.scaling`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    pub desired: Option<i32>,
    /// The size in the resource at the time of the decision.
    pub asked: Option<i32>,
    pub changed: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub pool: String,
    pub size: i32,
    pub why: String,
    pub memory: Memory,
    /// When the decision may change, in seconds since 1970.
    pub wake_at: Option<i64>,
}

impl Memory {
    pub fn read(status: &Value) -> Memory {
        let scaling = &status["scaling"];
        let number = |field: &str| scaling[field].as_i64().and_then(|number| i32::try_from(number).ok());
        let changed = scaling["lastChange"].as_str().and_then(seconds);
        Memory { desired: number("desired"), asked: number("asked"), changed }
    }
}

impl Decision {
    /// The value of `.status.scaling`; `replicas`: current number.
    pub fn status(&self, replicas: i64) -> Value {
        let mut status = json!({"pool": self.pool, "replicas": replicas, "desired": self.size, "reason": self.why});
        if let Some(asked) = self.memory.asked {
            status["asked"] = asked.into();
        }
        if let Some(changed) = self.memory.changed {
            status["lastChange"] = time(changed).into();
        }
        status
    }
}

/// Whether rules need the activity of the SuperLink.
pub fn has_rules(federation: &Federation) -> bool {
    federation.spec.scaling.as_ref().is_some_and(|scaling| !scaling.rules.is_empty()) && scaled(federation).is_some()
}

/// The pool that `spec.scaling` names, or the only one.
pub fn scaled(federation: &Federation) -> Option<(&Scaling, &Pool)> {
    let scaling = federation.spec.scaling.as_ref().filter(|_| federation.spec.mode == Mode::StatefulSet)?;
    Some((scaling, federation.spec.scaled_pool()?))
}

/// Decides the size of the pool. `None`: no pool is scaled.
pub fn decide(federation: &Federation, activity: &Activity, memory: &Memory, now: i64) -> Option<Decision> {
    let (scaling, pool) = scaled(federation)?;
    let asked = scaling.replicas.or(pool.replicas).unwrap_or(MIN_NODES);
    let (min, max) = bounds(scaling, asked);
    let decided = |size: i32, why: String, changed: Option<i64>| Decision {
        pool: pool.name.clone(),
        size,
        why,
        memory: Memory { desired: Some(size), asked: Some(asked), changed },
        wake_at: None,
    };
    let written = format!("{} is the size in the resource", asked.clamp(min, max));
    let before = memory.desired.filter(|_| !scaling.rules.is_empty() && memory.asked == Some(asked));
    // The first decision, or the size in the resource changed: it applies at once.
    let Some(before) = before else { return Some(decided(asked.clamp(min, max), written, memory.changed)) };
    let kept = before.clamp(min, max);
    if kept != before {
        return Some(decided(kept, format!("{min} to {max} are allowed"), Some(now)));
    }
    let (goal, why) = by_rules(scaling, activity, before, asked, others(federation, pool));
    let goal = goal.clamp(min, max);
    if goal == before {
        let why = if why.is_empty() { format!("{before}: no rule applies") } else { why };
        return Some(decided(before, why, memory.changed));
    }
    let resize = Resize {
        from: count(before),
        to: count(goal),
        // Which nodes are busy is unknown, so all are kept while a run is active.
        at_work: if activity.runs == Some(0) { 0 } else { count(before) },
        due_ms: memory.changed.map(|changed| millis(changed).saturating_add(cooldown_ms(scaling, activity))),
        now_ms: millis(now),
    };
    Some(match resize.decide() {
        Size::Changed(_) => decided(goal, format!("from {before} to {goal}: {why}"), Some(now)),
        Size::AtWork(_) => {
            let why = format!("would scale from {before} to {goal}, but runs are active, so no node is removed");
            decided(before, why, memory.changed)
        }
        Size::CoolingDown { until_ms, .. } => {
            let due = i64::try_from(until_ms / MILLIS_PER_S).unwrap_or(i64::MAX);
            let why = format!("would scale from {before} to {goal} ({why}): not before {}", time(due));
            Decision { wake_at: Some(due), ..decided(before, why, memory.changed) }
        }
    })
}

fn count(nodes: i32) -> u32 {
    u32::try_from(nodes).unwrap_or(0)
}

fn millis(seconds: i64) -> Millis {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(MILLIS_PER_S)
}

fn bounds(scaling: &Scaling, asked: i32) -> (i32, i32) {
    let min = scaling.min_replicas.unwrap_or_else(|| asked.min(MIN_NODES)).max(0);
    // Rules without a maximum do not grow a pool beyond the size in the resource.
    let max = scaling.max_replicas.unwrap_or(if scaling.rules.is_empty() { i32::MAX } else { asked });
    (min, max.max(min))
}

fn cooldown_ms(scaling: &Scaling, activity: &Activity) -> Millis {
    let configured = scaling.cooldown_seconds.map_or(COOLDOWN_S, i64::from);
    // Rounds count in whole seconds, as `.status` does.
    let round_ms = activity.round_s.map(|round| ((round * 2.0).ceil() as u64).saturating_mul(MILLIS_PER_S) / 2);
    scaling::cooldown_ms(millis(configured), round_ms)
}

/// Nodes of other pools and sites.
fn others(federation: &Federation, scaled: &Pool) -> i32 {
    let spec = &federation.spec;
    let pools = spec.supernodes.pools.iter().filter(|pool| pool.name != scaled.name);
    pools.filter_map(|pool| pool.replicas).chain(spec.sites.iter().map(|site| site.nodes)).sum()
}

/// Nodes of the scaled pool that active runs need; none without a run. `None`: unknown, or no run says how many nodes
/// it needs.
pub fn needed_nodes(federation: &Federation, activity: &Activity) -> Option<u32> {
    let (_, pool) = scaled(federation)?;
    if activity.runs? == 0 {
        return Some(0);
    }
    Some(activity.wanted?.saturating_sub(u32::try_from(others(federation, pool)).unwrap_or(0)))
}

/// Growing rules take precedence over shrinking ones. Without runs, rules about rounds return to the size in the
/// resource.
fn by_rules(scaling: &Scaling, activity: &Activity, before: i32, asked: i32, others: i32) -> (i32, String) {
    let sizes: Vec<(i32, String)> =
        scaling.rules.iter().filter_map(|rule| size_by_rule(rule, activity, before, others)).collect();
    if let Some((goal, why)) = sizes.iter().filter(|(goal, _)| *goal > before).max_by_key(|(goal, _)| *goal) {
        return (*goal, why.clone());
    }
    if let Some((goal, why)) = sizes.iter().filter(|(goal, _)| *goal < before).min_by_key(|(goal, _)| *goal) {
        return (*goal, why.clone());
    }
    let of_rounds = |rule: &ScalingRule| {
        matches!(Metric::read(&rule.metric), Some(Metric::RoundTime | Metric::Waiting)) && rule.below.is_none()
    };
    if activity.runs == Some(0) && before > asked && scaling.rules.iter().all(of_rounds) {
        return (asked, "no run is active".to_owned());
    }
    (before, String::new())
}

fn size_by_rule(rule: &ScalingRule, activity: &Activity, before: i32, others: i32) -> Option<(i32, String)> {
    let metric = Metric::read(&rule.metric)?;
    let value = activity.value(metric)?;
    let step = rule.step.unwrap_or(1).max(1);
    if let Some(above) = rule.above.filter(|above| value > *above as f64) {
        let goal = match metric {
            // All missing nodes at once, and no more while they start.
            Metric::Waiting => {
                let size = scaling::for_waiting_runs(count(before), activity.wanted?, count(others));
                i32::try_from(size).unwrap_or(i32::MAX)
            }
            Metric::RoundTime | Metric::Runs => before.saturating_add(step),
        };
        return Some((goal, format!("{} is {value:.0}, above {above}", rule.metric)));
    }
    let below = rule.below.filter(|below| value < *below as f64)?;
    Some((before.saturating_sub(step), format!("{} is {value:.0}, below {below}", rule.metric)))
}

#[cfg(test)]
mod tests;
