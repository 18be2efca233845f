//! The flags of `trellis superlink`, as declared to clap: names, help texts, groups. Values stay text here; what they
//! must look like is known to `check`, so that every problem can be told at once.

use clap::Args;

use crate::sandbox::SandboxArgs;
use crate::settings::{ConfigArgs, LogArgs, Program};

pub const SUPERLINK: Program = Program {
    after_help: AFTER_HELP,
    actions: &["check-state", "print-config", "list-crash-points"],
    flower_variables: &[("FLWR_LOG_LEVEL", "log-level")],
};

const AFTER_HELP: &str = "\
Examples:
  Try it on one machine that nobody else uses, without encryption and accounts:
    {called} --insecure

  Serve a network with TLS, and only SuperNodes registered with `flwr supernode register`:
    {called} --ssl-certfile server.pem --ssl-keyfile server.key --ssl-ca-certfile ca.crt \\
        --endpoint link.example.org --enable-supernode-auth

  Run apps with the packages of a virtual environment:
    {called} --insecure --python ~/venv/bin/python

  Show what would be used, and where each value comes from:
    {called} --config superlink.toml --print-config

Configuration:
  Each setting is taken from the first place that has it:
    1. the flag                   --fleet-api-address 127.0.0.1:9092
    2. an environment variable    TRELLIS_FLEET_API_ADDRESS=127.0.0.1:9092
    3. the file given by --config fleet-api-address = \"127.0.0.1:9092\"
    4. the default
  A switch that one place turns on is turned off by a place before it: --insecure=false,
  TRELLIS_INSECURE=false. A flag that may be repeated is a list: TRELLIS_ENDPOINT=a,b in the
  environment, endpoint = [\"a\", \"b\"] in the file. Sizes and durations take a unit: 64MiB, 2GiB,
  500MB; 30s, 2m, 1h.

Exit codes:
  0 stopped on request; 1 could not serve; 2 refused arguments; 130, 143 stopped by a second signal.
";

/// Serve a federation: the coordinator that SuperNodes, ServerApps and the `flwr` command connect to.
///
/// Unmodified programs of Flower 1.25 to 1.42 work with it, over gRPC and HTTP, all at the same time. Runs, messages and
/// models are kept on disk and survive a crash or a restart.
#[derive(Debug, Default, Args)]
#[command(after_help = "Use --help for all flags, explanations and examples.")]
pub struct SuperlinkArgs {
    #[command(flatten)]
    pub addresses: AddressArgs,
    #[command(flatten)]
    pub security: SecurityArgs,
    #[command(flatten)]
    pub state: StateArgs,
    #[command(flatten)]
    pub apps: AppArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    #[command(flatten)]
    pub connections: ConnectionArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub inspection: InspectionArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Addresses (IPv4:port, [IPv6]:port or name:port; port 0 takes any free one)")]
pub struct AddressArgs {
    /// Host of the HTTP API, for Flower 1.35 and later [default: 0.0.0.0, with --insecure 127.0.0.1]
    ///
    /// There `flwr` 1.37, SuperNodes 1.40 and ServerApps 1.35, and all later ones, connect; older ones use the gRPC
    /// addresses below. Without TLS the defaults serve this machine only, as those of Flower 1.42 do (those of 1.25 serve
    /// all networks).
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,

    /// Port of the HTTP API [default: 8000]
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,

    /// Where the `flwr` command before 1.37 connects (Control API, gRPC) [default: 0.0.0.0:9093, with --insecure 127.0.0.1:9093]
    #[arg(long, value_name = "ADDRESS")]
    pub control_api_address: Option<String>,

    /// Where SuperNodes before 1.40 connect (Fleet API, gRPC) [default: 0.0.0.0:9092, with --insecure 127.0.0.1:9092]
    #[arg(long, value_name = "ADDRESS")]
    pub fleet_api_address: Option<String>,

    /// Where ServerApps and SuperExecs connect (ServerAppIo API, gRPC) [default: 127.0.0.1:9091]
    ///
    /// This API has no TLS. Without a token or a secret, only programs of the SuperLink's own user on this machine are
    /// served (--serverappio-trust). For a SuperExec elsewhere give an address that only trusted machines reach, or let
    /// it use the HTTP API, with --superexec-auth-secret-file.
    #[arg(long, value_name = "ADDRESS")]
    pub serverappio_api_address: Option<String>,

    /// Later name of --serverappio-api-address
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    pub runtime_api_address: Option<String>,

    /// Where to answer health checks (gRPC health protocol, without TLS) [default: nowhere]
    ///
    /// The HTTP API answers at /health too.
    #[arg(long, value_name = "ADDRESS")]
    pub health_server_address: Option<String>,

    /// Where to serve metrics for Prometheus without TLS [default: nowhere]
    ///
    /// The HTTP API has them at /metrics too. This address asks nobody who they are: it is for a network of monitoring.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_address: Option<String>,

    /// A name or address that clients use, which the certificate must cover: HOST or HOST:PORT; may be repeated
    ///
    /// Checked at start, so that a certificate which clients would refuse is found before they do. HTTP requests are
    /// answered under this name.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub endpoint: Vec<String>,

    /// A further name under which HTTP requests are answered, e.g. that of a proxy; may be repeated
    ///
    /// Requests under other names are refused, because a web page can give its own name to any address (DNS rebinding).
    /// IP addresses, names without a dot, names of the certificate, --endpoint, and names that end with .localhost,
    /// .internal, .svc or .cluster.local are always answered. gRPC is not concerned.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub allowed_host: Vec<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Security (either --insecure or all three --ssl files)")]
pub struct SecurityArgs {
    /// Serve without TLS, this machine only; for every user of this machine unless --account-auth is on
    ///
    /// Without accounts, every user and program of this machine can submit runs, and so execute code as the user of
    /// this SuperLink and on every node. `trellis up` and `trellis server` start SuperLinks with accounts. Data can be
    /// read and changed on the network, so other addresses than those of this machine are refused, unless
    /// --allow-insecure-network is given too.
    #[arg(long)]
    pub insecure: bool,

    /// Serve a network although it is not safe: without TLS (--insecure), or without accounts (--account-auth off)
    ///
    /// For a network where every machine is trusted, as a laboratory or a VPN.
    #[arg(long)]
    pub allow_insecure_network: bool,

    /// Certificate chain of this server, PEM, for the HTTP, Control and Fleet APIs
    #[arg(long, value_name = "FILE")]
    pub ssl_certfile: Option<String>,

    /// Private key that belongs to the certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub ssl_keyfile: Option<String>,

    /// Certificate of the authority that signed it, PEM
    #[arg(long, value_name = "FILE")]
    pub ssl_ca_certfile: Option<String>,

    /// Accept only SuperNodes registered with `flwr supernode register`; needs TLS
    #[arg(long)]
    pub enable_supernode_auth: bool,

    /// Whether `flwr` needs the token of an account: `on`, `off` or `auto` [default: auto]
    ///
    /// `auto`: on, unless the HTTP and the Control API can both be reached from this machine only. Who may submit a run
    /// executes code here and on the nodes; without accounts, every user of this machine may.
    #[arg(long, value_name = "MODE")]
    pub account_auth: Option<String>,

    /// File with the token of the first account, `admin` [default: one is drawn, and put into the state directory]
    ///
    /// At least 32 characters, in a file that only its owner can use (mode 0600) and at most its group can read. The token in the
    /// file is the account's at each start; one that the file held before is revoked.
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "State")]
pub struct StateArgs {
    /// Directory for everything that must survive a restart [default: ~/.local/state/trellis/superlink]
    ///
    /// Under $XDG_STATE_HOME where that is set. One SuperLink uses a directory at a time.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<String>,

    /// Database file [default: in the state directory]; `:memory:` keeps nothing
    ///
    /// With `:memory:` (or Flower's name for it, `:flwr-in-memory:`) nothing survives the process.
    #[arg(long, value_name = "FILE")]
    pub database: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Apps")]
pub struct AppArgs {
    /// Who starts ServerApps: `subprocess` (the SuperLink) or `process` (a flower-superexec) [default: subprocess]
    ///
    /// Native runs, which need no Python, are started by the SuperLink in both cases.
    #[arg(long, value_name = "MODE")]
    pub isolation: Option<String>,

    /// Python interpreter that runs ServerApps [default: that of the `flwr-serverapp` on PATH]
    ///
    /// Its environment must have Flower and what the apps import. Only used with --isolation subprocess. Without one, native
    /// runs are served alone.
    #[arg(long, value_name = "FILE")]
    pub python: Option<String>,

    /// Directory for the models and checkpoints of native runs [default: `models` in the state directory]
    ///
    /// Each run has a directory in it, which stays when the run is over.
    #[arg(long, value_name = "DIR")]
    pub models_dir: Option<String>,

    /// What runs begin with where `--run-config` says nothing: a TOML file of keys, as num-server-rounds and strategy
    ///
    /// A key counts for the apps that have it, and before what they say themselves; for native runs all settings of `trellis
    /// run` count. Read at start.
    #[arg(long, value_name = "FILE")]
    pub run_defaults: Option<String>,

    /// Secret that SuperExecs sign with (Flower 1.30 and later); only used with --isolation process
    ///
    /// The bytes of the file are the secret, the end of line too. With it, a SuperExec that does not sign gets no run.
    #[arg(long, value_name = "FILE")]
    pub superexec_auth_secret_file: Option<String>,

    /// Which SuperExecs without that secret, and ServerApps without a token (Flower 1.25 to 1.27), are trusted: those
    /// of `user`, `machine` or `network` [default: user]
    ///
    /// Only used with --isolation process. `user`: programs of the SuperLink's own user (or root) on this machine.
    /// `machine`: of every user of this machine, as in a pod, whose network has no other users. `network`: every caller
    /// that reaches --serverappio-api-address. Trusted callers take runs, push instructions to nodes and read replies.
    #[arg(long, value_name = "WHOSE")]
    pub serverappio_trust: Option<String>,

    /// Let ServerApps of Flower 1.40 and later install the packages their app asks for
    ///
    /// Flower 1.42 does so by default. Here it is off: an app would bring code from a package index to this machine.
    #[arg(long)]
    pub allow_runtime_dependency_installation: bool,

    /// Install nothing for ServerApps, which is the default
    #[arg(long, hide_short_help = true)]
    pub disable_runtime_dependency_installation: bool,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connections")]
pub struct ConnectionArgs {
    /// Ping a silent connection this often, 1s to 1h [default: 30s]
    ///
    /// HTTP/2 pings on gRPC connections, TCP keepalive on all. Clients may ping as often as they like: no minimum is set
    /// for them, so none is cut off for pinging too often.
    #[arg(long, value_name = "DURATION")]
    pub keepalive_interval: Option<String>,

    /// End a connection whose ping is not answered in this time, at most twice the interval [default: 20s]
    ///
    /// Strict firewalls forget connections that are silent for 60s: keep the sum of the two below that.
    #[arg(long, value_name = "DURATION")]
    pub keepalive_timeout: Option<String>,

    /// Close HTTP/1.1 connections without a call for this long, 1s to 24h [default: 2m]
    #[arg(long, value_name = "DURATION")]
    pub idle_timeout: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// ServerApps that this SuperLink runs at once; further runs stay pending, the oldest is next [default: 4 for each
    /// core, and one for each 512MiB of memory at most]
    ///
    /// `trellis runs` shows the position of a run in the queue.
    #[arg(long, value_name = "N")]
    pub max_serverapps: Option<String>,

    /// Largest single message accepted, model objects excepted [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    pub max_message_size: Option<String>,

    /// Largest single object (an array, or a part of one) accepted [default: 2GiB]
    #[arg(long, value_name = "SIZE")]
    pub max_object_size: Option<String>,

    /// Memory for objects used lately; 0 turns the cache off [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub object_cache_size: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Configuration and inspection")]
pub struct InspectionArgs {
    #[command(flatten)]
    pub config: ConfigArgs,

    /// Say whether the state can be used by this version, and exit
    ///
    /// Exit codes: 0 it is current, 1 there is none yet, 2 it will be upgraded at the next start, 3 it was written by a
    /// newer version, 255 other trouble. Nothing is changed.
    #[arg(long)]
    pub check_state: bool,

    /// Print the names of the points where a test can crash the SuperLink, and exit
    #[arg(long, hide = true)]
    pub list_crash_points: bool,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Flags of flower-superlink that do little or nothing here")]
pub struct CompatibilityArgs {
    /// Old name of --control-api-address
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    pub exec_api_address: Option<String>,

    /// Only `grpc-rere` is served
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub fleet_api_type: Option<String>,

    /// Ignored: all cores are used
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub fleet_api_num_workers: Option<String>,

    /// Ignored: apps are kept with the rest of the state
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub storage_dir: Option<String>,

    /// Ignored, as in Flower
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub flwr_dir: Option<String>,

    /// Refused, as in Flower: use --enable-supernode-auth and `flwr supernode register`
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub auth_list_public_keys: Option<String>,

    /// Refused, as in Flower
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub executor: Option<String>,

    /// Refused, as in Flower
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub executor_dir: Option<String>,

    /// Refused, as in Flower
    #[arg(long, value_name = "CONFIG", hide_short_help = true)]
    pub executor_config: Option<String>,

    /// Refused: simulations are not served
    #[arg(long, hide_short_help = true)]
    pub simulation: bool,

    /// Refused: simulations are not served
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    pub simulationio_api_address: Option<String>,

    /// Refused: the ServerAppIo API is served without TLS
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub appio_ssl_certfile: Option<String>,

    /// Refused: the ServerAppIo API is served without TLS
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub appio_ssl_keyfile: Option<String>,

    /// Refused: the ServerAppIo API is served without TLS
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub appio_ssl_ca_certfile: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;
    use crate::settings::flags::Kind;

    #[test]
    fn every_flag_of_flower_superlink_from_1_25_to_1_42_is_known() {
        let switches = [
            "insecure",
            "enable-supernode-auth",
            "simulation",
            "allow-runtime-dependency-installation",
            "disable-runtime-dependency-installation",
        ];
        let values = [
            "flwr-dir",
            "ssl-certfile",
            "ssl-keyfile",
            "ssl-ca-certfile",
            "isolation",
            "database",
            "storage-dir",
            "auth-list-public-keys",
            "serverappio-api-address",
            "fleet-api-type",
            "fleet-api-address",
            "fleet-api-num-workers",
            "control-api-address",
            "exec-api-address",
            "executor",
            "executor-dir",
            "executor-config",
            "simulationio-api-address",
            "health-server-address",
            "host",
            "port",
            "runtime-api-address",
            "appio-ssl-certfile",
            "appio-ssl-keyfile",
            "appio-ssl-ca-certfile",
            "log-file",
            "log-rotation-interval-hours",
            "log-rotation-backup-count",
            "superexec-auth-secret-file",
        ];
        let flags = Flags::new::<SuperlinkArgs>("flower-superlink", &SUPERLINK);
        for name in switches {
            assert_eq!(flags.kind(name), Some(Kind::Switch), "{name}");
        }
        for name in values {
            assert_eq!(flags.kind(name), Some(Kind::Value), "{name}");
        }
    }
}
