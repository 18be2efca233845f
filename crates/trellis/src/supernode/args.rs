//! The flags of `trellis supernode`, as declared to clap: names, help texts, groups. Values stay text here; what they must
//! look like is known to `check`, so that every problem can be told at once.

use clap::{Args, Subcommand};

use super::drain::DrainArgs;
use super::status::StatusArgs;
use crate::sandbox::SandboxArgs;
use crate::settings::{ConfigArgs, LogArgs, Program};

pub const SUPERNODE: Program = Program {
    after_help: AFTER_HELP,
    actions: &["print-config"],
    flower_variables: &[("FLWR_LOG_LEVEL", "log-level"), ("FLWR_HOME", "flwr-dir")],
};

const AFTER_HELP: &str = "\
Examples:
  Take part in a federation on this machine, without encryption:
    {called} --insecure

  Over a network, with a key that was registered, and data that is this node's:
    {called} --superlink link.example.org:9092 --root-certificates ca.crt \\
        --auth-supernode-private-key node.key --node-config 'partition-id=0 num-partitions=10'

  Join a federation in Kubernetes with what its operator gave the site `lab`:
    kubectl get secret demo-join-lab -o yaml > lab.yaml
    {called} --join lab.yaml --node 0

  Run apps with the packages of a virtual environment, on one GPU:
    {called} --insecure --python ~/venv/bin/python --gpus 1

  A second node on the same machine:
    {called} --insecure --state-dir ~/nodes/second

  How is it?
    {called} status

Configuration:
  Each setting is taken from the first place that has it:
    1. the flag                   --superlink 127.0.0.1:9092
    2. an environment variable    TRELLIS_SUPERLINK=127.0.0.1:9092
    3. the file given by --config superlink = \"127.0.0.1:9092\"
    4. the default
  A switch that one place turns on is turned off by a place before it: --insecure=false,
  TRELLIS_INSECURE=false. A flag that may be repeated is a list: TRELLIS_CLIENT_APP_SETTING=a=1,b=2
  in the environment, client-app-setting = [\"a=1\", \"b=2\"] in the file. Sizes and durations take a
  unit: 64MiB, 2GiB, 500MB; 30s, 2m, 1h.

Exit codes:
  0 stopped on request; 1 could not go on (the SuperLink refuses the node, or retries are used up);
  2 refused arguments; 130, 143 stopped by a second signal.
";

/// Take part in a federation: carry out instructions of a SuperLink with apps on this machine.
///
/// Works with SuperLinks of Flower 1.25 to 1.42, and Trellis, over gRPC and HTTP. Keeps its identity, and what it was told
/// and has not answered yet, on disk: a restart or a lost link costs no work.
#[derive(Debug, Default, Args)]
#[command(after_help = "Use --help for all flags, explanations and examples.")]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct SupernodeArgs {
    #[command(flatten)]
    pub link: LinkArgs,
    #[command(flatten)]
    pub retry: RetryArgs,
    #[command(flatten)]
    pub identity: IdentityArgs,
    #[command(flatten)]
    pub apps: AppArgs,
    #[command(flatten)]
    pub warm: WarmArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    #[command(flatten)]
    pub resources: ResourceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub addresses: AddressArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub inspection: ConfigArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
    /// For help and completions: it is taken before the flags are read.
    #[command(subcommand)]
    pub question: Option<Question>,
}

#[derive(Debug, Subcommand)]
pub enum Question {
    Status(StatusArgs),
    Drain(DrainArgs),
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "SuperLink")]
pub struct LinkArgs {
    /// The SuperLink: IPv4:port, [IPv6]:port or name:port [default: 127.0.0.1:9092]
    ///
    /// Of Trellis every port that SuperNodes use, of Flower before 1.40 that of the Fleet API (9092), of later ones the HTTP
    /// port (8000).
    #[arg(long, value_name = "ADDRESS")]
    pub superlink: Option<String>,

    /// Connect without TLS
    ///
    /// What is sent can be read and changed on the way. Without this flag there is TLS.
    #[arg(long)]
    pub insecure: bool,

