//! First step of a reconcile: reads context, controller and machine, and renders the desired deployment.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use trellis_clock::{now_s, now_unix};
use trellis_diagnostic::joined;
use trellis_one::keys::Assignment;

use super::lifecycle::{Event, Schedule};
use super::{Agent, Deployment};
use crate::context::Values;
use crate::disk;
use crate::facts::{self, Facts};
use crate::failure::{Code, Failure};
use crate::network;
use crate::readiness::{Profile, RoleProfile};
use crate::recipe::{self, Surroundings, flower_version};
use crate::settings::{FlowerBy, Framework, RoleSettings, Runtime, Settings, SuperLinkSettings};
use crate::sources::Stamp;
use crate::supervisor::run;

/// The context and the machine at the last observation.
#[derive(Debug, Default)]
pub struct Inputs {
    values: Values,
    stamp: Option<Stamp>,
    /// Valid settings, whether in force or not.
    pub settings: Option<Settings>,
    pub facts: Facts,
    /// Start of the last observation, in seconds since 1970.
    pub read_at_s: f64,
}

impl Agent {
    /// Renders the desired deployment, and compares it with what runs.
    pub(super) async fn render(&mut self) -> Result<Event, Failure> {
        self.inputs.read_at_s = now_s();
        let settings = self.observe().await?;
        self.lay_out(&settings)?;
        if self.current.as_ref().is_none_or(|current| current.settings != settings) {
            // The route to the SuperLink may be one of them.
            network::apply(&network::routes(&settings.common.routes)).await?;
        }
        let (around, profile) = self.surroundings(&settings).await?;
        let mut recipe = recipe::recipe(&settings, &around, &self.place)?;
        recipe.programs.retain(|program| !program.is_optional || program.path.exists());
        if let RoleSettings::Gateway(gateway) = &settings.role {
            network::raise(gateway, &self.place).await?;
        }
        let change = self.supervisor.change(&recipe, &self.place).await;
        let schedule = match settings.common.defer_while_training {
            true => Schedule::AfterRound,
            false => Schedule::Now,
        };
        self.desired = Some((Deployment { settings, recipe, profile }, change));
        Ok(Event::Rendered(change, schedule))
    }

    /// Reads the settings. Those in force stay in force if this fails.
    pub(super) async fn observe(&mut self) -> Result<Settings, Failure> {
        let stamp = self.sources.stamp();
        let context_changed = self.inputs.stamp.as_ref() != Some(&stamp);
        if context_changed {
            self.inputs.values = self.sources.read();
            let client = self.sources.gate(&self.inputs.values).inspect_err(|_| self.inputs.stamp = None)?;
            self.inputs.stamp = Some(stamp);
            self.gate.connect(client);
        }
        let polled = self.gate.poll(&self.state).await;
        let assignment_changed = self.memory.assignment != self.gate.directives().assignment;
        let settings = match self.inputs.settings.clone() {
            Some(settings) if !context_changed && !assignment_changed => settings,
            known => {
                // Without OneGate the agent cannot know whether a controller has an assignment for this VM.
                if known.is_none() && self.memory.settings.is_none() {
                    polled?;
                }
                self.check_assigned()?;
                self.read_settings().inspect_err(|_| self.inputs.stamp = None)?
            }
        };
        self.inputs.facts = facts::observe(&self.place);
        if self.state.is_booting() {
            let date = self.gate.client().and_then(|client| client.date());
            facts::skew(settings.common.tls, date.as_deref(), now_unix())?;
        }
        facts::preflight(&settings, &self.inputs.facts)?;
        Ok(settings)
    }

    fn check_assigned(&self) -> Result<(), Failure> {
        let directives = self.gate.directives();
        match directives.federation.is_some() && directives.assignment.is_none() {
            true => Err(Failure::new(Code::AwaitsAssignment, "the controller has not assigned a part to this VM yet")),
            false => Ok(()),
        }
    }

    fn read_settings(&mut self) -> Result<Settings, Failure> {
        let mut values = self.inputs.values.clone();
        let assignment = self.gate.directives().assignment.clone();
        let invalid = |what: String| Failure::new(Code::ConfigValidationFailed, what);
        if let Some(text) = &assignment {
            values.add_assignment(&Assignment::from_attribute(text).map_err(invalid)?);
        }
        let read = crate::read(&values, self.sources.role());
        let (settings, warnings) = read.map_err(|problems| invalid(joined(&problems.0, "; ")))?;
        if self.inputs.settings.as_ref() != Some(&settings) {
            for warning in warnings {
                tracing::warn!("{warning}");
            }
        }
        self.memory.settings = Some(settings.clone());
        self.memory.assignment = assignment;
        self.inputs.settings = Some(settings.clone());
        self.save_memory();
        Ok(settings)
    }

