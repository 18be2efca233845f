//! A namespace of a real API server, with our definitions and a running operator.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use trellis_fake_kubelet::{Kubelet, Settings as KubeletSettings};
use trellis_operator::Settings;
use trellis_testing::kube::{AuditedWrite, ControlPlane, Parts, shared};

/// Includes the time of a parallel build on a machine with two cores.
pub const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

/// The operator in this process, on a thread of its own.
pub struct Operator {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Operator {
    pub fn start(kubeconfig: &Path, settings: Settings) -> Operator {
        let (stop, stopped) = oneshot::channel();
        let kubeconfig = kubeconfig.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = client(&kubeconfig).await;
                let stop = async { drop(stopped.await) };
                trellis_operator::run(client, settings, stop).await.expect("it works to its end");
            });
        });
        Operator { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the operator panicked");
        }
    }
}

static KUBELET: OnceLock<Kubelet> = OnceLock::new();

/// The shared kubelet of this test binary. Requires a stage with controllers.
pub fn kubelet() -> &'static Kubelet {
    KUBELET.get().expect("a stage with controllers")
}

/// The control plane of this test binary, with our definitions and, where there are controllers, a kubelet.
pub fn plane(parts: Parts) -> Option<&'static ControlPlane> {
    static READY: [OnceLock<bool>; 3] = [const { OnceLock::new() }; 3];
    let plane = shared(parts)?;
    READY[parts as usize].get_or_init(|| {
        install(plane);
        if parts >= Parts::WithControllers {
            KUBELET.get_or_init(|| Kubelet::start(&plane.kubeconfig(), KubeletSettings::nodes("machine", 3)));
        }
        true
    });
    Some(plane)
}

pub fn install(plane: &ControlPlane) {
    install_definitions(plane, &trellis_kube::crd::all());
}

pub fn install_definitions(plane: &ControlPlane, definitions: &[Value]) {
    for definition in definitions {
        let answer = plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definition.to_string());
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    }
    let start = Instant::now();
    loop {
        let answer = plane.kubectl(&["get", "federations,federationruns", "--all-namespaces"]);
        if answer.status.success() {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "{}", String::from_utf8_lossy(&answer.stderr));
        std::thread::sleep(POLL_INTERVAL);
    }
}

pub struct Stage {
    pub plane: &'static ControlPlane,
    pub namespace: String,
    runtime: Runtime,
    client: Client,
    user: String,
    kubeconfig: PathBuf,
    operator: Option<Operator>,
}

impl Stage {
    /// With an operator for a namespace of its own. `None` where there is no control plane on this machine.
    pub fn set(parts: Parts, name: &str) -> Option<Stage> {
        let mut stage = Stage::without_operator(parts, name)?;
        stage.start_operator();
        Some(stage)
    }

    pub fn without_operator(parts: Parts, name: &str) -> Option<Stage> {
        Some(Stage::on(plane(parts)?, name))
    }

    pub fn on(plane: &'static ControlPlane, name: &str) -> Stage {
        let namespace = plane.namespace(name);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let client = runtime.block_on(client(&plane.kubeconfig()));
        // A name of its own, by which its writes are told apart.
        let user = format!("operator-of-{namespace}");
        let kubeconfig = plane.kubeconfig_for_user(&user, Some("system:masters"));
        Stage { plane, namespace, runtime, client, user, kubeconfig, operator: None }
    }

    pub fn settings(&self) -> Settings {
        Settings {
            namespaces: vec![self.namespace.clone()],
            own_namespace: self.namespace.clone(),
            ..Settings::default()
        }
    }

    pub fn start_operator(&mut self) {
        self.start_operator_with(|_| {});
    }

    pub fn start_operator_with(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings();
        change(&mut settings);
        self.operator = Some(Operator::start(&self.kubeconfig, settings));
    }

    pub fn stop_operator(&mut self) {
        self.operator = None;
    }

    /// What kubectl says with this namespace.
    pub fn kubectl(&self, arguments: &[&str]) -> (bool, String) {
        self.kubectl_with(arguments, "")
    }

    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> (bool, String) {
        let mut all = vec!["-n", &self.namespace];
        all.extend(arguments);
        let answer = self.plane.kubectl_with_input(&all, input);
        let text = String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
        (answer.status.success(), text)
    }

