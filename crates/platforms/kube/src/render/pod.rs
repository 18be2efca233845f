//! Common parts of the pods of SuperLinks and SuperNodes: user, probes, mounts.

use serde_json::{Map, Value, json};
use trellis_flower::Program;
use trellis_flower::launch::{Launch, Probe, gives, port};

use super::Scene;
use super::env::{Key, add};
use super::launch::{METRICS_PORT, TRUST_DIRECTORY};

/// User of the images of Flower, as a number: Kubernetes cannot tell from a name that it is not root.
const FLOWER_USER: i64 = 49999;
/// User of the images of Trellis.
const TRELLIS_USER: i64 = 65532;

pub(super) const FLOWER_STATE: &str = "/var/lib/flower";
pub(super) const TRELLIS_STATE: &str = "/var/lib/trellis";
pub(super) const STATE_VOLUME: &str = "trellis-state";
const TEMPORARY_VOLUME: &str = "trellis-tmp";
const TEMPORARY_FILES: &str = "/tmp";
const TRUST_VOLUME: &str = "trellis-tls";
const ADMIN_VOLUME: &str = "trellis-admin";
const ADMIN_DIRECTORY: &str = "/etc/trellis/admin";
pub(super) const ADMIN_TOKEN_FILE: &str = "/etc/trellis/admin/token";
const NODE_KEYS_VOLUME: &str = "trellis-node-keys";
pub(super) const NODE_KEY_FILE: &str = "/etc/trellis/node-key";
/// Readable by the owner and the group of the pod.
const SECRET_MODE: i64 = 0o440;

/// Loading Python takes a while, pulling a large image longer.
const STARTUP_PERIOD_S: i64 = 2;
const STARTUP_FAILURES: i64 = 150;
const READINESS_PERIOD_S: i64 = 5;
const READINESS_FAILURES: i64 = 6;
/// A program that reads a model of gigabytes responds late.
const LIVENESS_PERIOD_S: i64 = 20;
const LIVENESS_FAILURES: i64 = 9;
const PROBE_TIMEOUT_S: i64 = 10;

/// How probes call a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Grpc(u16),
    Http { port: u16, tls: bool },
}

impl Health {
    pub(super) fn of(launch: &Launch, http: u16, tls: bool) -> Health {
        match launch.probe {
            Probe::Health(port) => Health::Grpc(port),
            _ => Health::Http { port: http, tls },
        }
    }

    fn check(self) -> Value {
        match self {
            Health::Grpc(port) => json!({"grpc": {"port": port, "service": ""}}),
            Health::Http { port, tls } => {
                let scheme = if tls { "HTTPS" } else { "HTTP" };
                json!({"httpGet": {"path": "/health", "port": port, "scheme": scheme}})
            }
        }
    }

    /// Startup, readiness and liveness probes. Liveness has the longest timeout, because it restarts the container.
    pub(super) fn probes(self) -> Map<String, Value> {
        let probe = |period: i64, failures: i64| {
            let mut probe = self.check();
            probe["periodSeconds"] = period.into();
            probe["failureThreshold"] = failures.into();
            probe["timeoutSeconds"] = PROBE_TIMEOUT_S.into();
            probe
        };
        Map::from_iter([
            ("startupProbe".to_owned(), probe(STARTUP_PERIOD_S, STARTUP_FAILURES)),
            ("readinessProbe".to_owned(), probe(READINESS_PERIOD_S, READINESS_FAILURES)),
            ("livenessProbe".to_owned(), probe(LIVENESS_PERIOD_S, LIVENESS_FAILURES)),
        ])
    }
}

/// A rendered container.
#[derive(Debug, Clone)]
pub(super) struct Container<'c> {
    pub name: &'static str,
    pub image: &'c str,
    pub launch: Launch,
    pub env: Vec<Value>,
    pub ports: Vec<(&'static str, u16)>,
    pub resources: Option<Value>,
    pub mounts: Vec<Value>,
    pub health: Health,
    pub program: Program,
    /// The main program of the pod. Other containers run as its user by default.
    pub pod: Program,
}

