//! From configuration to a SuperLink at work, and back to nothing.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic_health::server::health_reporter;
use trellis_core::refusal::Refusal;
use trellis_core::upkeep::recover;
use trellis_store_sqlite::{OpenError, SqliteStore, StateDirectory, Verdict, inspect};
use trellis_wire::proto::control_server::ControlServer;
use trellis_wire::proto::fleet_server::FleetServer;
use trellis_wire::proto::server_app_io_server::ServerAppIoServer;

use crate::config::{Config, Isolation, StateLocation};
use crate::grpc::{AppService, ControlService, Door, FleetService, Listener, TlsError, TlsSettings};
use crate::launch::{Launcher, NoPython, Python};
use crate::link::Link;
use crate::upkeep;
use crate::wake::WaitingRoom;

/// After the wish to stop, calls at work get this long.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes a peer may send ahead on one call, and on one connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Dead peers are found by pings at this interval, as the original does.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(210);
const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(20);

/// Why a SuperLink cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    State(#[from] OpenError),
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
    #[error("the {api} API failed")]
    Server { api: &'static str, source: tonic::transport::Error },
}

/// What `--check-state` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateVerdict {
    Current,
    NotInitialised,
    NeedsUpgrade { from: u32, to: u32 },
    TooNew { found: u32, known: u32 },
    Trouble(String),
}

/// Looks at a state without changing it.
pub fn check_state(location: &StateLocation) -> StateVerdict {
    let StateLocation::Directory { directory, database } = location else { return StateVerdict::NotInitialised };
    let database = database.clone().unwrap_or_else(|| directory.join("state.db"));
    match inspect(&database) {
        Verdict::Current => StateVerdict::Current,
        Verdict::NotInitialised => StateVerdict::NotInitialised,
        Verdict::NeedsUpgrade { from, to } => StateVerdict::NeedsUpgrade { from, to },
        Verdict::TooNew { found, known } => StateVerdict::TooNew { found, known },
        Verdict::Flower => {
            StateVerdict::Trouble(format!("{} belongs to the original Flower SuperLink", database.display()))
        }
        Verdict::Foreign(why) => StateVerdict::Trouble(format!("{} is not ours: {why}", database.display())),
    }
}

/// Runs a SuperLink until `shutdown` is ready.
pub async fn serve(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
    SuperLink::start(config).await?.run_until(shutdown).await
}

/// Where a SuperLink listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub control: SocketAddr,
    pub fleet: SocketAddr,
    pub serverappio: SocketAddr,
    pub health: Option<SocketAddr>,
}

/// A SuperLink at work.
pub struct SuperLink {
    link: Arc<Link>,
    servers: JoinSet<Result<(), ServeError>>,
    addresses: Addresses,
}

impl SuperLink {
    /// Opens the state and the ports. When this returns, all ports serve.
    pub async fn start(config: Config) -> Result<SuperLink, ServeError> {
        let directory = match &config.state {
            StateLocation::Directory { directory, database } => StateDirectory::open(directory, database.as_deref())?,
            StateLocation::Ephemeral => StateDirectory::ephemeral()?,
        };
        let python = match config.isolation {
            Isolation::Subprocess => Some(Python::find(config.python.as_deref(), std::env::var_os("PATH").as_deref())?),
            Isolation::Process => None,
        };
        let tls = config.tls.as_ref().map(TlsSettings::load).transpose()?;
        let ports = Ports::bind(&config, tls).await?;
        let addresses = ports.addresses()?;

        let room = Arc::new(WaitingRoom::default());
        let announce = Arc::clone(&room);
        let store = SqliteStore::open(directory, Box::new(move |topics| announce.announce(topics)))?;
        let link = Arc::new(Link::new(store, room, config.limits.clone(), config.supernode_auth));
        let now = link.now();
        link.write(move |tx| recover(tx, now)).await.map_err(ServeError::Recovery)?;

        let servers = ports.serve(&link);
        if let Some(python) = python {
            let address = local(addresses.serverappio).to_string();
            let launcher = Launcher::new(Arc::clone(&link), python, address).map_err(ServeError::Outputs)?;
            let launcher = Arc::new(launcher);
            launcher.adopt().await.map_err(ServeError::Recovery)?;
            tokio::spawn(launcher.run());
        }
        tracing::info!(state = %link.store().directory().path().display(), "SuperLink is ready");
        Ok(SuperLink { link, servers, addresses })
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Works until `shutdown` is ready, then ends what is under way and keeps what must be kept.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let failed = tokio::select! {
            () = shutdown => None,
            Some(ended) = self.servers.join_next() => ended.ok().and_then(Result::err),
        };
        tracing::info!("SuperLink is stopping");
        self.link.room.close();
        let all_ended = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_PATIENCE, all_ended).await.is_err() {
            tracing::warn!("some calls did not end in time");
        }
        let now = self.link.now();
        let kept = match self.link.keep_traffic().await {
            Ok(()) => self.link.write(move |tx| tx.set_alive_at(now)).await,
            refused => refused,
        };
        failed.map_or(kept.map_err(ServeError::Recovery), Err)
    }
}

