//! Generated files in `deploy/` match the code, so an installation is never older than its operator (P4).
//! UPDATE_GOLDENS=1 writes them instead of comparing them; review the difference.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use trellis_kube::crd;
use trellis_kube::manifests::permissions::{PEOPLE, PERMISSIONS, Reach, people_rules, rules};
use trellis_kube::manifests::{Installation, NAME, NAMESPACE, objects};
use trellis_spec::yaml;

const HEADER: &str = "# Made by the program: UPDATE_GOLDENS=1 cargo test -p trellis-kube --test packaging\n";

fn deploy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../deploy")
}

fn check(path: &str, content: &str) {
    let file = deploy().join(path);
    let wanted = format!("{HEADER}{content}");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "deploy/{path} is stale: UPDATE_GOLDENS=1 cargo test -p trellis-kube --test packaging");
}

fn installed(installation: &Installation) -> Vec<Value> {
    objects(installation).into_iter().map(|object| object.0).collect()
}

/// Objects of one installation that the default one does not have.
fn added(installation: &Installation) -> Vec<Value> {
    let usual: Vec<_> = objects(&Installation::default()).iter().map(|object| object.identity()).collect();
    let new = objects(installation).into_iter().filter(|object| !usual.contains(&object.identity()));
    new.map(|object| object.0).collect()
}

#[test]
fn one_file_installs_what_the_program_prints() {
    let all: Vec<Value> = crd::all().into_iter().chain(installed(&Installation::default())).collect();
    check("install.yaml", &yaml::documents(&all));
}

#[test]
fn the_kustomization_has_the_same_objects() {
    check("kustomize/base/operator.yaml", &yaml::documents(&installed(&Installation::default())));
    let own = Installation { watched: vec![NAMESPACE.to_owned()], ..Installation::default() };
    let strict = Installation { replicas: 2, network_policy: true, ..Installation::default() };
    let monitored = Installation { service_monitor: true, ..Installation::default() };
    for (overlay, installation) in
        [("namespaced/role", own), ("restricted/strict", strict), ("monitoring/monitor", monitored)]
    {
        check(&format!("kustomize/overlays/{overlay}.yaml"), &yaml::documents(&added(&installation)));
    }
}

#[test]
fn the_chart_gives_the_same_permissions_and_brings_the_same_definitions() {
    let people =
        PEOPLE.iter().map(|(name, verbs)| ((*name).to_owned(), json!(people_rules(verbs)))).collect::<Map<_, _>>();
    let all = json!({
        "federations": rules(&[Reach::Federations]),
        "cluster": rules(&[Reach::Cluster]),
        "own": rules(&[Reach::Own]),
        "people": people,
    });
    check(&format!("chart/{NAME}/files/rules.yaml"), &yaml::document(&all));
    // The chart links to the same files.
    for definition in crd::all() {
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap().to_owned();
        let linked = deploy().join(format!("chart/{NAME}/files/crds/{plural}.yaml"));
        assert!(std::fs::read_to_string(linked).unwrap() == yaml::document(&definition), "{plural}");
    }
}

#[test]
fn the_documentation_lists_the_permissions() {
    const BEGIN: &str = "<!-- permissions: UPDATE_GOLDENS=1 cargo test -p trellis-kube --test packaging -->\n";
    const END: &str = "<!-- end of permissions -->";
    let file = deploy().join("../docs/kubernetes/install.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let row = |each: &trellis_kube::manifests::permissions::Permission| {
        let group = if each.group.is_empty() { "core" } else { each.group };
        let place = match each.reach {
            Reach::Federations => "where federations are",
            Reach::Own => "its own namespace",
            Reach::Cluster => "the cluster",
        };
        format!("| {group} | {} | {} | {place} | {} |\n", each.resource, each.verbs.join(", "), each.why)
    };
    let head = "| group | resource | may | where | why |\n|---|---|---|---|---|\n";
    let rows: String = PERMISSIONS.iter().map(row).collect();
    let wanted = format!("{before}{BEGIN}{head}{rows}{END}{after}");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&file, &wanted).unwrap();
    } else {
        assert!(
            page == wanted,
            "docs/kubernetes/install.md is stale: UPDATE_GOLDENS=1 cargo test -p trellis-kube --test packaging"
        );
    }
}
