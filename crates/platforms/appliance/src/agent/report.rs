//! What the agent reports: to OpenNebula through OneGate, to other programs of the machine in a file, to operators in the log.

use trellis_clock::now_unix;
use trellis_one::keys;

use super::Agent;
use super::lifecycle::Effect;
use crate::failure::{Code, Failure};
use crate::readiness::{self, Profile, RoleProfile};
use crate::status::Status;

impl Agent {
    /// Publishes the attributes of the VM that have changed.
    pub(super) async fn publish(&mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        if self.gate.client().is_none() {
            return Ok(());
        }
        let observed = self.state.observed();
        let attributes = match &self.current {
            Some(current) => readiness::attributes(&current.profile, observed, failure),
            None => {
                let settings = self.inputs.settings.as_ref();
                let report_ready = settings.is_none_or(|settings| settings.common.report_ready);
                let profile = Profile { report_ready, ..Profile::default() };
                let mut attributes = readiness::attributes(&profile, observed, failure);
                attributes.retain(|key, _| [keys::READY, keys::FL_ERROR].contains(&key.as_str()));
                attributes
            }
        };
        self.gate.publish(&attributes, now_unix(), observed.serving).await
    }

    pub(super) fn write_status(&self, failure: Option<Failure>) {
        let (observed, waiting) = (self.state.observed(), self.state.is_deferred());
        let ready = observed.serving && !waiting;
        let profile = self.current.as_ref().map(|current| &current.profile);
        let endpoint = match profile.and_then(|profile| profile.of.as_ref()) {
            Some(RoleProfile::SuperLink { endpoint, .. }) => Some(endpoint.clone()),
            _ => self.memory.coordinator.as_ref().map(|found| found.endpoint.clone()),
        };
        let doing = match (&failure, &self.current) {
            (Some(_), _) => "something is wrong",
            (None, None) => "getting ready to start",
            (None, Some(_)) if ready => "serving",
            (None, Some(_)) => "waiting for the programs to work",
        };
        let settings = self.inputs.settings.as_ref();
        let status = Status {
            role: settings.map(|settings| settings.role().name().to_owned()).unwrap_or_default(),
            ready,
            doing: doing.to_owned(),
            failure,
            waiting,
            endpoint,
            instance: observed.instance.clone(),
            generation: profile.and_then(|profile| profile.generation.clone()),
            observed_at: self.inputs.read_at_s,
            pid: std::process::id(),
        };
        if let Err(error) = status.write(&self.place.status()) {
            tracing::warn!("{error}");
        }
    }
}

pub fn log(effect: &Effect) {
    match effect {
        Effect::LogDeferred => tracing::info!("a change waits until no round is at work"),
        Effect::LogFailure(Some(failure)) if failure.code == Code::DiscoveryTimeout => {
            tracing::info!("waiting: {}", failure.what);
        }
        Effect::LogFailure(Some(failure)) => tracing::error!("{failure}"),
        Effect::LogFailure(None) => tracing::info!("the failure is over"),
        Effect::LogReadiness(ready) => tracing::info!(ready, "readiness changed"),
        _ => {}
    }
}
