//! A Kubernetes control plane for tests: etcd, the API server and optionally the controller manager and the scheduler,
//! as processes on loopback. Without a kubelet: `trellis-fake-kubelet` simulates nodes and pods. Uses no Kubernetes
//! client library.
//!
//! Usually, all tests of a binary share one control plane, and each test has a namespace:
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

/// Generous: a machine with two cores may compile at the same time.
const READY_WITHIN: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of log lines shown per program if a control plane does not start or a test fails.
const SHOWN_LOG_LINES: usize = 25;
const ADMIN: &str = "admin";
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// Never connected to; the API server refuses to advertise a loopback address.
const ADVERTISED_ADDRESS: &str = "192.0.2.1";
/// High, so that tests with many objects do not measure the controllers' rate limit.
const CONTROLLER_QUERIES_PER_S: u32 = 2000;
const AUDIT_LOG: &str = "audit.log";

/// The running programs. Each variant includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parts {
    ApiServer,
    /// Controllers of workloads, garbage collection, service accounts, endpoints. Pods are created and not scheduled.
    WithControllers,
    WithScheduler,
}

/// Additional flags.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags<'a> {
    pub api_server: &'a [&'a str],
    pub controllers: &'a [&'a str],
}

/// Returns the shared control plane of this process, or `None` if its programs are not installed.
pub fn shared(parts: Parts) -> Option<&'static ControlPlane> {
    static PLANES: [OnceLock<Option<ControlPlane>>; 3] = [const { OnceLock::new() }; 3];
    PLANES[parts as usize].get_or_init(|| ControlPlane::start(parts)).as_ref()
}

/// Stops on drop, and with this process.
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
    /// Starts a control plane and waits until it is ready. Without its programs, prints a line to stderr and returns
    /// `None`.
    ///
    /// # Panics
    /// If a program does not start. The message contains its log.
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
        // The watchdog removes the directory, because a killed process cannot.
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

    /// Returns the kubeconfig of the administrator, who has all permissions.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// Writes a kubeconfig with a client certificate for a user with the RBAC permissions of this name and group.
    pub fn kubeconfig_for_user(&self, user: &str, group: Option<&str>) -> PathBuf {
        let (certificate, key) = self.identities.certificate_for(user, group);
        let credentials = json!({"client-certificate-data": certificate, "client-key-data": key});
        self.write_kubeconfig(&format!("user-{}", self.next_number()), &credentials)
    }

    /// Writes a kubeconfig with a token of one hour for an existing service account.
    pub fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = self.post(&path, &body)["status"]["token"].as_str().expect("a token").to_owned();
        self.write_kubeconfig(&format!("account-{}", self.next_number()), &json!({"token": token}))
    }

    /// Creates a namespace with a unique name: `<prefix>-<number>`.
    pub fn namespace(&self, prefix: &str) -> String {
        let name = format!("{prefix}-{}", self.next_number());
        self.post("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        name
    }

    /// For tests that run kubectl themselves with `KUBECONFIG`.
    pub fn kubectl_program(&self) -> PathBuf {
        self.programs.kubectl()
    }

    /// Runs kubectl as the administrator.
    pub fn kubectl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.kubectl_with_input(arguments, "")
    }

    /// Runs kubectl as the administrator with standard input: `&["apply", "-f", "-"]`.
    pub fn kubectl_with_input<S: AsRef<OsStr>>(&self, arguments: &[S], input: &str) -> Output {
        let mut command = Command::new(self.programs.kubectl());
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).env("HOME", &self.directory);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl");
        let mut stdin = child.stdin.take().expect("piped");
        // The exit status reports a kubectl that does not read to the end.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("kubectl ends")
    }

    /// Waits until all CRDs are served. `kubectl wait` alone fails for a CRD without a status.
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

    /// Sends a GET request as the administrator: `/metrics`, `/api/v1/nodes`.
    ///
    /// # Panics
    /// If the status is not 200.
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

    /// Returns all write requests with user and result, in order, since the start of the control plane and across
    /// restarts of the API server.
    pub fn writes(&self) -> Vec<AuditedWrite> {
        let mut requests = audit::read(&self.directory.join(AUDIT_LOG));
        requests.retain(AuditedWrite::changes);
        requests
    }

    /// Returns all requests of a service account, including reads.
    pub fn requests_of_service_account(&self, namespace: &str, name: &str) -> Vec<AuditedWrite> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let mut requests = audit::read(&self.directory.join(AUDIT_LOG));
        requests.retain(|request| request.user == user);
        requests
    }

    /// Returns the API server's counters of write requests since its start, by `verb resource` or `verb
    /// resource/subresource`, of all users. [`ControlPlane::writes`] distinguishes users.
    pub fn write_requests(&self) -> std::collections::BTreeMap<String, u64> {
        audit::counted(&self.get("/metrics"))
    }

    /// Kills the API server. Requests fail until [`ControlPlane::start_api_server`].
    pub fn stop_api_server(&self) {
        self.running().api_server = None;
    }

    /// Starts the API server on the same port and etcd.
    pub fn start_api_server(&self) {
        let process = self.spawn_api_server();
        self.wait_until_ready(&process);
        self.running().api_server = Some(process);
    }

    pub fn restart_api_server(&self) {
        self.stop_api_server();
        self.start_api_server();
    }

    /// Returns the last log lines of each program.
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
            // The names of nodes do not resolve.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        arguments.extend(of_the_aggregator());
        arguments.extend(self.api_server_flags.iter().cloned());
        if self.parts == Parts::ApiServer {
            // It would require accounts that do not exist.
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
        // Clients first, so that they log no connection errors.
        drop(running.scheduler.take());
        drop(running.controllers.take());
        drop(running.api_server.take());
        drop(running.etcd.take());
    }
}

/// Flags for the authentication of the API server to aggregated API servers (APIService).
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
