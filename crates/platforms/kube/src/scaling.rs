//! How many nodes the scaled pool of a federation has: what the resource says, or what its rules make of what is trained.
//!
//! The words are those of the Federation document of Trellis (`roundTime`, `waiting`), and so are the rules of conduct: the
//! cooldown is for rules, which change their mind, and lasts two rounds at least; a number that somebody wrote holds at once; no
//! rule takes a node away while a run is at work.

use serde_json::{Value, json};

use crate::federation::{Federation, Mode, Pool, Scaling, ScalingRule};
use crate::run::clock::{seconds, time};

/// Between two changes by rules, where nothing is said.
pub const COOLDOWN_S: i64 = 300;
/// Fewest nodes, where nothing is said: rules do not empty a pool unless somebody wants it.
pub const LEAST: i32 = 1;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Seconds that the last round took, of the runs at work the longest.
    RoundTime,
    /// Nodes that runs wait for, beyond those that are online.
    Waiting,
    /// Runs at work.
    Runs,
}

pub const METRICS: [(&str, Metric); 3] =
    [("roundTime", Metric::RoundTime), ("waiting", Metric::Waiting), ("runs", Metric::Runs)];

impl Metric {
    pub fn read(word: &str) -> Option<Metric> {
        METRICS.iter().find(|(name, _)| *name == word).map(|(_, metric)| *metric)
    }
}

/// What the SuperLink tells. `None`: it does not.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Activity {
    pub runs: Option<u32>,
    pub round_s: Option<f64>,
    /// Nodes that the runs at work want to see, the most of them.
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

/// What is remembered in `.status.scaling`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    pub desired: Option<i32>,
    /// The number that somebody wrote when this was decided.
    pub asked: Option<i32>,
    pub changed: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub pool: String,
    pub size: i32,
    pub why: String,
    pub memory: Memory,
    /// When it may be another, seconds since 1970.
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
    /// For `.status.scaling`; `replicas` are those that there are.
    pub fn told(&self, replicas: i64) -> Value {
        let mut told = json!({"pool": self.pool, "replicas": replicas, "desired": self.size, "reason": self.why});
        if let Some(asked) = self.memory.asked {
            told["asked"] = asked.into();
        }
        if let Some(changed) = self.memory.changed {
            told["lastChange"] = time(changed).into();
        }
        told
    }
}

/// Whether the SuperLink has to be asked: the rules say nothing without it.
pub fn has_rules(federation: &Federation) -> bool {
    federation.spec.scaling.as_ref().is_some_and(|scaling| !scaling.rules.is_empty()) && scaled(federation).is_some()
}

/// The pool that scaling is about: the one it names, or the only one.
pub fn scaled(federation: &Federation) -> Option<(&Scaling, &Pool)> {
    let scaling = federation.spec.scaling.as_ref().filter(|_| federation.spec.mode == Mode::StatefulSet)?;
    Some((scaling, federation.spec.scaled_pool()?))
}

/// How many nodes the pool is to have. `None`: nothing is scaled.
pub fn decide(federation: &Federation, activity: &Activity, memory: &Memory, now: i64) -> Option<Decision> {
    let (scaling, pool) = scaled(federation)?;
    let asked = scaling.replicas.or(pool.replicas).unwrap_or(LEAST);
    let (least, most) = bounds(scaling, asked);
    let decided = |size: i32, why: String, changed: Option<i64>| Decision {
        pool: pool.name.clone(),
        size,
        why,
        memory: Memory { desired: Some(size), asked: Some(asked), changed },
        wake_at: None,
    };
    let written = format!("{} is what the resource says", asked.clamp(least, most));
    let before = memory.desired.filter(|_| !scaling.rules.is_empty() && memory.asked == Some(asked));
    // Nothing was decided yet, or somebody wrote another number: that holds at once.
    let Some(before) = before else { return Some(decided(asked.clamp(least, most), written, memory.changed)) };
    let kept = before.clamp(least, most);
    if kept != before {
        return Some(decided(kept, format!("{least} to {most} are allowed"), Some(now)));
    }
    let (goal, why) = by_rules(scaling, activity, before, asked, others(federation, pool));
    let goal = goal.clamp(least, most);
    if goal == before {
        let why = if why.is_empty() { format!("{before}: no rule says otherwise") } else { why };
        return Some(decided(before, why, memory.changed));
    }
    if goal < before && activity.runs != Some(0) {
        let why = format!("would go from {before} to {goal}: runs are at work, and no node is taken away from them");
        return Some(decided(before, why, memory.changed));
    }
    let due = memory.changed.map_or(now, |changed| changed.saturating_add(cooldown(scaling, activity)));
    if now < due {
        let why = format!("would go from {before} to {goal} ({why}): not before {}", time(due));
        return Some(Decision { wake_at: Some(due), ..decided(before, why, memory.changed) });
    }
    Some(decided(goal, format!("from {before} to {goal}: {why}"), Some(now)))
}

