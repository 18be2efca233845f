//! The operator with only the permissions of its manifests: it does all of its work, and uses each permission. The audit log of
//! the API server lists its requests.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trellis_kube::manifests::permissions::{PERMISSIONS, Reach};
use trellis_testing::kube::{AuditedWrite, ControlPlane, Flags, Parts};
use trellis_testing::stand_in;

use crate::operator::{ACCOUNT, Operator, wait};
use crate::stories;
use crate::tools::{kubectl, plane, trellis};

/// Checks owner references that block deletion, as some distributions of Kubernetes do.
const OWNERS_CHECKED: Flags<'static> =
    Flags { api_server: &["--enable-admission-plugins=OwnerReferencesPermissionEnforcement"], controllers: &[] };

/// Not in the audit log of the story, and why they are needed all the same.
const UNSEEN: [(&str, &str, &str); 3] = [
    (
        "federations/finalizers",
        "update",
        "the API server asks for it by itself where it checks owners: a test of its own",
    ),
    (
        "pods",
        "delete",
        "pods that keep a corrected workload from starting: tests of pods, with a scheduler and a kubelet",
    ),
    ("secrets", "delete", "keys of a pool that left go once its SuperLink no longer knows them: tests of certificates"),
];

fn get(plane: &ControlPlane, arguments: &[&str]) -> String {
    let output = plane.kubectl(&[&["get", "--ignore-not-found", "-o", "name"], arguments].concat());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(requests: &[AuditedWrite]) -> BTreeSet<String> {
    let forbidden = requests.iter().filter(|request| request.status == 403);
    forbidden.map(|request| format!("{} {}/{}", request.verb, request.group, request.resource)).collect()
}

/// The permission that a request needs. Applying an object that did not exist needs `create`, too.
fn uses(request: &AuditedWrite) -> impl Iterator<Item = (&str, &str, &str)> {
    let made = request.verb == "patch" && request.status == 201;
    let verbs = [Some(request.verb.as_str()), made.then_some("create")];
    verbs.into_iter().flatten().map(|verb| (request.group.as_str(), request.resource.as_str(), verb))
}

#[test]
fn the_operator_does_its_work_with_its_permissions_and_uses_each() {
    let Some(plane) = ControlPlane::start_with(Parts::WithControllers, OWNERS_CHECKED) else { return };
    for definition in [
        stand_in("cert-manager.io", "certificates", "Certificate"),
        stand_in("monitoring.coreos.com", "podmonitors", "PodMonitor"),
    ] {
        kubectl(&plane, &["apply", "-f", "-"], &definition.to_string());
    }
    kubectl(&plane, &["apply", "--server-side", "-f", "-"], &trellis(&["operator", "manifests"]));
    plane.until_defined();
    stories::before(&plane);
    let operator = Operator::start(&plane, "operator-0", "trellis-system", &[]);
    stories::play(&plane);
    drop(operator);
    let operator = Operator::start(&plane, "operator-0", "trellis-system", &[]);
    stories::play_after_a_restart(&plane);
    drop(operator);
    let requests = plane.requests_of_service_account("trellis-system", ACCOUNT);
    assert_eq!(refused(&requests), BTreeSet::new(), "not allowed");
    let used: BTreeSet<(&str, &str, &str)> = requests.iter().flat_map(uses).collect();
    let given = PERMISSIONS.iter().flat_map(|each| each.verbs.iter().map(|verb| (each.group, each.resource, *verb)));
    let unused: Vec<_> = given
        .filter(|each| {
            !used.contains(each) && !UNSEEN.iter().any(|(resource, verb, _)| (*resource, *verb) == (each.1, each.2))
        })
        .collect();
    assert!(unused.is_empty(), "permissions that nothing used: {unused:#?}\nused: {used:#?}");
}

/// Why one permission is there that no request shows.
#[test]
fn without_the_finalizers_nothing_can_be_made_where_owners_are_checked() {
    let Some(plane) = ControlPlane::start_with(Parts::WithControllers, OWNERS_CHECKED) else { return };
    let mut manifests: Value = serde_json::from_str(&trellis(&["operator", "manifests", "-o", "json"])).expect("JSON");
    let items = manifests["items"].as_array_mut().expect("items");
    let role = items.iter_mut().find(|item| item["kind"] == "ClusterRole").expect("a role");
    let rules = role["rules"].as_array_mut().expect("rules");
    rules.retain(|rule| rule["resources"] != json!(["federations/finalizers"]));
    kubectl(&plane, &["apply", "--server-side", "-f", "-"], &manifests.to_string());
    plane.until_defined();
    kubectl(&plane, &["apply", "-f", "-"], &stories::federation("default", "bare", json!({})).to_string());
    let _operator = Operator::start(&plane, "operator-0", "trellis-system", &[]);
    let requests = || plane.requests_of_service_account("trellis-system", ACCOUNT);
    wait("a refusal", || refused(&requests()).iter().any(|what| what.starts_with("patch ")));
    assert!(!get(&plane, &["statefulsets", "-n", "default"]).contains("bare-superlink"));
}

/// P5
#[test]
fn an_operator_for_one_namespace_works_there_and_is_not_seen_elsewhere() {
    let Some(plane) = plane() else { return };
    let (own, blue, green) = (plane.namespace("operator"), plane.namespace("blue"), plane.namespace("green"));
    let manifests = trellis(&["operator", "manifests", "--namespace", &own, "--watch-namespace", &blue]);
    kubectl(plane, &["apply", "--server-side", "--force-conflicts", "-f", "-"], &manifests);
    plane.until_defined();
    for namespace in [&blue, &green] {
        kubectl(plane, &["apply", "-f", "-"], &stories::federation(namespace, "demo", json!({})).to_string());
    }
    let watched = format!("--namespace={blue}");
    let operator = Operator::start(plane, "operator-0", &own, &[&watched]);
    let observed = ["get", "federation", "demo", "-n", &blue, "-o", "jsonpath={.status.observedGeneration}"];
    wait("objects where it watches", || get(plane, &["statefulsets", "-n", &blue]).contains("demo-superlink"));
    wait("a status", || String::from_utf8_lossy(&plane.kubectl(&observed).stdout) == "1");
    assert_eq!(get(plane, &["statefulsets,services", "-n", &green]), "");
    drop(operator);
    let requests = plane.requests_of_service_account(&own, ACCOUNT);
    let cluster = PERMISSIONS.iter().filter(|each| each.reach == Reach::Cluster);
    let cluster: Vec<String> = cluster
        .flat_map(|each| each.verbs.iter().map(|verb| format!("{verb} {}/{}", each.group, each.resource)))
        .collect();
    let beyond: Vec<String> = refused(&requests).into_iter().filter(|what| !cluster.contains(what)).collect();
    assert!(beyond.is_empty(), "{beyond:?}");
    let elsewhere = requests.iter().filter(|request| request.namespace == green).count();
    assert_eq!(elsewhere, 0);
}
