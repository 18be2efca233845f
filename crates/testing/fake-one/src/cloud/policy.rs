//! Autoscaler: evaluates scheduled policies, then elastic ones, then the minimum; the first change wins.

use serde_json::{Map, Value, json};

use super::expression;
use super::role::{Role, integer};
use super::schedule::Cron;
use super::{Cloud, Id, ServiceState};
use crate::template::text_of;

impl Cloud {
    pub(super) fn evaluate_policies(&mut self) {
        let running = |state: ServiceState| state == ServiceState::Running;
        let ids: Vec<Id> = self
            .services
            .values()
            .filter(|service| running(service.state) && !service.stuck)
            .map(|s| s.owned.id)
            .collect();
        for id in ids {
            for at in 0..self.services[&id].roles.len() {
                if let Some((cardinality, cooldown_s)) = self.wanted(id, at) {
                    let role = self.services[&id].roles[at].name.clone();
                    let owner = self.services[&id].owned.uid;
                    // A rejection means that the service is busy; the next evaluation retries.
                    let _ = self.scale(owner, id, &role, cardinality, true, cooldown_s);
                    break;
                }
            }
        }
    }

    fn wanted(&mut self, id: Id, at: usize) -> Option<(i64, Option<u64>)> {
        let role = self.services[&id].roles[at].clone();
        let now_s = self.now_s();
        let mut body = role.body.clone();
        let mut found = None;
        each(&mut body, "scheduled_policies", |policy| {
            let fires = due(policy, now_s);
            policy.insert("last_eval".to_owned(), json!(now_s));
            if fires && found.is_none() {
                found = change(&role, policy);
            }
        });
        if found.is_none() {
            let second_ms = self.pace.second_ms;
            let this: &Cloud = self;
            each(&mut body, "elasticity_policies", |policy| {
                if found.is_none() && this.holds(&role, policy, now_s, second_ms) {
                    found = change(&role, policy);
                }
            });
        }
        self.services.get_mut(&id).expect("the caller looked").roles[at].body = body;
        let least = role.minimum().filter(|least| role.cardinality < *least);
        found.or(least.map(|least| (least, Some(0))))
    }

    /// Whether the expression was true often enough in a row.
    fn holds(&self, role: &Role, policy: &mut Map<String, Value>, now_s: u64, second_ms: u64) -> bool {
        let seconds = |key: &str| integer(policy, key).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let period_s = seconds("period") * second_ms / 1000;
        let (last, needed, trues) = (seconds("last_eval"), seconds("period_number"), seconds("true_evals"));
        if last + period_s > now_s {
            return false;
        }
        let Ok(expression) = expression::parse(&policy.get("expression").map(text_of).unwrap_or_default()) else {
            return false;
        };
        let value = |name: &str| self.average(role, name);
        let truth = expression.is_true(&value);
        policy.insert("last_eval".to_owned(), json!(now_s));
        policy.insert("expression_evaluated".to_owned(), json!(expression.shown(&value)));
        let trues = if truth { (trues + 1).min(needed.max(1)) } else { 0 };
        let fires = truth && trues >= needed.max(1);
        match fires {
            true => policy.remove("true_evals"),
            false => policy.insert("true_evals".to_owned(), json!(trues)),
        };
        fires
    }

    /// Average over the running VMs that have the attribute, rounded to two decimals.
    fn average(&self, role: &Role, name: &str) -> Option<f64> {
        let of = |id: Id| -> Option<f64> {
            let vm = self.vms.get(&id).filter(|vm| vm.is_running())?;
            let said = vm.user_template.get(name).or(vm.monitoring.get(name)).or(vm.template.get(name))?;
            said.trim().parse().ok()
        };
        let values: Vec<f64> = role.vms().into_iter().filter_map(of).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then_some((mean * 100.0).round() / 100.0)
    }
}

fn each(body: &mut Map<String, Value>, key: &str, mut act: impl FnMut(&mut Map<String, Value>)) {
    let policies = body.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
    policies.filter_map(Value::as_object_mut).for_each(&mut act);
}

/// The first evaluation never fires: earlier times are lost.
fn due(policy: &Map<String, Value>, now_s: u64) -> bool {
    let Some(last) = integer(policy, "last_eval").and_then(|last| u64::try_from(last).ok()) else { return false };
    if let Some(start) = integer(policy, "start_time").and_then(|start| u64::try_from(start).ok()) {
        return last < start && start <= now_s;
    }
    let recurrence = policy.get("recurrence").map(text_of).unwrap_or_default();
    Cron::parse(&recurrence).is_ok_and(|cron| cron.fired(last, now_s))
}

/// The new cardinality and its cooldown; `None` if it does not change.
fn change(role: &Role, policy: &Map<String, Value>) -> Option<(i64, Option<u64>)> {
    let adjust = integer(policy, "adjust")?;
    let now = role.cardinality;
    let wanted = match policy.get("type").map(text_of).as_deref()? {
        "CARDINALITY" => adjust,
        "PERCENTAGE_CHANGE" => {
            let least = integer(policy, "min_adjust_step").unwrap_or(1).max(1);
            now + (now * adjust / 100).abs().max(least) * adjust.signum()
        }
        _ => now + adjust,
    };
    let bounded = match adjust.signum() {
        1 => wanted.min(role.maximum().map_or(i64::MAX, |most| most.max(now))),
        -1 => wanted.max(role.minimum().unwrap_or(0)),
        _ => wanted,
    };
    let cooldown = integer(policy, "cooldown").and_then(|s| u64::try_from(s).ok());
    (bounded != now).then_some((bounded, cooldown))
}