impl Container<'_> {
    pub(super) fn render(self) -> Value {
        let mut container = Map::from_iter([
            ("name".to_owned(), self.name.into()),
            ("image".to_owned(), self.image.into()),
            ("args".to_owned(), self.launch.joined().into()),
            ("securityContext".to_owned(), confined(self.program, self.pod)),
        ]);
        container.extend(self.health.probes());
        let port = |(name, port): (&str, u16)| json!({"name": name, "containerPort": port, "protocol": "TCP"});
        let mut optional = |field: &str, value: Value| {
            if !is_empty(&value) {
                container.insert(field.to_owned(), value);
            }
        };
        // An image of Trellis may contain all its programs.
        optional("command", if self.program.is_trellis() { json!(self.launch.command) } else { Value::Null });
        optional("env", Value::Array(self.env));
        optional("ports", self.ports.into_iter().map(port).collect());
        optional("resources", self.resources.unwrap_or_default());
        optional("volumeMounts", Value::Array(self.mounts));
        Value::Object(container)
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Security context of the Pod Security profile `restricted`. Programs of Flower write into their image, those of
/// Trellis do not.
fn confined(program: Program, pod: Program) -> Value {
    let mut context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    if program.is_trellis() {
        context["readOnlyRootFilesystem"] = true.into();
    }
    if user(program) != user(pod) {
        context["runAsUser"] = user(program).into();
    }
    context
}

fn user(program: Program) -> i64 {
    if program.is_trellis() { TRELLIS_USER } else { FLOWER_USER }
}

/// Security context of a pod, by its main program.
fn pod_security(program: Program) -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": user(program),
        "fsGroup": user(program),
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Fields of every pod. The programs do not call the API server, and the environment variables for Services of the
/// namespace could be taken for settings.
pub(super) fn pod_fields(program: Program, grace_s: i64) -> Map<String, Value> {
    Map::from_iter([
        ("securityContext".to_owned(), pod_security(program)),
        ("terminationGracePeriodSeconds".to_owned(), grace_s.into()),
        ("automountServiceAccountToken".to_owned(), false.into()),
        ("enableServiceLinks".to_owned(), false.into()),
    ])
}

/// Volumes of a pod, and their mounts.
#[derive(Debug, Clone, Default)]
pub(super) struct Outfit {
    pub volumes: Vec<Value>,
    /// Mounts of the main program.
    pub mounts: Vec<Value>,
    /// Mounts of the SuperExec.
    pub superexec_mounts: Vec<Value>,
}

impl Outfit {
    /// A directory with the lifetime of the pod.
    pub(super) fn directory(&mut self, name: &str, path: &str) {
        self.volumes.push(json!({"name": name, "emptyDir": {}}));
        self.mounts.push(json!({"name": name, "mountPath": path}));
    }

    /// The root file system of images of Trellis is read-only.
    pub(super) fn temporary(&mut self) {
        self.directory(TEMPORARY_VOLUME, TEMPORARY_FILES);
    }

    /// A server mounts a certificate and a key, other programs the authorities only.
    pub(super) fn trust(&mut self, secret: &str, serves: bool) {
        let mut items = vec![json!({"key": "ca.crt", "path": "ca.crt"})];
        if serves {
            items.extend(["tls.crt", "tls.key"].map(|file| json!({"key": file, "path": file})));
        }
        let source = json!({"secretName": secret, "defaultMode": SECRET_MODE, "items": items});
        self.volumes.push(json!({"name": TRUST_VOLUME, "secret": source}));
        self.mounts.push(json!({"name": TRUST_VOLUME, "mountPath": TRUST_DIRECTORY, "readOnly": true}));
    }

    pub(super) fn superexec_trust(&mut self, secret: &str) {
        let name = "trellis-authority";
        let items = json!([{"key": "ca.crt", "path": "ca.crt"}]);
        let source = json!({"secretName": secret, "defaultMode": SECRET_MODE, "items": items});
        self.volumes.push(json!({"name": name, "secret": source}));
        self.superexec_mounts.push(json!({"name": name, "mountPath": TRUST_DIRECTORY, "readOnly": true}));
    }

    pub(super) fn admin_token(&mut self, secret: &str) {
        let source = json!({"secretName": secret, "defaultMode": SECRET_MODE});
        self.volumes.push(json!({"name": ADMIN_VOLUME, "secret": source}));
        self.mounts.push(json!({"name": ADMIN_VOLUME, "mountPath": ADMIN_DIRECTORY, "readOnly": true}));
    }

    /// Mounts the key of the Secret that has the name of the pod.
    pub(super) fn node_key(&mut self, secret: &str) {
        let source = json!({"secretName": secret, "defaultMode": SECRET_MODE});
        self.volumes.push(json!({"name": NODE_KEYS_VOLUME, "secret": source}));
        let mount = json!({
            "name": NODE_KEYS_VOLUME, "mountPath": NODE_KEY_FILE, "subPathExpr": "$(POD_NAME)", "readOnly": true,
        });
        self.mounts.push(mount);
    }
}

/// Mounts of the user, and ours at paths that are free.
pub(super) fn mounts(theirs: &[Value], ours: &[Value]) -> Vec<Value> {
    let mut mounts = theirs.to_vec();
    for mount in ours {
        add(&mut mounts, mount.clone(), Key::MountPath);
    }
    mounts
}

/// Mounts of the SuperExec if there are any, else those of the main program.
pub(super) fn superexec_mounts<'m>(own: &'m [Value], fallback: &'m [Value]) -> &'m [Value] {
    if own.is_empty() { fallback } else { own }
}

impl Scene<'_> {
    /// Port of the metrics of a Trellis program, if they are enabled.
    pub(super) fn metrics_port(&self, program: Program, given: &[String]) -> Option<u16> {
        let wanted = self.federation.spec.monitoring.metrics || gives(given, "--metrics-address");
        (program.is_trellis() && wanted).then(|| port(given, "--metrics-address", METRICS_PORT))
    }
}
