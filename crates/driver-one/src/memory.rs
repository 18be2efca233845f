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
    /// Between two attempts to bring a service or a VM back.
    pub pause_ms: Millis,
    /// An agent that has said nothing for so long is silent.
    pub silent_ms: Millis,
    pub most_recoveries: u32,
    pub most_retries: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { stuck_ms: 600_000, pause_ms: 30_000, silent_ms: 180_000, most_recoveries: 3, most_retries: 2 }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    service: Option<Lasting>,
    recoveries: Tries,
    retries: BTreeMap<u32, Tries>,
    heard: BTreeMap<u32, Heard>,
}

/// A service, and the state that it has been in since then.
#[derive(Debug, Clone, PartialEq)]
struct Lasting {
    id: u32,
    word: String,
    since_ms: Millis,
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
        self.service = view.service().map(|service| match self.service.take() {
            Some(lasting) if lasting.id == service.id && lasting.word == service.word => lasting,
            _ => Lasting { id: service.id, word: service.word.clone(), since_ms: now_ms },
        });
        if view.service().is_none_or(|service| service.state == ServiceState::Runs) {
            self.recoveries = Tries::default();
        }
        self.retries.retain(|id, _| view.vm(*id).is_some());
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

    /// What was tried counts, whatever came of it.
    pub fn tried(&mut self, step: &Step, now_ms: Millis) {
        let tries = match step {
            Step::RecoverService { .. } => &mut self.recoveries,
            Step::RetryVm { vm } => self.retries.entry(*vm).or_default(),
            _ => return,
        };
        *tries = Tries { count: tries.count + 1, last_ms: now_ms };
    }

    /// For how long the service has been as it is.
    pub fn lasts_ms(&self, now_ms: Millis) -> Millis {
        self.service.as_ref().map_or(0, |lasting| now_ms.saturating_sub(lasting.since_ms))
    }

    pub fn may_recover(&self, limits: &Limits, now_ms: Millis) -> bool {
        self.recoveries.may(limits.most_recoveries, limits.pause_ms, now_ms)
    }

    pub fn gave_up(&self, limits: &Limits) -> bool {
        self.recoveries.count >= limits.most_recoveries
    }

    pub fn may_retry(&self, vm: u32, limits: &Limits, now_ms: Millis) -> bool {
        self.retries.get(&vm).copied().unwrap_or_default().may(limits.most_retries, limits.pause_ms, now_ms)
    }

    /// A VM that failed is brought back a few times before its part has failed.
    pub fn is_hopeless(&self, vm: u32, limits: &Limits) -> bool {
        self.retries.get(&vm).is_some_and(|tries| tries.count >= limits.most_retries)
    }

    /// Somebody asks for another attempt.
    pub fn forgive(&mut self, vm: Option<u32>) {
        self.recoveries = Tries::default();
        if let Some(vm) = vm {
            self.retries.remove(&vm);
        }
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