fn bounds(scaling: &Scaling, asked: i32) -> (i32, i32) {
    let least = scaling.min_replicas.unwrap_or_else(|| asked.min(LEAST)).max(0);
    // Rules without an upper bound do not grow a pool beyond what somebody asked for.
    let most = scaling.max_replicas.unwrap_or(if scaling.rules.is_empty() { i32::MAX } else { asked });
    (least, most.max(least))
}

/// What a change does to rounds is seen after two of them.
fn cooldown(scaling: &Scaling, activity: &Activity) -> i64 {
    let said = scaling.cooldown_seconds.map_or(COOLDOWN_S, i64::from);
    let rounds = activity.round_s.map_or(0.0, |round| (round * 2.0).ceil());
    said.max(rounds as i64)
}

/// Nodes that are not of the scaled pool.
fn others(federation: &Federation, scaled: &Pool) -> i32 {
    let spec = &federation.spec;
    let pools = spec.supernodes.pools.iter().filter(|pool| pool.name != scaled.name);
    pools.filter_map(|pool| pool.replicas).chain(spec.sites.iter().map(|site| site.nodes)).sum()
}

/// Nodes that the scaled pool has to have for the runs at work, and none without a run. `None`: that is not known, or no run says
/// how many it wants.
pub fn wanted(federation: &Federation, activity: &Activity) -> Option<u32> {
    let (_, pool) = scaled(federation)?;
    if activity.runs? == 0 {
        return Some(0);
    }
    Some(activity.wanted?.saturating_sub(u32::try_from(others(federation, pool)).unwrap_or(0)))
}

/// Who wants more is heard before who wants fewer. Without runs, rules about rounds leave what somebody asked for.
fn by_rules(scaling: &Scaling, activity: &Activity, before: i32, asked: i32, others: i32) -> (i32, String) {
    let wishes: Vec<(i32, String)> =
        scaling.rules.iter().filter_map(|rule| wish(rule, activity, before, others)).collect();
    if let Some((goal, why)) = wishes.iter().filter(|(goal, _)| *goal > before).max_by_key(|(goal, _)| *goal) {
        return (*goal, why.clone());
    }
    if let Some((goal, why)) = wishes.iter().filter(|(goal, _)| *goal < before).min_by_key(|(goal, _)| *goal) {
        return (*goal, why.clone());
    }
    let of_rounds = |rule: &ScalingRule| {
        matches!(Metric::read(&rule.metric), Some(Metric::RoundTime | Metric::Waiting)) && rule.below.is_none()
    };
    if activity.runs == Some(0) && before > asked && scaling.rules.iter().all(of_rounds) {
        return (asked, "no run is at work".to_owned());
    }
    (before, String::new())
}

fn wish(rule: &ScalingRule, activity: &Activity, before: i32, others: i32) -> Option<(i32, String)> {
    let metric = Metric::read(&rule.metric)?;
    let value = activity.value(metric)?;
    let step = rule.step.unwrap_or(1).max(1);
    if let Some(above) = rule.above.filter(|above| value > *above as f64) {
        let goal = match metric {
            // All that are missing at once, and not once more while they come.
            Metric::Waiting => i32::try_from(activity.wanted?).ok()?.saturating_sub(others).max(before),
            Metric::RoundTime | Metric::Runs => before.saturating_add(step),
        };
        return Some((goal, format!("{} is {value:.0}, above {above}", rule.metric)));
    }
    let below = rule.below.filter(|below| value < *below as f64)?;
    Some((before.saturating_sub(step), format!("{} is {value:.0}, below {below}", rule.metric)))
}

#[cfg(test)]
mod tests;
