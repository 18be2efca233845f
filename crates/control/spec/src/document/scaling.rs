//! The fields of a pool's scaling: bounds, and one policy or rules on metrics of machines and schedules.

use std::time::Duration;

use super::Spec;
use crate::expression::Expression;
use crate::federation::{Change, ConfigTemplate, MetricRule, Scaling, ScalingPolicy, SiteRule};
use crate::kind::{Choice, Fault, Scalar, choice, duration, whole};
use crate::object::Object;
use crate::schedule::Schedule;

pub(crate) const POLICIES: [Choice<PolicyKind>; 5] = [
    ("manual", PolicyKind::Manual),
    ("perRun", PolicyKind::PerRun),
    ("idle", PolicyKind::Idle),
    ("roundTime", PolicyKind::RoundTime),
    ("waiting", PolicyKind::Waiting),
];
/// The fields that each policy requires; others have no effect.
const NEEDS: [(&str, PolicyKind); 3] =
    [("nodesPerRun", PolicyKind::PerRun), ("idleAfter", PolicyKind::Idle), ("longestRound", PolicyKind::RoundTime)];
const MOST_PERIODS: u32 = 1000;
const MOST_PERCENT: u32 = 1000;
/// A pool that shrinks below these would make a round fail.
const FIT: [&str; 2] = ["min-available-nodes", "min-train-nodes"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyKind {
    Manual,
    PerRun,
    Idle,
    RoundTime,
    Waiting,
}

pub(crate) fn read(object: &mut Object<'_>) -> Scaling {
    let min = object.or("min", whole(0..=super::MAX_NODES), "0", "Fewest nodes.");
    let max = object.required("max", whole(1..=super::MAX_NODES), "Most nodes.");
    let help = "manual: the count that the user sets; perRun: so many nodes for each run at work; idle: nodes that \
                have nothing to do go after a while; roundTime: one more while rounds take too long; waiting: as many as \
                runs wait for.";
    let policy = object.or("policy", choice(&POLICIES), "manual", help);
    let nodes =
        object.optional("nodesPerRun", whole(1..=super::MAX_NODES), "Nodes for each active run; with policy: perRun.");
    let after = object.optional("idleAfter", duration(), "Idle time after which a node is removed; with policy: idle.");
    let help = "Adds a node while a round takes longer; with policy: roundTime.";
    let longest = object.optional("longestRound", duration(), help);
    let help = "Minimum time between two changes of the count; at least two rounds with roundTime and waiting.";
    let cooldown = object.or("cooldown", duration(), "5m", help);
    let help = "Rules that do not depend on training, with policy: manual. At OpenNebula sites OneFlow runs them.";
    let rules = object.objects("policies", help, rule);

    if max.is_some_and(|max| min > max) {
        object.at("min").refuse("it is more than max", "swap them, or change one");
    }
    let word = crate::kind::choice_name(&POLICIES, &policy);
    for (name, kind) in NEEDS {
        if kind != policy {
            object.refuse_idle(&[name], &format!("with policy: {word}"));
        } else if !object.has(name) {
            object.at(name).refuse("the policy requires it", "write it, or choose another policy");
        }
    }
    if policy != PolicyKind::Manual {
        object.refuse_idle(&["policies"], &format!("with policy: {word}"));
    }
    let policy = match policy {
        PolicyKind::Manual => ScalingPolicy::Manual,
        PolicyKind::PerRun => ScalingPolicy::PerRun { nodes: nodes.unwrap_or(1) },
        PolicyKind::Idle => ScalingPolicy::Idle { after: after.unwrap_or_default() },
        PolicyKind::RoundTime => ScalingPolicy::RoundTime { longest: longest.unwrap_or_default() },
        PolicyKind::Waiting => ScalingPolicy::Waiting,
    };
    let rules = if policy == ScalingPolicy::Manual { rules.into_iter().flatten().collect() } else { Vec::new() };
    Scaling { min, max: max.unwrap_or(min), policy, cooldown, rules }
}

/// `None` if it has errors, which are recorded.
fn rule(object: &mut Object<'_>) -> Option<SiteRule> {
    let help = "A condition of OneFlow on the average of the machines of the pool. Only at OpenNebula sites.";
    let when = object.optional("when", expression(), help);
    let help = "Minute, hour, day of the month, month, day of the week, in UTC: sets the count from then on.";
    let at = object.optional("schedule", schedule(), help);
    let help = "Interval between evaluations of the condition; with when. 60s by default.";
    let period = object.optional("period", duration(), help);
    let help = "Number of consecutive evaluations for which it must hold; with when. 1 by default.";
    let periods = object.optional("periods", whole(1..=MOST_PERIODS), help);
    let change = object.optional("change", change(), "Change of the count, absolute or relative; with when.");
    let count = object.optional("count", whole(0..=super::MAX_NODES), "The count, instead of a change.");
    let help = "Minimum time until the next change; with when. That of scaling by default.";
    let cooldown = object.optional("cooldown", duration(), help);
    match (object.has("when"), object.has("schedule")) {
        (true, true) => {
            object
                .at("schedule")
                .refuse("a rule has a condition or a schedule, and when is set too", "make two rules of it");
            None
        }
        (false, true) => {
            object.refuse_idle(&["period", "periods", "change", "cooldown"], "with schedule");
            missing(object, "count");
            Some(SiteRule::Schedule { at: at?, count: count? })
        }
        (true, false) => {
            if object.has("change") && object.has("count") {
                object.at("count").refuse("change is set too", "keep one of them");
            } else if !object.has("count") {
                missing(object, "change");
            }
            warn_of_surprises(object, when.as_ref());
            let change = change.or(count.map(Change::To));
            let period_s = seconds(period.unwrap_or(Duration::from_secs(60)));
            let cooldown_s = cooldown.map(seconds);
            Some(SiteRule::Metric(MetricRule {
                when: when?,
                period_s,
                periods: periods.unwrap_or(1),
                change: change?,
                cooldown_s,
            }))
        }
        (false, false) => {
            if object.complains() {
                object.place().refuse(
                    "the rule has neither a condition nor a schedule",
                    "write when: CPU > 80, or schedule: 0 9 * * mon-fri",
                );
            }
            None
        }
    }
}

fn missing(object: &Object<'_>, name: &str) {
    if !object.has(name) {
        object.at(name).refuse("the rule requires it", "write how many: change: +1, or count: 4");
    }
}

fn warn_of_surprises(object: &Object<'_>, when: Option<&Expression>) {
    for surprise in when.iter().flat_map(|when| when.surprises()) {
        object.at("when").warn(surprise, "add parentheses");
    }
}

/// Durations of documents are whole seconds, and 30 days at most.
fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

fn expression() -> Scalar<Expression> {
    let parse = |text: &str, _: bool| {
        let advice = "write it like CPU > 80 && MEMORY < 90";
        Expression::parse(text).map_err(|why| Fault::because(format!("invalid condition: {why}"), advice))
    };
    Scalar::new("a condition", "CPU > 80", serde_json::json!({ "type": "string", "minLength": 3 }), parse)
}

fn schedule() -> Scalar<Schedule> {
    let parse = |text: &str, _: bool| {
        Schedule::parse(text)
            .map_err(|why| Fault::because(format!("invalid schedule: {why}"), "write it like 0 9 * * mon-fri"))
    };
    let schema = serde_json::json!({ "type": "string", "pattern": "^ *([^ ]+ +){4}[^ ]+ *$" });
    Scalar::new("a schedule of cron", "0 9 * * mon-fri", schema, parse)
}

/// `+1`, `-2`, `+50%`. A change of 0 is refused.
fn change() -> Scalar<Change> {
    let parse = |text: &str, _: bool| {
        let (digits, percent) = text.strip_suffix('%').map_or((text, false), |digits| (digits, true));
        let most = if percent { MOST_PERCENT } else { super::MAX_NODES };
        let sound = digits.starts_with(['+', '-']) && digits[1..].bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|number: &i32| sound && (1..=most).contains(&number.unsigned_abs()));
        number.map(if percent { Change::Percent } else { Change::By }).ok_or(Fault::Unfit)
    };
    let schema = serde_json::json!({ "type": ["string", "integer"], "pattern": "^[+-][0-9]+%?$" });
    Scalar::new("a change with its sign", "+1, -2 or +50%", schema, parse)
}

