use serde_json::json;

use super::*;

const NOON: i64 = 1_794_830_400;

fn federation(scaling: Value) -> Federation {
    let spec = json!({
        "mode": "StatefulSet", "isolationMode": "subprocess", "superlink": {"image": "trellis"}, "scaling": scaling,
        "supernodes": {"image": "trellis", "pools": [{"name": "a", "replicas": 2, "images": {}}]},
    });
    let resource = json!({"metadata": {"name": "f", "namespace": "n", "uid": "u"}, "spec": spec});
    Federation::read(&resource).expect("it can be read")
}

fn at_work(round_s: f64) -> Activity {
    Activity { runs: Some(1), round_s: Some(round_s), wanted: None, online: Some(2) }
}

/// Through `.status`, as the next pass sees it.
fn kept(decision: &Decision) -> Memory {
    let memory = Memory::read(&json!({"scaling": decision.status(2)}));
    assert_eq!(memory, decision.memory);
    memory
}

#[test]
fn a_number_that_somebody_wrote_holds_at_once() {
    for (scaling, expected) in [
        (json!({}), 2),
        (json!({"replicas": 7}), 7),
        (json!({"pool": "a", "replicas": 7, "maxReplicas": 5}), 5),
        (json!({"replicas": 0}), 0),
        (json!({"replicas": 1, "minReplicas": 3, "maxReplicas": 9}), 3),
    ] {
        let federation = federation(scaling.clone());
        // Also in the middle of a run and of a cooldown: a size that a user wrote applies.
        let memory = Memory { desired: Some(4), asked: Some(4), changed: Some(NOON) };
        let decision = decide(&federation, &at_work(9.0), &memory, NOON).expect("it is scaled");
        assert_eq!(decision.size, expected, "{scaling}");
    }
    let with_rules = json!({"replicas": 6, "maxReplicas": 9, "rules": [{"metric": "roundTime", "above": 10}]});
    let memory = Memory { desired: Some(9), asked: Some(3), changed: Some(NOON) };
    assert_eq!(decide(&federation(with_rules), &at_work(1.0), &memory, NOON).map(|it| it.size), Some(6));
}

#[test]
fn rounds_that_take_too_long_get_one_node_more_after_each_cooldown() {
    let federation =
        federation(json!({"maxReplicas": 4, "cooldownSeconds": 60, "rules": [{"metric": "roundTime", "above": 10}]}));
    let first = decide(&federation, &at_work(50.0), &Memory::default(), NOON).expect("scaled");
    assert_eq!(first.size, 2, "it begins as it was written");
    let second = decide(&federation, &at_work(50.0), &kept(&first), NOON + 1).expect("scaled");
    assert_eq!((second.size, second.memory.changed), (3, Some(NOON + 1)));
    assert!(second.why.contains("roundTime is 50, above 10"), "{}", second.why);
    // Two rounds are longer than the cooldown that was written.
    let soon = decide(&federation, &at_work(50.0), &kept(&second), NOON + 100).expect("scaled");
    assert_eq!((soon.size, soon.wake_at), (3, Some(NOON + 101)));
    let later = decide(&federation, &at_work(50.0), &kept(&soon), NOON + 101).expect("scaled");
    assert_eq!(later.size, 4);
    let most = decide(&federation, &at_work(50.0), &kept(&later), NOON + 900).expect("scaled");
    assert_eq!((most.size, most.wake_at), (4, None), "never more than are allowed");
    // Without runs, the pool has the size of the resource; with runs, no node is removed.
    let quick = decide(&federation, &at_work(1.0), &kept(&most), NOON + 1800).expect("scaled");
    assert_eq!(quick.size, 4);
    let idle = Activity { runs: Some(0), ..Activity::default() };
    assert_eq!(decide(&federation, &idle, &kept(&quick), NOON + 1900).map(|it| it.size), Some(2));
}

#[test]
fn runs_that_wait_for_nodes_get_them_and_no_rule_takes_any_from_a_run() {
    let rules = json!([{"metric": "waiting", "above": 0}, {"metric": "runs", "below": 1, "step": 2}]);
    let federation = federation(json!({"minReplicas": 1, "maxReplicas": 10, "cooldownSeconds": 0, "rules": rules}));
    let memory = Memory { desired: Some(2), asked: Some(2), changed: None };
    let waiting = Activity { runs: Some(1), wanted: Some(6), online: Some(2), round_s: None };
    let grown = decide(&federation, &waiting, &memory, NOON).expect("scaled");
    assert_eq!(grown.size, 6, "all that are missing, at once");
    let coming = Activity { online: Some(0), ..waiting };
    assert_eq!(decide(&federation, &coming, &memory, NOON).map(|it| it.size), Some(6), "those that come count");
    assert_eq!(decide(&federation, &coming, &kept(&grown), NOON + 1).map(|it| it.size), Some(6));
    let unknown = decide(&federation, &Activity::default(), &kept(&grown), NOON + 1).expect("scaled");
    assert_eq!(unknown.size, 6, "an unknown state changes nothing");
    let idle = Activity { runs: Some(0), wanted: None, online: Some(6), round_s: None };
    let shrunk = decide(&federation, &idle, &kept(&unknown), NOON + 2).expect("scaled");
    assert_eq!(shrunk.size, 4);
    let busy = decide(
        &self::federation(json!({"maxReplicas": 9, "rules": [{"metric": "roundTime", "below": 5}]})),
        &at_work(1.0),
        &memory,
        NOON,
    );
    let busy = busy.expect("scaled");
    assert_eq!(busy.size, 2);
    assert!(busy.why.contains("no node is removed"), "{}", busy.why);
}

#[test]
fn new_bounds_hold_at_once() {
    let federation = federation(json!({"maxReplicas": 3, "rules": [{"metric": "runs", "above": 0}]}));
    let memory = Memory { desired: Some(8), asked: Some(2), changed: Some(NOON) };
    assert_eq!(decide(&federation, &at_work(1.0), &memory, NOON + 1).map(|it| it.size), Some(3));
}

#[test]
fn nothing_is_scaled_where_nothing_can_be() {
    let mut federation = federation(json!({"replicas": 3}));
    federation.spec.mode = Mode::DaemonSet;
    assert_eq!(decide(&federation, &Activity::default(), &Memory::default(), NOON), None);
    assert!(!has_rules(&federation));
}

#[test]
fn a_pool_is_wanted_for_what_runs_need_beyond_other_pools_and_sites() {
    let mut federation = federation(json!({"pool": "a"}));
    let of = |runs, wanted| Activity { runs, wanted, ..Activity::default() };
    assert_eq!(needed_nodes(&federation, &of(Some(1), Some(5))), Some(5));
    assert_eq!(needed_nodes(&federation, &of(Some(1), None)), None, "the run does not say");
    assert_eq!(needed_nodes(&federation, &of(None, None)), None, "the SuperLink was not called");
    assert_eq!(needed_nodes(&federation, &of(Some(0), None)), Some(0));
    let other = Pool { name: "b".to_owned(), replicas: Some(3), ..federation.spec.supernodes.pools[0].clone() };
    federation.spec.supernodes.pools.push(other);
    assert_eq!(needed_nodes(&federation, &of(Some(1), Some(5))), Some(2));
    assert_eq!(needed_nodes(&federation, &of(Some(1), Some(2))), Some(0));
    federation.spec.scaling = None;
    assert_eq!(needed_nodes(&federation, &of(Some(1), Some(5))), None, "nothing is scaled");
}
