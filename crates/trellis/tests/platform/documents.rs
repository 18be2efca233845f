//! Problems with documents are reported before anything is started or sent.

use std::path::Path;

use trellis_testing::processes::terminate;

use crate::scene::{Scene, eventually};

const GOOD: &str = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: digits}\nspec: {nodes: 1}\n";

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn problems_have_line_and_column_and_nothing_is_started() {
    let scene = Scene::new();
    scene.write("good.yaml", GOOD);
    scene.write(
        "bad.yaml",
        "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: other}\nspec:\n  nodse: 4\n",
    );
    for command in ["apply", "plan", "delete"] {
        let (code, told) = scene.bad(&[command, "-f", "good.yaml", "-f", "bad.yaml", "-f", "missing.yaml"]);
        assert_eq!(code, 2, "{told}");
        for part in
            ["bad.yaml:5:3: spec.nodse: there is no such field", "did you mean nodes?", "missing.yaml cannot be read"]
        {
            assert!(told.contains(part), "{part} is not in\n{told}");
        }
    }
    assert!(!scene.home().exists(), "nothing was started for documents that are wrong");
}

#[test]
fn up_takes_one_federation() {
    let scene = Scene::new();
    scene.write("two.yaml", &format!("{GOOD}---\n{}", GOOD.replace("digits", "letters")));
    let (code, told) = scene.bad(&["up", "-f", "two.yaml"]);
    assert!(code == 2 && told.contains("has 2 federations") && told.contains("digits, letters"), "{told}");
    let (code, told) = scene.bad(&["up", "Bad_Name", "--nodes", "200000"]);
    assert!(code == 2 && told.contains("metadata.name") && told.contains("count"), "{told}");
    assert!(!scene.home().exists());
}

#[test]
fn without_a_server_it_is_said_what_to_do() {
    let scene = Scene::new();
    scene.write("good.yaml", GOOD);
    let commands: [&[&str]; 7] = [
        &["status"],
        &["runs"],
        &["logs"],
        &["stop", "1"],
        &["scale", "nodes=2"],
        &["delete", "digits"],
        &["nodes", "--federation", "digits"],
    ];
    for command in commands {
        let (code, told) = scene.bad(command);
        assert!(code == 1 && told.contains("no server runs on this machine") && told.contains("trellis up"), "{told}");
    }
    assert_eq!(scene.good(&["down"]), "");
    let (code, told) = scene.bad(&["status", "--server", "example.org"]);
    assert!(code == 2 && told.contains("--server cannot be"), "{told}");
}

#[test]
fn without_a_server_documents_are_planned_and_nothing_is_left() {
    let scene = Scene::new();
    scene.write("good.yaml", GOOD);
    scene.write(
        "cloud.yaml",
        &GOOD.replace(
            "{nodes: 1}",
            "{sites: [{name: cloud, opennebula: {endpoint: 'https://one.example.org/RPC2', network: private}}], nodes: 2}",
        ),
    );
    for command in [&["plan", "-f", "good.yaml"][..], &["apply", "-f", "good.yaml", "--dry-run"]] {
        let plan = scene.good(command);
        assert!(plan.contains("federation digits is new") && plan.contains("create coordinator"), "{plan}");
        let plan = scene.json(command);
        assert_eq!((&plan["exists"], &plan["actions"][0]["verb"]), (&false.into(), &"create".into()), "{plan}");
    }
    let plan = scene.good(&["plan", "-f", "cloud.yaml", "--templates"]);
    assert!(plan.contains("site cloud: not observed") && plan.contains("template at cloud"), "{plan}");
    assert_eq!(names(&scene.path(".")), ["cloud.yaml", "good.yaml"], "nothing else is in the home");
    assert_eq!(scene.processes(None), Vec::<u32>::new());
    let (code, told) = scene.bad(&["plan", "-f", "good.yaml", "--server", "http://127.0.0.1:1"]);
    assert!(code == 2 && told.contains("no token"), "a server that is named is not replaced: {told}");
}

#[test]
fn without_a_server_a_plan_knows_what_the_last_server_left() {
    let scene = Scene::new();
    scene.write("good.yaml", GOOD);
    scene.good(&["apply", "-f", "good.yaml"]);
    terminate(scene.process("keep"));
    eventually("no server", || scene.processes(Some("server")).is_empty().then_some(()));
    scene.write("good.yaml", &GOOD.replace("nodes: 1", "nodes: 2"));
    let (before, plan) = (names(&scene.home()), scene.good(&["plan", "-f", "good.yaml"]));
    assert!(
        plan.contains("its document changes") && plan.contains("not observed for a preview: no server runs"),
        "{plan}"
    );
    assert_eq!(names(&scene.home()), before, "the plan leaves no file");
}
