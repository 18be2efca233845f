//! What the keeper remembers between two looks: how long something has been as it is, how often it was tried. May be lost
//! without harm: then it is waited for and tried once more.

use std::collections::BTreeMap;

use trellis_one::keys::TRELLIS_SEEN;
use trellis_plan::Millis;

use crate::next::Step;
use crate::view::{ServiceState, View};

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A service that has been about something for so long is stuck.
    pub stuck_ms: Millis,
    /// How long a service without a faulty VM may stay in WARNING before a second service is created.
    pub warning_ms: Millis,
    /// The same for a service with a faulty VM, which may come up again.
    pub faulty_ms: Millis,
    /// Minimum time between two attempts to recover a service.
    pub pause_ms: Millis,
    /// An agent without a heartbeat for this long is silent. More than two heartbeat intervals.
    pub silent_ms: Millis,
    pub most_recoveries: u32,
}

impl Limits {
    pub const DEFAULT: Limits = Limits {
        stuck_ms: 600_000,
        warning_ms: 15_000,
        faulty_ms: 120_000,
        pause_ms: 30_000,
        silent_ms: 300_000,
        most_recoveries: 3,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    services: BTreeMap<u32, Lasting>,
    recoveries: Tries,
    heard: BTreeMap<u32, Heard>,
    /// Error of the last request for a VM.
    refusals: BTreeMap<u32, String>,
}

/// State of a service, and when it entered it.
#[derive(Debug, Clone, PartialEq)]
struct Lasting {
    word: String,
    since_ms: Millis,
    /// Since when the running service lists VMs that no longer exist.
    blocked_since_ms: Option<Millis>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tries {
    count: u32,
    last_ms: Millis,
}

/// What an agent last said, and when that was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Heard {
    seen: String,
    at_ms: Millis,
}

impl Memory {
    pub fn look(&mut self, view: &View, limits: &Limits, now_ms: Millis) {
        let mut before = std::mem::take(&mut self.services);
        for service in &view.services {
            let counts_gone = service.roles.iter().flat_map(|role| &role.vms).any(|vm| view.vm(*vm).is_none());
            let blocked = counts_gone && service.state == ServiceState::Runs;
            let lasting = before.remove(&service.id).filter(|lasting| lasting.word == service.word);
            let mut lasting = lasting.unwrap_or_else(|| Lasting {
                word: service.word.clone(),
                since_ms: now_ms,
                blocked_since_ms: None,
            });
            lasting.blocked_since_ms = blocked.then(|| lasting.blocked_since_ms.unwrap_or(now_ms));
            self.services.insert(service.id, lasting);
        }
        if view.active().is_none_or(|service| service.state == ServiceState::Runs) {
            self.recoveries = Tries::default();
        }
        self.refusals.retain(|id, _| view.vm(*id).is_some());
        self.heard.retain(|id, _| view.vm(*id).is_some());
        for vm in &view.vms {
            let Some(seen) = vm.attribute(TRELLIS_SEEN) else { continue };
            let known = self.heard.get(&vm.id);
            if known.is_some_and(|heard| heard.seen == seen) {
                continue;
            }
            // The first time nobody knows how old it is, but for the clock of the VM.
            let own_ms = seen.parse::<Millis>().ok().map_or(0, |seconds| seconds.saturating_mul(1000));
            let fresh = known.is_some() || now_ms.abs_diff(own_ms) < limits.silent_ms;
            let at_ms = if fresh { now_ms } else { 0 };
            self.heard.insert(vm.id, Heard { seen: seen.to_owned(), at_ms });
        }
    }

    /// Records an executed step, including a failed one. `refused`: the error of the cloud.
    pub fn tried(&mut self, step: &Step, refused: Option<&str>, now_ms: Millis) {
        match step {
            Step::RecoverService { .. } => {
                self.recoveries = Tries { count: self.recoveries.count + 1, last_ms: now_ms };
            }
            Step::Act { vm, .. } | Step::Tell { vm, .. } => {
                match refused {
                    Some(why) => self.refusals.insert(*vm, why.to_owned()),
                    None => self.refusals.remove(vm),
                };
            }
            _ => {}
        }
    }

    /// Error of the last request for a VM.
    pub fn refusal(&self, vm: u32) -> Option<&str> {
        self.refusals.get(&vm).map(String::as_str)
    }

    /// Time since the service entered its state.
    pub fn lasts_ms(&self, service: u32, now_ms: Millis) -> Millis {
        self.services.get(&service).map_or(0, |lasting| now_ms.saturating_sub(lasting.since_ms))
    }

    /// How long a running service has listed VMs that no longer exist.
    pub fn blocked_ms(&self, service: u32, now_ms: Millis) -> Millis {
        let since_ms = self.services.get(&service).and_then(|lasting| lasting.blocked_since_ms);
        since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms))
    }

    pub fn may_recover(&self, limits: &Limits, now_ms: Millis) -> bool {
        self.recoveries.may(limits.most_recoveries, limits.pause_ms, now_ms)
    }

    pub fn gave_up(&self, limits: &Limits) -> bool {
        self.recoveries.count >= limits.most_recoveries
    }

    /// Somebody asks for another attempt.
    pub fn forgive(&mut self) {
        self.recoveries = Tries::default();
    }

    pub fn is_silent(&self, vm: u32, limits: &Limits, now_ms: Millis) -> bool {
        self.heard.get(&vm).is_some_and(|heard| now_ms.saturating_sub(heard.at_ms) >= limits.silent_ms)
    }
}

impl Tries {
    fn may(&self, most: u32, pause_ms: Millis, now_ms: Millis) -> bool {
        self.count < most && (self.count == 0 || now_ms.saturating_sub(self.last_ms) >= pause_ms)
    }
}
