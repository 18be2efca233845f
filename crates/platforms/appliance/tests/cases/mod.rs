//! At least one case for every declared variable: the setting that it changes, or the reason of its rejection. Other tests
//! use the same list.

use serde_json::{Value, json};
use trellis_appliance::settings::Role::{self, Gateway, SuperLink, SuperNode};

pub struct Case {
    pub variable: &'static str,
    pub role: Role,
    /// The variable under test comes first.
    pub said: Vec<(&'static str, String)>,
    pub then: Then,
}

pub enum Then {
    /// This path of the settings has this value, and a different one without the variable.
    Is(&'static str, Value),
    Refused(&'static str),
    Warned(&'static str),
    /// The variable belongs to another program: settings and warnings do not change.
    Untouched,
}

pub const CA: &str = include_str!("../data/ca.pem");
pub const CERTIFICATE: &str = include_str!("../data/server.pem");
pub const KEY: &str = include_str!("../data/server.key");
pub const ADMIN: &str = "a-secret-token-that-nobody-guesses";
pub const ONE_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub const OTHER_KEY: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

fn case(variable: &'static str, value: &str, role: Role, then: Then) -> Case {
    Case { variable, role, said: vec![(variable, value.to_owned())], then }
}

fn is(variable: &'static str, value: &str, role: Role, at: &'static str, expected: Value) -> Case {
    case(variable, value, role, Then::Is(at, expected))
}

impl Case {
    fn with(mut self, others: &[(&'static str, &str)]) -> Case {
        self.said.extend(others.iter().map(|(name, value)| (*name, (*value).to_owned())));
        self
    }
}

fn run(variable: &'static str, value: &str, at: &'static str, expected: Value) -> Case {
    is(variable, value, SuperLink, at, expected)
}

pub fn all() -> Vec<Case> {
    [common(), superlink(), training(), supernode(), gateway()].into_iter().flatten().collect()
}

fn common() -> Vec<Case> {
    vec![
        is("FL_ROLE", "supernode", SuperLink, "/role/supernode/framework", json!("none")),
        is("FL_LOG_LEVEL", "debug", SuperNode, "/common/log_level", json!("debug")),
        is("FL_LOG_FORMAT", "json", Role::SuperLink, "/common/json_logs", json!(true)),
        is(
            "FL_ROUTES",
            "10.66.0.0/24 via 10.0.0.5, fd00:66::/64 via fd00::5",
            SuperNode,
            "/common/routes",
            json!([{"destination": "10.66.0.0/24", "via": "10.0.0.5"}, {"destination": "fd00:66::/64", "via": "fd00::5"}]),
        ),
        is("FL_DEFER_RECONFIGURE", "NO", SuperLink, "/common/defer_while_training", json!(false)),
        is("FL_RUNTIME", "flower", SuperLink, "/common/runtime", json!({"flower": {"by": "packages"}})),
        is("FL_FLOWER_BY", "podman", SuperNode, "/common/runtime", json!({"flower": {"by": "podman"}}))
            .with(&[("FL_RUNTIME", "flower")]),
        is("FLOWER_VERSION", "1.40.2", SuperLink, "/common/flower_version", json!("1.40.2")),
        case("FLOWER_VERSION", "1.24.0", SuperLink, Then::Refused("apps of that version are not supported")),
        is("FL_ISOLATION", "process", SuperNode, "/common/isolation", json!("process")),
        is("FL_TLS_ENABLED", "no", SuperNode, "/common/tls", json!(false)),
        is("FL_GRPC_KEEPALIVE_TIME", "120", SuperLink, "/common/keepalive/interval/secs", json!(120)),
        case("FL_GRPC_KEEPALIVE_TIME", "5", SuperNode, Then::Warned("proxies may reject"))
            .with(&[("FL_GRPC_KEEPALIVE_TIMEOUT", "2")]),
        is("FL_GRPC_KEEPALIVE_TIMEOUT", "30", SuperNode, "/common/keepalive/timeout/secs", json!(30)),
        case("FL_GRPC_KEEPALIVE_TIMEOUT", "60", SuperLink, Then::Refused("the next probe follows after 60 s")),
        is("FL_USE_CASE", "anomaly-detection", SuperLink, "/role/superlink/use_case", json!("anomaly-detection")),
        is("FL_USE_CASE", "anomaly-detection", SuperNode, "/role/supernode/use_case", json!("anomaly-detection")),
        is("REPORT_READY", "YES", Gateway, "/common/report_ready", json!(true)).with(&GATEWAY),
        is("READY_SCRIPT_PATH", "/opt/check", SuperNode, "/common/ready_script", json!("/opt/check")),
        case("READY_SCRIPT", "ZXhpdCAw", SuperNode, Then::Refused("are not executed")),
        case("TOKEN", "NO", SuperLink, Then::Warned("OneGate cannot be used")),
        case("NETWORK", "YES", SuperLink, Then::Untouched),
        case("SSH_PUBLIC_KEY", "ssh-ed25519 AAAA one\nssh-ed25519 AAAA two", SuperNode, Then::Untouched),
        case("START_SCRIPT_BASE64", "ZXhpdCAw", SuperNode, Then::Untouched),
    ]
}

fn superlink() -> Vec<Case> {
    let operators = [("FL_SSL_CA_CERTFILE", CA), ("FL_SSL_CERTFILE", CERTIFICATE), ("FL_SSL_KEYFILE", KEY)];
    let without = |name: &str| operators.into_iter().filter(|(other, _)| *other != name).collect::<Vec<_>>();
    let operator = |name, value, at, part: &str| run(name, value, at, json!(part.trim())).with(&without(name));
    vec![
        run("FL_FLEET_API_ADDRESS", "[::]:19092", "/role/superlink/fleet", json!("[::]:19092")),
        run("FL_CONTROL_API_ADDRESS", "127.0.0.1:9093", "/role/superlink/control", json!("127.0.0.1:9093")),
        run("FL_HTTP_API_ADDRESS", "127.0.0.1:8001", "/role/superlink/http", json!("127.0.0.1:8001")),
        run(
            "FL_ALLOWED_NETWORKS",
            "10.1.0.0/16,fd00::/64",
            "/role/superlink/allowed_networks",
            json!(["10.1.0.0/16", "fd00::/64"]),
        ),
        run("FL_STATE_DISK", "/dev/vdb", "/role/superlink/state_disk", json!("/dev/vdb")),
        case("FL_STATE_DISK", "/dev/../etc", SuperLink, Then::Refused("it is invalid")),
        run("FL_DATABASE", "other/x.db", "/role/superlink/database", json!("other/x.db")),
        case("FL_DATABASE", "../x.db", SuperLink, Then::Refused("it is invalid")),
        operator("FL_SSL_CA_CERTFILE", CA, "/role/superlink/certificates/operator/ca", CA),
        operator("FL_SSL_CERTFILE", CERTIFICATE, "/role/superlink/certificates/operator/certificate", CERTIFICATE),
        operator("FL_SSL_KEYFILE", KEY, "/role/superlink/certificates/operator/key", KEY),
        case("FL_SSL_CERTFILE", CERTIFICATE, SuperLink, Then::Refused("it is missing")),
        is("FL_SSL_CA_CERTFILE", CA, SuperNode, "/role/supernode/trust", json!(CA.trim())),
        run(
            "FL_CERT_EXTRA_SAN",
            "IP:203.0.113.5,ip:2001:db8::5,DNS:fl.example.org",
            "/role/superlink/certificates/own/extra",
            json!([{"ip": "203.0.113.5"}, {"ip": "2001:db8::5"}, {"dns": "fl.example.org"}]),
        ),
        run("FL_NODE_AUTH", "YES", "/role/superlink/node_auth", json!(true)),
        run("FL_ADMIN_TOKEN", ADMIN, "/role/superlink/admin_token", json!(ADMIN)),
        case("FL_ADMIN_TOKEN", "secret-token", SuperLink, Then::Refused("the minimum is 32")),
        run("FL_METRICS_ENABLED", "YES", "/role/superlink/metrics_port", json!(9101)),
        run("FL_METRICS_PORT", "9200", "/role/superlink/metrics_port", json!(9200))
            .with(&[("FL_METRICS_ENABLED", "YES")]),
        case("FL_METRICS_PORT", "9092", SuperLink, Then::Refused("that of the Fleet API"))
            .with(&[("FL_METRICS_ENABLED", "YES")]),
    ]
}

fn training() -> Vec<Case> {
    let config = "/role/superlink/training/config";
    let at = |key: &str| -> &'static str { Box::leak(format!("{config}/{key}").into_boxed_str()) };
    vec![
        run("FL_NUM_ROUNDS", "7", at("num-server-rounds"), json!(7)),
        run("FL_STRATEGY", "FedAdam", at("strategy"), json!("FedAdam")),
        run("FL_STRATEGY", "FaultTolerantFedAvg", at("strategy"), json!("FaultTolerantFedAvg")),
        run("FL_MIN_FIT_CLIENTS", "1", at("min-train-nodes"), json!(1)),
        run("FL_MIN_EVALUATE_CLIENTS", "1", at("min-evaluate-nodes"), json!(1)),
        run("FL_MIN_AVAILABLE_CLIENTS", "5", at("min-available-nodes"), json!(5)),
        run("FL_MIN_AVAILABLE_CLIENTS", "5", "/role/superlink/training/min_available", json!(5)),
        case("FL_MIN_FIT_CLIENTS", "3", SuperLink, Then::Warned("waits for 3 nodes")),
        run("FL_PROXIMAL_MU", "0.01", at("proximal-mu"), json!(0.01)).with(&[("FL_STRATEGY", "FedProx")]),
        case("FL_PROXIMAL_MU", "0", SuperLink, Then::Warned("is FedAvg")).with(&[("FL_STRATEGY", "FedProx")]),
        run("FL_SERVER_LR", "0.02", at("server-lr"), json!(0.02)).with(&[("FL_STRATEGY", "FedAdam")]),
        run("FL_CLIENT_LR", "0.03", at("client-lr"), json!(0.03)).with(&[("FL_STRATEGY", "FedAdam")]),
        case("FL_SERVER_LR", "0", SuperLink, Then::Refused("out of range")),
        run("FL_NUM_MALICIOUS", "1", at("num-malicious"), json!(1))
            .with(&[("FL_STRATEGY", "Bulyan"), ("FL_MIN_AVAILABLE_CLIENTS", "7")]),
        case("FL_NUM_MALICIOUS", "1", SuperLink, Then::Refused("Bulyan needs 7 nodes"))
            .with(&[("FL_STRATEGY", "Bulyan"), ("FL_MIN_AVAILABLE_CLIENTS", "6")]),
        case("FL_NUM_MALICIOUS", "1", SuperLink, Then::Refused("Krum needs 5 nodes"))
            .with(&[("FL_STRATEGY", "Krum"), ("FL_MIN_AVAILABLE_CLIENTS", "4")]),
        run("FL_TRIM_BETA", "0.3", at("trim-beta"), json!(0.3)).with(&[("FL_STRATEGY", "FedTrimmedAvg")]),
        case("FL_TRIM_BETA", "0.5", SuperLink, Then::Refused("out of range")),
        case("FL_TRIM_BETA", "0", SuperLink, Then::Refused("out of range")),
        case("FL_TRIM_BETA", "0.3", SuperLink, Then::Warned("FedAvg does not support it")),
        run("FL_CHECKPOINT_ENABLED", "NO", "/role/superlink/training/checkpoints", json!(null)),
        run("FL_CHECKPOINT_INTERVAL", "2", "/role/superlink/training/checkpoints/every_rounds", json!(2)),
        run("FL_CHECKPOINT_PATH", "/data/kept", "/role/superlink/training/checkpoints/directory", json!("/data/kept")),
    ]
}

fn supernode() -> Vec<Case> {
    let node = |variable, value, at, expected| is(variable, value, SuperNode, at, expected);
    let gpu = [("FL_GPU_ENABLED", "YES")];
    vec![
        node("FL_SUPERLINK_ADDRESS", "[fd00::1]:9092", "/role/supernode/coordinator", json!("[fd00::1]:9092")),
        case("FL_SUPERLINK_ADDRESS", "fl.example.org:70000", SuperNode, Then::Refused("its port is not")),
        node(
            "FL_NODE_CONFIG",
            "partition-id=3 data=\"/my data\" share=0.5 on=true name=it's",
            "/role/supernode/node_config",
            json!({"partition-id": 3, "data": "/my data", "share": 0.5, "on": true, "name": "it's"}),
        ),
        node("FL_MAX_RETRIES", "4", "/role/supernode/max_retries", json!({"at": 4})),
        node("FL_MAX_WAIT_TIME", "60", "/role/supernode/max_wait", json!({"at": 60})),
        node("FL_FRAMEWORK", "tensorflow", "/role/supernode/framework", json!("tensorflow")),
        case("FL_FRAMEWORK", "sklearn", SuperNode, Then::Refused("no such app for sklearn"))
            .with(&[("FL_USE_CASE", "image-classification")]),
        node("FL_CLIENT_APP", "native:mlp", "/role/supernode/client_app", json!("native:mlp")),
        node("FL_JOIN_TOKEN", "join-me", "/role/supernode/join_token", json!("join-me")),
        node("FL_GPU_ENABLED", "YES", "/role/supernode/gpu/memory_fraction", json!(0.8)),
        node("FL_GPU_FALLBACK", "NO", "/role/supernode/gpu/fallback_to_cpu", json!(false)).with(&gpu),
        node("FL_CUDA_VISIBLE_DEVICES", "0,2", "/role/supernode/gpu/visible", json!([0, 2])).with(&gpu),
        node("FL_GPU_MEMORY_FRACTION", "0.5", "/role/supernode/gpu/memory_fraction", json!(0.5)).with(&gpu),
        case("FL_GPU_MEMORY_FRACTION", "1.5", SuperNode, Then::Refused("out of range")),
        node("FL_DCGM_ENABLED", "YES", "/role/supernode/dcgm", json!(true)).with(&gpu),
        case("FL_DCGM_ENABLED", "YES", SuperNode, Then::Warned("nothing to measure")),
        node("FL_EDGE_BACKOFF", "fixed", "/role/supernode/backoff/exponential", json!(false)),
        node("FL_EDGE_MAX_BACKOFF", "30", "/role/supernode/backoff/longest/secs", json!(30)),
        case("FL_USE_CASE", "llm-fine-tuning", SuperNode, Then::Refused("without a GPU")),
    ]
}

const GATEWAY: [(&str, &str); 4] = [
    ("WG_PRIVATE_KEY", ONE_KEY),
    ("WG_LOCAL_ADDRESS", "10.66.0.2/24"),
    ("WG_PEER_PUBLIC_KEY", OTHER_KEY),
    ("WG_PEER_ALLOWED_IPS", "10.66.0.1/32,10.0.0.0/24"),
];

fn gateway() -> Vec<Case> {
    let gate = |variable: &'static str, value: &str, at, expected| {
        let others: Vec<_> = GATEWAY.into_iter().filter(|(name, _)| *name != variable).collect();
        is(variable, value, Gateway, at, expected).with(&others)
    };
    vec![
        gate("WG_PRIVATE_KEY", OTHER_KEY, "/role/gateway/private_key", json!(OTHER_KEY)),
        gate("WG_LOCAL_ADDRESS", "10.66.0.9/24", "/role/gateway/local_address", json!("10.66.0.9/24")),
        gate("WG_LISTEN_PORT", "51900", "/role/gateway/listen_port", json!(51900)),
        gate("WG_MTU", "1380", "/role/gateway/mtu", json!(1380)),
        gate("WG_PEER_PUBLIC_KEY", ONE_KEY, "/role/gateway/peers/0/public_key", json!(ONE_KEY)),
        gate(
            "WG_PEER_ENDPOINT",
            "gw.example.org:51820",
            "/role/gateway/peers/0/endpoint",
            json!("gw.example.org:51820"),
        ),
        gate("WG_PEER_ALLOWED_IPS", "fd66::/64", "/role/gateway/peers/0/allowed_ips", json!(["fd66::/64"])),
        gate("WG_PEER_KEEPALIVE", "0", "/role/gateway/peers/0/keepalive_s", json!(null)),
        case("WG_PRIVATE_KEY", "c2hvcnQ=", Gateway, Then::Refused("it has 5 bytes")).with(&GATEWAY[1..]),
        case("WG_PEER_ALLOWED_IPS", "10.66.0.1/24", Gateway, Then::Refused("not a network")).with(&GATEWAY[..3]),
    ]
}
