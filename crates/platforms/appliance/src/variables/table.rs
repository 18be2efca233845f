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
const ROUNDS: Kind = Kind::Whole(1, 1_000_000);
const CLIENTS: Kind = Kind::Whole(1, 100_000);
/// A day: who waits longer does not wait, but has forgotten.
const SECONDS: Kind = Kind::Whole(1, 86_400);
const ANY_NUMBER: Kind = Kind::Whole(0, u64::MAX);
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

/// In the order in which the reference shows them.
#[rustfmt::skip]
pub static VARIABLES: &[Variable] = &[
    // Of every role.
    of(ALL, "FL_ROLE", Kind::Choice(&["superlink", "supernode", "gateway"]), "", "What the VM is, where it is not what its image is for",
        "Which program is started. Without it the image decides (/etc/trellis/role).").not_asked(),
    of(ALL, "FL_LOG_LEVEL", Kind::Choice(LEVELS), "INFO", "How much is logged", "The level of the program, and of the apps that it starts."),
    of(ALL, "FL_LOG_FORMAT", Kind::Choice(&["text", "json"]), "text", "Log lines for people or for programs", "Lines of the log are text, or one JSON object each."),
    of(ALL, "FL_ROUTES", Kind::Routes, "", "Networks that are reached by way of a gateway", "Each route is set while the agent runs, so that other sites answer."),
    of(ALL, "FL_DEFER_RECONFIGURE", Kind::Switch, "YES", "A changed setting waits for the end of the round", "YES: a program is not started again while it is at work. NO: at once."),
    // Of SuperLink and SuperNode.
    of(BOTH, "FL_RUNTIME", Kind::Choice(&["trellis", "flower"]), "trellis", "Whose programs run: ours, or those of Flower", "trellis: this program is SuperLink and SuperNode. flower: flower-superlink and flower-supernode are."),
    of(BOTH, "FL_FLOWER_BY", Kind::Choice(&["packages", "docker", "podman"]), "packages", "Where the programs of Flower come from", "With FL_RUNTIME=flower: the packages of the image, or containers."),
    of(BOTH, "FLOWER_VERSION", Kind::Version, "", "Version of Flower whose apps run, 1.25.0 to 1.42.x", "The same on both sides: a SuperNode whose first two numbers differ from its SuperLink says so and does not start. Without it the newest that is known."),
    of(BOTH, "FL_ISOLATION", Kind::Choice(&["subprocess", "process"]), "subprocess", "Who starts the processes of apps", "subprocess: the program itself. process: others, which call its own API."),
    of(BOTH, "FL_TLS_ENABLED", Kind::Switch, "YES", "Encrypt and authenticate the SuperLink", "YES: the SuperLink has a certificate and SuperNodes check it. NO: nothing is encrypted."),
    of(BOTH, "FL_SSL_CA_CERTFILE", Kind::Pem, "", "Certificate of the authority to trust", "SuperLink: certificates of the operator, together with FL_SSL_CERTFILE and FL_SSL_KEYFILE. SuperNode: trusted in place of what OneGate tells."),
    of(BOTH, "FL_GRPC_KEEPALIVE_TIME", SECONDS, "60", "Seconds of silence after which a connection is probed", "The interval of keepalives; the SuperLink allows it to its nodes."),
    of(BOTH, "FL_GRPC_KEEPALIVE_TIMEOUT", SECONDS, "20", "Seconds within which a probe must be answered", "A connection without an answer for so long is given up and opened anew. Below FL_GRPC_KEEPALIVE_TIME."),
    of(BOTH, "FL_USE_CASE", Kind::Choice(USE_CASES), "none", "An app that comes with the appliance", "SuperLink: the app is submitted with the settings of training when enough nodes are there. SuperNode: what the app needs is checked at the start. none: those settings are the defaults of every run."),
    // Of the SuperLink: where it listens.
    of(LINK, "FL_FLEET_API_ADDRESS", Kind::Listen, "0.0.0.0:9092", "Where SuperNodes connect", "The Fleet API listens there; the port is part of what nodes are told."),
    of(LINK, "FL_CONTROL_API_ADDRESS", Kind::Listen, "0.0.0.0:9093", "Where users and the control plane connect", "The Control API listens there."),
    of(LINK, "FL_HTTP_API_ADDRESS", Kind::Listen, "0.0.0.0:8000", "Where Flower 1.37 and later connect, and our own commands", "The HTTP API listens there, with the runtime trellis; official programs have it at the port of the Fleet API."),
    of(LINK, "FL_ALLOWED_NETWORKS", Kind::Networks, "", "Networks that may reach the Fleet API beside the own", "The firewall of the VM lets them in. Without it only networks of the VM itself."),
    of(LINK, "FL_STATE_DISK", Kind::Word, "", "A disk of its own for the state, /dev/vdb", "Mounted at /var/lib/trellis before anything starts, so that runs, accounts and the authority outlive the VM; formatted if it is wholly empty."),
    of(LINK, "FL_DATABASE", Kind::RelativePath, "state/state.db", "File of the state, below the state directory", "The SuperLink keeps its state there."),
    // Of the SuperLink: who is trusted.
    of(LINK, "FL_SSL_CERTFILE", Kind::Pem, "", "Certificate of the SuperLink, with those between it and the authority", "It is served, after a check that it fits key, authority, names and time."),
    of(LINK, "FL_SSL_KEYFILE", Kind::Pem, "", "Private key of that certificate", "It is used with FL_SSL_CERTFILE; any kind of key.").secret(),
    of(LINK, "FL_CERT_EXTRA_SAN", Kind::Names, "", "More names for the certificate that the SuperLink makes", "Nodes may call it by these names and addresses too, also IPv6."),
    of(LINK, "FL_NODE_AUTH", Kind::Switch, "NO", "Only nodes with a join token may take part", "YES: a node proves who it is; it is enrolled by FL_JOIN_TOKEN."),
    of(LINK, "FL_ADMIN_TOKEN", Kind::Word, "", "Token of the first administrator", "It is valid from the start. Without it one is made and kept in the VM.").secret(),
    // Of the SuperLink: metrics.
    of(LINK, "FL_METRICS_ENABLED", Kind::Switch, "NO", "Serve metrics for Prometheus", "YES: /metrics at FL_METRICS_PORT."),
    of(LINK, "FL_METRICS_PORT", Kind::Whole(1024, 65_535), "9101", "Port of the metrics", "Where they are served; no port that is taken already."),
    // Of the SuperLink: training.
    of(LINK, "FL_NUM_ROUNDS", ROUNDS, "3", "Rounds of a run", "num-server-rounds of runs."),
    of(LINK, "FL_STRATEGY", Kind::Choice(&STRATEGIES), "FedAvg", "How replies become the next model", "strategy of runs."),
    of(LINK, "FL_MIN_FIT_CLIENTS", CLIENTS, "2", "At least so many nodes train in a round", "min-train-nodes of runs."),
    of(LINK, "FL_MIN_EVALUATE_CLIENTS", CLIENTS, "2", "At least so many nodes evaluate in a round", "min-evaluate-nodes of runs."),
    of(LINK, "FL_MIN_AVAILABLE_CLIENTS", CLIENTS, "2", "A round begins when so many nodes are there", "min-available-nodes of runs; the app of FL_USE_CASE waits for so many."),
    of(LINK, "FL_PROXIMAL_MU", NOT_NEGATIVE, "1.0", "FedProx: how strongly nodes are held near the model", "proximal-mu of runs."),
    of(LINK, "FL_SERVER_LR", ABOVE_ZERO, "0.1", "FedAdam and others: learning rate of the server", "server-lr of runs."),
    of(LINK, "FL_CLIENT_LR", ABOVE_ZERO, "0.1", "FedAdam and others: learning rate of the nodes", "client-lr of runs."),
    of(LINK, "FL_NUM_MALICIOUS", Kind::Whole(0, 100_000), "0", "Krum, MultiKrum, Bulyan: so many nodes may lie", "num-malicious of runs. Krum needs 2f+3 nodes, Bulyan 4f+3."),
    of(LINK, "FL_TRIM_BETA", BELOW_HALF, "0.2", "FedTrimmedAvg: share that is cut off at each end", "trim-beta of runs."),
    of(LINK, "FL_CHECKPOINT_ENABLED", Kind::Switch, "YES", "Keep checkpoints of the model", "YES: a run that is interrupted goes on from the last one."),
    of(LINK, "FL_CHECKPOINT_INTERVAL", ROUNDS, "5", "Rounds between two checkpoints", "checkpoint-interval of runs; the last round is always kept."),
    of(LINK, "FL_CHECKPOINT_PATH", Kind::AbsolutePath, "", "Directory of the checkpoints", "The SuperLink keeps models and checkpoints there, and takes up a ServerApp that died from them. Without it models in the state directory."),
    // Of the SuperNode.
    of(NODE, "FL_SUPERLINK_ADDRESS", Kind::Authority, "", "Fleet API of the SuperLink; without it OneGate tells", "The node connects there."),
    of(NODE, "FL_NODE_CONFIG", Kind::NodeConfig, "", "What apps are told about the node", "The node config. partition-id and num-partitions are added where they are not said."),
    of(NODE, "FL_MAX_RETRIES", ANY_NUMBER, "0", "So often a lost SuperLink is called again; 0: always", "0: the node never gives up. Otherwise it ends after so many attempts."),
    of(NODE, "FL_MAX_WAIT_TIME", ANY_NUMBER, "0", "So many seconds a lost SuperLink is called; 0: for ever", "0: the node never gives up. Otherwise it ends after so many seconds."),
    of(NODE, "FL_FRAMEWORK", Kind::Choice(&["none", "pytorch", "tensorflow", "sklearn"]), "none", "Framework that the apps of this node need", "The node does not become ready without it. none: nothing but Python; apps that come with the program do without too.").also(&["ML_FRAMEWORK"]),
    of(NODE, "FL_CLIENT_APP", Kind::Word, "", "An app of the appliance itself, like native:mlp", "It carries out instructions in place of the apps that runs bring."),
    of(NODE, "FL_JOIN_TOKEN", Kind::Word, "", "With FL_NODE_AUTH: what the node joins with", "The node is enrolled by it once, with a key that it makes itself.").secret(),
    of(NODE, "FL_GPU_ENABLED", Kind::Switch, "NO", "Let apps use GPUs", "YES: GPUs are looked for and given to apps. NO: apps see none."),
    of(NODE, "FL_GPU_FALLBACK", Kind::Switch, "YES", "Go on with the CPU where no GPU is found", "NO: without a GPU the node does not become ready."),
    of(NODE, "FL_CUDA_VISIBLE_DEVICES", Kind::Devices, "all", "Which GPUs apps see", "CUDA_VISIBLE_DEVICES of the apps."),
    of(NODE, "FL_GPU_MEMORY_FRACTION", SHARE, "0.8", "Share of the memory of a GPU that an app may take", "Apps are told (TRELLIS_GPU_MEMORY_FRACTION), and those with PyTorch are held to it."),
    of(NODE, "FL_DCGM_ENABLED", Kind::Switch, "NO", "Metrics of the GPUs at port 9400", "YES: dcgm-exporter is started where the image has it."),
    of(NODE, "FL_EDGE_BACKOFF", Kind::Choice(&["exponential", "fixed"]), "exponential", "Waits between attempts to find the SuperLink", "They double up to the longest, or are all alike."),
    of(NODE, "FL_EDGE_MAX_BACKOFF", SECONDS, "300", "The longest of these waits, in seconds", "No wait is longer."),
    // Of the gateway.
    of(GATE, "WG_PRIVATE_KEY", Kind::WireGuardKey, "", "Private key of this gateway", "The tunnel is opened with it.").secret(),
    of(GATE, "WG_LOCAL_ADDRESS", Kind::Interface, "", "Address of this gateway in the tunnel", "The interface of the tunnel has it."),
    of(GATE, "WG_LISTEN_PORT", Kind::Whole(1, 65_535), "51820", "UDP port of the tunnel", "WireGuard listens there."),
    of(GATE, "WG_MTU", Kind::Whole(1280, 9000), "1420", "Largest packet in the tunnel", "MTU of the interface."),
    of(GATE, "WG_PEER_PUBLIC_KEY", Kind::WireGuardKey, "", "Public key of the gateway on the other side", "Only who has its private key may use the tunnel.").of_each_peer(),
    of(GATE, "WG_PEER_ENDPOINT", Kind::Authority, "", "Where the other gateway is reached; without it that one calls", "The tunnel is opened towards it.").of_each_peer(),
    of(GATE, "WG_PEER_ALLOWED_IPS", Kind::Networks, "", "Networks behind the other gateway", "Packets for them go into the tunnel, and only theirs come out of it.").of_each_peer(),
    of(GATE, "WG_PEER_KEEPALIVE", Kind::Whole(0, 65_535), "25", "Seconds between signs of life; 0: none", "They keep the way through a NAT open.").of_each_peer(),
    // Of OpenNebula.
    of(ALL, "REPORT_READY", Kind::Switch, "NO", "Tell OneFlow that the VM is ready", "YES: READY is YES exactly while the program serves, else NO.").at_bootstrap().not_asked(),
    of(ALL, "READY_SCRIPT_PATH", Kind::AbsolutePath, "", "A program that is asked too before the VM is ready", "READY is YES only while it ends with 0.").at_bootstrap().not_asked(),
    of(ALL, "READY_SCRIPT", Kind::Any, "", "The text of such a program", "None here.").refused("a program that comes with the context is not run"),
    of(ALL, "TOKEN", Kind::Switch, "YES", "A token for OneGate", "NO: nothing can be published or found through OneGate, which is warned of.").not_asked(),
    of(ALL, "NETWORK", Kind::Any, "", "Set up the network of the guest", "The interfaces of the VM.").elsewhere("the context packages"),
    of(ALL, "SSH_PUBLIC_KEY", Kind::Any, "", "Who may log in", "Keys of root.").elsewhere("the context packages"),
    of(ALL, "START_SCRIPT_BASE64", Kind::Any, "", "A script of the operator", "It is run after the appliance was started, so it cannot prepare anything for it.").elsewhere("the context packages"),
];
