//! A federation within this process, for one run: a SuperLink and SuperNodes that connect over loopback. It ends with the
//! run, and leaves only the files that the arguments name.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use trellis_client::{Security, SuperLink, Target};
use trellis_files::private;
use trellis_link::config::{Config as LinkConfig, Isolation};
use trellis_link::{ServeError, SuperLink as Link};
use trellis_node::config::{self as node, AppMode, Config as NodeConfig, Spare, WarmSettings};
use trellis_node::objects::PulledObjects;
use trellis_terminal::explain;
use trellis_wire::call::ListNodes;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;
use trellis_wire::token::Token;

use crate::private_dir;
use crate::remote::CommandError;
use crate::superlink::StateLocation;

const ANY_PORT: &str = "127.0.0.1:0";
/// File in the directory of the SuperLink, under the name that the SuperLink uses for a generated token.
const ADMIN_TOKEN: &str = "admin.token";
/// Poll interval of the online nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longer than a run pauses between two rounds.
const IDLE_APP: Duration = Duration::from_secs(600);
/// Nodes in this process never reconnect: pings only detect broken ones.
const PING: Duration = Duration::from_secs(60);

/// The desired federation.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub nodes: usize,
    /// `None`: a temporary directory.
    pub state_dir: Option<PathBuf>,
    /// The app of the nodes.
    pub apps: ClientApps,
    /// The app brings its own ServerApp, in Python.
    pub python_server_app: bool,
    /// The interpreter of Python apps; `None`: that of the `flwr` on PATH.
    pub python: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub enum ClientApps {
    BuiltIn { name: String, settings: BTreeMap<String, String> },
    Python,
}

pub struct Federation {
    pub superlink: SuperLink,
    pub target: Target,
    /// The directories of its parts.
    pub directory: PathBuf,
    link: JoinHandle<Result<(), ServeError>>,
    nodes: JoinSet<Result<(), trellis_node::Error>>,
    stop: watch::Sender<bool>,
    /// Removed with this.
    _state: Option<TempDir>,
}

