//! A SuperLink in this process, runs on it, and their native ServerApps.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use trellis_client::app::App;
use trellis_client::{Security, SuperLink as Calls, Target};
use trellis_core::port::Store;
use trellis_link::config::{AppTrust, Config, Isolation, Keepalive, Limits, SandboxSettings};
use trellis_link::{Addresses, ServeError, State, SuperLink};
use trellis_models::{Checkpoint, ModelStore};
use trellis_store_sqlite::{SqliteStore, StateDirectory};
use trellis_train::{Finished, Options, TrainError};
use trellis_wire::call::RunHistory;
use trellis_wire::proto::control_client::ControlClient;
use trellis_wire::proto::runtime_client::RuntimeClient;
use trellis_wire::proto::*;
use trellis_wire::report::TrainingReport;
use trellis_wire::token::Token;

/// A SuperLink that can be restarted with its state.
pub struct Scene {
    pub directory: tempfile::TempDir,
    pub addresses: Addresses,
    serving: Option<Serving>,
}

/// A SuperLink in its own runtime, which stops all its tasks.
struct Serving {
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
    runtime: Runtime,
}

fn config(address: impl Fn(usize) -> String) -> Config {
    Config {
        control_address: address(0),
        fleet_address: address(1),
        serverappio_address: address(2),
        http_address: address(3),
        metrics_address: None,
        health_address: None,
        tls: None,
        endpoints: Vec::new(),
        allowed_hosts: Vec::new(),
        accounts: false,
        isolation: Isolation::Process,
        python: None,
        dependency_installation: false,
        sandbox: SandboxSettings::off(),
        native_app: None,
        superexec_secret: None,
        app_trust: AppTrust::User,
        admin_token: None,
        run_defaults: Default::default(),
        supernode_auth: false,
        keepalive: Keepalive::default(),
        limits: Limits::default(),
    }
}

fn state(path: &Path) -> State {
    let directory = Arc::new(StateDirectory::open(path, None).unwrap());
    let opened = Arc::clone(&directory);
    let open = Box::new(|on_commit| Ok(Box::new(SqliteStore::open(opened, on_commit)?) as Box<dyn Store>));
    State { directory, database: None, open }
}

impl Serving {
    async fn start(config: Config, state: State) -> (Serving, Addresses) {
        let runtime = Runtime::new().unwrap();
        let starting = runtime.spawn(SuperLink::start(config, state));
        let superlink = starting.await.unwrap().expect("the SuperLink starts");
        let addresses = superlink.addresses();
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(superlink.run_until(async {
            let _ = stopped.await;
        }));
        (Serving { stop, served, runtime }, addresses)
    }
}

