//! Faults: the operator is killed, the API server is unavailable, others write at the same time. The objects of the
//! federations always converge to the desired state. The operator is a process of its own: this test binary.

mod stage;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stage::{Operator, Stage, TIMEOUT, federation};
use trellis_kube::durability::durability;
use trellis_kube::federation::Federation;
use trellis_kube::object::{Identity, Object, Owner, difference, settled};
use trellis_kube::render::{Ground, render};
use trellis_operator::Settings;
use trellis_testing::kube::Parts;

const KUBECONFIG: &str = "TRELLIS_TEST_OPERATOR_KUBECONFIG";
const NAMESPACE: &str = "TRELLIS_TEST_OPERATOR_NAMESPACE";
const IDENTITY: &str = "TRELLIS_TEST_OPERATOR_IDENTITY";
/// Pods become ready, because an upgrade waits for the SuperLink before its pools follow.
const PARTS: Parts = Parts::WithScheduler;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time until a standby operator takes over from a killed leader.
const TAKEOVER: Duration = Duration::from_secs(15);

/// Not a test: the operator process of the tests below.
#[test]
#[ignore = "started by other tests"]
fn operator_process() {
    let Ok(kubeconfig) = std::env::var(KUBECONFIG) else { return };
    let namespace = std::env::var(NAMESPACE).expect("a namespace");
    let identity = std::env::var(IDENTITY).ok();
    let settings = Settings {
        namespaces: vec![namespace.clone()],
        own_namespace: namespace,
        leader_election: identity.is_some(),
        identity: identity.unwrap_or_else(|| Settings::default().identity),
        ..Settings::default()
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = stage::client(&PathBuf::from(kubeconfig)).await;
        trellis_operator::run(client, settings, std::future::pending()).await.expect("it works");
    });
}

/// Ends when dropped.
struct Process(Child);

impl Process {
    fn start(stage: &Stage, identity: Option<&str>) -> Process {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "operator_process", "--ignored", "--nocapture"]);
        command.env(KUBECONFIG, stage.plane.kubeconfig()).env(NAMESPACE, &stage.namespace);
        if let Some(identity) = identity {
            command.env(IDENTITY, identity);
        }
        Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("an operator"))
    }

    /// Sends SIGKILL.
    fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A deterministic generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A random desired state of a federation; `None`: deleted.
fn any_federation(name: &str, random: &mut Random) -> Option<Value> {
    if random.below(6) == 0 {
        return None;
    }
    let isolation = ["process", "subprocess"][usize::from(random.below(2) == 0)];
    let size = 1 + i32::try_from(random.below(3)).expect("small");
    let mode = if random.below(5) == 0 { "DaemonSet" } else { "StatefulSet" };
    let pools: &[(&str, i32)] = if random.below(3) == 0 { &[("a", size)] } else { &[("a", size), ("b", 1)] };
    let mut wanted = federation(name, mode, isolation, pools);
    let release = ["1.25.0", "1.26.0"][usize::from(random.below(2) == 0)];
    let upgraded = wanted.to_string().replace(":1.25.0", &format!(":{release}"));
    wanted = serde_json::from_str(&upgraded).expect("JSON");
    wanted["spec"]["security"] = json!({"networkPolicy": {"enabled": random.below(2) == 0}});
    Some(wanted)
}

/// Differences between the live and the desired objects of the namespace.
fn deviations(stage: &Stage) -> Vec<String> {
    let list = |what: &str| -> Vec<Value> {
        let (good, text) = stage.kubectl(&["get", what, "-o", "json"]);
        assert!(good, "{text}");
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    };
    let federations = list("federations");
    let live: Vec<Object> =
        list("statefulsets,daemonsets,services,poddisruptionbudgets,networkpolicies").into_iter().map(Object).collect();
    let mut expected: BTreeSet<Identity> = BTreeSet::new();
    let mut found = Vec::new();
    for resource in &federations {
        let federation = Federation::read(resource).expect("readable");
        let owner = Owner { name: &federation.name, uid: &federation.uid };
        let of = |name: &str, kind: &str| {
            live.iter().find(|object| object.identity().name == name && object.0["kind"] == kind)
        };
        let link = of(&federation.superlink_name(), "StatefulSet");
        let ground = Ground {
            durability: durability(&federation, link, None),
            operator_namespace: Some(stage.namespace.clone()),
            ..Ground::default()
        };
        let rendered = render(&federation, &ground);
        assert!(rendered.problems.is_empty(), "{:?}", rendered.problems);
        for wanted in rendered.objects {
            let identity = wanted.identity();
            expected.insert(identity.clone());
            match of(&identity.name, &identity.kind) {
                None => found.push(format!("{identity} is missing")),
                Some(live) if !live.is_of(owner) || live.is_leaving() => {
                    found.push(format!("{identity} is not of {}", federation.name))
                }
                Some(live) => {
                    let wanted = settled(wanted, Some(live));
                    found.extend(difference(&wanted.0, &live.0).map(|place| format!("{identity} differs at {place}")));
                }
            }
        }
        if resource["status"]["observedGeneration"] != resource["metadata"]["generation"] {
            found.push(format!("{} has an old status", federation.name));
        }
    }
    found.extend(
        live.iter()
            .filter(|live| !expected.contains(&live.identity()))
            .map(|live| format!("{} is left over", live.identity())),
    );
    found
}

