//! `trellis operator run` as its pods run it: with the account of the manifests, and several at once.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use trellis_testing::kube::{ControlPlane, Parts};
use trellis_testing::ports::free_port;

use crate::stories::federation;
use crate::tools::{TRELLIS, kubectl, trellis};

pub const ACCOUNT: &str = "trellis-operator";
const NAMESPACE: &str = "trellis-system";
const DONE_WITHIN: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// From the death of a leader to the next one.
const TAKEOVER: Duration = Duration::from_secs(15);
/// The limit of a planned handover. The other instances poll every two seconds.
const HANDOVER: Duration = Duration::from_secs(5);

/// `trellis operator run` as a service account.
pub struct Operator {
    process: Child,
    log: PathBuf,
}

impl Operator {
    pub fn start(plane: &ControlPlane, name: &str, namespace: &str, flags: &[&str]) -> Operator {
        let kubeconfig = plane.kubeconfig_for_service_account(namespace, ACCOUNT);
        let log = kubeconfig.with_extension(format!("{name}.log"));
        let file = File::create(&log).expect("a log");
        let process = Command::new(TRELLIS)
            .args(["operator", "run", "--leader-elect", "--kubeconfig"])
            .arg(&kubeconfig)
            .arg(format!("--metrics-address=127.0.0.1:{}", free_port()))
            .arg(format!("--health-address=127.0.0.1:{}", free_port()))
            .args(flags)
            .env("POD_NAMESPACE", namespace)
            .env("POD_NAME", name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the operator starts");
        Operator { process, log }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it is there");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Polls the cluster.
pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DONE_WITHIN;
    while !is_so() {
        assert!(Instant::now() < until, "it did not come to this: {what}");
        sleep(POLL_INTERVAL);
    }
}

fn leads(plane: &ControlPlane, name: &str) -> bool {
    let holder = ["get", "lease", ACCOUNT, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"];
    String::from_utf8_lossy(&plane.kubectl(&holder).stdout) == name
}

#[test]
fn a_leader_that_stops_hands_over_and_one_that_is_killed_is_followed() {
    let Some(plane) = ControlPlane::start(Parts::ApiServer) else { return };
    kubectl(&plane, &["apply", "--server-side", "-f", "-"], &trellis(&["operator", "manifests"]));
    plane.until_defined();
    let mut first = Operator::start(&plane, "first", NAMESPACE, &[]);
    wait("the first leads", || leads(&plane, "first"));
    let second = Operator::start(&plane, "second", NAMESPACE, &[]);

    first.signal(Signal::TERM);
    let code = first.process.wait().expect("it ends").code();
    assert_eq!(code, Some(0), "{}", first.log());
    let told = Instant::now();
    wait("the second leads", || leads(&plane, "second"));
    assert!(told.elapsed() < HANDOVER, "{:?}", told.elapsed());

    kubectl(&plane, &["apply", "-f", "-"], &federation("default", "fl", json!({})).to_string());
    let made = ["get", "statefulset", "fl-supernode-a", "--ignore-not-found", "-o", "name"];
    wait("the second acts", || !plane.kubectl(&made).stdout.is_empty());

    let _third = Operator::start(&plane, "third", NAMESPACE, &[]);
    second.signal(Signal::KILL);
    let killed = Instant::now();
    wait("the third leads", || leads(&plane, "third"));
    assert!(killed.elapsed() < TAKEOVER, "{:?}", killed.elapsed());
    kubectl(&plane, &["delete", "statefulset", "fl-supernode-a"], "");
    wait("the third acts", || !plane.kubectl(&made).stdout.is_empty());
}