    fn lay_out(&self, settings: &Settings) -> Result<(), Failure> {
        let made = (|| {
            disk::make_directory(&self.place.state(), 0o755, None)?;
            disk::make_directory(&self.place.etc(), 0o755, None)?;
            disk::make_directory(&self.place.tls(), 0o755, None)?;
            disk::make_directory(&self.place.service(settings.role()), 0o700, self.owner)
        })();
        made.map_err(|error| Failure::new(Code::PreflightFailed, error.to_string()))
    }

    /// What a recipe depends on beside the settings: certificates of a SuperLink, the SuperLink of a node.
    async fn surroundings(&mut self, settings: &Settings) -> Result<(Surroundings, Profile), Failure> {
        let common = &settings.common;
        let mut profile = Profile {
            report_ready: common.report_ready,
            version: flower_version(common).to_owned(),
            tls: common.tls,
            generation: common.generation.clone(),
            of: None,
        };
        let Facts { python, gpu, .. } = self.inputs.facts;
        let mut around = Surroundings { python, gpu, ..Surroundings::default() };
        match &settings.role {
            RoleSettings::SuperLink(link) => {
                around.advertised = facts::advertised(link.fleet, &self.inputs.facts);
                around.apps_port = self.apps_port()?;
                let trust = if common.tls { Some(self.certificates(link)?) } else { None };
                if common.part.is_none() {
                    self.update_shards().await;
                }
                let shards = common.part.is_none().then(|| self.shards.to_attribute());
                profile.of = Some(superlink(link, &around, trust, shards));
            }
            RoleSettings::SuperNode(node) => {
                let in_container =
                    [FlowerBy::Docker, FlowerBy::Podman].map(|by| Runtime::Flower { by }).contains(&common.runtime);
                if !in_container {
                    self.check_framework(node.framework).await?;
                }
                let found = self.coordinator(common, node).await?;
                if let Some(trust) = &found.trust {
                    self.write_trust(trust)?;
                }
                around.name = Some(self.node_name());
                around.node_key = self.join(node, &found).await?;
                around.coordinator = Some(found);
                profile.of = Some(RoleProfile::SuperNode { framework: node.framework, gpu });
            }
            RoleSettings::Gateway(_) => profile.of = Some(RoleProfile::Gateway),
        }
        Ok((around, profile))
    }

    /// Port of the SuperLink for its apps. A root other than `/` may be one of several on the machine, so the agent picks a free
    /// port for it once.
    fn apps_port(&mut self) -> Result<Option<u16>, Failure> {
        if self.place.root() == Path::new("/") {
            return Ok(None);
        }
        if self.memory.apps_port.is_none() {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|port| port.local_addr());
            let free = free.map_err(|error| Failure::new(Code::PreflightFailed, error.to_string()))?;
            self.memory.apps_port = Some(free.port());
            self.save_memory();
        }
        Ok(self.memory.apps_port)
    }

    /// Checks once that Python has the module of the framework.
    async fn check_framework(&mut self, framework: Framework) -> Result<(), Failure> {
        let Some(module) = framework.module().filter(|_| self.framework != framework) else { return Ok(()) };
        let python = self.place.python();
        let code = format!("import importlib.util, sys; sys.exit(importlib.util.find_spec({module:?}) is None)");
        run(&python, &["-c", &code]).await.map_err(|_| {
            let what = format!("this node needs {}, and {} has no {module}", framework.name(), python.display());
            Failure::new(Code::PreflightFailed, what)
        })?;
        self.framework = framework;
        Ok(())
    }
}

fn superlink(
    link: &SuperLinkSettings,
    around: &Surroundings,
    trust: Option<String>,
    shards: Option<String>,
) -> RoleProfile {
    let reachable = |address: SocketAddr| {
        let ip = around.advertised.filter(|_| address.ip().is_unspecified()).unwrap_or(address.ip());
        SocketAddr::new(ip, address.port()).to_string()
    };
    let [endpoint, control, http] = [link.fleet, link.control, link.http].map(reachable);
    RoleProfile::SuperLink { endpoint, control, http, trust, shards }
}
