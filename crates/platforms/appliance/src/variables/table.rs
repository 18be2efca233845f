//! The table itself.

use trellis_spec::STRATEGIES;

use super::{Bounds, Kind, Stage, Status, Variable};
use crate::settings::Role;

const LINK: &[Role] = &[Role::SuperLink];
const NODE: &[Role] = &[Role::SuperNode];
const GATE: &[Role] = &[Role::Gateway];
const BOTH: &[Role] = &[Role::SuperLink, Role::SuperNode];
const ALL: &[Role] = &[Role::SuperLink, Role::SuperNode, Role::Gateway];

const ABOVE_ZERO: Kind = Kind::Number(Bounds { low: 0.0, high: f64::INFINITY, with_low: false, with_high: false });
const NOT_NEGATIVE: Kind = Kind::Number(Bounds { low: 0.0, high: f64::INFINITY, with_low: true, with_high: false });
const BELOW_HALF: Kind = Kind::Number(Bounds { low: 0.0, high: 0.5, with_low: false, with_high: false });
const SHARE: Kind = Kind::Number(Bounds { low: 0.0, high: 1.0, with_low: false, with_high: true });
const ROUNDS: Kind = Kind::Integer(1, 1_000_000);
const CLIENTS: Kind = Kind::Integer(1, 100_000);
/// One day.
const SECONDS: Kind = Kind::Integer(1, 86_400);
const ANY_NUMBER: Kind = Kind::Integer(0, u64::MAX);
const USE_CASES: &[&str] = &["none", "image-classification", "anomaly-detection", "llm-fine-tuning"];
const LEVELS: &[&str] = &["DEBUG", "INFO", "WARNING", "ERROR"];

const fn of(
    roles: &'static [Role],
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
    effect: &'static str,
) -> Variable {
    Variable {
        name,
        aliases: &[],
        roles,
        kind,
        default,
        about,
        effect,
        stage: Stage::Configure,
        secret: false,
        numbered: false,
        asked: true,
        status: Status::Effective,
    }
}

impl Variable {
    const fn secret(mut self) -> Variable {
        self.secret = true;
        self
    }

    const fn also(mut self, aliases: &'static [&'static str]) -> Variable {
        self.aliases = aliases;
        self
    }

    const fn of_each_peer(mut self) -> Variable {
        self.numbered = true;
        self
    }

    const fn not_asked(mut self) -> Variable {
        self.asked = false;
        self
    }

    const fn at_bootstrap(mut self) -> Variable {
        self.stage = Stage::Bootstrap;
        self
    }

    const fn elsewhere(mut self, owner: &'static str) -> Variable {
        self.status = Status::Elsewhere { owner };
        self.not_asked()
    }

    const fn refused(mut self, why: &'static str) -> Variable {
        self.status = Status::Refused { why };
        self.not_asked()
    }
}

