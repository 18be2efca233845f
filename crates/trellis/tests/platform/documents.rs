//! What is wrong with documents is told before anything is started or sent.

use crate::scene::Scene;

const GOOD: &str = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: digits}\nspec: {nodes: 1}\n";

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
    let commands: [&[&str]; 8] = [
        &["status"],
        &["runs"],
        &["logs"],
        &["stop", "1"],
        &["scale", "nodes=2"],
        &["delete", "digits"],
        &["plan", "-f", "good.yaml"],
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
