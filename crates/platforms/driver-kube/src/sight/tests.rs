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
            "name": Called::of(record.id()).pod(),
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
        "image": "trellis-supernode:9",
        "restartCount": 3,
        "state": { "waiting": { "reason": reason, "message": message } },
        "lastState": { "terminated": { "exitCode": 2, "reason": "Error", "message": "no such flag" } },
    }] })
}

fn seen(workloads: Vec<Value>, pods: Vec<Value>) -> Vec<(ResourceId, Sighting)> {
    let id = testing::id("f/lab/coordinator");
    let view = View::new(&id.federation, &id.site, workloads, pods, None);
    sightings(&view, &testing::site(), NOW_MS)
}

/// Phase and hindrance, of the only part.
fn told(record: &Record, pods: Vec<Value>) -> String {
    let all = seen(vec![workload(record)], pods);
    let [(_, Sighting::Present { facts, .. })] = &all[..] else { panic!("{all:?}") };
    let hindrance = facts.hindrance.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{:?}{hindrance}", facts.phase)
}

#[test]
fn what_a_pod_waits_for_is_told_in_words() {
    let record = record("f/lab/node/cpu-0");
    let of = |status: Value| told(&record, vec![pod(&record, status)]);
    assert_eq!(told(&record, Vec::new()), "Starting");
    assert_eq!(of(json!({})), "Starting");
    assert_eq!(of(ready()), "Ready");
    assert_eq!(
        of(waits("ImagePullBackOff", "not found")),
        "Starting: its image trellis-supernode:9 cannot be pulled: not found"
    );
    assert_eq!(
        of(waits("CrashLoopBackOff", "back-off")),
        "Starting: its program ends again and again: exit code 2, no such flag, 3 times"
    );
    assert!(
        of(waits("InvalidImageName", "bad")).starts_with("Failed { why: \"trellis-supernode:9 is no name of an image")
    );
    assert_eq!(of(waits("ContainerCreating", "")), "Starting");
    let unplaced = json!({ "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" },
    ] });
    assert_eq!(of(unplaced), "Starting: no machine takes its pod: 0/3 nodes are available");
}

#[test]
fn only_the_pod_that_was_asked_for_last_counts() {
    let before = record("f/lab/node/cpu-0");
    let now = Record { instance: 8, ..before.clone() };
    assert_eq!(told(&now, vec![pod(&before, ready())]), "Starting", "the one before it still runs");
    assert_eq!(told(&now, vec![pod(&now, ready())]), "Ready");
}

#[test]
fn a_pod_that_does_not_end_says_what_to_do() {
    let record = record("f/lab/node/cpu-0");
    let mut stuck = pod(&record, ready());
    stuck["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:50:00Z");
    let mut stopping = workload(&record);
    stopping["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:50:00Z");
    let all = [seen(vec![stopping], vec![stuck.clone()]), seen(Vec::new(), vec![stuck])];
    for all in all {
        let [(_, Sighting::Present { facts, .. })] = &all[..] else { panic!("it is not gone: {all:?}") };
        assert_eq!(facts.phase, Phase::Stopping);
        let why = facts.hindrance.as_deref().expect("it is overdue");
        assert!(why.contains("600 s ago: machine machine-1 may be gone") && why.contains("--force"), "{why}");
    }
}

#[test]
fn what_cannot_be_read_is_unknown_and_what_is_not_ours_is_nothing() {
    let record = record("f/lab/node/cpu-0");
    let mut damaged = workload(&record);
    damaged["metadata"]["annotations"][names::RECORD] = json!("{");
    assert!(matches!(&seen(vec![damaged], Vec::new())[..], [(_, Sighting::Unknown { .. })]));
    let mut foreign = workload(&record);
    foreign["metadata"]["annotations"] = json!({});
    assert_eq!(seen(vec![foreign], Vec::new()), Vec::new());
}

#[test]
fn a_coordinator_is_reached_as_its_site_says() {
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
    assert_eq!(addresses(&pending, &site, None), Addresses::default(), "nobody says yet");
}
