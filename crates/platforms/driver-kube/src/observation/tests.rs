use serde_json::json;
use trellis_plan::Order;

use super::*;
use crate::testing;

const NOW_MS: u64 = 1_800_000_000_000;

fn record(part: &str) -> Record {
    Record::new(testing::desired(part), Order::default(), false, 7)
}

fn workload(record: &Record) -> Value {
    json!({ "metadata": {
        "labels": names::labels(record.id()),
        "annotations": { names::RECORD: record.text() },
    }, "spec": { "replicas": 1 } })
}

fn pod(record: &Record, status: Value) -> Value {
    json!({
        "metadata": {
            "name": ObjectNames::of(record.id()).pod(),
            "namespace": "federations",
            "labels": names::labels(record.id()),
            "annotations": {
                names::GENERATION: record.generation().to_string(),
                names::INSTANCE: record.instance.to_string(),
            },
        },
        "spec": { "nodeName": "machine-1" },
        "status": status,
    })
}

fn ready() -> Value {
    json!({ "hostIP": "192.0.2.7", "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T10:00:00Z" },
    ] })
}

fn waits(reason: &str, message: &str) -> Value {
    json!({ "containerStatuses": [{
        "name": "supernode",
        "image": "trellis-supernode:9",
        "restartCount": 3,
        "state": { "waiting": { "reason": reason, "message": message } },
        "lastState": { "terminated": { "exitCode": 2, "reason": "Error", "message": "no such flag" } },
    }] })
}

fn seen(workloads: Vec<Value>, pods: Vec<Value>) -> Vec<(ResourceId, Presence)> {
    let id = testing::id("f/lab/coordinator");
    let snapshot = Snapshot::new(&id.federation, &id.site, workloads, pods, None);
    observed_parts(&snapshot, &testing::site(), NOW_MS)
}

/// Phase of the only part, and what it waits for.
fn phase_of(record: &Record, pods: Vec<Value>) -> String {
    let all = seen(vec![workload(record)], pods);
    let [(_, Presence::Present { facts, .. })] = &all[..] else { panic!("{all:?}") };
    let waiting_for = facts.waiting_for.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{:?}{waiting_for}", facts.phase)
}

#[test]
fn pods_that_are_not_ready_have_a_reason() {
    let record = record("f/lab/node/cpu-0");
    let of = |status: Value| phase_of(&record, vec![pod(&record, status)]);
    assert_eq!(phase_of(&record, Vec::new()), "Starting");
    assert_eq!(of(json!({})), "Starting");
    assert_eq!(of(ready()), "Ready");
    assert_eq!(
        of(waits("ImagePullBackOff", "not found")),
        "Starting: ImagePullBackOff: pod f-supernode-cpu-0-0, container supernode: image trellis-supernode:9 cannot be pulled: not found"
    );
    assert_eq!(
        of(waits("CrashLoopBackOff", "back-off")),
        "Starting: pod f-supernode-cpu-0-0, container supernode: the program ends again and again: exit code 2, no such flag, \
         3 restarts"
    );
    assert!(
        of(waits("InvalidImageName", "bad")).starts_with("Failed { why: \"InvalidImageName: pod f-supernode-cpu-0-0")
    );
    assert_eq!(of(waits("ContainerCreating", "")), "Starting");
    let unplaced = json!({ "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" },
    ] });
    assert_eq!(
        of(unplaced),
        "Starting: Unschedulable: pod f-supernode-cpu-0-0 cannot be scheduled: 0/3 nodes are available"
    );
}

#[test]
fn only_the_current_pod_counts() {
    let before = record("f/lab/node/cpu-0");
    let now = Record { instance: 8, ..before.clone() };
    assert_eq!(phase_of(&now, vec![pod(&before, ready())]), "Starting", "the earlier pod still runs");
    assert_eq!(phase_of(&now, vec![pod(&now, ready())]), "Ready");
}

#[test]
fn a_pod_that_does_not_end_has_advice() {
    let record = record("f/lab/node/cpu-0");
    let mut stuck = pod(&record, ready());
    stuck["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:50:00Z");
    let mut stopping = workload(&record);
    stopping["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:50:00Z");
    let all = [seen(vec![stopping], vec![stuck.clone()]), seen(Vec::new(), vec![stuck])];
    for all in all {
        let [(_, Presence::Present { facts, .. })] = &all[..] else { panic!("{all:?}") };
        assert_eq!(facts.phase, Phase::Stopping);
        let why = facts.waiting_for.as_deref().expect("it is overdue");
        assert!(why.contains("by 600 s: machine machine-1 may be gone") && why.contains("--force"), "{why}");
    }
}

#[test]
fn damaged_records_are_unknown_and_foreign_workloads_are_ignored() {
    let record = record("f/lab/node/cpu-0");
    let mut damaged = workload(&record);
    damaged["metadata"]["annotations"][names::RECORD] = json!("{");
    assert!(matches!(&seen(vec![damaged], Vec::new())[..], [(_, Presence::Unknown { .. })]));
    let mut foreign = workload(&record);
    foreign["metadata"]["annotations"] = json!({});
    assert_eq!(seen(vec![foreign], Vec::new()), Vec::new());
}

#[test]
fn addresses_follow_the_exposure_of_the_site() {
    let service = json!({
        "metadata": { "name": "f-superlink" },
        "spec": { "ports": [
            { "name": "fleet", "port": 9092, "nodePort": 30001 },
            { "name": "control", "port": 9093, "nodePort": 30002 },
            { "name": "http", "port": 8000, "nodePort": 30003 },
        ] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "2001:db8::1" }] } },
    });
    let fleet =
        |exposure, machine: Option<&str>| addresses(&service, &KubeSite { exposure, ..testing::site() }, machine).fleet;
    assert_eq!(fleet(Exposure::Cluster, None).as_deref(), Some("f-superlink.federations.svc:9092"));
    assert_eq!(fleet(Exposure::NodePort, None), None);
    assert_eq!(fleet(Exposure::NodePort, Some("192.0.2.7")).as_deref(), Some("192.0.2.7:30001"));
    assert_eq!(fleet(Exposure::LoadBalancer, None).as_deref(), Some("[2001:db8::1]:9092"));
    let mut pending = service.clone();
    pending["status"] = json!({});
    let site = KubeSite { exposure: Exposure::LoadBalancer, ..testing::site() };
    assert_eq!(addresses(&pending, &site, None), Addresses::default(), "not assigned yet");
}