    /// PEM file with the authorities that may have signed the SuperLink's certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub root_certificates: Option<String>,

    /// `auto` (found out at each connection), `grpc` (Flower before 1.40) or `http` [default: auto]
    #[arg(long, value_name = "TRANSPORT")]
    pub transport: Option<String>,

    /// Ping a silent connection this often, 1s to 1h [default: 30s]
    ///
    /// A node that works is never silent for so long: it says every 20s that it is there. Much shorter ones are for
    /// SuperLinks of Trellis: gRPC of Flower ends a connection that has many pings and nothing else.
    #[arg(long, value_name = "DURATION")]
    pub keepalive_interval: Option<String>,

    /// End a connection whose ping is not answered in this time, at most twice the interval [default: 20s]
    ///
    /// Strict firewalls forget connections that are silent for 60s: keep the sum of the two below that.
    #[arg(long, value_name = "DURATION")]
    pub keepalive_timeout: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Trying again, when the SuperLink cannot be reached")]
pub struct RetryArgs {
    /// Give up after this many tries that failed in a row: a number, `unlimited` or `never` [default: unlimited]
    ///
    /// 0 has two meanings. Called `trellis supernode` it is `unlimited`, as appliances for Flower use it; called
    /// `flower-supernode` it is `never` (try once), as there. The words mean the same everywhere. The log says at start
    /// which limit is in force.
    #[arg(long, value_name = "N")]
    pub max_retries: Option<String>,

    /// Give up after this time without a working link: seconds, a duration, `unlimited` or `never` [default: unlimited]
    ///
    /// 0 means what it means for --max-retries.
    #[arg(long, value_name = "TIME")]
    pub max_wait_time: Option<String>,

    /// `exponential` (each pause is up to twice as long, with jitter) or `fixed` [default: exponential]
    #[arg(long, value_name = "KIND")]
    pub backoff: Option<String>,

    /// The first pause; with `--backoff fixed` every pause, 1s to 1h [default: 1s]
    #[arg(long, value_name = "DURATION")]
    pub backoff_first: Option<String>,

    /// The longest pause, 1s to 1h [default: 30s]
    ///
    /// A SuperLink counts a node as gone that is silent for 60s: with the default, one that comes back is found before that.
    #[arg(long, value_name = "DURATION")]
    pub backoff_max: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Identity and state")]
pub struct IdentityArgs {
    /// Directory for everything that must survive a restart [default: ~/.local/state/trellis/supernode]
    ///
    /// Under $XDG_STATE_HOME where that is set. Several nodes on one machine need one each.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<String>,

    /// What this machine's site was given to join a federation in Kubernetes: the Secret `<federation>-join-<site>`
    ///
    /// As a file (`kubectl get secret demo-join-lab -o yaml > lab.yaml`, or -o json) or as a directory, where it is mounted. It
    /// brings --superlink, --name, --root-certificates (or --insecure) and --auth-supernode-private-key; what is said in other
    /// ways counts more. From a file, key and certificates are kept in the state directory.
    #[arg(long, value_name = "FILE")]
    pub join: Option<String>,

    /// Which node of the site this is, from 0; only with --join, where the site has several
    #[arg(long, value_name = "N")]
    pub node: Option<String>,

    /// What the node is called in lists and reports of a SuperLink of Trellis, up to 64 characters
    ///
    /// Where nodes are registered by their owners (--enable-supernode-auth), a name that the owner gave stays.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Private key that the SuperLink knows this node by (OpenSSH, ECDSA) [default: one in the state directory]
    ///
    /// Given, the key was registered by somebody (`flwr supernode register`, `trellis node join`), and the node does not
    /// register itself. The default is made at the first start.
    #[arg(long, value_name = "FILE")]
    pub auth_supernode_private_key: Option<String>,

    /// Settings of this node for apps: 'partition-id=0 name="ward 7" fast=true', or a .toml file
    ///
    /// Values are true, false, numbers and quoted texts, as in TOML.
    #[arg(long, value_name = "SETTINGS")]
    pub node_config: Option<String>,

