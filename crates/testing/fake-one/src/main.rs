//! `fake-one`: the simulated cloud as a program. Prints its addresses as one line of JSON, and runs until SIGTERM or SIGINT.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use trellis_fake_one::hypervisor::PretendSettings;
use trellis_fake_one::{Config, FakeOne, Machines, NetworkConfig};

/// A simulated OpenNebula for tests.
#[derive(Debug, Parser)]
#[command(name = "fake-one")]
struct Arguments {
    /// Address of oned.
    #[arg(long, default_value = "127.0.0.1:0")]
    oned: SocketAddr,
    /// Address of OneFlow.
    #[arg(long, default_value = "127.0.0.1:0")]
    flow: SocketAddr,
    /// Address of OneGate.
    #[arg(long, default_value = "127.0.0.1:0")]
    gate: SocketAddr,
    /// Address of the control port.
    #[arg(long, default_value = "127.0.0.1:0")]
    control: SocketAddr,
    /// Address of OneGate for VMs, if it differs from the listening address.
    #[arg(long)]
    gate_endpoint: Option<String>,
    /// A network, NAME=10.0.0.0/24[,first=10.0.0.10]; repeatable.
    #[arg(long = "network")]
    networks: Vec<NetworkConfig>,
    /// Program to start for each VM, with FAKE_ONE_VM_DIR in its environment; words are separated by spaces.
    #[arg(long, conflicts_with = "pretend")]
    vm_command: Option<String>,
    /// Simulate an agent in each VM.
    #[arg(long)]
    pretend: bool,
    /// An ordinary user, NAME:PASSWORD; repeatable. The password of oneadmin is onepass.
    #[arg(long = "user", value_parser = user)]
    users: Vec<(String, String)>,
    /// Parent of the VMs' directories.
    #[arg(long, default_value = "fake-one")]
    dir: PathBuf,
    /// Result of `one.system.version`.
    #[arg(long, default_value = "7.5.80")]
    version: String,
    /// Milliseconds per second of OneFlow's cooldowns and policy periods.
    #[arg(long, default_value_t = 1000)]
    second_ms: u64,
}

fn user(text: &str) -> Result<(String, String), String> {
    let (name, password) = text.split_once(':').ok_or_else(|| format!("{text:?} is not of the form NAME:PASSWORD"))?;
    Ok((name.to_owned(), password.to_owned()))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let fake = FakeOne::start(config(arguments)).await?;
    let line = serde_json::json!({
        "oned": fake.oned_url(),
        "flow": fake.flow_url(),
        "gate": fake.gate_url(),
        "gate_endpoint": fake.gate_endpoint,
        "control": fake.control_url(),
    });
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    out.flush()?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    fake.stop().await;
    Ok(())
}

fn config(arguments: Arguments) -> Config {
    let machines = match (arguments.vm_command, arguments.pretend) {
        (Some(command), _) => Machines::Programs {
            command: command.split_whitespace().map(str::to_owned).collect(),
            directory: arguments.dir,
        },
        (None, true) => Machines::Pretend(PretendSettings::default()),
        (None, false) => Machines::Nothing,
    };
    let mut config = Config {
        oned: arguments.oned,
        flow: arguments.flow,
        gate: arguments.gate,
        control: arguments.control,
        gate_endpoint: arguments.gate_endpoint,
        users: arguments.users,
        machines,
        version: arguments.version,
        ..Config::default()
    };
    config.pace.second_ms = arguments.second_ms;
    if !arguments.networks.is_empty() {
        config.networks = arguments.networks;
    }
    config
}
