//! The second half of a pass: from settings to what runs. Nothing that runs is touched where nothing is to change, and nothing
//! is ended while a round needs it, unless it does not serve anyway.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use trellis_client::NearbyNode;
use trellis_clock::now_unix;

use super::Agent;
use crate::disk;
use crate::facts;
use crate::firewall;
use crate::network;
use crate::probe::{self, Depth};
use crate::readiness::{Of, Seen, Standing};
use crate::recipe::{self, Probe, Recipe, Surroundings, flower_version};
use crate::settings::{FlowerBy, Framework, Role, RoleSettings, Runtime, Settings, SuperLinkSettings};
use crate::supervisor::{Change, Supervisor, run};
use crate::trouble::{Code, Trouble};

/// Between two looks whether a certificate is due.
const CERTIFICATES: Duration = Duration::from_secs(30);
/// Between two calls as a node makes them, of a program that answers other calls all the time.
const FLEET: Duration = Duration::from_secs(600);

impl Agent {
    pub(super) async fn make(&mut self) -> Result<(), Trouble> {
        self.look().await?;
        let settings = self.settings.clone().expect("they were just read");
        self.lay_out(&settings)?;
        if self.in_force.as_ref() != Some(&settings) {
            // The SuperLink may be behind them.
            network::apply(&network::routes(&settings.common.routes)).await?;
        }
        let (around, standing) = self.surroundings(&settings).await?;
        let mut recipe = recipe::recipe(&settings, &around, &self.place)?;
        recipe.programs.retain(|program| !program.is_optional || program.path.exists());
        if let RoleSettings::Gateway(gateway) = &settings.role {
            network::raise(gateway, &self.place).await?;
        }
        self.put_in_force(&settings, recipe, standing).await?;
        self.obey().await
    }

    fn lay_out(&self, settings: &Settings) -> Result<(), Trouble> {
        let made = (|| {
            disk::make_directory(&self.place.state(), 0o755, None)?;
            disk::make_directory(&self.place.etc(), 0o755, None)?;
            disk::make_directory(&self.place.tls(), 0o755, None)?;
            disk::make_directory(&self.place.service(settings.role()), 0o700, self.owner)
        })();
        made.map_err(|error| Trouble::new(Code::PreflightFailed, error.to_string()))
    }

    /// What must be known before anything can be written down: certificates, or the SuperLink.
    async fn surroundings(&mut self, settings: &Settings) -> Result<(Surroundings, Standing), Trouble> {
        let common = &settings.common;
        let mut standing = Standing {
            report_ready: common.report_ready,
            version: flower_version(common).to_owned(),
            tls: common.tls,
            generation: common.generation.clone(),
            of: None,
        };
        let mut around = Surroundings { python: self.facts.python, gpu: self.facts.gpu, ..Surroundings::default() };
        match &settings.role {
            RoleSettings::SuperLink(link) => {
                around.advertised = facts::advertised(link.fleet, &self.facts);
                around.apps_port = self.apps_port()?;
                let trust = if common.tls { Some(self.certificates(link)?) } else { None };
                if common.part.is_none() {
                    self.follow_shards().await;
                }
                let shards = common.part.is_none().then(|| self.shards.to_attribute());
                standing.of = Some(superlink(link, &around, trust, shards));
            }
            RoleSettings::SuperNode(node) => {
                if common.runtime != (Runtime::Flower { by: FlowerBy::Docker })
                    && common.runtime != (Runtime::Flower { by: FlowerBy::Podman })
                {
                    self.find_framework(node.framework).await?;
                }
                let found = self.coordinator(common, node).await?;
                if let Some(trust) = &found.trust {
                    self.trust(trust)?;
                }
                around.name = Some(self.name());
                around.node_key = self.join(node, &found).await?;
                around.coordinator = Some(found);
                standing.of = Some(Of::SuperNode { framework: node.framework, gpu: self.facts.gpu });
            }
            RoleSettings::Gateway(_) => standing.of = Some(Of::Gateway),
        }
        Ok((around, standing))
    }

