//! Second step of a reconcile: applies the desired deployment, follows the controller, and probes the programs.

use std::time::{Duration, Instant};

use trellis_client::NearbyNode;

use super::lifecycle::{Event, Request};
use super::{Agent, Deployment};
use crate::disk;
use crate::facts;
use crate::failure::{Code, Failure};
use crate::firewall;
use crate::network;
use crate::probe::{self, Depth};
use crate::readiness::Observed;
use crate::recipe::{Probe, Recipe};
use crate::settings::{Role, RoleSettings, Runtime, Settings};
use crate::supervisor::{Change, Supervisor, run};

/// Interval of the calls that a node makes, while the SuperLink answers the other calls.
const FLEET_PROBE_INTERVAL: Duration = Duration::from_secs(600);

impl Agent {
    pub(super) async fn apply(&mut self) -> Result<(), Failure> {
        let Some((desired, change)) = self.desired.take() else { return Ok(()) };
        let Deployment { settings, recipe, .. } = &desired;
        if self.current.is_none() && change == Change::Nothing {
            // systemd started the programs before the agent. The firewall rules do not survive a reboot.
            self.apply_firewall(settings, recipe).await?;
        }
        if change != Change::Nothing {
            if let (Change::Restart, Supervisor::Direct(direct)) = (change, &mut self.supervisor) {
                // Frees the ports, so that the check below finds only other programs.
                direct.stop().await;
            }
            self.write(recipe)?;
            self.apply_firewall(settings, recipe).await?;
            if change == Change::Start || matches!(self.supervisor, Supervisor::Direct(_)) {
                recipe.listens.iter().find_map(|address| facts::port_busy(*address)).map_or(Ok(()), Err)?;
            }
            self.supervisor.apply(recipe, &self.place).await?;
            self.certificates.restarted();
        }
        self.current = Some(desired);
        Ok(())
    }

    fn write(&self, recipe: &Recipe) -> Result<(), Failure> {
        let written = (|| {
            for path in &recipe.directories {
                disk::make_directory(path, 0o700, self.owner)?;
            }
            for (path, text) in &recipe.files {
                disk::write(path, text.as_bytes(), 0o600, self.owner)?;
            }
            Ok(())
        })();
        written.map_err(|error: std::io::Error| Failure::new(Code::PreflightFailed, error.to_string()))
    }

    /// Applies the firewall before the programs start. With the direct supervisor the machine keeps its own rules.
    async fn apply_firewall(&self, settings: &Settings, recipe: &Recipe) -> Result<(), Failure> {
        let (RoleSettings::SuperLink(link), Supervisor::Systemd(_)) = (&settings.role, &self.supervisor) else {
            return Ok(());
        };
        let rules = firewall::rules(&recipe.listens, &self.inputs.facts.networks, &link.allowed_networks);
        let path = self.place.firewall();
        let failed = |why: String| Failure::new(Code::PreflightFailed, why);
        disk::write(&path, rules.as_bytes(), 0o644, None).map_err(|error| failed(error.to_string()))?;
        let path = path.display().to_string();
        run("nft", &["-f", &path]).await.map_err(failed).map(drop)
    }

    /// Follows the controller's request to drain. Returns whether the programs must restart.
    pub(super) async fn follow(&mut self) -> Request {
        let Some(current) = &self.current else { return Request::Nothing };
        let (directives, observed) = (self.gate.directives(), self.state.observed());
        if let Probe::SuperNode { socket } = &current.recipe.probe
            && observed.instance.is_some()
            && directives.drains() != observed.draining
            && let Err(error) = NearbyNode::drain(socket, directives.drains()).await
        {
            tracing::debug!("the node does not accept the drain request: {error}");
        }
        let requested = directives.restart.is_some()
            && directives.restart == observed.instance
            && directives.restart != self.restarted;
        // Our programs reload certificates and trust bundles.
        let official = current.settings.common.runtime != Runtime::Trellis;
        let outdated = official && self.certificates.requires_restart(observed);
        if !(requested || outdated) {
            return Request::Nothing;
        }
        self.restarted.clone_from(&directives.restart);
        self.certificates.restarted();
        Request::Restart
    }

    pub(super) async fn restart(&mut self) -> Result<(), Failure> {
        match &self.current {
            Some(current) => self.supervisor.restart(&current.recipe, &self.place).await,
            None => Ok(()),
        }
    }

    pub(super) async fn probe(&mut self) -> Event {
        if self.inputs.settings.as_ref().is_some_and(|settings| settings.role() == Role::Gateway) {
            let serving = network::is_up().await;
            let observed = Observed { serving, instance: serving.then(|| "1".to_owned()), ..Observed::default() };
            return Event::Probed { observed, crash: None };
        }
        let Some(recipe) = self.current.as_ref().map(|current| current.recipe.clone()) else {
            return Event::Probed { observed: Observed::default(), crash: None };
        };
        let status = self.supervisor.status(&recipe).await;
        let before = self.state.observed();
        let is_recent =
            |(at, of): &(Instant, Option<String>)| at.elapsed() < FLEET_PROBE_INTERVAL && *of == status.instance;
        let depth = match before.serving && self.fleet_probed.as_ref().is_some_and(is_recent) {
            true => Depth::Calls,
            false => Depth::Fleet,
        };
        let mut observed = probe::ask(&recipe.probe, depth, &self.key, before).await;
        observed.instance = status.instance;
        if depth == Depth::Fleet && observed.serving {
            self.fleet_probed = Some((Instant::now(), observed.instance.clone()));
        }
        // Without an instance, another program answered at the port.
        observed.serving &= observed.instance.is_some() && self.script_agrees();
        Event::Probed { observed, crash: status.failing }
    }
}
