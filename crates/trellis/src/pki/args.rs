//! The flags of `trellis pki`, as declared to clap. Values with several rules stay text: they are checked later, so that all
//! problems are reported at once.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use trellis_pki::authority::Step;

use trellis_terminal::OutputArgs;

const AFTER_HELP: &str = "\
Examples:
  A CA, a certificate for a SuperLink, and what its clients need:
    trellis pki init --dir /var/lib/trellis-ca
    trellis pki issue --dir /var/lib/trellis-ca --endpoint link.example.org --endpoint 10.0.0.7 \\
        --out /etc/trellis/tls
    trellis pki trust --dir /var/lib/trellis-ca --out ca.crt
    trellis superlink --ssl-certfile /etc/trellis/tls/server.pem \\
        --ssl-keyfile /etc/trellis/tls/server.key --ssl-ca-certfile /etc/trellis/tls/ca.crt
    flower-supernode --root-certificates ca.crt --superlink link.example.org:9092

  Renew from a timer, or keep running and renew:
    trellis pki issue --renew ...
    trellis pki issue --watch ...

  Replace the CA without downtime; each step prints the precondition of the next:
    trellis pki rotate --dir /var/lib/trellis-ca --begin

Exit codes:
  0 done, or no change; 1 the machine failed (disk, permissions); 2 refused, nothing changed.
";

/// Make and renew certificates, and say which authorities clients trust.
///
/// A long-lived authority (CA) in a separate directory issues short-lived certificates (leaves) to SuperLinks. A SuperLink
/// reloads a new leaf without a restart and without dropping connections.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct PkiArgs {
    #[command(subcommand)]
    pub command: PkiCommand,
}

#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Make an authority (CA) in an empty or new directory
    Init(InitArgs),
    /// Issue or renew the certificate of a SuperLink
    Issue(IssueArgs),
    /// Show authorities and certificates: validity, names, fingerprints, what is due
    Show(ShowArgs),
    /// Replace the authority in steps, while everything runs
    Rotate(RotateArgs),
    /// Print or write the trust bundle for clients, or change its certificates
    Trust(TrustArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis pki init --dir /var/lib/trellis-ca
  trellis pki init --dir ca --name 'clinic north' --validity 5y

The key of the CA never leaves this directory. Who can read it can make certificates that every
client trusts.")]
pub struct InitArgs {
    /// Directory of the authority; created with mode 0700
    #[arg(long, value_name = "DIR", env = "TRELLIS_PKI_DIR")]
    pub dir: PathBuf,

    /// Name of the CA in its certificate [default: trellis]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// How long the CA is valid: 10y, 90d [default: 10y]
    #[arg(long, value_name = "TIME")]
    pub validity: Option<String>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis pki issue --dir ca --endpoint link.example.org:9092 --endpoint 10.0.0.7 --out tls
  trellis pki issue --dir ca --endpoint '[2001:db8::7]:9092' --out tls
  trellis pki issue --dir ca --endpoint 10.0.0.7 --out tls --renew   from a timer, e.g. daily
  trellis pki issue --dir ca --endpoint 10.0.0.7 --out tls --watch   stays; SIGHUP: look at once

Written are server.pem, server.key (mode 0600) and ca.crt, always of one issue: whoever reads
them never finds a certificate with the key of another. Run by root, they get the owner of the
directory.")]
pub struct IssueArgs {
    /// Directory of the authority
    #[arg(long, value_name = "DIR", env = "TRELLIS_PKI_DIR")]
    pub dir: PathBuf,

    /// A host or address that clients connect to; give it once for each
    #[arg(long = "endpoint", value_name = "HOST[:PORT]", required = true)]
    pub endpoints: Vec<String>,

    /// Directory of the SuperLink, for the certificate and its key
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// How long the certificate is valid: 30d, 12h [default: 30d]
    #[arg(long, value_name = "TIME")]
    pub validity: Option<String>,

    /// Name in the certificate [default: the first endpoint]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Leave out localhost, 127.0.0.1 and ::1, which are added otherwise
    #[arg(long)]
    pub no_localhost: bool,

    /// Issue only if less than a third of the lifetime is left, the endpoints changed, or another CA signs
    #[arg(long)]
    pub renew: bool,

    /// Keep running, check every minute, and renew when it is due
    #[arg(long)]
    pub watch: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis pki show --dir ca
  trellis pki show tls/server.pem ca.crt -o json")]
pub struct ShowArgs {
    /// Directory of the authority
    #[arg(long, value_name = "DIR", env = "TRELLIS_PKI_DIR", required_unless_present = "files")]
    pub dir: Option<PathBuf>,

    /// PEM files with certificates, of whomever
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The steps, in order. Each may be repeated, also after a crash; without a step, it says what is
next.
  trellis pki rotate --dir ca --begin     a new CA joins the trust bundle, the old one signs
     give the bundle (trellis pki trust) to every node and client
  trellis pki rotate --dir ca --switch    the new CA signs
     issue every SuperLink's certificate anew (a timer or --watch does)
  trellis pki rotate --dir ca --finish    the old CA leaves the bundle, its key is destroyed")]
pub struct RotateArgs {
    /// Directory of the authority
    #[arg(long, value_name = "DIR", env = "TRELLIS_PKI_DIR")]
    pub dir: PathBuf,

    /// Make a new CA and add it to the trust bundle
    #[arg(long, group = "step")]
    pub begin: bool,

    /// Let the new CA sign; every client must have the bundle
    #[arg(long, group = "step")]
    pub switch: bool,

    /// Drop the old CA; every SuperLink must serve a leaf of the new one
    #[arg(long, group = "step")]
    pub finish: bool,

    /// Undo --switch: let the old CA sign again
    #[arg(long, group = "step")]
    pub switch_back: bool,

    /// Undo --begin: drop the new CA
    #[arg(long, group = "step")]
    pub cancel: bool,

    /// Drop a CA although a certificate of it was issued that is still valid
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

impl RotateArgs {
    /// The requested step; clap ensures that there is at most one.
    pub fn step(&self) -> Option<Step> {
        let flags = [
            (self.begin, Step::Begin),
            (self.switch, Step::Switch),
            (self.finish, Step::Finish),
            (self.switch_back, Step::SwitchBack),
            (self.cancel, Step::Cancel),
        ];
        flags.into_iter().find(|(given, _)| *given).map(|(_, step)| step)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BundleFormat {
    Pem,
    Base64,
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis pki trust --dir ca --out ca.crt          for --root-certificates of flower-supernode and flwr
  trellis pki trust --dir ca -o base64             one line, for FL_SSL_CA_CERTFILE and the like
  trellis pki trust --dir ca --add partner-ca.crt  trust a SuperLink of another organization, too")]
pub struct TrustArgs {
    /// Directory of the authority
    #[arg(long, value_name = "DIR", env = "TRELLIS_PKI_DIR")]
    pub dir: PathBuf,

    /// Add the CA certificates in this PEM file
    #[arg(long, value_name = "FILE")]
    pub add: Option<PathBuf>,

    /// Take out the added CA with this SHA-256 fingerprint (trellis pki show)
    #[arg(long, value_name = "FINGERPRINT")]
    pub remove: Option<String>,

    /// Write to this file, whole or not at all, instead of printing
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// `pem`, `base64` (of the PEM, in one line) or `json` (with fingerprints)
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "pem", hide_possible_values = true)]
    pub output: BundleFormat,
}
