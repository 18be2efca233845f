//! Starts a SuperLink from its configuration and shuts it down.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tonic_health::server::health_reporter;
use trellis_core::id::RunId;
use trellis_core::port::{OnCommit, Topic};
use trellis_core::refusal::Refusal;
use trellis_core::upkeep::recover;
use trellis_digest::hex;
use trellis_front::listen::local;
use trellis_front::{Hosts, Listener, SuperexecSecret, TlsError, TlsSettings};
use trellis_pki::{Endpoint, Files};
use trellis_sandbox::Sandbox;

use crate::api::random;
use crate::changes::Changes;
use crate::config::{Config, Keepalive, TlsFiles};
use crate::first_account;
use crate::front::{Front, Port};
use crate::launch::{Launcher, NoPython, Programs};
use crate::link::{Link, Settings};
use crate::state::{OpenError, State};
use crate::upkeep;
use crate::wake::WaitingRoom;
use crate::watch::{Watch, survey};

/// Time for running calls to end after the shutdown began.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Why a SuperLink cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    State(OpenError),
    #[error("the state cannot be written")]
    Recovery(#[source] Refusal),
    #[error("cannot listen on {address} for the {api} API")]
    Bind { api: &'static str, address: String, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Python(#[from] NoPython),
    #[error("cannot keep the output of apps in the state directory")]
    Outputs(#[source] io::Error),
    #[error("cannot read the secret of SuperExecs from {path}")]
    Secret { path: String, source: io::Error },
    #[error("the secret of SuperExecs in {path} is empty")]
    EmptySecret { path: String },
    #[error("'{endpoint}' is not an endpoint: {why}")]
    Endpoint { endpoint: String, why: String },
    #[error("cannot write the token of the first account to {path}")]
    AdminToken { path: String, source: io::Error },
    #[error("cannot use {path} as the token of the first account: {why}")]
    UnusableToken { path: String, why: String },
    #[error("a front end ended unexpectedly")]
    Ended,
}

/// Runs a SuperLink until `shutdown` completes.
pub async fn serve(config: Config, state: State, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
    SuperLink::start(config, state).await?.run_until(shutdown).await
}

/// The addresses of a SuperLink.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub control: SocketAddr,
    pub fleet: SocketAddr,
    pub serverappio: SocketAddr,
    pub http: SocketAddr,
    pub health: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
}

/// A running SuperLink.
pub struct SuperLink {
    link: Arc<Link>,
    servers: JoinSet<()>,
    addresses: Addresses,
}

impl SuperLink {
    /// Opens the state and the ports. All ports serve when it returns.
    pub async fn start(config: Config, state: State) -> Result<SuperLink, ServeError> {
        let programs = Programs::find(&config, &state, std::env::var_os("PATH").as_deref())?;
        let tls = match &config.tls {
            Some(files) => {
                let readable = Some(state.path().to_owned());
                Some(TlsSettings::load(certificate_files(files), endpoints(&config)?, readable)?)
            }
            None => None,
        };
        let secret = config.superexec_secret.as_deref().map(read_secret).transpose()?;
        let hosts = Hosts::new(allowed_hosts(&config)?, tls.clone());
        let ports = Ports::bind(&config, tls.clone()).await?;
        let addresses = ports.addresses()?;

        let room = Arc::new(WaitingRoom::default());
        let watch = Arc::new(Watch::new(env!("CARGO_PKG_VERSION")));
        if let Some(sandbox) = programs.sandbox() {
            let watch = Arc::clone(&watch);
            // In the background, because it runs the interpreter.
            tokio::task::spawn_blocking(move || log_sandbox(&sandbox, &watch));
        }
        let ended = Arc::new(Mutex::default());
        let changes = Arc::new(Changes::new(hex(&random::<8>())));
        let store = (state.open)(announcer(&room, &watch, &ended, &changes)).map_err(ServeError::State)?;
        let settings = Settings {
            directory: state.directory,
            limits: config.limits.clone(),
            supernode_auth: config.supernode_auth,
            accounts: config.accounts,
            tls,
            superexec_secret: secret,
            app_trust: config.app_trust,
            isolation: config.isolation,
            run_defaults: config.run_defaults.clone(),
            trains: config.native_app.is_some(),
            ended,
            changes,
        };
        let link = Arc::new(Link::new(store, room, watch, settings));
        let now = link.now();
        link.write(move |tx| recover(tx, now)).await.map_err(ServeError::Recovery)?;

        first_account::ensure(&link, config.admin_token.as_deref()).await?;
        survey::resume(&link).map_err(ServeError::Recovery)?;
        let servers = ports.serve(&link, hosts, config.keepalive, addresses.http.port());
        if programs.are_any() {
            let address = local(addresses.serverappio).to_string();
            let launcher = Launcher::new(Arc::clone(&link), programs, address).map_err(ServeError::Outputs)?;
            let launcher = Arc::new(launcher);
            launcher.adopt().await.map_err(ServeError::Recovery)?;
            tokio::spawn(launcher.run());
        }
        tracing::info!(state = %link.directory().display(), "SuperLink is ready");
        Ok(SuperLink { link, servers, addresses })
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Runs until `shutdown` completes, then ends running calls and stores counters.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let failed = tokio::select! {
            () = shutdown => None,
            Some(_) = self.servers.join_next() => Some(ServeError::Ended),
        };
        tracing::info!("SuperLink is stopping");
        self.link.room.close();
        let all_ended = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, all_ended).await.is_err() {
            tracing::warn!("some calls did not end in time");
        }
        let now = self.link.now();
        let kept = match self.link.store_traffic().await {
            Ok(()) => self.link.write(move |tx| tx.set_alive_at(now)).await,
            refused => refused,
        };
        failed.map_or(kept.map_err(ServeError::Recovery), Err)
    }
}

