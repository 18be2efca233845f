//! The settings of `trellis supernode`, one row each. `check` checks how they fit together.

use std::time::Duration;

use clap::Subcommand;
use toml::Value;
use trellis_client::Security;
use trellis_client::{Address, Host};
use trellis_flower::Isolation;
use trellis_node::config::{AppMode, Backoff, Gpus, Spare, TransportChoice, WhenMissing};
use trellis_sandbox::Network;

use super::check::{Checked, Lifecycle, OF_SANDBOX, OF_WARM_APPS, max_retries, max_wait};
use super::drain::DrainArgs;
use super::status::StatusArgs;
use crate::sandbox::sandbox_group;
use crate::settings::Role::{AlsoIn, OfFlower};
use crate::settings::kind::{Choice, Count, Kind as _, Number, Path, Size, Switch, Time, list, path, text, time};
use crate::settings::print::{self, Row};
use crate::settings::{Program, config_group, group, log_group};

const MIB: u64 = 1 << 20;
/// Less would not hold a model and the next one.
const MIN_DISK: u64 = 64 * MIB;
/// A slower retry could exceed the sender's timeout for a large model.
const MIN_BANDWIDTH: u64 = 1 << 10;
/// Python with numpy needs more; with less, apps would be restarted after each instruction.
const MIN_RECYCLE: u64 = 64 * MIB;
/// Below it no Python starts.
const MIN_APP_MEMORY: u64 = 32 * MIB;
const MAX_CONCURRENT: u64 = 1024;
const MAX_IDLE: Duration = Duration::from_secs(24 * 3600);
const MAX_WORK: Duration = Duration::from_secs(30 * 24 * 3600);

const TRANSPORTS: Choice<TransportChoice> =
    Choice(&[("auto", TransportChoice::Auto), ("grpc", TransportChoice::Grpc), ("http", TransportChoice::Http)]);
const ISOLATIONS: Choice<Isolation> = Choice(&[("subprocess", Isolation::Subprocess), ("process", Isolation::Process)]);
const LIFECYCLES: Choice<Lifecycle> = Choice(&[("warm", Lifecycle::Warm), ("per-message", Lifecycle::PerMessage)]);
const NETWORKS: Choice<Network> = Choice(&Network::ALL);
const SPARES: Choice<Spare> = Choice(&[("on", Spare::EveryRun), ("off", Spare::None)]);
const WHEN_MISSING: Choice<WhenMissing> = Choice(&[("warn", WhenMissing::Warn), ("refuse", WhenMissing::Refuse)]);
const SHARE: Number =
    Number { allows: |share| share > 0.0 && share <= 1.0, expected: "a number above 0 and up to 1", example: "0.5" };
const CPUS: Number =
    Number { allows: |cpus| (0.01..=65536.0).contains(&cpus), expected: "a number of CPUs", example: "2 or 1.5" };

const AFTER_HELP: &str = "\
Examples:
  Join a federation on this machine, without encryption:
    {called} --insecure

  Over a network, with a registered key, and a partition of the data:
    {called} --superlink link.example.org:9092 --root-certificates ca.crt \\
        --auth-supernode-private-key node.key --node-config 'partition-id=0 num-partitions=10'

  Join a federation in Kubernetes with the join bundle of the site `lab`:
    kubectl get secret demo-join-lab -o yaml > lab.yaml
    {called} --join lab.yaml --node 0

  Run apps with the packages of a virtual environment, on one GPU:
    {called} --insecure --python ~/venv/bin/python --gpus 1

  A second node on the same machine:
    {called} --insecure --state-dir ~/nodes/second

  Show its status:
    {called} status