    /// YAML file with the public keys of those whose apps are carried out: {name: 'ssh-ed25519 AAAA...'}
    #[arg(long, value_name = "FILE")]
    pub trusted_entities: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Apps")]
pub struct AppArgs {
    /// Who starts ClientApps: `subprocess` (the SuperNode) or `process` (a flower-superexec) [default: subprocess]
    #[arg(long, value_name = "MODE")]
    pub isolation: Option<String>,

    /// `warm` (an app is loaded once for a run) or `per-message` (a new process each time, as in Flower) [default: warm]
    #[arg(long, value_name = "LIFECYCLE")]
    pub app_lifecycle: Option<String>,

    /// Apps at work at the same time, each for another run [default: 1]
    #[arg(long, value_name = "N")]
    pub max_concurrent_apps: Option<String>,

    /// Time for one instruction, 1s to 30 days [default: as long as its sender waits]
    #[arg(long, value_name = "DURATION")]
    pub app_timeout: Option<String>,

    /// Python interpreter that runs ClientApps [default: that of the `flwr-clientapp` on PATH, or python3]
    ///
    /// Its environment must have Flower (1.25 to 1.42) and what the apps import.
    #[arg(long, value_name = "FILE")]
    pub python: Option<String>,

    /// Carry out all instructions with an app that is part of this program: `native:logistic`, `native:mlp`, `native:echo`
    ///
    /// Needs no Python. What they learn from, and their settings: docs/native-apps.md.
    #[arg(long, value_name = "APP")]
    pub client_app: Option<String>,

    /// A setting of --client-app; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub client_app_setting: Vec<String>,

    /// Let apps install the packages they ask for, from a package index (Flower 1.30 and later)
    #[arg(long)]
    pub allow_runtime_dependency_installation: bool,

    /// What ClientApps reach over the network: `all` or `none` [default: all]
    ///
    /// The default suits apps that download their data. `none` leaves warm apps no network at all, and apps per message
    /// the one port of this node (Linux 6.7 or later).
    #[arg(long, value_name = "WHAT")]
    pub app_network: Option<String>,

    /// Directory where apps keep things of their own (FLWR_HOME) [default: in the state directory]
    ///
    /// Only used with --sandbox off: in the sandbox each app has a directory of its own.
    #[arg(long, value_name = "DIR")]
    pub flwr_dir: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Warm apps")]
pub struct WarmArgs {
    /// End an app that had nothing to do for this long, 1s to 24h [default: 10m]
    #[arg(long, value_name = "DURATION")]
    pub app_idle_timeout: Option<String>,

    /// Replace an app that has grown beyond this, after its instruction [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub app_recycle_memory: Option<String>,

    /// Apps that are kept although they have nothing to do, each for its run [default: 2]
    #[arg(long, value_name = "N")]
    pub max_idle_apps: Option<String>,

    /// Keep a Python ready for the next run: `on` or `off` [default: on]
    #[arg(long, value_name = "MODE")]
    pub app_spare: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What apps may use (of a machine with cgroup v2, for limits)")]
pub struct ResourceArgs {
    /// GPUs for apps: `none`, `all`, how many, or a list (0,1 or UUIDs) [default: as the environment says]
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<String>,

    /// GPUs for apps, as CUDA_VISIBLE_DEVICES names them; in place of --gpus
    #[arg(long, value_name = "LIST")]
    pub cuda_visible_devices: Option<String>,

    /// When a GPU that was asked for is not there: `warn`, and go on without, or `refuse` to start [default: warn]
    #[arg(long, value_name = "WHAT")]
    pub gpu_missing: Option<String>,

    /// Share of a GPU's memory that an app may take, above 0 and up to 1 [default: all]
    #[arg(long, value_name = "SHARE")]
    pub gpu_memory_fraction: Option<String>,

    /// CPUs for each app; 1.5 is one and a half [default: all]
    #[arg(long, value_name = "CPUS")]
    pub app_cpus: Option<String>,

