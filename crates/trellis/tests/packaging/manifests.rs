//! `trellis operator manifests`.

use serde_json::Value;

use crate::documents::{by_identity, read};
use crate::tools::{TRELLIS, kubectl, plane, repository, trellis};

fn printed(flags: &[&str]) -> String {
    trellis(&[&["operator", "manifests"], flags].concat())
}

/// P4
#[test]
fn the_file_in_the_repository_is_what_the_program_prints() {
    let file = std::fs::read_to_string(repository().join("deploy/install.yaml")).expect("install.yaml");
    let (comment, objects) = file.split_once('\n').expect("lines");
    assert!(comment.starts_with("# "));
    assert!(objects == printed(&[]), "deploy/install.yaml is stale");
}

#[test]
fn json_says_the_same_as_yaml() {
    let list: Value = serde_json::from_str(&printed(&["-o", "json"])).expect("JSON");
    assert_eq!(by_identity(read(&printed(&[]))), by_identity(list["items"].as_array().expect("items").clone()));
}

#[test]
fn flags_are_heard() {
    let flags = "--namespace flower --image example.org/o:1 --image-pull-secret pull --watch-namespace blue --watch-namespace blue \
                 --watch-namespace green --replicas 3 --service-monitor --network-policy --user-roles --without-crds";
    let objects = by_identity(read(&printed(&flags.split_whitespace().collect::<Vec<_>>())));
    let names: Vec<&str> = objects.keys().map(String::as_str).collect();
    let expected = [
        "ClusterRole -/trellis-operator-federation-admin",
        "ClusterRole -/trellis-operator-federation-editor",
        "ClusterRole -/trellis-operator-federation-viewer",
        "Deployment flower/trellis-operator",
        "Namespace -/flower",
        "NetworkPolicy flower/trellis-operator",
        "PodDisruptionBudget flower/trellis-operator",
        "Role blue/trellis-operator",
        "Role flower/trellis-operator-own",
        "Role green/trellis-operator",
        "RoleBinding blue/trellis-operator",
        "RoleBinding flower/trellis-operator-own",
        "RoleBinding green/trellis-operator",
        "Service flower/trellis-operator-metrics",
        "ServiceAccount flower/trellis-operator",
        "ServiceMonitor flower/trellis-operator",
    ];
    assert_eq!(names, expected);
    let container = &objects["Deployment flower/trellis-operator"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.org/o:1");
}

/// The operator would exit at its start because of an unknown flag.
#[test]
fn the_program_knows_the_arguments_that_its_deployment_gives_it() {
    let objects = by_identity(read(&printed(&["--without-crds", "--watch-namespace", "blue"])));
    let container = &objects["Deployment trellis-system/trellis-operator"]["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<&str> = container["args"].as_array().expect("args").iter().filter_map(Value::as_str).collect();
    let known = std::process::Command::new(TRELLIS).args(["operator", "run"]).args(arguments).arg("--help").output();
    let known = known.expect("the binary runs");
    assert!(known.status.success(), "{}", crate::tools::said(&known));
}

#[test]
fn the_api_server_takes_all_of_it_in_both_ways() {
    let Some(plane) = plane() else { return };
    let text = printed(&["--user-roles", "--network-policy", "--replicas", "2"]);
    kubectl(plane, &["apply", "--server-side", "--force-conflicts", "-f", "-"], &text);
    // Client-side apply stores the object in an annotation with a limited size.
    kubectl(plane, &["apply", "-f", "-"], &text);
}