    /// Below another root than a machine's there may be several SuperLinks: each draws a port for its apps, and keeps it.
    fn apps_port(&mut self) -> Result<Option<u16>, Trouble> {
        if self.place.root() == Path::new("/") {
            return Ok(None);
        }
        if self.memory.apps_port.is_none() {
            let drawn = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|port| port.local_addr());
            let drawn = drawn.map_err(|error| Trouble::new(Code::PreflightFailed, error.to_string()))?;
            self.memory.apps_port = Some(drawn.port());
            self.remember();
        }
        Ok(self.memory.apps_port)
    }

    /// What the apps of a node need in Python is there; asked once.
    async fn find_framework(&mut self, framework: Framework) -> Result<(), Trouble> {
        let Some(module) = framework.module().filter(|_| self.framework != framework) else { return Ok(()) };
        let python = self.place.python();
        let asks = format!("import importlib.util, sys; sys.exit(importlib.util.find_spec({module:?}) is None)");
        run(&python, &["-c", &asks]).await.map_err(|_| {
            let what = format!("this node needs {}, and {} has no {module}", framework.name(), python.display());
            Trouble::new(Code::PreflightFailed, what)
        })?;
        self.framework = framework;
        Ok(())
    }

    fn certificates(&mut self, link: &SuperLinkSettings) -> Result<String, Trouble> {
        let authority =
            std::fs::metadata(self.place.authority().join("state.json")).and_then(|file| file.modified()).ok();
        let is_due = self.certificates_looked.is_none_or(|at| at.elapsed() >= CERTIFICATES)
            || self.authority_seen != authority
            || self.in_force.as_ref() != self.settings.as_ref();
        let served = self.place.served(&link.certificates);
        let trust = std::fs::read_to_string(served.join("ca.crt"));
        if let (false, Ok(trust)) = (is_due, trust) {
            return Ok(trust);
        }
        let advertised = facts::advertised(link.fleet, &self.facts);
        let addresses = &self.facts.addresses;
        let provided = crate::certificates::provide(
            &link.certificates,
            advertised,
            addresses,
            &self.place,
            self.owner,
            now_unix(),
        )?;
        self.certificates_looked = Some(Instant::now());
        self.authority_seen = authority;
        self.leaf_is_new |= provided.is_new && self.recipe.is_some();
        Ok(provided.trust)
    }

    /// Whom the node trusts. An official node that runs has read it at its start.
    fn trust(&mut self, pem: &str) -> Result<(), Trouble> {
        let path = self.place.trust();
        let failed = |error: std::io::Error| Trouble::new(Code::TlsSetupFailed, error.to_string());
        crate::discovery::check_authority(pem).map_err(|why| Trouble::new(Code::CaInvalid, why))?;
        disk::make_directory(path.parent().unwrap_or(&path), 0o755, None).map_err(failed)?;
        self.trust_is_new |= disk::write(&path, pem.as_bytes(), 0o644, None).map_err(failed)? && self.recipe.is_some();
        Ok(())
    }

    async fn put_in_force(&mut self, settings: &Settings, recipe: Recipe, standing: Standing) -> Result<(), Trouble> {
        let change = self.supervisor.change(&recipe, &self.place).await;
        if change == Change::Restart && self.must_wait(settings) {
            if !self.waiting {
                tracing::info!("a change waits until no round is at work");
            }
            self.waiting = true;
            return Ok(());
        }
        self.waiting = false;
        if self.in_force.is_none() && change == Change::Nothing {
            // They came back with the VM, before us; the rules did not.
            self.close_up(settings, &recipe).await?;
        }
        if change != Change::Nothing {
            // Who is about to be ended does not serve: that is said before.
            if change == Change::Restart {
                self.seen = Seen { serving: false, ..self.seen.clone() };
                let _ = self.tell(None).await;
                // It lets go of its ports, so that others on them are seen.
                if let Supervisor::Direct(direct) = &mut self.supervisor {
                    direct.stop().await;
                }
            }
            self.write(&recipe)?;
            self.close_up(settings, &recipe).await?;
            if change == Change::Start || matches!(self.supervisor, Supervisor::Direct(_)) {
                recipe.listens.iter().find_map(|address| facts::busy(*address)).map_or(Ok(()), Err)?;
            }
            self.supervisor.apply(&recipe, &self.place).await?;
            (self.trust_is_new, self.leaf_is_new) = (false, false);
        }
        self.recipe = Some(recipe);
        self.in_force = Some(settings.clone());
        self.standing = standing;
        Ok(())
    }

    fn must_wait(&self, settings: &Settings) -> bool {
        settings.common.defer_while_training && self.seen.serving && self.seen.busy == Some(true)
    }

    fn write(&self, recipe: &Recipe) -> Result<(), Trouble> {
        let written = (|| {
            for path in &recipe.directories {
                disk::make_directory(path, 0o700, self.owner)?;
            }
            for (path, text) in &recipe.files {
                disk::write(path, text.as_bytes(), 0o600, self.owner)?;
            }
            Ok(())
        })();
        written.map_err(|error: std::io::Error| Trouble::new(Code::PreflightFailed, error.to_string()))
    }

    /// Rules for who may come in, before anybody could. A machine that is not ours keeps its own.
    async fn close_up(&self, settings: &Settings, recipe: &Recipe) -> Result<(), Trouble> {
        let (RoleSettings::SuperLink(link), Supervisor::Systemd(_)) = (&settings.role, &self.supervisor) else {
            return Ok(());
        };
        let rules = firewall::rules(&recipe.listens, &self.facts.networks, &link.allowed_networks);
        let path = self.place.firewall();
        let failed = |why: String| Trouble::new(Code::PreflightFailed, why);
        disk::write(&path, rules.as_bytes(), 0o644, None).map_err(|error| failed(error.to_string()))?;
        let path = path.display().to_string();
        run("nft", &["-f", &path]).await.map_err(failed).map(drop)
    }

    /// What the controller asks for beside settings, and what certificates ask for.
    async fn obey(&mut self) -> Result<(), Trouble> {
        let Some(recipe) = self.recipe.clone() else { return Ok(()) };
        if let Probe::SuperNode { socket } = &recipe.probe
            && self.seen.instance.is_some()
            && self.wishes.drain != self.seen.draining
            && let Err(error) = NearbyNode::drain(socket, self.wishes.drain).await
        {
            tracing::debug!("the node cannot be told to drain: {error}");
        }
        let official = self.in_force.as_ref().is_some_and(|settings| settings.common.runtime != Runtime::Trellis);
        let asked = self.wishes.restart.is_some()
            && self.wishes.restart == self.seen.instance
            && self.restarted != self.wishes.restart;
        let idle = self.seen.busy != Some(true);
        // Ours reads new certificates and a new trust by itself; a node that is connected has no need of the latter yet.
        let stale = official && ((self.leaf_is_new && idle) || (self.trust_is_new && !self.seen.serving));
        if asked || stale {
            self.restarted.clone_from(&self.wishes.restart);
            (self.trust_is_new, self.leaf_is_new) = (false, false);
            self.seen = Seen { serving: false, ..self.seen.clone() };
            let _ = self.tell(None).await;
            self.supervisor.restart(&recipe, &self.place).await?;
        }
        Ok(())
    }

    /// How the programs are, just now.
    pub(super) async fn probe(&mut self) -> Seen {
        if self.settings.as_ref().is_some_and(|settings| settings.role() == Role::Gateway) {
            let serving = network::is_up().await;
            return Seen { serving, instance: serving.then(|| "1".to_owned()), ..Seen::default() };
        }
        let Some(recipe) = self.recipe.clone() else { return Seen::default() };
        let sight = self.supervisor.sight(&recipe).await;
        self.failing = sight.failing;
        let well = self.asked_fleet.as_ref().is_some_and(|(at, of)| at.elapsed() < FLEET && *of == sight.instance);
        let depth = if well && self.seen.serving { Depth::Calls } else { Depth::Fleet };
        let mut seen = probe::ask(&recipe.probe, depth, &self.key, &self.seen).await;
        seen.instance = sight.instance;
        if depth == Depth::Fleet && seen.serving {
            self.asked_fleet = Some((Instant::now(), seen.instance.clone()));
        }
        // Something else may answer where ours has ended.
        seen.serving &= seen.instance.is_some() && self.script_agrees();
        seen
    }
}

fn superlink(link: &SuperLinkSettings, around: &Surroundings, trust: Option<String>, shards: Option<String>) -> Of {
    let told = |address: std::net::SocketAddr| {
        let ip = around.advertised.filter(|_| address.ip().is_unspecified()).unwrap_or(address.ip());
        std::net::SocketAddr::new(ip, address.port()).to_string()
    };
    Of::SuperLink { endpoint: told(link.fleet), control: told(link.control), http: told(link.http), trust, shards }
}