Configuration:
  Each setting is taken from the first place that has it:
    1. the flag                   --superlink 127.0.0.1:9092
    2. an environment variable    TRELLIS_SUPERLINK=127.0.0.1:9092
    3. the file given by --config superlink = \"127.0.0.1:9092\"
    4. the default
  A switch that is on can be turned off by a place before it: --insecure=false,
  TRELLIS_INSECURE=false. A flag that may be repeated is a list: TRELLIS_CLIENT_APP_SETTING=a=1,b=2
  in the environment, client-app-setting = [\"a=1\", \"b=2\"] in the file. Sizes and durations take a
  unit: 64MiB, 2GiB, 500MB; 30s, 2m, 1h.

Exit codes:
  0 stopped on request; 1 failed (the SuperLink refuses the node, or retries are used up);
  2 refused arguments; 130, 143 stopped by a second signal.
";

pub static SUPERNODE: Program<Checked> = Program {
    about: "Take part in a federation: execute instructions of a SuperLink with apps on this machine.\n\n\
            Works with SuperLinks of Flower 1.25 to 1.42, and Trellis, over gRPC and HTTP. Stores its identity, unfinished \
            instructions and undelivered replies on disk: a restart or a lost link costs no work.",
    after_help: AFTER_HELP,
    groups: &[
        group! { "SuperLink";
            /// The SuperLink: IPv4:port, [IPv6]:port or name:port [default: 127.0.0.1:9092]
            ///
            /// Of Trellis every port that SuperNodes use, of Flower before 1.40 that of the Fleet API (9092), of later ones the HTTP
            /// port (8000).
            "superlink" "ADDRESS", show superlink;

            /// Connect without TLS
            ///
            /// Others on the network can read and change the traffic. Without this flag, TLS is used.
            "insecure", show |checked| Some(matches!(checked.config.superlink.security, Security::Plaintext).into());

            /// PEM file with the authorities that may have signed the SuperLink's certificate [default: those of the system]
            "root-certificates" "FILE", show |checked| path(checked.root_certificates.as_deref()?);

            /// `auto` (found out at each connection), `grpc` (Flower before 1.40) or `http` [default: auto]
            "transport" "TRANSPORT": TRANSPORTS => config.transport;

            /// Ping a silent connection this often, 1s to 1h [default: 30s]
            ///
            /// A working node is never silent for that long: it sends a heartbeat every 20s. Use much shorter intervals with
            /// SuperLinks of Trellis only: gRPC of Flower closes a connection with many pings and no other traffic.
            "keepalive-interval" "DURATION", show |checked| time(checked.config.keepalive.interval?);

            /// Close a connection that does not answer a ping in this time, at most twice the interval [default: 20s]
            ///
            /// Strict firewalls drop connections that are silent for 60s: use a smaller sum of the two.
            "keepalive-timeout" "DURATION", show |checked| time(checked.config.keepalive.timeout);
        },
        group! { "Retries, if the SuperLink cannot be reached";
            /// Give up after this many consecutive failures: a number, `unlimited` or `never` [default: unlimited]
            ///
            /// 0 has two meanings: `unlimited` for `trellis supernode`, as in appliances for Flower, and `never` (try once) for
            /// `flower-supernode`, as in Flower. The words have one meaning everywhere. The log says at start which limit is in
            /// force.
            "max-retries" "N", show |checked| text(&max_retries(checked.config.retry.max_retries));

            /// Give up after this time without a working link: seconds, a duration, `unlimited` or `never` [default: unlimited]
            ///
            /// 0 has the same meaning as in --max-retries.
            "max-wait-time" "TIME", show |checked| text(&max_wait(checked.config.retry.max_wait));

            /// `exponential` (each pause is up to twice as long, with jitter) or `fixed` [default: exponential]
            "backoff" "KIND", check |checker| checker.backoff(), show |checked| text(pauses(checked).0);

            /// The first pause; with `--backoff fixed` every pause, 1s to 1h [default: 1s]
            "backoff-first" "DURATION", show |checked| time(pauses(checked).1);

            /// The maximum pause, 1s to 1h [default: 30s]
            ///
            /// A SuperLink counts a node as offline after 60s of silence: with the default, a node reconnects before that.
            "backoff-max" "DURATION", show |checked| time(pauses(checked).2?);
        },
        group! { "Identity and state";
            /// Directory for all data that must survive a restart [default: ~/.local/state/trellis/supernode]
            ///
            /// Below $XDG_STATE_HOME if that is set. Several nodes on one machine need one each.
            "state-dir" "DIR", check |checker| checker.state_dir(), show |checked| path(&checked.config.state_dir);

            /// The join bundle of this machine's site for a federation in Kubernetes: the Secret `<federation>-join-<site>`
            ///
            /// A file (`kubectl get secret demo-join-lab -o yaml > lab.yaml`, or -o json) or a directory with the mounted Secret. It
            /// sets --superlink, --name, --root-certificates (or --insecure) and --auth-supernode-private-key, with the lowest
            /// precedence. Key and certificates from a file are stored in the state directory.
            "join" "FILE";

            /// Index of this node within the site, from 0; only with --join, if the site has several nodes
            "node" "N";

            /// Name of the node in lists and reports of a SuperLink of Trellis, up to 64 characters
            ///
            /// If owners register their nodes (--enable-supernode-auth), the name of the registration takes precedence.
            "name" "NAME", check |checker| checker.name(), show |checked| text(checked.config.name.as_deref()?);

            /// Private key that identifies this node (OpenSSH, ECDSA) [default: one in the state directory]
            ///
            /// A given key must be registered (`flwr supernode register`, `trellis node join`); the node does not register itself.
            /// The default key is created at the first start.
            "auth-supernode-private-key" "FILE", show |checked| path(checked.config.key.as_deref()?);

            /// Settings of this node for apps: 'partition-id=0 name="ward 7" fast=true', or a .toml file
            ///
            /// Values are true, false, numbers and quoted texts, as in TOML.
            "node-config" "SETTINGS", show |checked| text(checked.node_config.as_deref()?);

            /// YAML file with the public keys of trusted signers of apps: {name: 'ssh-ed25519 AAAA...'}
            "trusted-entities" "FILE", show |checked| path(checked.trusted_entities.as_deref()?);
        },
        group! { "Apps";
            /// Program that starts ClientApps: `subprocess` (the SuperNode) or `process` (a flower-superexec) [default: subprocess]
            "isolation" "MODE": ISOLATIONS => isolation;

            /// `warm` (an app is loaded once for a run) or `per-message` (a new process each time, as in Flower) [default: warm]
            "app-lifecycle" "LIFECYCLE": LIFECYCLES => lifecycle, show |checked| LIFECYCLES.show(starts_apps(checked).then_some(&checked.lifecycle)?);

            /// Apps at work at the same time, each for another run [default: 1]
            "max-concurrent-apps" "N": Count { default: Some(1), max: MAX_CONCURRENT } => config.apps.max_concurrent;

            /// Time for one instruction, 1s to 30 days [default: as long as its sender waits]
            "app-timeout" "DURATION": Time { max: MAX_WORK } => config.apps.timeout;

            /// Python interpreter of ClientApps [default: that of the `flwr-clientapp` on PATH, or python3]
            ///
            /// Its environment must have Flower (1.25 to 1.42) and the imports of the apps.
            "python" "FILE", show |checked| path(starts_apps(checked).then_some(&checked.config.apps.python)?);

            /// Execute all instructions with a built-in app: `native:logistic`, `native:mlp`, `native:echo`
            ///
            /// Needs no Python. For their data and settings see docs/native-apps.md.
            "client-app" "APP", show |checked| native(checked).map(|(name, _)| format!("native:{name}").into());

            /// A setting of --client-app; may be repeated
            "client-app-setting" ["NAME=VALUE"], show |checked| list(&native(checked)?.1);

            /// Let apps install the packages they ask for, from a package index (Flower 1.30 and later)
            "allow-runtime-dependency-installation": Switch => config.apps.allow_dependency_installation,
                show |checked| starts_apps(checked).then(|| checked.config.apps.allow_dependency_installation.into());

            /// Network access of ClientApps: `all` or `none` [default: all]
            ///
            /// The default suits apps that download their data. `none` blocks all network access of warm apps, and all but the
            /// one port of this node for apps per message (Linux 6.7 or later).
            "app-network" "WHAT": NETWORKS => config.apps.sandbox.network;

            /// Keep the output of ClientApps on this machine
            ///
            /// Without this flag, a SuperLink of Trellis stores the last part of it for each run: `trellis logs RUN --node N`, and
            /// the page. Values of variables of this node that look secret by their names are masked.
            "no-app-logs": Switch => config.apps.keeps_logs;

            /// Directory for data of apps (FLWR_HOME) [default: in the state directory]
            ///
            /// Only used with --sandbox off: in the sandbox each app has a separate directory.
            "flwr-dir" (AlsoIn("FLWR_HOME")) "DIR": Path => config.apps.flwr_home;
        },
        group! { "Warm apps";
            /// Stop an app that was idle for this long, 1s to 24h [default: 10m]
            "app-idle-timeout" "DURATION": Time { max: MAX_IDLE } => warm.idle;

            /// Replace an app that has grown beyond this, after its instruction [default: no limit]
            "app-recycle-memory" "SIZE": Size { min: MIN_RECYCLE, max: u64::MAX } => warm.recycle_bytes;

            /// Maximum number of idle apps, each for its run [default: 2]
            "max-idle-apps" "N": Count { default: Some(2), max: MAX_CONCURRENT } => warm.max_idle;

            /// Start a Python process for the next run in advance: `on` or `off` [default: on]
            "app-spare" "MODE": SPARES => warm.spare;
        },
        sandbox_group!(config.apps.sandbox),
        group! { "Resources of apps (limits need cgroup v2)";
            /// GPUs for apps: `none`, `all`, a number, or a list (0,1 or UUIDs) [default: as the environment says]
            "gpus" "GPUS", check |checker| checker.gpus(), show gpus, for "cuda-visible-devices";

            /// GPUs for apps, as CUDA_VISIBLE_DEVICES names them; instead of --gpus
            "cuda-visible-devices" "LIST", show devices;

            /// If a requested GPU is missing: `warn` and continue, or `refuse` to start [default: warn]
            "gpu-missing" "WHAT": WHEN_MISSING => config.resources.gpu_missing;

            /// Share of a GPU's memory that an app may take, above 0 and up to 1 [default: all]
            "gpu-memory-fraction" "SHARE": SHARE => config.resources.gpu_memory_fraction;

            /// CPUs for each app; 1.5 is one and a half [default: all]
            "app-cpus" "CPUS": CPUS => config.resources.app_cpus;

            /// Memory for each app [default: no limit]
            "app-memory" "SIZE": Size { min: MIN_APP_MEMORY, max: u64::MAX } => config.resources.app_memory_bytes;
        },
        group! { "Disk and transfer";
            /// Disk space for messages, replies and models [default: 20GiB]
            ///
            /// Above the limit the node takes no new instructions. It never drops replies.
            "disk-limit" "SIZE": Size { min: MIN_DISK, max: u64::MAX } => config.limits.disk_bytes;

            /// Bytes of models a second, each way: 10MB [default: no limit]
            "bandwidth-limit" "SIZE": Size { min: MIN_BANDWIDTH, max: u64::MAX } => config.limits.bandwidth;

            /// Parts of a model under way at once, 1 to 64 [default: 8]
            "parallel-transfers" "N": Count { default: Some(8), max: 64 } => config.limits.parallel_objects;
        },
        group! { "Addresses (IP:port; port 0 selects a free one)";
            /// Address of metrics for Prometheus, and /health, without TLS [default: not served]
            "metrics-address" "ADDRESS", show |checked| text(&checked.config.metrics_address?.to_string());

            /// Address of health checks (gRPC health protocol, without TLS) [default: not served]
            "health-server-address" "ADDRESS", show |checked| text(&checked.config.health_address?.to_string());

            /// Address for apps and SuperExecs [default: 127.0.0.1:9094 with --isolation process, else a free port]
            "clientappio-api-address" "ADDRESS", show |checked| text(&checked.config.apps.address.to_string());

            /// Later name of --clientappio-api-address
            "runtime-api-address" (OfFlower) "ADDRESS", for "clientappio-api-address";

            /// The host of the same address, as in Flower 1.36 and later
            "host" (OfFlower) "HOST", for "clientappio-api-address";

            /// The port of the same address, as in Flower 1.36 and later
            "port" (OfFlower) "PORT", for "clientappio-api-address";

            /// Secret that SuperExecs sign with (Flower 1.30 and later); only used with --isolation process
            ///
            /// The bytes of the file are the secret, the end of line too. With it, a SuperExec that does not sign gets no work.
            "superexec-auth-secret-file" "FILE", show |checked| path(checked.config.apps.superexec_secret.as_deref()?);
        },
        log_group!(),
        config_group!(),
        group! { "Flags of flower-supernode with little or no effect here";
            /// The same as --transport grpc
            "grpc-rere" (OfFlower), for "transport";

            /// Refused, as in later versions of Flower
            "grpc-adapter" (OfFlower);

            /// Refused, as in later versions of Flower
            "rest" (OfFlower);

            /// Ignored, as in Flower: the public key is part of the private one
            "auth-supernode-public-key" (OfFlower) "FILE";

            /// Not needed: the node and the apps it starts are on one machine. With --isolation process refused
            "ssl-certfile" (OfFlower) "FILE";

            /// As --ssl-certfile
            "ssl-keyfile" (OfFlower) "FILE";

            /// As --ssl-certfile
            "ssl-ca-certfile" (OfFlower) "FILE";

            /// Old name of --ssl-certfile
            "appio-ssl-certfile" (OfFlower) "FILE";

            /// Old name of --ssl-keyfile
            "appio-ssl-keyfile" (OfFlower) "FILE";

            /// Old name of --ssl-ca-certfile
            "appio-ssl-ca-certfile" (OfFlower) "FILE";
        },
    ],
    subcommands: |command| {
        let command = command.args_conflicts_with_subcommands(true).disable_help_subcommand(true);
        Question::augment_subcommands(command)
    },
};

// Sub-commands for a running node. A doc comment here would replace the help of the program.
#[derive(Debug, Subcommand)]
pub enum Question {
    Status(StatusArgs),
    Drain(DrainArgs),
}

/// The effective settings, without those that have no effect in this mode.
pub fn rows(checked: &Checked) -> Vec<Row> {
    let warm = matches!(checked.config.apps.mode, AppMode::Warm(_));
    let mut rows = print::rows(&SUPERNODE, checked);
    rows.retain(|(name, _)| warm || !OF_WARM_APPS.contains(name));
    rows.retain(|(name, _)| starts_apps(checked) || !OF_SANDBOX.contains(name));
    // The help has it among the apps; printed, it belongs to the sandbox.
    let [network, last] = ["app-network", "app-env"].map(|name| rows.iter().position(|row| row.0 == name));
    if let (Some(network), Some(last)) = (network, last) {
        rows[network..=last].rotate_left(1);
    }
    rows
}

/// Whether the node starts processes for apps.
fn starts_apps(checked: &Checked) -> bool {
    matches!(checked.config.apps.mode, AppMode::Warm(_) | AppMode::PerMessage)
}

fn superlink(checked: &Checked) -> Option<Value> {
    let target = &checked.config.superlink;
    let host = Host::parse(&target.host).ok()?;
    text(&Address { host, port: target.port }.to_string())
}

fn pauses(checked: &Checked) -> (&'static str, Duration, Option<Duration>) {
    match checked.config.retry.backoff {
        Backoff::Exponential { first, cap } => ("exponential", first, Some(cap)),
        Backoff::Fixed(pause) => ("fixed", pause, None),
    }
}

/// Name and settings of the app that is part of this program.
fn native(checked: &Checked) -> Option<(&str, Vec<String>)> {
    match &checked.config.apps.mode {
        AppMode::Native { name, settings } => {
            Some((name, settings.iter().map(|(key, value)| format!("{key}={value}")).collect()))
        }
        AppMode::Warm(_) | AppMode::PerMessage | AppMode::Process => None,
    }
}

fn gpus(checked: &Checked) -> Option<Value> {
    match &checked.config.resources.gpus {
        Gpus::Unset | Gpus::These(_) => None,
        Gpus::None => text("none"),
        Gpus::All => text("all"),
        Gpus::Count(count) => text(&count.to_string()),
    }
}

fn devices(checked: &Checked) -> Option<Value> {
    match &checked.config.resources.gpus {
        Gpus::These(devices) => text(&devices.join(",")),
        Gpus::Unset | Gpus::None | Gpus::All | Gpus::Count(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;
    use crate::settings::table::Shape;

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
        let flags = Flags::new("flower-supernode", &SUPERNODE);
        for name in switches {
            assert_eq!(flags.shape(name), Some(Shape::Switch), "{name}");
        }
        for name in values {
            assert_eq!(flags.shape(name), Some(Shape::Value), "{name}");
        }
    }
}