    /// Memory for each app [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub app_memory: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Disk and transfer")]
pub struct LimitArgs {
    /// Disk for messages, replies and models [default: 20GiB]
    ///
    /// While more is used no new instruction is taken. Replies are never dropped for it.
    #[arg(long, value_name = "SIZE")]
    pub disk_limit: Option<String>,

    /// Bytes of models a second, each way: 10MB [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub bandwidth_limit: Option<String>,

    /// Parts of a model under way at once, 1 to 64 [default: 8]
    #[arg(long, value_name = "N")]
    pub parallel_transfers: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Addresses (IP:port; port 0 takes any free one)")]
pub struct AddressArgs {
    /// Where to serve metrics for Prometheus, and /health, without TLS [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_address: Option<String>,

    /// Where to answer health checks (gRPC health protocol, without TLS) [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub health_server_address: Option<String>,

    /// Where apps and SuperExecs connect [default: 127.0.0.1:9094 with --isolation process, else any free port]
    #[arg(long, value_name = "ADDRESS")]
    pub clientappio_api_address: Option<String>,

    /// Later name of --clientappio-api-address
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    pub runtime_api_address: Option<String>,

    /// The same, as Flower 1.36 and later say it: the host
    #[arg(long, value_name = "HOST", hide_short_help = true)]
    pub host: Option<String>,

    /// The same, as Flower 1.36 and later say it: the port
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    pub port: Option<String>,

    /// Secret that SuperExecs sign with (Flower 1.30 and later); only used with --isolation process
    ///
    /// The bytes of the file are the secret, the end of line too. With it, a SuperExec that does not sign gets no work.
    #[arg(long, value_name = "FILE")]
    pub superexec_auth_secret_file: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Flags of flower-supernode that do little or nothing here")]
pub struct CompatibilityArgs {
    /// The same as --transport grpc
    #[arg(long, hide_short_help = true)]
    pub grpc_rere: bool,

    /// Refused, as in later versions of Flower
    #[arg(long, hide_short_help = true)]
    pub grpc_adapter: bool,

    /// Refused, as in later versions of Flower
    #[arg(long, hide_short_help = true)]
    pub rest: bool,

    /// Ignored, as in Flower: the public key is part of the private one
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub auth_supernode_public_key: Option<String>,

    /// Not needed: the node and the apps it starts are on one machine. With --isolation process refused
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub ssl_certfile: Option<String>,

    /// As --ssl-certfile
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub ssl_keyfile: Option<String>,

    /// As --ssl-certfile
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub ssl_ca_certfile: Option<String>,

    /// Old name of --ssl-certfile
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub appio_ssl_certfile: Option<String>,

    /// Old name of --ssl-keyfile
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub appio_ssl_keyfile: Option<String>,

    /// Old name of --ssl-ca-certfile
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub appio_ssl_ca_certfile: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;
    use crate::settings::flags::Kind;

    #[test]
    fn every_flag_of_flower_supernode_from_1_25_to_1_42_is_known() {
        let switches = ["insecure", "grpc-rere", "grpc-adapter", "rest", "allow-runtime-dependency-installation"];
        let values = [
            "root-certificates",
            "superlink",
            "max-retries",
            "max-wait-time",
            "auth-supernode-private-key",
            "auth-supernode-public-key",
            "node-config",
            "flwr-dir",
            "isolation",
            "clientappio-api-address",
            "host",
            "port",
            "ssl-certfile",
            "ssl-keyfile",
            "ssl-ca-certfile",
            "appio-ssl-certfile",
            "appio-ssl-keyfile",
            "appio-ssl-ca-certfile",
            "trusted-entities",
            "superexec-auth-secret-file",
            "health-server-address",
        ];
        let flags = Flags::new::<SupernodeArgs>("flower-supernode", &SUPERNODE);
        for name in switches {
            assert_eq!(flags.kind(name), Some(Kind::Switch), "{name}");
        }
        for name in values {
            assert_eq!(flags.kind(name), Some(Kind::Value), "{name}");
        }
    }
}