/// Logs the restrictions of Python ServerApps.
fn log_sandbox(sandbox: &Sandbox, watch: &Watch) {
    if let Err(error) = sandbox.prepare() {
        tracing::warn!(%error, "cannot start Python ServerApps");
    }
    sandbox.log(|warning, text| if warning { tracing::warn!("{text}") } else { tracing::info!("{text}") });
    watch.sandbox(sandbox.level().level);
}

fn certificate_files(files: &TlsFiles) -> Files {
    Files { certificate: files.certificate.clone(), key: files.key.clone(), ca: files.ca_certificate.clone() }
}

/// Returns the names that the certificate must cover: those that clients use, or the listen addresses.
fn endpoints(config: &Config) -> Result<Vec<Endpoint>, ServeError> {
    let listening = [&config.control_address, &config.fleet_address, &config.http_address];
    let named: Vec<&String> =
        if config.endpoints.is_empty() { listening.to_vec() } else { config.endpoints.iter().collect() };
    let mut endpoints = parsed(named)?;
    endpoints.retain(|endpoint| !endpoint.is_wildcard());
    Ok(endpoints)
}

/// Returns accepted host names of HTTP requests in addition to those of the certificate.
fn allowed_hosts(config: &Config) -> Result<Vec<Endpoint>, ServeError> {
    let listening = [&config.control_address, &config.fleet_address, &config.http_address];
    parsed(config.endpoints.iter().chain(&config.allowed_hosts).chain(listening))
}

fn parsed<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<Vec<Endpoint>, ServeError> {
    let parse =
        |name: &String| Endpoint::parse(name).map_err(|why| ServeError::Endpoint { endpoint: name.clone(), why });
    names.into_iter().map(parse).collect()
}