/// In the order of the reference.
#[rustfmt::skip]
pub static VARIABLES: &[Variable] = &[
    // All roles.
    of(ALL, "FL_ROLE", Kind::Choice(&["superlink", "supernode", "gateway"]), "", "Role of the VM, if it differs from that of the image",
        "Selects the program. Default: the role of the image (/etc/trellis/role).").not_asked(),
    of(ALL, "FL_LOG_LEVEL", Kind::Choice(LEVELS), "INFO", "Log level", "Level of the program and of the apps that it starts."),
    of(ALL, "FL_LOG_FORMAT", Kind::Choice(&["text", "json"]), "text", "Format of log lines", "Lines of the log are text, or one JSON object each."),
    of(ALL, "FL_ROUTES", Kind::Routes, "", "Networks behind a gateway", "The agent adds each route, so that other sites are reachable."),
    of(ALL, "FL_DEFER_RECONFIGURE", Kind::Switch, "YES", "Apply changed settings after the round", "YES: a busy program is not restarted. NO: programs restart at once."),
    // SuperLink and SuperNode.
    of(BOTH, "FL_RUNTIME", Kind::Choice(&["trellis", "flower"]), "trellis", "Programs of Trellis, or of Flower", "trellis: runs the SuperLink and SuperNode of Trellis. flower: runs flower-superlink and flower-supernode."),
    of(BOTH, "FL_FLOWER_BY", Kind::Choice(&["packages", "docker", "podman"]), "packages", "Source of the Flower programs", "With FL_RUNTIME=flower: the packages of the image, or containers."),
    of(BOTH, "FLOWER_VERSION", Kind::Version, "", "Version of Flower for the apps, 1.25.0 to 1.42.x", "The same on both sides: a SuperNode does not start if its major or minor version differs from that of the SuperLink. Default: the newest supported version."),
    of(BOTH, "FL_ISOLATION", Kind::Choice(&["subprocess", "process"]), "subprocess", "Isolation of app processes", "subprocess: the program starts them. process: a SuperExec starts them and calls its API."),
    of(BOTH, "FL_TLS_ENABLED", Kind::Switch, "YES", "Encrypt and authenticate connections to the SuperLink", "YES: the SuperLink has a certificate and SuperNodes verify it. NO: connections are not encrypted."),
    of(BOTH, "FL_SSL_CA_CERTFILE", Kind::Pem, "", "Certificate of the authority to trust", "SuperLink: certificates of the operator, together with FL_SSL_CERTFILE and FL_SSL_KEYFILE. SuperNode: trusted instead of the authority in OneGate."),
    of(BOTH, "FL_GRPC_KEEPALIVE_TIME", SECONDS, "60", "Seconds between keepalive probes", "Interval of keepalives; the SuperLink accepts it from its nodes."),
    of(BOTH, "FL_GRPC_KEEPALIVE_TIMEOUT", SECONDS, "20", "Timeout of a keepalive probe in seconds", "A connection without a response is closed and opened again. Below FL_GRPC_KEEPALIVE_TIME."),
    of(BOTH, "FL_USE_CASE", Kind::Choice(USE_CASES), "none", "App of the appliance", "SuperLink: submits the app with the training settings when enough nodes are connected. SuperNode: checks the requirements of the app at the start. none: the training settings are the defaults of every run."),
    // SuperLink: addresses.
    of(LINK, "FL_FLEET_API_ADDRESS", Kind::Listen, "0.0.0.0:9092", "Address of the Fleet API, for SuperNodes", "The Fleet API listens there; its port is published to nodes."),
    of(LINK, "FL_CONTROL_API_ADDRESS", Kind::Listen, "0.0.0.0:9093", "Address of the Control API, for users and the control plane", "The Control API listens there."),
    of(LINK, "FL_HTTP_API_ADDRESS", Kind::Listen, "0.0.0.0:8000", "Address of the HTTP API, for Flower 1.37 and later and our commands", "The HTTP API listens there with the runtime trellis; official programs serve it at the port of the Fleet API."),
    of(LINK, "FL_ALLOWED_NETWORKS", Kind::Networks, "", "Further networks that may reach the Fleet API", "The firewall of the VM admits them. Default: only the networks of the VM."),
    of(LINK, "FL_STATE_DISK", Kind::Word, "", "Separate disk for the state, /dev/vdb", "Mounted at /var/lib/trellis before the programs start, so that runs, accounts and the authority outlive the VM; formatted if it is completely empty."),
    of(LINK, "FL_DATABASE", Kind::RelativePath, "state/state.db", "Database file, below the state directory", "The SuperLink stores its state there."),
    // SuperLink: trust.
    of(LINK, "FL_SSL_CERTFILE", Kind::Pem, "", "Certificate of the SuperLink, with intermediate certificates", "Served after validation against key, authority, names and dates."),
    of(LINK, "FL_SSL_KEYFILE", Kind::Pem, "", "Private key of that certificate", "Used with FL_SSL_CERTFILE; any key type.").secret(),
    of(LINK, "FL_CERT_EXTRA_SAN", Kind::Names, "", "Further names for the certificate that the SuperLink issues", "Nodes may connect to these names and addresses, including IPv6."),
    of(LINK, "FL_NODE_AUTH", Kind::Switch, "NO", "Only nodes with a join token may take part", "YES: nodes authenticate; FL_JOIN_TOKEN enrols them."),
    of(LINK, "FL_ADMIN_TOKEN", Kind::Word, "", "Token of the first administrator", "Valid from the start. Default: a token that is generated in the VM.").secret(),
    // SuperLink: metrics.
    of(LINK, "FL_METRICS_ENABLED", Kind::Switch, "NO", "Serve metrics for Prometheus", "YES: /metrics at FL_METRICS_PORT."),
    of(LINK, "FL_METRICS_PORT", Kind::Integer(1024, 65_535), "9101", "Port of the metrics", "Must differ from the other ports."),
    // SuperLink: training.
    of(LINK, "FL_NUM_ROUNDS", ROUNDS, "3", "Rounds of a run", "num-server-rounds of runs."),
    of(LINK, "FL_STRATEGY", Kind::Choice(&STRATEGIES), "FedAvg", "Aggregation strategy", "strategy of runs."),
    of(LINK, "FL_MIN_FIT_CLIENTS", CLIENTS, "2", "Minimum number of nodes that train in a round", "min-train-nodes of runs."),
    of(LINK, "FL_MIN_EVALUATE_CLIENTS", CLIENTS, "2", "Minimum number of nodes that evaluate in a round", "min-evaluate-nodes of runs."),
    of(LINK, "FL_MIN_AVAILABLE_CLIENTS", CLIENTS, "2", "Number of connected nodes that a round requires", "min-available-nodes of runs; the app of FL_USE_CASE waits for them."),
    of(LINK, "FL_PROXIMAL_MU", NOT_NEGATIVE, "1.0", "FedProx: proximal term", "proximal-mu of runs."),
    of(LINK, "FL_SERVER_LR", ABOVE_ZERO, "0.1", "FedAdam and others: learning rate of the server", "server-lr of runs."),
    of(LINK, "FL_CLIENT_LR", ABOVE_ZERO, "0.1", "FedAdam and others: learning rate of the nodes", "client-lr of runs."),
    of(LINK, "FL_NUM_MALICIOUS", Kind::Integer(0, 100_000), "0", "Krum, MultiKrum, Bulyan: number of malicious nodes to tolerate", "num-malicious of runs. Krum needs 2f+3 nodes, Bulyan 4f+3."),
    of(LINK, "FL_TRIM_BETA", BELOW_HALF, "0.2", "FedTrimmedAvg: share that is trimmed at each end", "trim-beta of runs."),
    of(LINK, "FL_CHECKPOINT_ENABLED", Kind::Switch, "YES", "Save checkpoints of the model", "YES: an interrupted run resumes from the last one."),
    of(LINK, "FL_CHECKPOINT_INTERVAL", ROUNDS, "5", "Rounds between two checkpoints", "checkpoint-interval of runs; the last round is always saved."),
    of(LINK, "FL_CHECKPOINT_PATH", Kind::AbsolutePath, "", "Directory of the checkpoints", "The SuperLink stores models and checkpoints there, and resumes a ServerApp that died. Default: models in the state directory."),
    // SuperNode.
    of(NODE, "FL_SUPERLINK_ADDRESS", Kind::Authority, "", "Fleet API of the SuperLink; default: discovery through OneGate", "The node connects there."),
    of(NODE, "FL_NODE_CONFIG", Kind::NodeConfig, "", "Node config of the apps", "partition-id and num-partitions are added if they are missing."),
    of(NODE, "FL_MAX_RETRIES", ANY_NUMBER, "0", "Maximum number of reconnection attempts; 0: no limit", "The node ends after this number of attempts. 0: it never gives up."),
    of(NODE, "FL_MAX_WAIT_TIME", ANY_NUMBER, "0", "Maximum reconnection time in seconds; 0: no limit", "The node ends after this time. 0: it never gives up."),
    of(NODE, "FL_FRAMEWORK", Kind::Choice(&["none", "pytorch", "tensorflow", "sklearn"]), "none", "Framework that the apps of this node need", "The node does not become ready without it. none: only Python; built-in apps do not require it either.").also(&["ML_FRAMEWORK"]),
    of(NODE, "FL_CLIENT_APP", Kind::Word, "", "Built-in app, like native:mlp", "Executes instructions instead of the apps of runs."),
    of(NODE, "FL_JOIN_TOKEN", Kind::Word, "", "With FL_NODE_AUTH: token of the node", "Enrols the node once, with a key that the node generates.").secret(),
    of(NODE, "FL_GPU_ENABLED", Kind::Switch, "NO", "Let apps use GPUs", "YES: apps may use the GPUs of the VM. NO: apps see none."),
    of(NODE, "FL_GPU_FALLBACK", Kind::Switch, "YES", "Use the CPU if there is no GPU", "NO: without a GPU the node does not become ready."),
    of(NODE, "FL_CUDA_VISIBLE_DEVICES", Kind::Devices, "all", "Which GPUs apps see", "CUDA_VISIBLE_DEVICES of the apps."),
    of(NODE, "FL_GPU_MEMORY_FRACTION", SHARE, "0.8", "Share of the memory of a GPU that an app may take", "Passed to apps as TRELLIS_GPU_MEMORY_FRACTION, and enforced for PyTorch."),
    of(NODE, "FL_DCGM_ENABLED", Kind::Switch, "NO", "Metrics of the GPUs at port 9400", "YES: starts dcgm-exporter if the image has it."),
    of(NODE, "FL_EDGE_BACKOFF", Kind::Choice(&["exponential", "fixed"]), "exponential", "Backoff of discovery", "exponential: delays double up to FL_EDGE_MAX_BACKOFF. fixed: delays are equal."),
    of(NODE, "FL_EDGE_MAX_BACKOFF", SECONDS, "300", "Maximum backoff of discovery in seconds", "Upper limit of the delay."),
    // Gateway.
    of(GATE, "WG_PRIVATE_KEY", Kind::WireGuardKey, "", "Private key of this gateway", "Authenticates the gateway.").secret(),
    of(GATE, "WG_LOCAL_ADDRESS", Kind::Interface, "", "Address of this gateway in the tunnel", "Address of the tunnel interface."),
    of(GATE, "WG_LISTEN_PORT", Kind::Integer(1, 65_535), "51820", "UDP port of the tunnel", "WireGuard listens there."),
    of(GATE, "WG_MTU", Kind::Integer(1280, 9000), "1420", "MTU of the tunnel", "MTU of the interface."),
    of(GATE, "WG_PEER_PUBLIC_KEY", Kind::WireGuardKey, "", "Public key of the gateway on the other side", "The peer must have the matching private key.").of_each_peer(),
    of(GATE, "WG_PEER_ENDPOINT", Kind::Authority, "", "Address of the other gateway; default: the other gateway connects", "The gateway connects to it.").of_each_peer(),
    of(GATE, "WG_PEER_ALLOWED_IPS", Kind::Networks, "", "Networks behind the other gateway", "Packets to and from these networks use the tunnel.").of_each_peer(),
    of(GATE, "WG_PEER_KEEPALIVE", Kind::Integer(0, 65_535), "25", "Keepalive interval in seconds; 0: none", "Keeps NAT mappings open.").of_each_peer(),
    // OpenNebula.
    of(ALL, "REPORT_READY", Kind::Switch, "NO", "Report readiness to OneFlow", "YES: READY is YES while the program serves, otherwise NO.").at_bootstrap().not_asked(),
    of(ALL, "READY_SCRIPT_PATH", Kind::AbsolutePath, "", "Program with an additional readiness check", "READY is YES only while it exits with 0.").at_bootstrap().not_asked(),
    of(ALL, "READY_SCRIPT", Kind::Any, "", "Text of such a program", "None.").refused("programs in the context are not executed"),
    of(ALL, "TOKEN", Kind::Switch, "YES", "Token for OneGate", "NO: OneGate cannot be used, which causes a warning.").not_asked(),
    of(ALL, "NETWORK", Kind::Any, "", "Configure the network of the guest", "The interfaces of the VM.").elsewhere("the context packages"),
    of(ALL, "SSH_PUBLIC_KEY", Kind::Any, "", "SSH keys", "Keys of root.").elsewhere("the context packages"),
    of(ALL, "START_SCRIPT_BASE64", Kind::Any, "", "Script of the operator", "Runs after the start of the appliance, so it cannot prepare it.").elsewhere("the context packages"),
];
