//! `fake-one`: the cloud as a program. Says where it serves in one line of JSON, and serves until SIGTERM or SIGINT.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use trellis_fake_one::hypervisor::PretendSettings;
use trellis_fake_one::{Config, FakeOne, Machines, NetworkConfig};

/// An OpenNebula for tests.
#[derive(Debug, Parser)]
#[command(name = "fake-one")]
struct Arguments {
    /// Where oned listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    oned: SocketAddr,
    /// Where OneFlow listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    flow: SocketAddr,
    /// Where OneGate listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    gate: SocketAddr,
    /// Where faults are set and everything can be read.
    #[arg(long, default_value = "127.0.0.1:0")]
    control: SocketAddr,
    /// As VMs reach OneGate, if not by the address that it listens on.
    #[arg(long)]
    gate_endpoint: Option<String>,
    /// A network, NAME=10.0.0.0/24[,first=10.0.0.10]; may be given several times.
    #[arg(long = "network")]
    networks: Vec<NetworkConfig>,
    /// Started for each VM, with FAKE_ONE_VM_DIR in its environment; words are separated by spaces.
    #[arg(long, conflicts_with = "pretend")]
    vm_command: Option<String>,
    /// In each VM lives an agent that only says what a real one would.
    #[arg(long)]
    pretend: bool,
    /// An ordinary user, NAME:PASSWORD; may be given several times. oneadmin's password is onepass.
    #[arg(long = "user", value_parser = user)]
    users: Vec<(String, String)>,
    /// Where the directories of the VMs are made.
    #[arg(long, default_value = "fake-one")]
    dir: PathBuf,
    /// As `one.system.version` says it.
    #[arg(long, default_value = "7.5.80")]
    version: String,
    /// How many milliseconds a second of OneFlow takes: cooldowns, periods of policies.
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