/// Returns the commit handler: it wakes waiters, and records finished runs and changes.
fn announcer(
    room: &Arc<WaitingRoom>,
    watch: &Arc<Watch>,
    ended: &Arc<Mutex<Vec<RunId>>>,
    changes: &Arc<Changes>,
) -> OnCommit {
    let (room, watch, ended, changes) = (Arc::clone(room), Arc::clone(watch), Arc::clone(ended), Arc::clone(changes));
    Box::new(move |commit| {
        if commit.jobs > 0 {
            watch.metrics.commit_finished(commit.jobs, commit.took, commit.succeeded);
        }
        for topic in commit.topics {
            if let Topic::Finished(run) = topic {
                ended.lock().expect("no holder panics").push(*run);
            }
        }
        if changes.record(commit.topics) {
            room.announce(&[Topic::Changes]);
        }
        room.announce(commit.topics);
    })
}

fn read_secret(path: &Path) -> Result<SuperexecSecret, ServeError> {
    let name = || path.display().to_string();
    let secret = std::fs::read(path).map_err(|source| ServeError::Secret { path: name(), source })?;
    if secret.is_empty() {
        return Err(ServeError::EmptySecret { path: name() });
    }
    Ok(SuperexecSecret::new(&secret))
}

/// All ports, bound before any of them serves: all or none.
struct Ports {
    served: Vec<(Port, Listener)>,
    health: Option<Listener>,
}

impl Ports {
    async fn bind(config: &Config, tls: Option<TlsSettings>) -> Result<Ports, ServeError> {
        let bind = async |api, address: &str, tls| {
            let bound = Listener::bind(address, tls).await;
            bound
                .map(|listener| listener.with_connections_per_address(config.limits.connections_per_address))
                .map_err(|source| ServeError::Bind { api, address: address.to_owned(), source })
        };
        let mut served = Vec::new();
        for (port, address, tls) in [
            (Port::Control, Some(&config.control_address), tls.clone()),
            (Port::Fleet, Some(&config.fleet_address), tls.clone()),
            (Port::App, Some(&config.serverappio_address), None),
            (Port::Http, Some(&config.http_address), tls),
            (Port::Metrics, config.metrics_address.as_ref(), None),
        ] {
            if let Some(address) = address {
                served.push((port, bind(port.name(), address, tls).await?));
            }
        }
        let health = match &config.health_address {
            Some(address) => Some(bind("health", address, None).await?),
            None => None,
        };
        Ok(Ports { served, health })
    }

    fn addresses(&self) -> Result<Addresses, ServeError> {
        let address = |api: &'static str, listener: &Listener| {
            listener.address().map_err(|source| ServeError::Bind { api, address: "a bound port".to_owned(), source })
        };
        let mut bound = HashMap::new();
        for (port, listener) in &self.served {
            bound.insert(*port, address(port.name(), listener)?);
        }
        Ok(Addresses {
            control: bound[&Port::Control],
            fleet: bound[&Port::Fleet],
            serverappio: bound[&Port::App],
            http: bound[&Port::Http],
            health: self.health.as_ref().map(|listener| address("health", listener)).transpose()?,
            metrics: bound.get(&Port::Metrics).copied(),
        })
    }

    fn serve(self, link: &Arc<Link>, hosts: Hosts, keepalive: Keepalive, http_port: u16) -> JoinSet<()> {
        let front = Front::new(Arc::clone(link), hosts, keepalive, http_port);
        let mut servers = JoinSet::new();
        for (port, listener) in self.served {
            if let Ok(address) = listener.address() {
                tracing::info!(%address, "{} API is listening", port.name());
            }
            servers.spawn(front.clone().serve(port, listener));
        }
        let mut reporter = None;
        if let Some(listener) = self.health {
            if let Ok(address) = listener.address() {
                tracing::info!(%address, "health API is listening");
            }
            let (health, service) = health_reporter();
            reporter = Some(health);
            let router = tonic::transport::Server::builder().add_service(service);
            let room = Arc::clone(&link.room);
            servers.spawn(async move {
                let served = router.serve_with_incoming_shutdown(listener.into_incoming(), room.closed()).await;
                if let Err(error) = served {
                    tracing::error!(%error, "the health API failed");
                }
            });
        }
        tokio::spawn(upkeep::run(Arc::clone(link), reporter));
        servers
    }
}
