//! The flags of `trellis server`, as declared to clap. Values stay text here; what they must look like is known to `check`.

use clap::Args;

use crate::settings::{LogArgs, Program};

pub const SERVER: Program = Program {
    after_help: AFTER_HELP,
    actions: &["kept", "simulated-sites"],
    flower_variables: &[("FLWR_LOG_LEVEL", "log-level")],
};

const AFTER_HELP: &str = "\
Examples:
  For this machine, until Ctrl-C; federations go on without it:
    {called}

  For a network, with TLS:
    {called} --listen 0.0.0.0:7766 --certificate server.pem --key server.key --trust ca.crt \\
        --host trellis.example.org

  A second one beside it, with federations of its own:
    {called} --home ~/second --listen 127.0.0.1:0

`trellis up` and `trellis apply` start a server by themselves where none runs. The token of the first
administrator is in admin.token in the home; others are made with the API.

Each setting can be given as an environment variable too: TRELLIS_LISTEN, TRELLIS_HOME, ...

Exit codes: 0 stopped on request; 1 could not go on (another server has the home, the port is taken);
2 refused arguments; 130, 143 stopped by a second signal.
";

/// Keep federations as their documents say, and serve the API and the page
///
/// Federations outlive their server: when it comes back, it goes on where it was.
#[derive(Debug, Default, Args)]
#[command(after_help = "Use --help for all flags, explanations and examples.")]
pub struct ServeArgs {
    /// Address and port of the API and the page [default: 127.0.0.1:7766, or a free port where that is taken]
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<String>,

    /// Directory for everything that the server keeps [default: trellis in XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub home: Option<String>,

    /// PEM file with the server's certificate, and what is between it and the authority
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<String>,

    /// PEM file with the key of the certificate
    #[arg(long, value_name = "FILE")]
    pub key: Option<String>,

    /// PEM file with the authorities that clients trust
    #[arg(long, value_name = "FILE")]
    pub trust: Option<String>,

    /// Name by which clients call the server; may be given several times
    ///
    /// Requests under other names are refused, because a web page can give its own name to any address (DNS rebinding).
    /// IP addresses, names without a dot, and names of the certificate are always answered.
    #[arg(long, value_name = "HOST")]
    pub host: Vec<String>,

    /// Serve a network without TLS: tokens can be read on the way
    #[arg(long)]
    pub allow_insecure_network: bool,

    #[arg(long, hide = true)]
    pub kept: bool,

    /// Nothing is started: sites are simulated, to measure the server alone
    #[arg(long, hide = true)]
    pub simulated_sites: bool,

    #[command(flatten)]
    pub log: LogArgs,
}
