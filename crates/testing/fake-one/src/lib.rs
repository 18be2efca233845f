//! A simulated OpenNebula for tests: oned, OneFlow and OneGate with the responses of recorded ones, and simulated VMs.
//!
//! `cloud` is the pure state; `oned`, `flow` and `gate` translate requests; `hypervisor` runs the VMs; `faults` are injected
//! through [`Handle`] or the `control` port.
//!
//! These parts follow OpenNebula 7.5 (`tests/flow.rs`): the requests that each state of a service accepts (WARNING:
//! neither `recover` nor `scale`; COOLDOWN: `recover`), the watchdog of OneFlow (POWEROFF, UNKNOWN and failures cause
//! WARNING, which outlasts the VM; any VM of the role that comes up ends it), FAILED_SCALING after a `recover` that
//! fails again, DELETE and `recover` with `delete` with children before parents, the right to retry VMs (ADMIN), VM quotas. Known differences,
//! beside the list in `tests/story/differences.rs`:
//! - Only a VM of `faults.unplaced` has a `SCHED_MESSAGE`; the scheduler places all others at once.
//! - A VM never hangs while it stops or boots; a real one can, and then only an administrator can recover it.
//! - Only user quotas for VMs exist: `VMS`, `CPU`, `MEMORY`. Groups, datastores, networks and images have none.
//! - Answers are immediate, unless `faults.slow` delays them; real ones take 0.2 s to 14 s.
//! - Ordinary users may create VMs, templates, images and documents and use the datastores, whatever the ACL rules
//!   are.
//! - VM events are never lost; a real OneFlow may miss them until its next restart.

pub mod cloud;
mod control;
pub mod element;
pub mod faults;
mod flow;
mod gate;
mod handle;
mod http;
pub mod hypervisor;
mod methods;
mod oned;
mod oned_fixed;
mod rpc;
mod shared;
pub mod template;
mod token;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use cloud::{Cloud, Order, Pace};
use hypervisor::{Gone, Hypervisor, Machine, Nothing, Pretend, PretendSettings, Programs};
use shared::Shared;

pub use handle::{Handle, PlainRole};

/// Interval of the simulated time.
const TICK: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub struct Config {
    pub oned: SocketAddr,
    pub flow: SocketAddr,
    pub gate: SocketAddr,
    pub control: SocketAddr,
    /// Address of OneGate for VMs, if it differs from the listening address.
    pub gate_endpoint: Option<String>,
    /// Names and passwords of ordinary users in the group `users`.
    pub users: Vec<(String, String)>,
    pub networks: Vec<NetworkConfig>,
    pub machines: Machines,
    /// Result of `one.system.version`.
    pub version: String,
    pub pace: Pace,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    pub name: String,
    pub address: Ipv4Addr,
    pub prefix: u8,
    /// First address to lease; the default is the tenth.
    pub first: Option<Ipv4Addr>,
}

#[derive(Debug, Clone)]
pub enum Machines {
    /// The test runs the VMs itself.
    Nothing,
    Pretend(PretendSettings),
    Programs {
        command: Vec<String>,
        directory: PathBuf,
    },
}

impl Default for Config {
    fn default() -> Config {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Config {
            oned: any,
            flow: any,
            gate: any,
            control: any,
            gate_endpoint: None,
            users: Vec::new(),
            networks: vec![NetworkConfig {
                name: "net1".into(),
                address: [192, 168, 150, 0].into(),
                prefix: 24,
                first: None,
            }],
            machines: Machines::Nothing,
            version: "7.5.80".to_owned(),
            pace: Pace::default(),
            seed: 1,
        }
    }
}

impl std::str::FromStr for NetworkConfig {
    type Err = String;

    /// `NAME=10.0.0.0/24[,first=10.0.0.10]`
    fn from_str(text: &str) -> Result<NetworkConfig, String> {
        let wrong = || format!("{text:?} is not of the form NAME=10.0.0.0/24[,first=10.0.0.10]");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (range, first) = match rest.split_once(",first=") {
            Some((range, first)) => (range, Some(first.parse().map_err(|_| wrong())?)),
            None => (rest, None),
        };
        let (address, prefix) = range.split_once('/').ok_or_else(wrong)?;
        let prefix = prefix.parse().ok().filter(|prefix| (8..=30).contains(prefix)).ok_or_else(wrong)?;
        Ok(NetworkConfig { name: name.to_owned(), address: address.parse().map_err(|_| wrong())?, prefix, first })
    }
}

/// A running server. It stops when it is dropped.
pub struct FakeOne {
    pub oned: SocketAddr,
    pub flow: SocketAddr,
    pub gate: SocketAddr,
    pub control: SocketAddr,
    /// Address of OneGate for VMs.
    pub gate_endpoint: String,
    handle: Handle,
    hypervisor: Arc<dyn Hypervisor>,
    servers: JoinSet<()>,
    clock: JoinHandle<()>,
}

