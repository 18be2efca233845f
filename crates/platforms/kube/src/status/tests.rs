use serde_json::json;

use super::*;
use crate::federation::Scaling;

const NOW: &str = "2026-11-16T12:00:00Z";

fn federation(mode: &str) -> Federation {
    let mut pools = json!([{"name": "a"}, {"name": "b"}]);
    if mode == "StatefulSet" {
        pools[0]["replicas"] = 2.into();
        pools[1]["replicas"] = 1.into();
    }
    let resource = json!({
        "metadata": {"name": "fl", "namespace": "n", "uid": "u", "generation": 4},
        "spec": {
            "mode": mode, "isolationMode": "subprocess", "superlink": {"image": "flwr/superlink:1.25.0"},
            "supernodes": {"image": "flwr/supernode:1.25.0", "pools": pools},
        },
    });
    Federation::read(&resource).expect("readable")
}

fn objects(all: &[Value]) -> BTreeMap<Identity, Object> {
    all.iter().map(|object| Object(object.clone())).map(|object| (object.identity(), object)).collect()
}

fn stateful(name: &str, ready: i64, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "generation": 2},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"pool": name}}},
        "status": {"observedGeneration": 2, "readyReplicas": ready, "replicas": replicas, "updatedReplicas": replicas},
    })
}

fn daemon(name: &str, ready: i64, desired: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "generation": 1}, "spec": {},
        "status": {
            "observedGeneration": 1, "numberReady": ready, "desiredNumberScheduled": desired, "updatedNumberScheduled": desired,
        },
    })
}

fn status_of(federation: &Federation, all: &[Value], failures: &[Failure]) -> Value {
    let (objects, fields) = (objects(all), Map::new());
    let input = StatusInput {
        federation,
        objects: &objects,
        durability: Durability::Claim,
        failures,
        waiting: &[],
        conditions: &[],
        fields: &fields,
    };
    status(&input, &Value::Null, NOW)
}

fn find(status: &Value, kind: &str) -> (String, String, String) {
    let all = status["conditions"].as_array().expect("conditions");
    let one = all.iter().find(|each| each["type"] == kind).expect("the condition");
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[test]
fn all_ready_is_told_in_the_known_words() {
    let federation = federation("StatefulSet");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "fl-superlink"},
        "spec": {"ports": [{"name": "fleet", "port": 9192}, {"name": "control", "port": 9193}]},
    });
    let all =
        [stateful("fl-superlink", 1, 1), stateful("fl-supernode-a", 2, 2), stateful("fl-supernode-b", 1, 1), service];
    let status = status_of(&federation, &all, &[]);
    assert_eq!(find(&status, READY), ("True".into(), "AllReady".into(), "All components are ready".into()));
    assert_eq!(find(&status, RECONCILING).0, "False");
    assert_eq!(find(&status, STALLED).0, "False");
    assert_eq!(status["observedGeneration"], 4);
    assert_eq!(status["supernodes"], "3/3");
    assert_eq!(status["endpoints"]["superlinkService"], "fl-superlink.n.svc:9193");
}

#[test]
fn a_pool_that_lags_goes_before_the_superlink() {
    let federation = federation("StatefulSet");
    let status = status_of(&federation, &[stateful("fl-superlink", 0, 1), stateful("fl-supernode-a", 1, 2)], &[]);
    assert_eq!(find(&status, READY), ("False".into(), "NotReady".into(), "Pool a not fully ready (1/2)".into()));
    let (reconciling, reason, message) = find(&status, RECONCILING);
    assert_eq!((reconciling.as_str(), reason.as_str()), ("True", "Progressing"));
    assert!(message.contains("pool a (1/2)"), "{message}");
    let all = [stateful("fl-superlink", 0, 1), stateful("fl-supernode-a", 2, 2), stateful("fl-supernode-b", 1, 1)];
    assert_eq!(find(&status_of(&federation, &all, &[]), READY).2, "SuperLink StatefulSet not ready");
}

#[test]
fn a_pool_that_fits_no_node_is_not_ready() {
    let federation = federation("DaemonSet");
    let all = [stateful("fl-superlink", 1, 1), daemon("fl-supernode-a", 0, 0), daemon("fl-supernode-b", 3, 3)];
    let status = status_of(&federation, &all, &[]);
    assert_eq!(find(&status, READY).0, "False");
    assert_eq!(status["pools"][0]["conditions"][0]["reason"], "NoNodes");
    assert_eq!(status["pools"][1]["conditions"][0]["status"], "True");
}

