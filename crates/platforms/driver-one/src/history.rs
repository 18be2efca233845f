//! What the reconciler remembers between two observations: ages of states, and numbers of attempts. It may be lost; then
//! timeouts start again.

use std::collections::BTreeMap;

use trellis_one::keys::TRELLIS_SEEN;
use trellis_plan::{Millis, RetryBudget};

use crate::next::Step;
use crate::view::{ServiceState, View};

/// Timeouts of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A service that is in transition for this long is stuck.
    pub stuck_ms: Millis,
    /// How long a service without a faulty VM may stay in WARNING before a second service is created.
    pub warning_ms: Millis,
    /// The same for a service with a faulty VM, which may come up again.
    pub faulty_ms: Millis,
    /// An agent without a heartbeat for this long is silent. More than two heartbeat intervals.
    pub silent_ms: Millis,
}

impl Limits {
    pub const DEFAULT: Limits =
        Limits { stuck_ms: 600_000, warning_ms: 15_000, faulty_ms: 120_000, silent_ms: 300_000 };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    services: BTreeMap<u32, StateAge>,
    recoveries: Attempts,
    heartbeats: BTreeMap<u32, Heartbeat>,
    /// Error of the last request for a VM.
    errors: BTreeMap<u32, String>,
}

/// State of a service, and when it entered it.
#[derive(Debug, Clone, PartialEq)]
struct StateAge {
    state_name: String,
    since_ms: Millis,
    /// Since when the running service lists VMs that no longer exist.
    blocked_since_ms: Option<Millis>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Attempts {
    count: u32,
    last_ms: Millis,
}

/// The last heartbeat of an agent, and when it was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Heartbeat {
    seen: String,
    at_ms: Millis,
}

impl History {
    pub fn observe(&mut self, view: &View, limits: &Limits, now_ms: Millis) {
        let mut before = std::mem::take(&mut self.services);
        for service in &view.services {
            let lists_missing = service.roles.iter().flat_map(|role| &role.vms).any(|vm| view.vm(*vm).is_none());
            let blocked = lists_missing && service.state == ServiceState::Running;
            let age = before.remove(&service.id).filter(|age| age.state_name == service.state_name);
            let mut age = age.unwrap_or_else(|| StateAge {
                state_name: service.state_name.clone(),
                since_ms: now_ms,
                blocked_since_ms: None,
            });
            age.blocked_since_ms = blocked.then(|| age.blocked_since_ms.unwrap_or(now_ms));
            self.services.insert(service.id, age);
        }
        if view.active().is_none_or(|service| service.state == ServiceState::Running) {
            self.recoveries = Attempts::default();
        }
        self.errors.retain(|id, _| view.vm(*id).is_some());
        self.heartbeats.retain(|id, _| view.vm(*id).is_some());
        for vm in &view.vms {
            let Some(seen) = vm.attribute(TRELLIS_SEEN) else { continue };
            let known = self.heartbeats.get(&vm.id);
            if known.is_some_and(|heartbeat| heartbeat.seen == seen) {
                continue;
            }
            // The age of the first heartbeat is only known from the clock of the VM.
            let own_ms = seen.parse::<Millis>().ok().map_or(0, |seconds| seconds.saturating_mul(1000));
            let fresh = known.is_some() || now_ms.abs_diff(own_ms) < limits.silent_ms;
            let at_ms = if fresh { now_ms } else { 0 };
            self.heartbeats.insert(vm.id, Heartbeat { seen: seen.to_owned(), at_ms });
        }
    }

    /// Records an executed step, including a failed one. `refused`: the error of the cloud.
    pub fn executed(&mut self, step: &Step, error: Option<&str>, now_ms: Millis) {
        match step {
            Step::RecoverService { .. } => {
                self.recoveries = Attempts { count: self.recoveries.count + 1, last_ms: now_ms };
            }
            Step::ActOnVm { vm, .. } | Step::UpdateVm { vm, .. } => {
                match error {
                    Some(why) => self.errors.insert(*vm, why.to_owned()),
                    None => self.errors.remove(vm),
                };
            }
            _ => {}
        }
    }

    /// Error of the last request for a VM.
    pub fn error(&self, vm: u32) -> Option<&str> {
        self.errors.get(&vm).map(String::as_str)
    }

    /// Time since the service entered its state.
    pub fn state_age_ms(&self, service: u32, now_ms: Millis) -> Millis {
        self.services.get(&service).map_or(0, |age| now_ms.saturating_sub(age.since_ms))
    }

    /// How long a running service has listed VMs that no longer exist.
    pub fn blocked_ms(&self, service: u32, now_ms: Millis) -> Millis {
        let since_ms = self.services.get(&service).and_then(|age| age.blocked_since_ms);
        since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms))
    }

    /// Whether the next attempt to recover the service is due.
    pub fn may_recover(&self, budget: &RetryBudget, now_ms: Millis) -> bool {
        let Attempts { count, last_ms } = self.recoveries;
        !budget.is_exhausted(count) && now_ms.saturating_sub(last_ms) >= budget.delay_ms(count)
    }

    pub fn is_exhausted(&self, budget: &RetryBudget) -> bool {
        budget.is_exhausted(self.recoveries.count)
    }

    /// Resets the retry budget after an order to restart or replace.
    pub fn reset_recoveries(&mut self) {
        self.recoveries = Attempts::default();
    }

    pub fn is_silent(&self, vm: u32, limits: &Limits, now_ms: Millis) -> bool {
        self.heartbeats.get(&vm).is_some_and(|heartbeat| now_ms.saturating_sub(heartbeat.at_ms) >= limits.silent_ms)
    }
}