pub(crate) fn show_change(change: Change) -> Option<String> {
    match change {
        Change::By(number) => Some(format!("{number:+}")),
        Change::Percent(number) => Some(format!("{number:+}%")),
        Change::To(_) => None,
    }
}

impl Spec {
    /// `pool_sites`: the site of each pool; `None`: unknown.
    pub(super) fn check_scaling(&self, pool_sites: &[Option<usize>]) {
        for (draft, site) in self.pools.iter().zip(pool_sites) {
            let Some(scaling) = &draft.pool.scaling else { continue };
            let driver = site.and_then(|site| self.sites.get(site)).and_then(|draft| draft.site.as_ref());
            let runs_rules = driver.is_some_and(|site| site.config.traits().runs_scaling_rules);
            let has_metrics = scaling.rules.iter().any(|rule| matches!(rule, SiteRule::Metric(_)));
            // A document without sites has one, which is local.
            if has_metrics && !runs_rules && (driver.is_some() || self.sites.is_empty()) {
                draft.scaling_at.refuse(
                    "OneFlow evaluates conditions on metrics of machines, and the site is not in an OpenNebula cloud",
                    "use policy: roundTime, waiting, perRun or idle, which depend on training",
                );
            }
            if runs_rules && !scaling.rules.is_empty() && scaling.min == 0 {
                draft.scaling_at.refuse("OneFlow cannot scale a pool without machines", "write min: 1 or more");
            }
        }
        self.warn_of_small_pools();
    }

    /// Runs could wait for nodes that scaling removed.
    fn warn_of_small_pools(&self) {
        let least = |draft: &super::PoolDraft| {
            u64::from(draft.pool.scaling.as_ref().map_or(draft.pool.count, |scaling| scaling.min))
        };
        let nodes: u64 = self.pools.iter().map(least).sum();
        let shrinks = |draft: &&super::PoolDraft| {
            let scaling = draft.pool.scaling.as_ref();
            scaling.is_some_and(|scaling| {
                !scaling.rules.is_empty() || matches!(scaling.policy, ScalingPolicy::Idle { .. })
            })
        };
        let Some(draft) = self.pools.iter().find(shrinks) else { return };
        for key in FIT {
            if let Some(ConfigTemplate::Int(wanted)) = self.training.training.defaults.get(key)
                && i128::from(*wanted) > i128::from(nodes)
            {
                let what = format!(
                    "{key} is {wanted}, and scaling may reduce the pools to {nodes} nodes: runs would wait for more"
                );
                draft.scaling_at.warn(what, "raise min, or lower the setting");
            }
        }
    }
}
