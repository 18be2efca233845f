//! The first half of a pass: what the context and the controller say, and what the machine has.

use std::time::{Duration, Instant};

use trellis_clock::now_unix;
use trellis_one::gate::{GateError, VmSnapshot};
use trellis_one::keys::{self, Assignment};

use super::{Agent, Wishes};
use crate::facts;
use crate::trouble::{Code, Trouble};

/// First poll interval of the VM's attributes in OneGate. It doubles after each poll without a change.
pub(super) const GATE_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum poll interval, and so the maximum delay until the agent reads a change by the controller.
pub(super) const IDLE_GATE_INTERVAL: Duration = Duration::from_secs(60);
/// While the VM boots: somebody waits for it.
const BOOT_GATE_INTERVAL: Duration = Duration::from_secs(1);
/// A token that is refused so often in a row is the wrong one.
const REFUSALS: u32 = 3;

impl Agent {
    /// Settings that are good, or why there are none. Those in force stay so meanwhile.
    pub(super) async fn look(&mut self) -> Result<(), Trouble> {
        let stamp = self.sources.stamp();
        let context_changed = self.stamp.as_ref() != Some(&stamp);
        if context_changed {
            self.values = self.sources.read();
            self.stamp = Some(stamp);
            self.gate = self.sources.gate(&self.values).inspect_err(|_| self.stamp = None)?;
            self.gate_looked = None;
        }
        let asked = self.ask_gate().await;
        let assignment_changed = self.memory.assignment != self.wishes.assignment;
        if context_changed || assignment_changed || self.settings.is_none() {
            // Nothing is begun by what may be half of the truth: a controller's word may be waiting at OneGate.
            if self.settings.is_none() && self.memory.settings.is_none() {
                asked?;
            }
            self.assigned()?;
            self.read_settings().inspect_err(|_| self.stamp = None)?;
        }
        self.facts = facts::look(&self.place);
        let settings = self.settings.as_ref().expect("they were read above");
        if !self.was_ready {
            facts::skew(settings.common.tls, self.gate.as_ref().and_then(|gate| gate.date()).as_deref(), now_unix())?;
        }
        facts::preflight(settings, &self.facts)
    }

    fn assigned(&self) -> Result<(), Trouble> {
        match self.wishes.has_controller && self.wishes.assignment.is_none() {
            true => Err(Trouble::new(Code::AwaitsAssignment, "the controller has not said yet what this VM is")),
            false => Ok(()),
        }
    }

    async fn ask_gate(&mut self) -> Result<(), Trouble> {
        let Some(gate) = &self.gate else { return Ok(()) };
        let interval = match (self.was_ready, self.seen.serving) {
            (false, _) => BOOT_GATE_INTERVAL,
            (true, false) => GATE_INTERVAL,
            (true, true) => self.gate_pause,
        };
        if self.gate_looked.is_some_and(|at| at.elapsed() < interval) {
            return Ok(());
        }
        match gate.vm().await {
            Ok(vm) => {
                self.hear(&vm);
                Ok(())
            }
            Err(error) => Err(self.gate_trouble(&error)),
        }
    }

    /// Stores the VM's attributes as read from OneGate. The poll interval grows while they do not change.
    pub(super) fn hear(&mut self, vm: &VmSnapshot) {
        self.gate_looked = Some(Instant::now());
        self.gate_refusals = 0;
        let said = |key: &str| vm.attribute(key).map(str::to_owned);
        let wishes = Wishes {
            has_controller: said(keys::TRELLIS_FEDERATION).is_some(),
            assignment: said(keys::TRELLIS_ASSIGNMENT),
            drain: said(keys::TRELLIS_DRAIN).as_deref() == Some("YES"),
            restart: said(keys::TRELLIS_RESTART),
        };
        if self.wishes != wishes || !self.seen.serving {
            self.gate_pauses.reset();
        }
        self.gate_pause = self.gate_pauses.next().unwrap_or(IDLE_GATE_INTERVAL);
        self.wishes = wishes;
        self.publication.found(&vm.attributes);
    }

    /// One refusal may be OneGate's own trouble; several are ours.
    pub(super) fn gate_trouble(&mut self, error: &GateError) -> Trouble {
        let refused = matches!(error, GateError::Unauthorised | GateError::Refused { status: 403, .. });
        self.gate_refusals = if refused { self.gate_refusals + 1 } else { 0 };
        let code = match self.gate_refusals >= REFUSALS {
            true => Code::OnegateUnauthorised,
            false => Code::OnegateUnreachable,
        };
        Trouble::new(code, explained(error))
    }

    fn read_settings(&mut self) -> Result<(), Trouble> {
        let mut values = self.values.clone();
        let wrong = |what: String| Trouble::new(Code::ConfigValidationFailed, what);
        if let Some(text) = &self.wishes.assignment {
            values.add_assignment(&Assignment::from_attribute(text).map_err(wrong)?);
        }
        let (settings, warnings) = crate::read(&values, self.sources.role()).map_err(|problems| {
            let all: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
            wrong(all.join("; "))
        })?;
        if self.settings.as_ref() != Some(&settings) {
            for warning in warnings {
                tracing::warn!("{warning}");
            }
        }
        self.memory.settings = Some(settings.clone());
        self.memory.assignment.clone_from(&self.wishes.assignment);
        self.settings = Some(settings);
        self.remember();
        Ok(())
    }

    pub(super) fn remember(&self) {
        if self.is_trial {
            return;
        }
        if let Err(error) = self.memory.write(&self.place.memory()) {
            tracing::warn!("{error}");
        }
    }
}

/// With everything that is behind it.
pub(super) fn explained(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Resolve;
    use super::*;
    use crate::place::Place;
    use crate::sources::Sources;
    use crate::supervisor::{Direct, Supervisor};

    fn vm(attributes: &[(&str, &str)]) -> VmSnapshot {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        VmSnapshot { id: 1, name: "x".to_owned(), state: None, lcm_state: None, attributes, nics: Vec::new() }
    }

    #[test]
    fn while_nothing_is_new_onegate_is_asked_once_a_minute() {
        let root = tempfile::tempdir().expect("a directory");
        let place = Place::new(root.path(), "trellis");
        let sources = Sources::new(&place, &[], false);
        let mut agent =
            Agent::new(place, sources, Supervisor::Direct(Direct::default()), Resolve::Stay).expect("an agent");
        agent.seen.serving = true;
        let pauses = |agent: &mut Agent, vm: &VmSnapshot, looks: usize| -> Vec<u64> {
            let pause = |_| {
                agent.hear(vm);
                agent.gate_pause.as_secs()
            };
            (0..looks).map(pause).collect()
        };
        let same = vm(&[(keys::TRELLIS_FEDERATION, "f")]);
        assert_eq!(pauses(&mut agent, &same, 6), [4, 8, 16, 32, 60, 60]);
        let drain = vm(&[(keys::TRELLIS_FEDERATION, "f"), (keys::TRELLIS_DRAIN, "YES")]);
        assert_eq!(pauses(&mut agent, &drain, 2), [4, 8], "there is something to do: more may follow");
        agent.seen.serving = false;
        assert_eq!(pauses(&mut agent, &drain, 2), [4, 4], "somebody waits for it");
    }
}