fn until_as_wanted(stage: &Stage) {
    let start = Instant::now();
    loop {
        let found = deviations(stage);
        if found.is_empty() {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "{found:#?}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Federations are created, scaled, upgraded, switched and deleted while the operator is killed at random times.
fn killed_at_random(name: &str, federations: usize, kills: usize) {
    let Some(stage) = Stage::without_operator(PARTS, name) else { return };
    let mut random = Random(0x5eed_0000_0000_0001 + kills as u64);
    for kill in 0..kills {
        let operator = Process::start(&stage, None);
        let (wanted, gone): (Vec<_>, Vec<_>) = (0..federations / 2)
            .map(|_| {
                let name = format!("f{}", random.below(federations as u64));
                (any_federation(&name, &mut random), name)
            })
            .partition(|(wanted, _)| wanted.is_some());
        let list = json!({"apiVersion": "v1", "kind": "List", "items": wanted.iter().filter_map(|(wanted, _)| wanted.clone()).collect::<Vec<_>>()});
        let killed_after = Duration::from_millis(50 + random.below(1500));
        thread::scope(|scope| {
            scope.spawn(|| {
                stage.apply(&list);
                for (_, name) in &gone {
                    stage.kubectl(&["delete", "federation", name, "--wait=false", "--ignore-not-found"]);
                }
            });
            thread::sleep(killed_after);
            operator.kill();
        });
        if kill % 10 == 9 {
            let _operator = Process::start(&stage, None);
            until_as_wanted(&stage);
        }
    }
    let _last = Process::start(&stage, None);
    until_as_wanted(&stage);
}

#[test]
fn an_operator_that_is_killed_at_random_converges() {
    killed_at_random("kills", 8, 10);
}

#[test]
#[ignore = "takes minutes: `cargo test -p trellis-operator --test faults -- --ignored a_hundred_kills`"]
fn a_hundred_kills_among_fifty_federations() {
    killed_at_random("hundred", 50, 100);
}

/// The leader is killed, and another operator acts within 15 s. The first one restarts and waits.
#[test]
fn another_operator_takes_over_from_a_leader_that_was_killed() {
    let Some(stage) = Stage::without_operator(PARTS, "leader") else { return };
    let first = Process::start(&stage, Some("first"));
    let holder = |seen: &Value| seen["spec"]["holderIdentity"].as_str().map(str::to_owned);
    stage.until("lease/trellis-operator", |seen| holder(seen).filter(|holder| holder == "first"));
    let _second = Process::start(&stage, Some("second"));
    stage.apply(&federation("one", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_told("one");
    first.kill();
    let killed = Instant::now();
    stage.apply(&federation("two", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until("lease/trellis-operator", |seen| holder(seen).filter(|holder| holder == "second"));
    stage.until_told("two");
    assert!(killed.elapsed() < TAKEOVER, "{:?}", killed.elapsed());
    eprintln!("another operator acted {:.1} s after the leader was killed", killed.elapsed().as_secs_f64());
    let _first = Process::start(&stage, Some("first"));
    stage.apply(&federation("three", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_told("three");
    let lease = stage.get("lease/trellis-operator").expect("a lease");
    assert_eq!(holder(&lease).as_deref(), Some("second"));
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

/// Two operators in one namespace reconcile different federations, each with its own lease.
#[test]
fn operators_with_different_leases_both_lead() {
    let Some(stage) = Stage::without_operator(PARTS, "leases") else { return };
    let start = |name: &str| {
        let settings = Settings {
            leader_election: true,
            lease_name: name.to_owned(),
            identity: name.to_owned(),
            ..stage.settings()
        };
        Operator::start(&stage.plane.kubeconfig(), settings)
    };
    let _operators = [start("blue"), start("green")];
    for name in ["blue", "green"] {
        stage.until(&format!("lease/{name}"), |seen| (seen["spec"]["holderIdentity"] == name).then_some(()));
    }
}

/// Another client writes the same objects and the resource all the time; conflicts do not stop the operator.
#[test]
fn a_writer_that_interferes_does_not_stop_it() {
    let Some(mut stage) = Stage::without_operator(PARTS, "conflict") else { return };
    stage.start_operator();
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 2)]));
    stage.until_there("statefulset/fl-supernode-a");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                stage.patch(
                    "statefulset/fl-supernode-a",
                    &json!({"spec": {"replicas": 7}, "metadata": {"annotations": {"count": count.to_string()}}}),
                );
                stage.patch("federation/fl", &json!({"metadata": {"annotations": {"count": count.to_string()}}}));
            }
        });
        // Both succeed: changes of the spec are executed, and the status is written.
        for size in [3, 4, 5] {
            stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", size)]));
            stage.until_told("fl");
            stage.until("statefulset/fl-supernode-a", |seen| (seen["spec"]["replicas"] == size).then_some(()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    until_as_wanted(&stage);
}

/// The API server restarts, and watches break; changes before and after are observed.
#[test]
fn a_restart_of_the_api_server_is_survived() {
    let Some(plane) = trellis_testing::kube::ControlPlane::start(Parts::ApiServer) else { return };
    stage::install(&plane);
    let plane: &'static trellis_testing::kube::ControlPlane = Box::leak(Box::new(plane));
    let mut stage = Stage::on(plane, "restart");
    stage.start_operator();
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 1)]));
    stage.until_told("fl");
    plane.restart_api_server();
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 3)]));
    stage.until("statefulset/fl-supernode-a", |seen| (seen["spec"]["replicas"] == 3).then_some(()));
    stage.patch("statefulset/fl-supernode-a", &json!({"spec": {"replicas": 9}}));
    stage.until("statefulset/fl-supernode-a", |seen| (seen["spec"]["replicas"] == 3).then_some(()));
    stage.until_told("fl");
    stage.stop_operator();
    plane.stop_api_server();
    // It starts while the API server is unavailable.
    stage.start_operator();
    plane.start_api_server();
    stage.apply(&federation("fl", "StatefulSet", "subprocess", &[("a", 2)]));
    stage.until("statefulset/fl-supernode-a", |seen| (seen["spec"]["replicas"] == 2).then_some(()));
    until_as_wanted(&stage);
}
