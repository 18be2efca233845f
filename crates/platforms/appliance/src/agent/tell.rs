//! What the agent tells: to OpenNebula through OneGate, to the machine in a file, to people in the log.

use trellis_clock::now_unix;
use trellis_one::keys;

use super::Agent;
use super::look::explained;
use crate::readiness::{self, Of, Update};
use crate::status::Status;
use crate::trouble::{Code, Trouble};

impl Agent {
    /// Says what is so, where it is not said already. All of it is one update, and is read back.
    pub(super) async fn tell(&mut self, trouble: Option<&Trouble>) -> Result<(), Trouble> {
        if self.gate.is_none() {
            return Ok(());
        }
        let mut standing = self.standing.clone();
        if standing.of.is_none() {
            // Nothing is in force yet: what is wrong is all there is to say.
            standing.report_ready = self.settings.as_ref().is_none_or(|settings| settings.common.report_ready);
        }
        let mut wanted = readiness::attributes(&standing, &self.seen, trouble);
        if standing.of.is_none() {
            let kept = [keys::READY, keys::FL_ERROR];
            wanted.retain(|key, _| kept.contains(&key.as_str()));
        }
        let now = now_unix();
        let Some(update) = self.publication.due(&wanted, now) else { return Ok(()) };
        self.publication.sending(&update);
        self.publish(&update).await?;
        self.publication.said(&update, now);
        Ok(())
    }

    /// The trouble alone: what is in force may serve on.
    pub(super) async fn tell_trouble(&mut self, trouble: &Trouble) {
        let set = [(keys::FL_ERROR.to_owned(), trouble.attribute())].into();
        let _ = self.publish(&Update { set, erase: Vec::new() }).await;
    }

    async fn publish(&mut self, update: &Update) -> Result<(), Trouble> {
        let Some(gate) = &self.gate else { return Ok(()) };
        let read_back = gate.update_and_read_back(&update.set).await;
        let mut told = Ok(());
        for key in update.erase.iter().filter(|_| read_back.is_ok()) {
            if told.is_ok() {
                told = gate.erase(key).await;
            }
        }
        let told = read_back.and_then(|vm| {
            // The read-back also counts as a poll, and delays the next one.
            self.hear(&vm);
            told
        });
        told.map_err(|error| {
            let trouble = self.gate_trouble(&error);
            Trouble::new(trouble.code, format!("what is so cannot be told: {}", explained(&error)))
        })
    }

    /// Once for each change.
    pub(super) fn log(&mut self, trouble: Option<&Trouble>) {
        if self.said.as_ref() != trouble {
            match trouble {
                Some(trouble) if trouble.code == Code::DiscoveryTimeout => tracing::info!("waiting: {}", trouble.what),
                Some(trouble) => tracing::error!("{trouble}"),
                None => tracing::info!("nothing is wrong any more"),
            }
            self.said = trouble.cloned();
        }
        let ready = self.seen.serving;
        if ready != self.said_ready {
            self.said_ready = ready;
            tracing::info!(ready, "readiness changed");
        }
    }

    pub(super) fn write_status(&self, trouble: Option<&Trouble>, looked_at: f64) {
        let ready = self.seen.serving && !self.waiting;
        let endpoint = match &self.standing.of {
            Some(Of::SuperLink { endpoint, .. }) => Some(endpoint.clone()),
            _ => self.memory.coordinator.as_ref().map(|found| found.endpoint.clone()),
        };
        let doing = match (trouble, &self.recipe) {
            (Some(_), _) => "something is wrong",
            (None, None) => "getting ready to start",
            (None, Some(_)) if ready => "serving",
            (None, Some(_)) => "waiting for the programs to work",
        };
        let status = Status {
            role: self.settings.as_ref().map(|settings| settings.role().name().to_owned()).unwrap_or_default(),
            ready,
            doing: doing.to_owned(),
            trouble: trouble.cloned(),
            waiting: self.waiting,
            endpoint,
            instance: self.seen.instance.clone(),
            generation: self.standing.generation.clone(),
            looked_at,
            pid: std::process::id(),
        };
        if let Err(error) = status.write(&self.place.status()) {
            tracing::warn!("{error}");
        }
    }
}