impl Federation {
    /// When this returns the SuperLink serves, and the nodes are on their way to it.
    pub async fn start(wanted: &Wanted) -> Result<Federation, CommandError> {
        let (directory, temporary) = match &wanted.state_dir {
            Some(directory) => {
                private_dir::claim(directory).map_err(|error| CommandError::failed(error.to_string(), None))?;
                (directory.clone(), None)
            }
            None => {
                let temporary = tempfile::Builder::new().prefix("trellis-run-").tempdir();
                let temporary = temporary.map_err(|error| {
                    let advice = "make room there, name another place with TMPDIR, or give --state-dir";
                    CommandError::failed(format!("no temporary directory can be created: {error}"), Some(advice))
                })?;
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        let failed = |error: &dyn Error| CommandError::failed(explain(error), None);
        let superlink_dir = directory.join("superlink");
        let token = provide_token(&superlink_dir).map_err(|error| {
            let what = format!("the token of the SuperLink cannot be written to {}: {error}", superlink_dir.display());
            CommandError::failed(what, Some("free some space there, or give another --state-dir"))
        })?;
        let location = match wanted.state_dir {
            Some(_) => StateLocation::Directory { directory: superlink_dir.clone(), database: None },
            None => StateLocation::Temporary { directory: superlink_dir.clone() },
        };
        let state = location.claim().map_err(|error| failed(&error))?;
        let link = Link::start(link_config(wanted, &superlink_dir), state).await.map_err(|error| failed(&error))?;
        let http = link.addresses().http;
        let (host, security) = (http.ip().to_string(), Security::Plaintext);
        let target = Target { host, port: http.port(), security, token: Some(token) };
        let (stop, stopping) = watch::channel(false);
        let mut nodes = JoinSet::new();
        let pulled = wanted.state_dir.is_none().then(PulledObjects::default);
        for index in 0..wanted.nodes {
            // Nodes authenticate with their keys.
            let superlink = Target { token: None, ..target.clone() };
            let config = node_config(wanted, &directory, index, superlink, pulled.clone());
            nodes.spawn(trellis_node::serve(config, stopped(stopping.clone())));
        }
        let link = tokio::spawn(link.run_until(stopped(stopping)));
        let superlink = SuperLink::new(target.clone());
        Ok(Federation { superlink, target, directory, link, nodes, stop, _state: temporary })
    }

    /// Resolves when all nodes are online: a run that began before would train with some of them.
    pub fn online(&self) -> impl Future<Output = Result<(), CommandError>> + use<> {
        let (superlink, wanted) = (self.superlink.clone(), self.nodes.len());
        async move {
            loop {
                let asked = Instant::now();
                let known = superlink.call(&ListNodes {}).await?.nodes;
                if known.iter().filter(|node| node.status == "online").count() >= wanted {
                    return Ok(());
                }
                // Listing many nodes takes a while; the nodes need that time more.
                tokio::time::sleep(POLL_INTERVAL.max(asked.elapsed() * 4)).await;
            }
        }
    }

    /// Resolves when a part of it ended by itself, with the reason. Without that part the run may wait for ever.
    pub async fn broken(&mut self) -> String {
        tokio::select! {
            Some(node) = self.nodes.join_next() => match node {
                Ok(Err(error)) => format!("a SuperNode ended: {}", explain(&error)),
                Ok(Ok(())) => "a SuperNode ended by itself".to_owned(),
                Err(error) => format!("a SuperNode broke: {error}"),
            },
            link = &mut self.link => match link {
                Ok(Err(error)) => format!("the SuperLink ended: {}", explain(&error)),
                Ok(Ok(())) => "the SuperLink ended by itself".to_owned(),
                Err(error) => format!("the SuperLink broke: {error}"),
            },
        }
    }

    /// Ends the nodes, with the apps that they started, and then the SuperLink.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.nodes.join_next().await.is_some() {}
        if !self.link.is_finished() {
            let _ = (&mut self.link).await;
        }
    }
}

/// Generates a token for each start. Only this user can read it.
fn provide_token(directory: &Path) -> io::Result<Token> {
    private::make_directory(directory)?;
    let token = Token::generate();
    private::replace(&directory.join(ADMIN_TOKEN), token.reveal().as_bytes())?;
    Ok(token)
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // A task that has ended already is stopped, too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

fn link_config(wanted: &Wanted, directory: &Path) -> LinkConfig {
    let address = || ANY_PORT.to_owned();
    LinkConfig {
        control_address: address(),
        fleet_address: address(),
        serverappio_address: address(),
        http_address: address(),
        // Other users of this machine can reach the ports, too.
        accounts: true,
        // This process executes native runs.
        isolation: if wanted.python_server_app { Isolation::Subprocess } else { Isolation::Process },
        python: wanted.python.clone(),
        sandbox: own_apps(),
        admin_token: Some(directory.join(ADMIN_TOKEN)),
        ..LinkConfig::default()
    }
}

fn node_config(
    wanted: &Wanted,
    directory: &Path,
    index: usize,
    superlink: Target,
    pulled: Option<PulledObjects>,
) -> NodeConfig {
    let number = |number: usize| proto::Scalar { scalar: Some(Scalar::Sint64(number as i64)) };
    let partition = [("partition-id", number(index)), ("num-partitions", number(wanted.nodes))];
    NodeConfig {
        transport: node::TransportChoice::Http,
        keepalive: node::Keepalive { interval: Some(PING), timeout: PING },
        retry: node::Retry {
            max_retries: None,
            max_wait: None,
            backoff: node::Backoff::Fixed(Duration::from_millis(100)),
        },
        temporary: pulled,
        name: Some(format!("node-{index}")),
        node_config: partition.map(|(key, value)| (key.to_owned(), value)).into(),
        apps: apps(wanted),
        ..NodeConfig::new(superlink, directory.join(format!("supernode-{index}")))
    }
}

/// The apps belong to the user of this command and use the user's files.
fn own_apps() -> trellis_sandbox::Settings {
    trellis_sandbox::Settings::off()
}

fn apps(wanted: &Wanted) -> node::Apps {
    let mode = match &wanted.apps {
        ClientApps::BuiltIn { name, settings } => AppMode::Native { name: name.clone(), settings: settings.clone() },
        // One Python for each node: there is no second run to have another one ready for.
        ClientApps::Python => {
            AppMode::Warm(WarmSettings { idle: IDLE_APP, recycle_bytes: None, max_idle: 1, spare: Spare::FirstRun })
        }
    };
    let python = wanted.python.clone();
    node::Apps {
        mode,
        python: python.or_else(crate::supernode::python).unwrap_or_else(|| "python3".into()),
        python_required: true,
        sandbox: own_apps(),
        // The SuperLink ends with the command.
        keeps_logs: true,
        ..node::Apps::default()
    }
}
