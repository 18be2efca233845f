//! The flags of `trellis superlink`, as declared to clap: names, help texts, groups. Values stay text here; what they
//! must look like is known to `check`, so that every problem can be told at once.

use clap::Args;

/// `{called}` stands for the name the user knows this command by.
pub const AFTER_HELP: &str = "\
Examples:
  Try it on one machine, without encryption:
    {called} --insecure

  Serve with TLS, and only SuperNodes registered with `flwr supernode register`:
    {called} --ssl-certfile server.pem --ssl-keyfile server.key --ssl-ca-certfile ca.crt \\
        --enable-supernode-auth

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
  TRELLIS_INSECURE=false. Sizes take a unit: 64MiB, 2GiB, 500MB.

Exit codes:
  0 stopped on request; 1 could not serve; 2 refused arguments; 130, 143 stopped by a second signal.
";

/// Serve a federation: the coordinator that SuperNodes, ServerApps and the `flwr` command connect to.
///
/// Unmodified Flower 1.25 programs work with it, over gRPC. Runs, messages and models are kept on disk and survive a
/// crash or a restart.
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
    pub limits: LimitArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub inspection: InspectionArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Addresses (IPv4:port, [IPv6]:port or name:port; port 0 takes any free one)")]
pub struct AddressArgs {
    /// Where the `flwr` command connects (Control API) [default: 0.0.0.0:9093]
    #[arg(long, value_name = "ADDRESS")]
    pub control_api_address: Option<String>,

    /// Where SuperNodes connect (Fleet API) [default: 0.0.0.0:9092]
    #[arg(long, value_name = "ADDRESS")]
    pub fleet_api_address: Option<String>,

    /// Where ServerApps and SuperExecs connect (ServerAppIo API) [default: 127.0.0.1:9091, with --isolation process 0.0.0.0:9091]
    ///
    /// This API has neither TLS nor a login. With --isolation subprocess its only clients are started on this machine,
    /// and no other can reach the default. With --isolation process the default is that of Flower: let only trusted
    /// machines reach it.
    #[arg(long, value_name = "ADDRESS")]
    pub serverappio_api_address: Option<String>,

    /// Where to answer health checks (gRPC health protocol, without TLS) [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub health_server_address: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Security (either --insecure or all three --ssl files)")]
pub struct SecurityArgs {
    /// Serve without TLS: everything can be read and changed on the way
    #[arg(long)]
    pub insecure: bool,

    /// Certificate chain of this server, PEM, for the Control and Fleet APIs
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
    #[arg(long, value_name = "MODE")]
    pub isolation: Option<String>,

    /// Python interpreter that runs ServerApps [default: that of the `flwr-serverapp` on PATH]
    ///
    /// Its environment must have Flower and what the apps import. Only used with --isolation subprocess.
    #[arg(long, value_name = "FILE")]
    pub python: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Largest single gRPC message accepted, model objects excepted [default: 512MiB]
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
#[command(next_help_heading = "Log (on stderr)")]
pub struct OutputArgs {
    /// `text` (coloured on a terminal, unless NO_COLOR is set) or `json` [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,

    /// `error`, `warn`, `info`, `debug` or `trace` [default: info]
    ///
    /// FLWR_LOG_LEVEL is understood too. Finer: filters as in `info,trellis_link=debug`.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Configuration and inspection")]
pub struct InspectionArgs {
    /// Read settings from this TOML file; its keys are the flags without their dashes
    ///
    /// Relative paths in the file start from its directory.
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,

    /// Print the settings that would be used, as such a file, and exit
    #[arg(long)]
    pub print_config: bool,

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
#[command(next_help_heading = "Flags of flower-superlink 1.25 that do little or nothing here")]
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
}
