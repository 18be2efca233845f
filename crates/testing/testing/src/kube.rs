//! A Kubernetes control plane for tests: etcd, the API server and, where asked for, the controller manager and the scheduler, as
//! processes on loopback. No kubelet: nodes and pods are the business of `trellis-fake-kubelet`. Knows no Kubernetes client.
//!
//! The usual way is one control plane for all tests of a binary, and a namespace for each test:
//! ```no_run
//! use trellis_testing::kube::{Parts, shared};
//! let Some(plane) = shared(Parts::WithScheduler) else { return };
//! let namespace = plane.namespace("scaling");
//! ```

mod audit;
mod https;
mod identity;
mod process;
mod programs;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ports::free_port;
pub use audit::Write as AuditedWrite;
use https::Endpoint;
use identity::Identities;
use process::{Process, Watchdog};
use programs::Programs;

/// A machine with two cores builds and tests at the same time.
const READY_WITHIN: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// What is shown of each log when a control plane does not start, or a test with its own one fails.
const SHOWN_LOG_LINES: usize = 25;
const ADMIN: &str = "admin";
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The API server refuses to announce a loopback address; nobody connects to this one.
const ADVERTISED_ADDRESS: &str = "192.0.2.1";
/// The controllers' own limits would be what tests with many objects measure.
const CONTROLLER_QUERIES_PER_S: u32 = 2000;
const AUDIT_LOG: &str = "audit.log";

/// What runs. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parts {
    ApiServer,
    /// Controllers of workloads, garbage collection, service accounts, endpoints. Pods are made but not placed.
    WithControllers,
    WithScheduler,
}

/// Beyond those that every control plane has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags<'a> {
    pub api_server: &'a [&'a str],
    pub controllers: &'a [&'a str],
}

/// The control plane that all tests of this process share; `None` where its programs are not on this machine.
pub fn shared(parts: Parts) -> Option<&'static ControlPlane> {
    static PLANES: [OnceLock<Option<ControlPlane>>; 3] = [const { OnceLock::new() }; 3];
    PLANES[parts as usize].get_or_init(|| ControlPlane::start(parts)).as_ref()
}

/// Ends with this value, and with this process however that ends.
pub struct ControlPlane {
    programs: Programs,
    parts: Parts,
    api_server_flags: Vec<String>,
    controller_flags: Vec<String>,
    directory: PathBuf,
    etcd_port: u16,
    endpoint: Endpoint,
    identities: Identities,
    admin_token: String,
    running: Mutex<Running>,
    named: AtomicUsize,
    watchdog: Watchdog,
}

#[derive(Default)]
struct Running {
    etcd: Option<Process>,
    api_server: Option<Process>,
    controllers: Option<Process>,
    scheduler: Option<Process>,
}

impl ControlPlane {
    /// Ready to be called. `None`, and a line on stderr, where the programs are not on this machine.
    ///
    /// # Panics
    /// If a program does not start: the test cannot go on, and its log says why.
    pub fn start(parts: Parts) -> Option<ControlPlane> {
        Self::start_with(parts, Flags::default())
    }

