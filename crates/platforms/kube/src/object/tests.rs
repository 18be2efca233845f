use serde_json::json;

use super::*;

const OWNER: Owner<'static> = Owner { name: "fl", uid: "u1" };

fn owned(mut object: Value, uid: &str) -> Object {
    object["metadata"]["ownerReferences"] =
        json!([{"kind": "Federation", "name": "fl", "uid": uid, "controller": true}]);
    Object(object)
}

fn stateful_set(claims: Value) -> Object {
    owned(
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "fl-superlink"},
            "spec": {
                "serviceName": "fl-superlink", "selector": {"matchLabels": {"a": "b"}}, "podManagementPolicy": "Parallel",
                "template": {"spec": {"containers": [{
                    "name": "superlink", "args": ["--insecure"], "env": [{"name": "A", "value": "1"}],
                    "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}},
                }]}},
                "volumeClaimTemplates": claims,
            },
        }),
        "u1",
    )
}

fn claim(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"resources": {"requests": {"storage": size}}}})
}

#[test]
fn what_is_only_in_the_live_object_is_no_difference() {
    let desired = stateful_set(json!([])).0;
    let mut live = desired.clone();
    live["spec"]["replicas"] = 1.into();
    live["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = "/dev/termination-log".into();
    live["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "THEIRS", "value": "x"}, {"name": "A", "value": "1"}]);
    live["spec"].as_object_mut().expect("fields").remove("volumeClaimTemplates");
    assert_eq!(difference(&desired, &live), None);
}

#[test]
fn amounts_are_compared_as_amounts_and_only_where_there_are_some() {
    let desired = stateful_set(json!([])).0;
    let mut live = desired.clone();
    live["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1", "memory": "1024Mi"});
    assert_eq!(difference(&desired, &live), None);
    live["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2".into();
    assert_eq!(difference(&desired, &live).as_deref(), Some("spec.template.spec.containers.0.resources.limits.cpu"));
    assert!(difference(&json!({"labels": {"x": "1000m"}}), &json!({"labels": {"x": "1"}})).is_some());
    for (one, other, same) in
        [("1e3", "1k", true), ("0.5", "500m", true), ("1.5Gi", "1536Mi", true), ("1G", "1Gi", false)]
    {
        assert_eq!(quantity::read(&json!(one)) == quantity::read(&json!(other)), same, "{one} {other}");
    }
    assert_eq!(quantity::read(&json!("much")), None);
}

#[test]
fn lists_without_names_are_compared_as_a_whole() {
    let args = |args: Value| json!({"args": args});
    assert_eq!(difference(&args(json!(["a", "b"])), &args(json!(["a", "b"]))), None);
    for other in [json!(["b", "a"]), json!(["a"]), json!(["a", "b", "c"]), Value::Null] {
        assert!(difference(&args(json!(["a", "b"])), &args(other.clone())).is_some(), "{other}");
    }
}

#[test]
fn what_the_api_server_leaves_out_is_no_difference_but_security_is() {
    for (desired, same) in [
        (json!({"hostNetwork": false}), true),
        (json!({"nodeSelector": {}}), true),
        (json!({"initialDelaySeconds": 0}), true),
        (json!({"emptyDir": {}}), false),
        (json!({"automountServiceAccountToken": false}), false),
        (json!({"allowPrivilegeEscalation": false}), false),
    ] {
        assert_eq!(difference(&desired, &json!({})).is_none(), same, "{desired}");
    }
}

#[test]
fn an_object_in_sync_is_left_alone_and_others_are_applied_for_a_reason() {
    let desired = stateful_set(json!([]));
    assert_eq!(compare(&desired, None, OWNER, None), Verdict::Apply(Cause::New));
    let mut live = desired.marked();
    assert_eq!(compare(&desired, Some(&live), OWNER, None), Verdict::InSync);
    live.0["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--other"]);
    let drift = Cause::Drift("spec.template.spec.containers.0.args".to_owned());
    assert_eq!(compare(&desired, Some(&live), OWNER, None), Verdict::Apply(drift));
    // The API server wrote it so: no drift.
    let made = digest_of_live(&live);
    assert_eq!(compare(&desired, Some(&live), OWNER, Some(&made)), Verdict::InSync);
    live.0["metadata"]["annotations"][APPLIED] = "older".into();
    assert_eq!(compare(&desired, Some(&live), OWNER, None), Verdict::Apply(Cause::Changed));
    live.0["metadata"]["annotations"] = Value::Null;
    assert_eq!(compare(&desired, Some(&live), OWNER, None), Verdict::Apply(Cause::Adopt));
}

#[test]
fn strangers_are_refused_and_those_who_leave_are_awaited() {
    let desired = stateful_set(json!([]));
    let mut foreign = desired.clone();
    foreign.0["metadata"]["ownerReferences"] = Value::Null;
    assert!(
        matches!(compare(&desired, Some(&foreign), OWNER, None), Verdict::Refused(refusal) if refusal.reason == "NameTaken")
    );
    let mut other = owned(desired.0.clone(), "u2");
    assert!(matches!(compare(&desired, Some(&other), OWNER, None), Verdict::Wait(_)));
    other.0["metadata"]["ownerReferences"][0]["kind"] = "Other".into();
    assert!(matches!(compare(&desired, Some(&other), OWNER, None), Verdict::Refused(_)));
    let mut leaving = desired.marked();
    leaving.0["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(matches!(compare(&desired, Some(&leaving), OWNER, None), Verdict::Wait(_)));
}

#[test]
fn claims_that_are_added_make_it_anew_and_claims_that_go_or_shrink_are_refused() {
    let with = |claims: Value| stateful_set(claims);
    let judge = |desired: &Object, live: &Object| compare(desired, Some(&live.marked()), OWNER, None);
    let (none, one, larger) =
        (with(json!([])), with(json!([claim("data", "1Gi")])), with(json!([claim("data", "2Gi")])));
    assert!(matches!(judge(&one, &none), Verdict::Recreate { keep_pods: true, .. }));
    assert!(matches!(judge(&larger, &one), Verdict::Recreate { keep_pods: true, .. }));
    for (desired, live) in [(&none, &one), (&one, &larger)] {
        assert!(matches!(judge(desired, live), Verdict::Refused(refusal) if refusal.reason == "DataWouldBeLost"));
    }
    // The same claim, as the API server shows it.
    let mut live = one.marked();
    live.0["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"] = "Filesystem".into();
    live.0["spec"]["volumeClaimTemplates"][0]["status"] = json!({"phase": "Pending"});
    assert_eq!(compare(&one, Some(&live), OWNER, None), Verdict::InSync);
    let mut selector = one.marked();
    selector.0["spec"]["selector"] = json!({"matchLabels": {"a": "other"}});
    selector.0["metadata"]["annotations"] = Value::Null;
    assert!(matches!(compare(&one, Some(&selector), OWNER, None), Verdict::Recreate { keep_pods: false, .. }));
}

#[test]
fn an_existing_stateful_set_keeps_how_its_pods_are_started() {
    let mut live = stateful_set(json!([]));
    live.0["spec"]["podManagementPolicy"] = "OrderedReady".into();
    let desired = settled(stateful_set(json!([])), Some(&live));
    assert_eq!(desired.0["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(settled(stateful_set(json!([])), None).0["spec"]["podManagementPolicy"], "Parallel");
}

#[test]
fn leftovers_are_only_those_of_this_federation() {
    let desired = [stateful_set(json!([]))];
    let live = |kind: &str, name: &str, uid: &str| {
        owned(json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}}), uid)
    };
    let objects = [
        live("StatefulSet", "fl-superlink", "u1"),
        live("DaemonSet", "fl-superlink", "u1"),
        live("StatefulSet", "fl-supernode-old", "u1"),
        live("StatefulSet", "fl-supernode-theirs", "u2"),
        live("Secret", "fl-ca", "u1"),
    ];
    let objects = objects.into_iter().map(|object| (object.identity(), object)).collect();
    let gone: Vec<String> =
        leftovers(&desired, &objects, OWNER, &["Secret"]).map(|object| object.identity().to_string()).collect();
    assert_eq!(gone, ["DaemonSet fl-superlink", "StatefulSet fl-supernode-old"]);
}

#[test]
fn the_fields_of_another_operator_become_ours_and_those_of_others_stay_theirs() {
    let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    let theirs = json!({"f:metadata": {"f:ownerReferences": {".": {}}}, "f:spec": {"f:old": {}}});
    let mut status = entry("manager", "Update", json!({"f:status": {}}));
    status["subresource"] = "status".into();
    let kubectl = entry("kubectl-edit", "Update", json!({"f:spec": {"f:replicas": {}}}));
    let ours = entry("trellis-operator", "Apply", json!({"f:spec": {"f:new": {}}}));
    let before = json!([entry("main", "Update", theirs), status, kubectl, ours]);
    let after = taken_over(&before, "trellis-operator").expect("fields to take over");
    assert_eq!(after.as_array().map(Vec::len), Some(3));
    assert_eq!((&after[0]["manager"], &after[0]["operation"]), (&json!("trellis-operator"), &json!("Apply")));
    assert_eq!(after[0]["fieldsV1"]["f:spec"], json!({"f:old": {}, "f:new": {}}));
    assert_eq!((&after[1], &after[2]), (&before[1], &before[2]));
    assert_eq!(taken_over(&after, "trellis-operator"), None);
}

#[test]
fn the_order_of_fields_does_not_change_a_digest() {
    let one: Value = serde_json::from_str(r#"{"a":1,"b":[{"c":2,"d":3}]}"#).expect("JSON");
    let other: Value = serde_json::from_str(r#"{"b":[{"d":3,"c":2}],"a":1}"#).expect("JSON");
    assert_eq!(digest(&one), digest(&other));
    assert_ne!(digest(&json!({"a": "1"})), digest(&json!({"a": 1})));
}