impl Scene {
    pub async fn start() -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let state = state(&directory.path().join("state"));
        let (serving, addresses) = Serving::start(config(|_| "127.0.0.1:0".to_owned()), state).await;
        Scene { directory, addresses, serving: Some(serving) }
    }

    pub async fn stop_superlink(&mut self) {
        let Serving { stop, served, runtime } = self.serving.take().expect("it serves");
        let _ = stop.send(());
        served.await.expect("no panic").expect("a clean stop");
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(20))).await.unwrap();
    }

    /// Restarts the SuperLink at the same addresses.
    pub async fn start_superlink(&mut self) {
        let Addresses { control, fleet, serverappio, http, .. } = self.addresses;
        let ports = [control, fleet, serverappio, http].map(|address| address.to_string());
        let state = state(&self.directory.path().join("state"));
        let (serving, _) = Serving::start(config(|port| ports[port].clone()), state).await;
        self.serving = Some(serving);
    }

    pub fn target(&self, address: SocketAddr) -> Target {
        let (host, port) = (address.ip().to_string(), address.port());
        Target { host, port, security: Security::Plaintext, token: None }
    }

    async fn control(&self) -> ControlClient<Channel> {
        ControlClient::new(channel(self.addresses.control).await)
    }

    /// Submits a run with these settings, without executing it.
    pub async fn submit(&self, settings: &[(&str, &str)]) -> u64 {
        let fab = Fab { content: fab(settings).into(), ..Default::default() };
        let request = StartRunRequest { fab: Some(fab), federation: "default".into(), ..Default::default() };
        self.control().await.start_run(request).await.unwrap().into_inner().run_id.unwrap()
    }

    /// The ServerApp of the submitted run.
    pub async fn serverapp(&self) -> App {
        let mut runtime = RuntimeClient::new(channel(self.addresses.serverappio).await);
        let supported_task_types = vec!["trellis-serverapp".to_owned()];
        let request = AcquireTaskRequest { supported_task_types, ..Default::default() };
        let acquired = runtime.acquire_task(request).await.unwrap().into_inner();
        App::new(self.target(self.addresses.serverappio), Token::parse(&acquired.token).expect("a run was waiting"))
    }

    pub fn options(&self) -> Options {
        Options {
            models_dir: self.models().root().to_owned(),
            spool_dir: self.directory.path().join("spool"),
            defaults: Default::default(),
            echo: false,
            any_path: false,
        }
    }

    pub fn models(&self) -> ModelStore {
        ModelStore::new(self.directory.path().join("models"))
    }

    /// Starts a run; its outcome must be awaited.
    pub async fn begin(&self, settings: &[(&str, &str)]) -> (u64, JoinHandle<Result<Finished, TrainError>>) {
        let run = self.submit(settings).await;
        let app = self.serverapp().await;
        (run, tokio::spawn(trellis_train::run(app, self.options())))
    }

    /// Executes a run, which must complete.
    pub async fn train(&self, settings: &[(&str, &str)]) -> Trained {
        let (run, running) = self.begin(settings).await;
        match running.await.unwrap() {
            Ok(Finished::Completed { round, .. }) => Trained { run, round, log: self.log(run).await },
            other => panic!("{other:?}\n{}", self.log(run).await),
        }
    }

    pub fn checkpoint(&self, run: u64) -> Checkpoint {
        self.models().load(&run.to_string(), None).expect("a checkpoint that can be read")
    }

    pub async fn stop_run(&self, run_id: u64) {
        let request = StopRunRequest { run_id };
        assert!(self.control().await.stop_run(request).await.unwrap().into_inner().success);
    }

    /// The whole log of a finished run.
    pub async fn log(&self, run_id: u64) -> String {
        let request = StreamLogsRequest { run_id, ..Default::default() };
        let mut stream = self.control().await.stream_logs(request).await.unwrap().into_inner();
        let mut log = String::new();
        while let Some(part) = stream.message().await.unwrap() {
            log.push_str(&part.log_output);
        }
        log
    }

    /// The status and its details.
    pub async fn status(&self, run_id: u64) -> (String, String) {
        let request = ListRunsRequest { run_id: Some(run_id), ..Default::default() };
        let runs = self.control().await.list_runs(request).await.unwrap().into_inner();
        let status = runs.run_dict.into_values().next().and_then(|run| run.status).unwrap_or_default();
        (status.sub_status, status.details)
    }

    pub async fn reports(&self, run: u64) -> Vec<TrainingReport> {
        let calls = Calls::new(self.target(self.addresses.http));
        let history = calls.call(&RunHistory { run_id: run.to_string(), after_round: None }).await.unwrap();
        history.reports.iter().map(|report| serde_json::from_str(report.get()).unwrap()).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(Serving { runtime, .. }) = self.serving.take() {
            runtime.shutdown_background();
        }
    }
}

/// A completed run.
pub struct Trained {
    pub run: u64,
    pub round: u64,
    pub log: String,
}

async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// An app that consists of settings only.
fn fab(settings: &[(&str, &str)]) -> Vec<u8> {
    let mut project = "[project]\nname='app'\nversion='1'\n[tool.flwr.app]\npublisher='me'\n\
                       [tool.flwr.app.components]\nserverapp='trellis:native'\nclientapp='trellis:mlp'\n\
                       [tool.flwr.app.config]\n"
        .to_owned();
    for (name, value) in settings {
        project.push_str(&format!("{name} = {value:?}\n"));
    }
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("pyproject.toml", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(project.as_bytes()).unwrap();
    zip.finish().unwrap().into_inner()
}
