//! `FederationRun`s on a real API server, with a real SuperLink and nodes as processes of this machine.

mod stage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stage::{Operator, Stage, TIMEOUT, condition};
use tempfile::TempDir;
use trellis_client::{Security, SuperLink, Target};
use trellis_operator::Settings;
use trellis_operator::reach::Reach;
use trellis_testing::kube::Parts;
use trellis_testing::ports::free_port;
use trellis_wire::fab::RUN_MARK;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;

const PROGRAM: &str = "TRELLIS_PROGRAM";
const KUBECONFIG: &str = "TRELLIS_TEST_OPERATOR_KUBECONFIG";
const NAMESPACE: &str = "TRELLIS_TEST_OPERATOR_NAMESPACE";
const REACH: &str = "TRELLIS_TEST_OPERATOR_REACH";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The program, built by the test run of the whole workspace.
fn program() -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("trellis"));
    let found = std::env::var_os(PROGRAM).map(PathBuf::from).or_else(beside).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIP: there is no trellis beside this test: cargo build -p trellis, or set {PROGRAM}");
    }
    found
}

/// Ends when dropped.
struct Process(Child);

impl Process {
    fn start(command: &mut Command, log: &Path) -> Process {
        let log = std::fs::File::create(log).expect("a log");
        let command = command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        Process(command.spawn().expect("it starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A namespace with a federation `demo` whose SuperLink is a process.
struct Scene {
    stage: Stage,
    operator: Option<Operator>,
    superlink: SuperLink,
    runtime: tokio::runtime::Runtime,
    program: PathBuf,
    fleet: String,
    directory: TempDir,
    processes: Vec<Process>,
}

impl Scene {
    /// `None`: a program is missing on this machine.
    fn set(name: &str) -> Option<Scene> {
        let (program, stage) = (program()?, Stage::without_operator(Parts::ApiServer, name)?);
        let directory = tempfile::tempdir().expect("a directory");
        let (http, fleet) = (free_port(), format!("127.0.0.1:{}", free_port()));
        let address = || format!("127.0.0.1:{}", free_port());
        let process = Process::start(
            Command::new(&program)
                .args(["superlink", "--insecure", "--host", "127.0.0.1", "--port", &http.to_string()])
                .args(["--fleet-api-address", &fleet, "--control-api-address", &address()])
                .args(["--serverappio-api-address", &address(), "--state-dir"])
                .arg(directory.path().join("superlink"))
                .env("HOME", directory.path()),
            &directory.path().join("superlink.log"),
        );
        let host = format!("demo-superlink.{}.svc:8000", stage.namespace);
        std::fs::write(directory.path().join("reach"), format!("{host} 127.0.0.1:{http}\n")).expect("a file");
        let target = Target { host: "127.0.0.1".to_owned(), port: http, security: Security::Plaintext, token: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let scene = Scene {
            stage,
            operator: None,
            superlink: SuperLink::new(target),
            runtime,
            program,
            fleet,
            directory,
            processes: vec![process],
        };
        scene.wait("the SuperLink answers", |scene| scene.asked().ok().map(drop));
        scene.stage.apply(&federation(&json!({})));
        Some(scene)
    }

    fn node(&mut self, index: usize) {
        let process = Process::start(
            Command::new(&self.program)
                .args([
                    "supernode",
                    "--insecure",
                    "--superlink",
                    &self.fleet,
                    "--client-app",
                    "native:mlp",
                    "--state-dir",
                ])
                .arg(self.directory.path().join(format!("node-{index}")))
                .args(["--node-config", &format!("partition-id={index} num-partitions=2")])
                .env("HOME", self.directory.path()),
            &self.directory.path().join(format!("node-{index}.log")),
        );
        self.processes.push(process);
    }

    fn reach(&self) -> PathBuf {
        self.directory.path().join("reach")
    }

    fn start_operator(&mut self) {
        let settings = Settings { reach: Reach::by_file(self.reach()), ..self.stage.settings() };
        self.operator = Some(Operator::start(&self.stage.plane.kubeconfig(), settings));
    }

    fn asked(&self) -> Result<Vec<proto::Run>, trellis_client::Error> {
        self.runtime.block_on(self.superlink.list_runs(None))
    }

    /// Runs at the SuperLink.
    fn runs(&self) -> Vec<proto::Run> {
        self.asked().expect("the SuperLink answers")
    }

    fn wait<T>(&self, what: &str, mut check: impl FnMut(&Scene) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = check(self) {
                return found;
            }
            let log = || std::fs::read_to_string(self.directory.path().join("superlink.log")).unwrap_or_default();
            assert!(start.elapsed() < TIMEOUT, "never: {what}\n{}", log());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn run(&self, name: &str, spec: &Value) {
        self.stage.apply(&run(name, spec));
    }

    fn until(&self, name: &str, state: &str) -> Value {
        self.stage
            .until(&format!("federationrun/{name}"), |seen| (seen["status"]["state"] == state).then(|| seen.clone()))
    }
}

fn federation(scaling: &Value) -> Value {
    let mut federation = json!({
        "apiVersion": "flwr.exalsius.ai/v1",
        "kind": "Federation",
        "metadata": {"name": "demo"},
        "spec": {
            "mode": "StatefulSet",
            "isolationMode": "subprocess",
            "superlink": {"image": "example.org/trellis-superlink:1"},
            "supernodes": {
                "image": "example.org/trellis-supernode:1",
                "pools": [{"name": "ward", "replicas": 2, "images": {}}],
            },
        },
    });
    if scaling.as_object().is_some_and(|it| !it.is_empty()) {
        federation["spec"]["scaling"] = scaling.clone();
    }
    federation
}

fn run(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"federation": "demo", "app": {"native": "mlp"}});
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    json!({"apiVersion": "flwr.exalsius.ai/v1", "kind": "FederationRun", "metadata": {"name": name}, "spec": whole})
}

fn mark(run: &proto::Run) -> String {
    match run.override_config.get(RUN_MARK).and_then(|value| value.scalar.clone()) {
        Some(Scalar::String(mark)) => mark,
        other => panic!("a run without a mark: {other:?}"),
    }
}

fn is_over(run: &proto::Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.status == "finished")
}

#[test]
fn a_run_completes_and_is_reported() {
    let Some(mut scene) = Scene::set("train") else { return };
    scene.run("early", &json!({"rounds": 2, "config": {"hidden": 8, "local-epochs": 1}}));
    scene.start_operator();
    scene.until("early", "Running");
    scene.node(0);
    scene.node(1);
    let done = scene.until("early", "Succeeded");
    let (status, runs) = (&done["status"], scene.runs());
    assert_eq!(runs.len(), 1, "submitted once: {runs:?}");
    assert_eq!(status["runId"], runs[0].run_id.to_string());
    assert_eq!((&status["progress"], &status["attempt"]), (&json!("2/2"), &json!(1)), "{status}");
    assert!(status["result"].as_object().is_some_and(|all| all.contains_key("train.loss")), "{status}");
    assert_eq!(condition(&done, "Complete").map(|it| &it["status"]), Some(&json!("True")));
    assert_eq!(mark(&runs[0]), format!("{}.1.1", done["metadata"]["uid"].as_str().expect("a uid")));
    let (_, shown) = scene.stage.kubectl(&["get", "fedrun"]);
    assert!(shown.contains("Succeeded"), "{shown}");

    // A run that is deleted by itself; meanwhile the finished one is not written.
    scene.run("short", &json!({"rounds": 1, "ttlSecondsAfterFinished": 0, "config": {"hidden": 8}}));
    scene.stage.until_gone("federationrun/short");
    let later = scene.stage.get("federationrun/early").expect("it stays");
    assert_eq!(later["metadata"]["resourceVersion"], done["metadata"]["resourceVersion"]);
    assert_eq!(scene.runs().len(), 2);
}

#[test]
fn failed_runs_are_retried_and_invalid_ones_are_reported() {
    let Some(mut scene) = Scene::set("retry") else { return };
    scene.start_operator();
    let config = json!({"initial-model": "nowhere.npz"});
    scene.run("broken", &json!({"retries": 1, "backoffSeconds": 1, "config": config}));
    scene.run("unknown", &json!({"app": {"native": "mpl"}}));
    scene.run("misspelt", &json!({"config": {"hiden": 8}}));
    scene.run("nowhere", &json!({"federation": "other"}));
    let failed = scene.until("broken", "Failed");
    assert_eq!(
        (&failed["status"]["attempt"], failed["status"]["history"].as_array().map(Vec::len)),
        (&json!(2), Some(1))
    );
    assert_eq!(condition(&failed, "Failed").map(|it| &it["status"]), Some(&json!("True")));
    let marks: BTreeSet<String> = scene.runs().iter().map(mark).collect();
    let uid = failed["metadata"]["uid"].as_str().expect("a uid");
    assert_eq!(marks, BTreeSet::from([format!("{uid}.1.1"), format!("{uid}.1.2")]));
    assert_eq!(scene.runs().len(), 2, "each try once");
    for (name, expected) in [("unknown", "there is no built-in app native:mpl"), ("misspelt", "did you mean hidden?")] {
        let told = scene.until(name, "Failed");
        assert!(told["status"]["message"].as_str().is_some_and(|it| it.contains(expected)), "{}", told["status"]);
        assert_eq!(condition(&told, "Stalled").map(|it| &it["status"]), Some(&json!("True")));
    }
    let waits = scene.until("nowhere", "Waiting");
    assert!(waits["status"]["message"].as_str().is_some_and(|it| it.contains("no Federation other")));
    // After a correction it is submitted.
    scene.stage.patch("federationrun/misspelt", &json!({"spec": {"config": {"hiden": null, "hidden": 8}}}));
    scene.until("misspelt", "Running");
}

#[test]
fn deleted_runs_and_runs_beyond_their_time_limit_are_stopped() {
    let Some(mut scene) = Scene::set("stop") else { return };
    scene.start_operator();
    // There are no nodes, so both runs wait.
    scene.run("slow", &json!({"timeoutSeconds": 3}));
    scene.run("long", &json!({}));
    scene.until("long", "Running");
    let uid = scene.stage.get("federationrun/long").expect("there")["metadata"]["uid"].clone();
    let failed = scene.until("slow", "Failed");
    assert!(failed["status"]["message"].as_str().is_some_and(|it| it.contains("longer than 3 seconds")));
    scene.stage.delete("federationrun/long");
    scene.stage.until_gone("federationrun/long");
    let runs = scene.runs();
    assert!(runs.len() == 2 && runs.iter().all(is_over), "{runs:?}");
    let long = runs.iter().find(|run| mark(run).starts_with(uid.as_str().expect("a uid"))).expect("it was there");
    assert_eq!(long.status.as_ref().map(|status| status.sub_status.as_str()), Some("stopped"));
    // Without a federation there is no run to stop.
    scene.run("orphan", &json!({}));
    scene.until("orphan", "Running");
    scene.stage.delete("federation/demo");
    scene.stage.until_gone("federation/demo");
    scene.stage.delete("federationrun/orphan");
    scene.stage.until_gone("federationrun/orphan");
}

#[test]
fn a_schedule_starts_a_run_at_its_time() {
    let Some(mut scene) = Scene::set("schedule") else { return };
    scene.start_operator();
    scene.run("nightly", &json!({"schedule": "* * * * *", "timeoutSeconds": 1}));
    let due = scene.stage.until("federationrun/nightly", |seen| seen["status"]["next"].as_str().map(str::to_owned));
    let done = scene.stage.until("federationrun/nightly", |seen| {
        seen["status"]["history"].as_array().filter(|all| !all.is_empty()).map(|_| seen.clone())
    });
    assert_eq!(done["status"]["history"][0]["scheduled"], due.as_str());
    assert_eq!((&done["status"]["count"], scene.runs().len()), (&json!(1), 1));
}

/// Not a test: the operator process of the next test.
#[test]
#[ignore = "started by other tests"]
fn operator_process() {
    let Ok(kubeconfig) = std::env::var(KUBECONFIG) else { return };
    let namespace = std::env::var(NAMESPACE).expect("a namespace");
    let reach = Reach::by_file(PathBuf::from(std::env::var(REACH).expect("a file")));
    let settings =
        Settings { namespaces: vec![namespace.clone()], own_namespace: namespace, reach, ..Settings::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = stage::client(&PathBuf::from(kubeconfig)).await;
        trellis_operator::run(client, settings, std::future::pending()).await.expect("it works");
    });
}

#[test]
fn an_operator_that_is_killed_again_and_again_submits_each_run_once() {
    const RUNS: usize = 6;
    const KILLS: u64 = 12;
    let Some(scene) = Scene::set("kills") else { return };
    for index in 0..RUNS {
        scene.run(&format!("run-{index}"), &json!({}));
    }
    let start = || {
        Process::start(
            Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "operator_process", "--ignored", "--nocapture"])
                .env(KUBECONFIG, scene.stage.plane.kubeconfig())
                .env(NAMESPACE, &scene.stage.namespace)
                .env(REACH, scene.reach()),
            &scene.directory.path().join("operator.log"),
        )
    };
    for kill in 0..KILLS {
        let operator = start();
        // The operator is killed a little later each time.
        let seen = scene.stage.plane.writes().len();
        let further = usize::try_from(kill % 4).expect("small") + 1;
        let began = Instant::now();
        while scene.stage.plane.writes().len() < seen + further && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(operator);
    }
    let _operator = start();
    for index in 0..RUNS {
        scene.until(&format!("run-{index}"), "Running");
    }
    let marks: Vec<String> = scene.runs().iter().map(mark).collect();
    let different: BTreeSet<&String> = marks.iter().collect();
    assert_eq!((marks.len(), different.len()), (RUNS, RUNS), "{marks:?}");
}

#[test]
fn a_pool_grows_when_runs_wait_for_nodes_and_as_kubectl_scale_says() {
    let Some(mut scene) = Scene::set("scaling") else { return };
    let rules = json!([{"metric": "waiting", "above": 0}]);
    scene.stage.apply(&federation(&json!({"pool": "ward", "minReplicas": 1, "maxReplicas": 5, "rules": rules})));
    scene.start_operator();
    let replicas = |wanted: i64| {
        scene.stage.until("statefulset/demo-supernode-ward", |seen| (seen["spec"]["replicas"] == wanted).then_some(()));
    };
    replicas(2);
    scene.run("large", &json!({"config": {"min-available-nodes": 4}}));
    replicas(4);
    let told = scene
        .stage
        .until("federation/demo", |seen| (seen["status"]["scaling"]["desired"] == 4).then(|| seen["status"].clone()));
    assert!(told["scaling"]["lastChange"].is_string() && told["selector"].is_string(), "{told}");
    let (good, text) = scene.stage.kubectl(&["scale", "federation/demo", "--replicas=3"]);
    assert!(good, "{text}");
    replicas(3);
}
