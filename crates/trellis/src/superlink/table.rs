//! The settings of `trellis superlink`, one row each. `check` checks how they fit together.

use std::time::Duration;

use toml::Value;
use trellis_client::Address;
use trellis_link::config::{AppTrust, Isolation};

use super::check::Checked;
use super::state::StateLocation;
use crate::sandbox::sandbox_group;
use crate::settings::Role::{Action, HiddenAction, OfFlower};
use crate::settings::kind::{Choice, Count, Executable, Hosts, Path, Size, Switch, Time, path, text, time};
use crate::settings::{Program, config_group, group, log_group};

const MIB: u64 = 1 << 20;
/// More than any machine can run.
const MAX_SERVERAPPS: u64 = 10_000;
/// Clients of gRPC cannot send more at once. The minimum is a MiB: below it not even the messages system a model pass.
const MAX_MESSAGE: u64 = 1 << 31;
const MAX_IDLE: Duration = Duration::from_secs(24 * 3600);
const ISOLATIONS: Choice<Isolation> = Choice(&[("subprocess", Isolation::Subprocess), ("process", Isolation::Process)]);
const TRUSTS: Choice<AppTrust> =
    Choice(&[("user", AppTrust::User), ("machine", AppTrust::Machine), ("network", AppTrust::Network)]);

const AFTER_HELP: &str = "\
Examples:
  Try it on one machine without other users, without encryption and accounts:
    {called} --insecure

  Serve a network with TLS, and only SuperNodes registered with `flwr supernode register`:
    {called} --ssl-certfile server.pem --ssl-keyfile server.key --ssl-ca-certfile ca.crt \\
        --endpoint link.example.org --enable-supernode-auth

  Run apps with the packages of a virtual environment:
    {called} --insecure --python ~/venv/bin/python

  Show the effective settings and their sources:
    {called} --config superlink.toml --print-config