impl FakeOne {
    pub async fn start(config: Config) -> std::io::Result<FakeOne> {
        let oned = TcpListener::bind(config.oned).await?;
        let flow = TcpListener::bind(config.flow).await?;
        let gate = TcpListener::bind(config.gate).await?;
        let control = TcpListener::bind(config.control).await?;
        let addresses = [&oned, &flow, &gate, &control].map(TcpListener::local_addr);
        let [oned_at, flow_at, gate_at, control_at] = addresses;
        let (oned_at, flow_at, gate_at, control_at) = (oned_at?, flow_at?, gate_at?, control_at?);
        let gate_endpoint = config.gate_endpoint.clone().unwrap_or_else(|| format!("http://{gate_at}"));
        let cloud = founded(&config, &gate_endpoint).map_err(std::io::Error::other)?;
        let shared = Arc::new(Shared::new(cloud));
        let hypervisor = machines(&config.machines, &shared);
        let mut servers = JoinSet::new();
        let of = Arc::clone(&shared);
        servers.spawn(async move {
            http::serve(oned, || false, move |asked| oned::handle(Arc::clone(&of), asked)).await;
        });
        let of = Arc::clone(&shared);
        servers.spawn(async move {
            http::serve(flow, || false, move |asked| flow::handle(Arc::clone(&of), asked)).await;
        });
        let (of, asks) = (Arc::clone(&shared), Arc::clone(&shared));
        servers.spawn(async move {
            let refuses = move || asks.faults(|faults| faults.gate.refuse);
            http::serve(gate, refuses, move |asked| gate::handle(Arc::clone(&of), asked)).await;
        });
        let handle = Handle::new(Arc::clone(&shared));
        let of = handle.clone();
        servers.spawn(async move {
            http::serve(control, || false, move |asked| control::handle(of.clone(), asked)).await;
        });
        let clock = tokio::spawn(tick(shared, Arc::clone(&hypervisor)));
        Ok(FakeOne {
            oned: oned_at,
            flow: flow_at,
            gate: gate_at,
            control: control_at,
            gate_endpoint,
            handle,
            hypervisor,
            servers,
            clock,
        })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    pub fn oned_url(&self) -> String {
        format!("http://{}/RPC2", self.oned)
    }

    pub fn flow_url(&self) -> String {
        format!("http://{}", self.flow)
    }

    pub fn gate_url(&self) -> String {
        format!("http://{}", self.gate)
    }

    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    /// Stops all VMs, then the servers.
    pub async fn stop(mut self) {
        self.clock.abort();
        self.hypervisor.end().await;
        self.servers.shutdown().await;
    }
}

impl Drop for FakeOne {
    fn drop(&mut self) {
        self.clock.abort();
    }
}

fn founded(config: &Config, gate_endpoint: &str) -> Result<Cloud, String> {
    let mut cloud = Cloud::new(trellis_clock::now_ms(), config.seed, config.pace.clone(), gate_endpoint.to_owned());
    cloud.version = config.version.clone();
    for (name, password) in &config.users {
        cloud.add_user(name, password, 1);
    }
    for network in &config.networks {
        let bits = 32 - u32::from(network.prefix);
        let base = u32::from(network.address);
        let first = network.first.unwrap_or_else(|| Ipv4Addr::from(base + 10.min((1 << bits) - 2)));
        let size = (base + (1 << bits) - 1).saturating_sub(u32::from(first));
        let mask = Ipv4Addr::from(u32::MAX << bits);
        let gateway = Ipv4Addr::from(base + 1);
        let text = format!(
            "NAME=\"{}\"\nVN_MAD=\"dummy\"\nBRIDGE=\"br0\"\nNETWORK_ADDRESS=\"{}\"\nNETWORK_MASK=\"{mask}\"\n\
             GATEWAY=\"{gateway}\"\nDNS=\"{gateway}\"\nAR=[TYPE=\"IP4\",IP=\"{first}\",SIZE=\"{size}\"]",
            network.name, network.address
        );
        let template = template::Template::parse(&text)?;
        let id = cloud.add_network(0, template).map_err(|refused| refused.message)?;
        if let Some(network) = cloud.networks.get_mut(&id) {
            // Ordinary users may use the networks of the cloud.
            network.owned.permissions[6] = true;
        }
    }
    Ok(cloud)
}

fn machines(machines: &Machines, shared: &Arc<Shared>) -> Arc<dyn Hypervisor> {
    let weak = Arc::downgrade(shared);
    let gone: Gone = Arc::new(move |vm| {
        if let Some(shared) = weak.upgrade() {
            shared.with(|cloud| cloud.machine_gone(vm));
        }
    });
    match machines {
        Machines::Nothing => Arc::new(Nothing { gone }),
        Machines::Pretend(settings) => Arc::new(Pretend::new(settings.clone(), shared, gone)),
        Machines::Programs { command, directory } => Arc::new(Programs::new(command.clone(), directory.clone(), gone)),
    }
}

async fn tick(shared: Arc<Shared>, hypervisor: Arc<dyn Hypervisor>) {
    loop {
        tokio::time::sleep(TICK).await;
        let orders = shared.with(|cloud| {
            cloud.advance(trellis_clock::now_ms());
            let orders = std::mem::take(&mut cloud.orders);
            let told = orders.into_iter().map(|order| match order {
                Order::Start(vm) | Order::Reboot(vm) => (Machine::of(cloud, vm), order),
                Order::Stop { .. } => (None, order),
            });
            told.collect::<Vec<_>>()
        });
        for (machine, order) in orders {
            match (order, machine) {
                (Order::Start(_), Some(machine)) => hypervisor.start(machine),
                (Order::Reboot(_), Some(machine)) => hypervisor.reboot(machine),
                (Order::Stop { vm, hard }, _) => hypervisor.stop(vm, hard),
                (Order::Start(_) | Order::Reboot(_), None) => {}
            }
        }
    }
}