    pub fn start_with(parts: Parts, flags: Flags<'_>) -> Option<ControlPlane> {
        let programs = match Programs::find(parts) {
            Ok(programs) => programs,
            Err(missing) => {
                eprintln!("SKIP: no Kubernetes control plane: {missing}; tests/provision_kube.py makes one");
                return None;
            }
        };
        // The watchdog removes it, also when this process cannot.
        let directory = TempDir::with_prefix("trellis-kube-").expect("a directory for the control plane").keep();
        let watchdog = Watchdog::of(&directory);
        let plane = ControlPlane {
            identities: Identities::written_to(&directory),
            admin_token: identity::random_token(),
            endpoint: Endpoint::new(free_port(), directory.join("serving").join("apiserver.crt")),
            etcd_port: free_port(),
            programs,
            parts,
            api_server_flags: owned(flags.api_server),
            controller_flags: owned(flags.controllers),
            directory,
            running: Mutex::default(),
            named: AtomicUsize::new(0),
            watchdog,
        };
        plane.write_settings();
        plane.running().etcd = Some(plane.start_etcd());
        plane.start_api_server();
        let mut running = plane.running();
        running.controllers = (parts >= Parts::WithControllers).then(|| plane.start_controllers());
        running.scheduler = (parts >= Parts::WithScheduler).then(|| plane.start_scheduler());
        drop(running);
        Some(plane)
    }

    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// `https://127.0.0.1:…`
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.endpoint.port)
    }

    /// Of the administrator, who may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// Of a user who has what RBAC gives to this name and this group, by a client certificate.
    pub fn kubeconfig_for_user(&self, user: &str, group: Option<&str>) -> PathBuf {
        let (certificate, key) = self.identities.certificate_for(user, group);
        let credentials = json!({"client-certificate-data": certificate, "client-key-data": key});
        self.write_kubeconfig(&format!("user-{}", self.next_number()), &credentials)
    }

    /// Of a service account that exists, by a token of an hour.
    pub fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = self.post(&path, &body)["status"]["token"].as_str().expect("a token").to_owned();
        self.write_kubeconfig(&format!("account-{}", self.next_number()), &json!({"token": token}))
    }

    /// A namespace that no other test has: `<prefix>-<number>`.
    pub fn namespace(&self, prefix: &str) -> String {
        let name = format!("{prefix}-{}", self.next_number());
        self.post("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        name
    }

    /// For tests that call it as people do; it finds the control plane by `KUBECONFIG`.
    pub fn kubectl_program(&self) -> PathBuf {
        self.programs.kubectl()
    }

    /// As the administrator.
    pub fn kubectl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.kubectl_with_input(arguments, "")
    }

    /// As the administrator, with something to read: `&["apply", "-f", "-"]`.
    pub fn kubectl_with_input<S: AsRef<OsStr>>(&self, arguments: &[S], input: &str) -> Output {
        let mut command = Command::new(self.programs.kubectl());
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).env("HOME", &self.directory);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl");
        let mut stdin = child.stdin.take().expect("piped");
        // One that does not read to the end is told about by its exit status.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("kubectl ends")
    }

    /// Waits until all definitions of resources are served. `kubectl wait` alone fails for one that has no status yet.
    pub fn until_defined(&self) {
        let until = Instant::now() + READY_WITHIN;
        loop {
            let answer = self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=10s"]);
            if answer.status.success() {
                return;
            }
            assert!(Instant::now() < until, "{}", String::from_utf8_lossy(&answer.stderr));
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// What the API server answers to a GET, as the administrator: `/metrics`, `/api/v1/nodes`.
    ///
    /// # Panics
    /// If it answers with anything but 200, or not at all.
    pub fn get(&self, path: &str) -> String {
        let answer =
            self.endpoint.call("GET", path, &self.admin_token, None).unwrap_or_else(|why| panic!("GET {path}: {why}"));
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.body);
        answer.body
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let sent = body.to_string();
        let answer = self.endpoint.call("POST", path, &self.admin_token, Some(&sent));
        let answer = answer.unwrap_or_else(|why| panic!("POST {path}: {why}"));
        assert!((200..300).contains(&answer.status), "POST {path}: {} {}", answer.status, answer.body);
        serde_json::from_str(&answer.body).unwrap_or_else(|why| panic!("POST {path}: {why}: {}", answer.body))
    }

    /// Every change of an object that the API server was asked for, by whom and with what result, in order, from the start of
    /// the control plane and across restarts of the API server.
    pub fn writes(&self) -> Vec<AuditedWrite> {
        let mut requests = audit::read(&self.directory.join(AUDIT_LOG));
        requests.retain(AuditedWrite::changes);
        requests
    }

    /// Every request of a service account, those that change nothing too.
    pub fn requests_of_service_account(&self, namespace: &str, name: &str) -> Vec<AuditedWrite> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let mut requests = audit::read(&self.directory.join(AUDIT_LOG));
        requests.retain(|request| request.user == user);
        requests
    }

    /// How many requests that change something the API server has counted since it started, by `verb resource` or
    /// `verb resource/subresource`. Of everybody; [`ControlPlane::writes`] can tell them apart.
    pub fn write_requests(&self) -> std::collections::BTreeMap<String, u64> {
        audit::counted(&self.get("/metrics"))
    }

    /// Ends without a word to its clients; requests find nobody there until [`ControlPlane::start_api_server`].
    pub fn stop_api_server(&self) {
        self.running().api_server = None;
    }

    /// Where it was before, with what etcd has.
    pub fn start_api_server(&self) {
        let process = self.spawn_api_server();
        self.wait_until_ready(&process);
        self.running().api_server = Some(process);
    }

    pub fn restart_api_server(&self) {
        self.stop_api_server();
        self.start_api_server();
    }

    /// The last lines of each program.
    pub fn logs(&self) -> String {
        process::log_tails(&self.directory, SHOWN_LOG_LINES)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_number(&self) -> usize {
        self.named.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn write_settings(&self) {
        let line = format!("{},{ADMIN},{ADMIN},system:masters\n", self.admin_token);
        write(&self.directory.join("tokens.csv"), &line);
        write(&self.directory.join("audit-policy.json"), &audit::policy().to_string());
        self.write_kubeconfig(ADMIN, &json!({"token": self.admin_token}));
    }

    fn write_kubeconfig(&self, name: &str, credentials: &Value) -> PathBuf {
        let path = self.directory.join(format!("{name}.kubeconfig"));
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name, "namespace": "default"}}],
            "clusters": [{"name": "test", "cluster": {
                "server": self.url(), "certificate-authority": self.endpoint.authority,
            }}],
            "users": [{"name": name, "user": credentials}],
        });
        write(&path, &content.to_string());
        path
    }

    fn start_etcd(&self) -> Process {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", free_port());
        let arguments = [
            "--data-dir=etcd".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        Process::start(&self.programs.etcd(), &arguments, &self.directory, &self.watchdog)
    }

    fn spawn_api_server(&self) -> Process {
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--advertise-address={ADVERTISED_ADDRESS}"),
            format!("--secure-port={}", self.endpoint.port),
            "--endpoint-reconciler-type=none".to_owned(),
            "--cert-dir=serving".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-signing-key-file={}", identity::ACCOUNT_KEY),
            format!("--service-account-key-file={}", identity::ACCOUNT_PUBLIC_KEY),
            format!("--client-ca-file={}", identity::USERS_AUTHORITY),
            "--token-auth-file=tokens.csv".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--audit-policy-file=audit-policy.json".to_owned(),
            format!("--audit-log-path={AUDIT_LOG}"),
            // Nobody resolves the names of nodes.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        arguments.extend(of_the_aggregator());
        arguments.extend(self.api_server_flags.iter().cloned());
        if self.parts == Parts::ApiServer {
            // Nobody makes the accounts that it would insist on.
            arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        Process::start(&self.programs.api_server(), &arguments, &self.directory, &self.watchdog)
    }

    fn start_controllers(&self) -> Process {
        let mut arguments = self.of_a_client();
        arguments.extend([
            format!("--service-account-private-key-file={}", identity::ACCOUNT_KEY),
            "--root-ca-file=serving/apiserver.crt".to_owned(),
            "--concurrent-statefulset-syncs=20".to_owned(),
        ]);
        arguments.extend(self.controller_flags.iter().cloned());
        Process::start(&self.programs.controllers(), &arguments, &self.directory, &self.watchdog)
    }

    fn start_scheduler(&self) -> Process {
        Process::start(&self.programs.scheduler(), &self.of_a_client(), &self.directory, &self.watchdog)
    }

    fn of_a_client(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig();
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--kube-api-qps={CONTROLLER_QUERIES_PER_S}"),
            format!("--kube-api-burst={CONTROLLER_QUERIES_PER_S}"),
        ]
    }

    fn wait_until_ready(&self, process: &Process) {
        let until = Instant::now() + READY_WITHIN;
        loop {
            let answer = self.endpoint.call("GET", "/readyz", &self.admin_token, None);
            if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                return;
            }
            let late = Instant::now() > until;
            if late || process.has_ended() {
                let what = if late { "is not ready" } else { "has ended" };
                panic!("the API server {what} ({:?})\n{}", answer.map(|answer| answer.body), self.logs());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.logs());
        }
        let mut running = self.running();
        // Clients first: none of them complains about the others' end.
        drop(running.scheduler.take());
        drop(running.controllers.take());
        drop(running.api_server.take());
        drop(running.etcd.take());
    }
}

/// How the API server proves to API servers behind it (APIService) that it asks for a user.
fn of_the_aggregator() -> [String; 7] {
    [
        format!("--proxy-client-cert-file={}", identity::AGGREGATOR_CERTIFICATE),
        format!("--proxy-client-key-file={}", identity::AGGREGATOR_KEY),
        format!("--requestheader-client-ca-file={}", identity::AGGREGATOR_AUTHORITY),
        format!("--requestheader-allowed-names={}", identity::AGGREGATOR),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

fn write(path: &Path, content: &str) {
    fs::write(path, content).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
}