Configuration:
  Each setting is taken from the first place that has it:
    1. the flag                   --fleet-api-address 127.0.0.1:9092
    2. an environment variable    TRELLIS_FLEET_API_ADDRESS=127.0.0.1:9092
    3. the file given by --config fleet-api-address = \"127.0.0.1:9092\"
    4. the default
  A switch that is on can be turned off by a place before it: --insecure=false,
  TRELLIS_INSECURE=false. A flag that may be repeated is a list: TRELLIS_ENDPOINT=a,b in the
  environment, endpoint = [\"a\", \"b\"] in the file. Sizes and durations take a unit: 64MiB, 2GiB,
  500MB; 30s, 2m, 1h.

Exit codes:
  0 stopped on request; 1 failed; 2 refused arguments; 130, 143 stopped by a second signal.
";

pub static SUPERLINK: Program<Checked> = Program {
    about: "Serve a federation: the coordinator that SuperNodes, ServerApps and the `flwr` command connect to.\n\n\
            Unmodified programs of Flower 1.25 to 1.42 work with it, over gRPC and HTTP, all at the same time. Runs, messages \
            and models are stored on disk and survive a crash or a restart.",
    after_help: AFTER_HELP,
    groups: &[
        group! { "Addresses (IPv4:port, [IPv6]:port or name:port; port 0 selects a free one)";
            /// Host of the HTTP API, for Flower 1.35 and later [default: 0.0.0.0, with --insecure 127.0.0.1]
            ///
            /// `flwr` 1.37, SuperNodes 1.40 and ServerApps 1.35, and all later ones, connect here; older ones use the gRPC
            /// addresses below. Without TLS the defaults serve this machine only, as those of Flower 1.42 do (those of 1.25 serve
            /// all networks).
            "host" "HOST", show |checked| text(&http(checked)?.host.to_string());

            /// Port of the HTTP API [default: 8000]
            "port" "PORT", show |checked| Some(i64::from(http(checked)?.port).into());

            /// Address for the `flwr` command before 1.37 (Control API, gRPC) [default: 0.0.0.0:9093, with --insecure 127.0.0.1:9093]
            "control-api-address" "ADDRESS", show |checked| text(&checked.config.control_address);

            /// Address for SuperNodes before 1.40 (Fleet API, gRPC) [default: 0.0.0.0:9092, with --insecure 127.0.0.1:9092]
            "fleet-api-address" "ADDRESS", show |checked| text(&checked.config.fleet_address);

            /// Address for ServerApps and SuperExecs (ServerAppIo API, gRPC) [default: 127.0.0.1:9091]
            ///
            /// This API has no TLS. Without a token or a secret, only programs of the SuperLink's own user on this machine are
            /// served (--serverappio-trust). For a remote SuperExec give an address that only trusted machines reach, or let
            /// it use the HTTP API, with --superexec-auth-secret-file.
            "serverappio-api-address" "ADDRESS", show |checked| text(&checked.config.serverappio_address);

            /// Later name of --serverappio-api-address
            "runtime-api-address" (OfFlower) "ADDRESS", for "serverappio-api-address";

            /// Address of health checks (gRPC health protocol, without TLS) [default: not served]
            ///
            /// The HTTP API has /health, too.
            "health-server-address" "ADDRESS", show |checked| text(checked.config.health_address.as_deref()?);

            /// Address of metrics for Prometheus, without TLS [default: not served]
            ///
            /// The HTTP API has /metrics, too. This address has no authentication: use it in a network for monitoring only.
            "metrics-address" "ADDRESS", show |checked| text(checked.config.metrics_address.as_deref()?);

            /// A name or address that clients use, which the certificate must cover: HOST or HOST:PORT; may be repeated
            ///
            /// Checked at start, so that a certificate which clients would refuse is found before they do. HTTP requests are
            /// answered under this name.
            "endpoint" ["HOST"]: Hosts => config.endpoints;

            /// A further name under which HTTP requests are answered, e.g. that of a proxy; may be repeated
            ///
            /// Requests under other names are refused, because a web page can give its own name to any address (DNS rebinding).
            /// IP addresses, names without a dot, names of the certificate, --endpoint, and names that end with .localhost,
            /// .internal, .svc or .cluster.local are always answered. gRPC is not concerned.
            "allowed-host" ["HOST"]: Hosts => config.allowed_hosts;
        },
        group! { "Security (either --insecure or all three --ssl files)";
            /// Serve without TLS, this machine only; for every user of this machine unless --account-auth is on
            ///
            /// Without accounts, every user and program of this machine can submit runs, and so execute code as the user of
            /// this SuperLink and on every node. `trellis up` and `trellis server` start SuperLinks with accounts. Others on
            /// the network could read and change the data, so addresses other than those of this machine require
            /// --allow-insecure-network.
            "insecure", show |checked| Some(checked.config.tls.is_none().into());

            /// Serve a network insecurely: without TLS (--insecure), or without accounts (--account-auth off)
            ///
            /// For a network where every machine is trusted, as a laboratory or a VPN.
            "allow-insecure-network": Switch => insecure_network_allowed;

            /// Certificate chain of this server, PEM, for the HTTP, Control and Fleet APIs
            "ssl-certfile" "FILE", show |checked| path(&checked.config.tls.as_ref()?.certificate);

            /// Private key that belongs to the certificate, PEM
            "ssl-keyfile" "FILE", show |checked| path(&checked.config.tls.as_ref()?.key);

            /// Certificate of the authority that signed it, PEM
            "ssl-ca-certfile" "FILE", show |checked| path(&checked.config.tls.as_ref()?.ca_certificate);

            /// Accept only SuperNodes registered with `flwr supernode register`; needs TLS
            "enable-supernode-auth": Switch => config.supernode_auth;

            /// Whether `flwr` needs the token of an account: `on`, `off` or `auto` [default: auto]
            ///
            /// `auto`: on, unless only this machine can reach the HTTP and the Control API. A caller who submits a run executes
            /// code here and on the nodes; without accounts, every user of this machine can do that.
            "account-auth" "MODE", show |checked| text(if checked.config.accounts { "on" } else { "off" });

            /// File with the token of the first account, `admin` [default: a random one, written to the state directory]
            ///
            /// At least 32 characters, in a file that only its owner can write (mode 0600) and at most its group can read. The account
            /// has the token in the file at each start; a previous one is revoked.
            "admin-token-file" "FILE", show |checked| path(checked.config.admin_token.as_deref()?);
        },
        group! { "State";
            /// Directory for all data that must survive a restart [default: ~/.local/state/trellis/superlink]
            ///
            /// Below $XDG_STATE_HOME if that is set. Only one SuperLink can use a directory at a time.
            "state-dir" "DIR", show state_dir;

            /// Database file [default: in the state directory]; `:memory:` stores nothing
            ///
            /// With `:memory:` (or Flower's name for it, `:flwr-in-memory:`) nothing survives the process.
            "database" "FILE", check |checker| checker.state(), show database;
        },
        group! { "Apps";
            /// Program that starts ServerApps: `subprocess` (the SuperLink) or `process` (a flower-superexec) [default: subprocess]
            ///
            /// The SuperLink starts native runs, which need no Python, in both cases.
            "isolation" "MODE": ISOLATIONS => config.isolation;

            /// Python interpreter of ServerApps [default: that of the `flwr-serverapp` on PATH]
            ///
            /// Its environment must have Flower and the imports of the apps. Only used with --isolation subprocess. Without one, only
            /// native runs are served.
            "python" "FILE": Executable("give the path of a Python interpreter") => config.python;

            /// Directory for the models and checkpoints of native runs [default: `models` in the state directory]
            ///
            /// Each run has a directory in it, which stays when the run is over.
            "models-dir" "DIR": Path => models;

            /// Defaults for settings that `--run-config` does not set: a TOML file with keys as num-server-rounds and strategy
            ///
            /// A key applies to apps that have it, and overrides their own default; native runs have all settings of `trellis
            /// run`. Read at start.
            "run-defaults" "FILE", check |checker| checker.run_defaults(), show |checked| path(checked.run_defaults.as_deref()?);

            /// Secret that SuperExecs sign with (Flower 1.30 and later); only used with --isolation process
            ///
            /// The bytes of the file are the secret, the end of line too. With it, a SuperExec that does not sign gets no run.
            "superexec-auth-secret-file" "FILE", show |checked| path(checked.config.superexec_secret.as_deref()?);

            /// Which SuperExecs without that secret, and ServerApps without a token (Flower 1.25 to 1.27), are trusted: those
            /// of `user`, `machine` or `network` [default: user]
            ///
            /// Only used with --isolation process. `user`: programs of the SuperLink's own user (or root) on this machine.
            /// `machine`: of every user of this machine, as in a pod, whose network has no other users. `network`: every caller
            /// that reaches --serverappio-api-address. Trusted callers take runs, push instructions to nodes and read replies.
            "serverappio-trust" "WHOSE": TRUSTS => config.app_trust;

            /// Let ServerApps of Flower 1.40 and later install the packages that their app requires
            ///
            /// On by default in Flower 1.42. Off by default here: an app would download code to this machine.
            "allow-runtime-dependency-installation": Switch => config.dependency_installation;

            /// Do not install packages for ServerApps, which is the default
            "disable-runtime-dependency-installation" (OfFlower), for "allow-runtime-dependency-installation";
        },
        sandbox_group!(config.sandbox),
        group! { "Connections";
            /// Ping a silent connection this often, 1s to 1h [default: 30s]
            ///
            /// HTTP/2 pings on gRPC connections, TCP keepalive on all. Clients may ping at any rate: no connection is closed for
            /// pinging too often.
            "keepalive-interval" "DURATION", show |checked| time(checked.config.keepalive.interval);

            /// Close a connection that does not answer a ping in this time, at most twice the interval [default: 20s]
            ///
            /// Strict firewalls drop connections that are silent for 60s: use a smaller sum of the two.
            "keepalive-timeout" "DURATION", show |checked| time(checked.config.keepalive.timeout);

            /// Close HTTP/1.1 connections without a call for this long, 1s to 24h [default: 2m]
            "idle-timeout" "DURATION": Time { max: MAX_IDLE } => config.keepalive.idle;
        },
        group! { "Limits";
            /// Maximum number of concurrent ServerApps; further runs are pending, oldest first [default: 4 for each
            /// core, and one for each 512MiB of memory at most]
            ///
            /// `trellis runs` shows the position of a run in the queue.
            "max-serverapps" "N": Count { default: None, max: MAX_SERVERAPPS } => config.limits.server_apps;

            /// Largest single message accepted, model objects excepted [default: 512MiB]
            "max-message-size" "SIZE": Size { min: MIB, max: MAX_MESSAGE } => config.limits.message_bytes;

            /// Largest single object (an array, or a part of one) accepted [default: 2GiB]
            "max-object-size" "SIZE": Size { min: MIB, max: u64::MAX } => config.limits.object_bytes;

            /// Memory for objects used lately; 0 turns the cache off [default: 64MiB]
            "object-cache-size" "SIZE": Size { min: 0, max: u64::MAX } => config.limits.object_cache_bytes;
        },
        log_group!(),
        config_group!(),
        group! { "Configuration and inspection";
            /// Check whether this version can use the state, and exit
            ///
            /// Exit codes: 0 it is current, 1 there is none yet, 2 it will be upgraded at the next start, 3 it was written by a
            /// newer version, 255 other errors. Nothing is changed.
            "check-state" (Action);

            /// Print the names of the crash points for tests, and exit
            "list-crash-points" (HiddenAction);
        },
        group! { "Flags of flower-superlink with little or no effect here";
            /// Old name of --control-api-address
            "exec-api-address" (OfFlower) "ADDRESS", for "control-api-address";

            /// Only `grpc-rere` is served
            "fleet-api-type" (OfFlower) "TYPE";

            /// Ignored: all cores are used
            "fleet-api-num-workers" (OfFlower) "N";

            /// Ignored: apps are stored with the rest of the state
            "storage-dir" (OfFlower) "DIR";

            /// Ignored, as in Flower
            "flwr-dir" (OfFlower) "DIR";

            /// Refused, as in Flower: use --enable-supernode-auth and `flwr supernode register`
            "auth-list-public-keys" (OfFlower) "FILE";

            /// Refused, as in Flower
            "executor" (OfFlower) "NAME";

            /// Refused, as in Flower
            "executor-dir" (OfFlower) "DIR";

            /// Refused, as in Flower
            "executor-config" (OfFlower) "CONFIG";

            /// Refused: simulations are not served
            "simulation" (OfFlower);

            /// Refused: simulations are not served
            "simulationio-api-address" (OfFlower) "ADDRESS";

            /// Refused: the ServerAppIo API is served without TLS
            "appio-ssl-certfile" (OfFlower) "FILE";

            /// Refused: the ServerAppIo API is served without TLS
            "appio-ssl-keyfile" (OfFlower) "FILE";

            /// Refused: the ServerAppIo API is served without TLS
            "appio-ssl-ca-certfile" (OfFlower) "FILE";
        },
    ],
    subcommands: |command| command,
};

fn http(checked: &Checked) -> Option<Address> {
    Address::parse(&checked.config.http_address).ok()
}

fn state_dir(checked: &Checked) -> Option<Value> {
    match &checked.state {
        StateLocation::Directory { directory, .. } => path(directory),
        StateLocation::Memory | StateLocation::Temporary { .. } => None,
    }
}

fn database(checked: &Checked) -> Option<Value> {
    match &checked.state {
        StateLocation::Directory { database, .. } => path(database.as_deref()?),
        StateLocation::Memory | StateLocation::Temporary { .. } => text(":memory:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;
    use crate::settings::table::Shape;

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
        let flags = Flags::new("flower-superlink", &SUPERLINK);
        for name in switches {
            assert_eq!(flags.shape(name), Some(Shape::Switch), "{name}");
        }
        for name in values {
            assert_eq!(flags.shape(name), Some(Shape::Value), "{name}");
        }
    }
}