/// All ports, bound before anything is served: either all work or none.
struct Ports {
    control: Listener,
    fleet: Listener,
    app: Listener,
    health: Option<Listener>,
}

impl Ports {
    async fn bind(config: &Config, tls: Option<TlsSettings>) -> Result<Ports, ServeError> {
        let bind = async |api, address: &str, tls| {
            let bound = Listener::bind(address, tls).await;
            bound.map_err(|source| ServeError::Bind { api, address: address.to_owned(), source })
        };
        Ok(Ports {
            control: bind("Control", &config.control_address, tls.clone()).await?,
            fleet: bind("Fleet", &config.fleet_address, tls).await?,
            app: bind("ServerAppIo", &config.serverappio_address, None).await?,
            health: match &config.health_address {
                Some(address) => Some(bind("health", address, None).await?),
                None => None,
            },
        })
    }

    fn addresses(&self) -> Result<Addresses, ServeError> {
        let address = |api: &'static str, listener: &Listener| {
            listener.address().map_err(|source| ServeError::Bind { api, address: "a bound port".to_owned(), source })
        };
        Ok(Addresses {
            control: address("Control", &self.control)?,
            fleet: address("Fleet", &self.fleet)?,
            serverappio: address("ServerAppIo", &self.app)?,
            health: self.health.as_ref().map(|listener| address("health", listener)).transpose()?,
        })
    }

    fn serve(self, link: &Arc<Link>) -> JoinSet<Result<(), ServeError>> {
        let door = Door::new(Arc::clone(link));
        let message_bytes = link.limits.message_bytes;
        macro_rules! limited {
            ($service:expr) => {
                $service.max_decoding_message_size(message_bytes).max_encoding_message_size(usize::MAX)
            };
        }
        let builder = || {
            Server::builder()
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_concurrent_streams(link.limits.requests_per_connection)
                .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
                .http2_keepalive_timeout(Some(KEEPALIVE_PATIENCE))
                .layer(door.clone())
        };
        let mut servers = JoinSet::new();
        let mut start = |api: &'static str, listener: Listener, router: tonic::transport::server::Router<_>| {
            if let Ok(address) = listener.address() {
                tracing::info!(%address, "{api} API is listening");
            }
            let room = Arc::clone(&link.room);
            servers.spawn(async move {
                let served = router.serve_with_incoming_shutdown(listener.connections(), room.closed()).await;
                served.map_err(|source| ServeError::Server { api, source })
            });
        };
        let control = limited!(ControlServer::new(ControlService(Arc::clone(link))));
        start("Control", self.control, builder().add_service(control));
        let fleet = limited!(FleetServer::new(FleetService(Arc::clone(link))));
        start("Fleet", self.fleet, builder().add_service(fleet));
        let app = limited!(ServerAppIoServer::new(AppService(Arc::clone(link))));
        start("ServerAppIo", self.app, builder().add_service(app));
        let mut reporter = None;
        if let Some(listener) = self.health {
            let (health, service) = health_reporter();
            reporter = Some(health);
            start("health", listener, builder().add_service(service));
        }
        tokio::spawn(upkeep::run(Arc::clone(link), reporter));
        servers
    }
}

/// The address at which apps on this machine reach a port.
fn local(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