#[test]
fn what_only_the_user_can_end_is_stalled_and_what_passes_is_not() {
    let federation = federation("StatefulSet");
    let all = [stateful("fl-superlink", 1, 1), stateful("fl-supernode-a", 2, 2), stateful("fl-supernode-b", 1, 1)];
    let about = Identity { api_version: "apps/v1".into(), kind: "StatefulSet".into(), name: "fl-supernode-a".into() };
    let failure =
        |permanent| Failure { about: Some(about.clone()), reason: "Refused".into(), message: "no".into(), permanent };
    let status = status_of(&federation, &all, &[failure(true)]);
    assert_eq!(find(&status, STALLED), ("True".into(), "Refused".into(), "no".into()));
    assert_eq!((find(&status, READY).0, find(&status, RECONCILING).0), ("False".into(), "False".into()));
    assert_eq!(status["pools"][0]["conditions"][0]["reason"], "Failed");
    assert_eq!(status["pools"][1]["conditions"][0]["reason"], "AllReady");
    let status = status_of(&federation, &all, &[failure(false)]);
    assert_eq!(find(&status, STALLED).0, "False");
    assert_eq!((find(&status, RECONCILING).0, find(&status, RECONCILING).1), ("True".into(), "Retrying".into()));
}

#[test]
fn a_roll_out_is_under_way_until_all_pods_are_new() {
    let federation = federation("StatefulSet");
    let mut link = stateful("fl-superlink", 1, 1);
    link["status"]["observedGeneration"] = 1.into();
    let all = [link, stateful("fl-supernode-a", 2, 2), stateful("fl-supernode-b", 1, 1)];
    let status = status_of(&federation, &all, &[]);
    assert_eq!(find(&status, READY).0, "True");
    assert_eq!(find(&status, RECONCILING).0, "True");
}

#[test]
fn a_condition_keeps_its_time_until_it_changes_its_mind() {
    let federation = federation("StatefulSet");
    let all = [stateful("fl-superlink", 1, 1), stateful("fl-supernode-a", 2, 2), stateful("fl-supernode-b", 1, 1)];
    let first = status_of(&federation, &all, &[]);
    let (objects, fields) = (objects(&all[..2]), Map::new());
    let input = StatusInput {
        federation: &federation,
        objects: &objects,
        durability: Durability::Pod,
        failures: &[],
        waiting: &[],
        conditions: &[],
        fields: &fields,
    };
    let second = status(&input, &first, "2026-11-16T13:00:00Z");
    let time = |status: &Value, kind: &str| {
        let all = status["conditions"].as_array().expect("conditions");
        all.iter().find(|each| each["type"] == kind).expect("it")["lastTransitionTime"].clone()
    };
    assert_eq!(time(&second, STALLED), NOW);
    assert_eq!(time(&second, READY), "2026-11-16T13:00:00Z");
    assert_eq!(time(&second, STATE_DURABLE), "2026-11-16T13:00:00Z");
    assert_eq!(second["pools"][0]["conditions"][0]["lastTransitionTime"], NOW);
}

#[test]
fn only_what_changed_is_written_and_what_is_gone_is_taken_back() {
    let old = json!({"a": 1, "b": {"c": 1, "d": 2}, "gone": true, "list": [1, 2]});
    assert_eq!(patch(&old, &old), None);
    let new = json!({"a": 1, "b": {"c": 1, "d": 3}, "list": [1]});
    assert_eq!(patch(&old, &new), Some(json!({"b": {"d": 3}, "gone": null, "list": [1]})));
    assert_eq!(patch(&Value::Null, &json!({"a": 1})), Some(json!({"a": 1})));
}

#[test]
fn what_cannot_be_read_is_stalled_and_keeps_what_was_known() {
    let status = status_of_unreadable("spec.mode: unknown", 7, &json!({"supernodes": "2/2"}), NOW);
    assert_eq!(status["supernodes"], "2/2");
    assert_eq!(status["observedGeneration"], 7);
    assert_eq!(find(&status, STALLED).0, "True");
    assert!(find(&status, READY).2.contains("spec.mode"));
}

#[test]
fn an_autoscaler_finds_the_pods_of_the_scaled_pool_whether_it_is_named_or_the_only_one() {
    let mut federation = federation("StatefulSet");
    let all = [stateful("fl-superlink", 1, 1), stateful("fl-supernode-a", 2, 2), stateful("fl-supernode-b", 1, 1)];
    assert_eq!(status_of(&federation, &all, &[])["selector"], Value::Null, "nothing is scaled");
    federation.spec.scaling = Some(Scaling { pool: "b".to_owned(), ..Scaling::default() });
    let status = status_of(&federation, &all, &[]);
    assert_eq!((&status["selector"], &status["scaling"]["replicas"]), (&json!("pool=fl-supernode-b"), &json!(1)));
    federation.spec.supernodes.pools.truncate(1);
    federation.spec.scaling = Some(Scaling::default());
    let status = status_of(&federation, &all, &[]);
    assert_eq!((&status["selector"], &status["scaling"]["replicas"]), (&json!("pool=fl-supernode-a"), &json!(2)));
}