    pub fn apply(&self, object: &Value) {
        let (good, text) =
            self.kubectl_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &object.to_string());
        assert!(good, "{text}");
    }

    pub fn patch(&self, what: &str, patch: &Value) {
        let (good, text) = self.kubectl(&["patch", what, "--type=merge", "-p", &patch.to_string()]);
        assert!(good, "{text}");
    }

    pub fn patch_json(&self, what: &str, patch: &Value) {
        let (good, text) = self.kubectl(&["patch", what, "--type=json", "-p", &patch.to_string()]);
        assert!(good, "{text}");
    }

    pub fn delete(&self, what: &str) {
        let (good, text) = self.kubectl(&["delete", what, "--wait=false"]);
        assert!(good, "{text}");
    }

    /// `kind/name`
    pub fn get(&self, what: &str) -> Option<Value> {
        let (kind, name) = what.split_once('/').expect("kind/name");
        let (group, kind, plural) = match kind {
            "statefulset" => ("apps", "StatefulSet", "statefulsets"),
            "daemonset" => ("apps", "DaemonSet", "daemonsets"),
            "deployment" => ("apps", "Deployment", "deployments"),
            "service" => ("", "Service", "services"),
            "secret" => ("", "Secret", "secrets"),
            "certificate" => ("cert-manager.io", "Certificate", "certificates"),
            "pod" => ("", "Pod", "pods"),
            "persistentvolumeclaim" => ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
            "poddisruptionbudget" => ("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
            "networkpolicy" => ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
            "federation" => ("flwr.exalsius.ai", "Federation", "federations"),
            "federationrun" => ("flwr.exalsius.ai", "FederationRun", "federationruns"),
            "lease" => ("coordination.k8s.io", "Lease", "leases"),
            other => panic!("{other}: add this kind here"),
        };
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let found = self.runtime.block_on(api.get_opt(name)).unwrap_or_else(|error| panic!("get {what}: {error}"));
        found.map(|object| serde_json::to_value(object).expect("JSON"))
    }

    /// Waits until it pod_checks like that.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&Value) -> Option<T>) -> T {
        let start = Instant::now();
        let mut last = None;
        loop {
            let seen = self.get(what);
            if let Some(found) = seen.as_ref().and_then(&mut look) {
                return found;
            }
            last = seen.or(last);
            assert!(
                start.elapsed() < TIMEOUT,
                "{what} does not become as expected: {}\nfederations: {}",
                serde_json::to_string_pretty(&last).unwrap_or_default(),
                self.kubectl(&["get", "federations", "-o", "yaml"]).1,
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    pub fn until_there(&self, what: &str) -> Value {
        self.until(what, |object| Some(object.clone()))
    }

    pub fn until_gone(&self, what: &str) {
        let start = Instant::now();
        while let Some(object) = self.get(what) {
            assert!(start.elapsed() < TIMEOUT, "{what} is not deleted: {object}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the operator has told about the resource's last change that it is as it says: a status of this generation.
    pub fn until_told(&self, federation: &str) -> Value {
        self.until(&format!("federation/{federation}"), |seen| {
            (seen["status"]["observedGeneration"] == seen["metadata"]["generation"]).then(|| seen.clone())
        })
    }

    pub fn until_condition(&self, federation: &str, kind: &str, status: &str) -> Value {
        self.until(&format!("federation/{federation}"), |seen| {
            let current = seen["status"]["observedGeneration"] == seen["metadata"]["generation"];
            let condition = condition(seen, kind)?;
            (current && condition["status"] == status).then(|| condition.clone())
        })
    }

    /// Versions of all objects of the namespace that the operator pod_checks after, and of the federations.
    pub fn versions(&self) -> Vec<(String, String)> {
        let kinds = "statefulsets,daemonsets,services,poddisruptionbudgets,networkpolicies,federations";
        let (good, text) = self.kubectl(&["get", kinds, "-o", "json"]);
        assert!(good, "{text}");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let items = all["items"].as_array().expect("a list");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        items
            .iter()
            .map(|item| {
                let name = format!("{}/{}", text(&item["kind"]), text(&item["metadata"]["name"]));
                (name, text(&item["metadata"]["resourceVersion"]))
            })
            .collect()
    }

    /// What the operator asked the API server to change so far. Events are told on the side and left out.
    pub fn writes(&self) -> Vec<AuditedWrite> {
        self.plane.writes().into_iter().filter(|write| write.user == self.user && write.resource != "events").collect()
    }
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// A federation of official images.
pub fn federation(name: &str, mode: &str, isolation: &str, pools: &[(&str, i32)]) -> Value {
    let process = isolation == "process";
    let pools = pools.iter().map(|(pool, replicas)| {
        let mut pool = json!({"name": pool});
        if mode == "StatefulSet" {
            pool["replicas"] = (*replicas).into();
        }
        if process {
            pool["images"]["superexecClientApp"] = "flwr/superexec:1.25.0".into();
        }
        pool
    });
    let mut federation = json!({
        "apiVersion": "flwr.exalsius.ai/v1",
        "kind": "Federation",
        "metadata": {"name": name},
        "spec": {
            "mode": mode,
            "isolationMode": isolation,
            "superlink": {"image": "flwr/superlink:1.25.0"},
            "supernodes": {"image": "flwr/supernode:1.25.0", "pools": pools.collect::<Vec<_>>()},
        },
    });
    if process {
        federation["spec"]["superlink"]["superexecImage"] = "flwr/superexec:1.25.0".into();
    }
    federation
}

/// The answer to a GET, with its head.
pub fn http(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the address is open");
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}
