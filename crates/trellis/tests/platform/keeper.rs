//! Server and keeper restart each other, and both end when a stop is requested.

use serde_json::json;
use trellis_testing::processes::{kill, terminate};

use crate::scene::{Scene, eventually};

fn served(scene: &Scene) -> bool {
    scene.run(&["status", "-o", "json"]).status.success()
}

#[test]
fn whoever_is_killed_comes_back() {
    let scene = Scene::new();
    scene.good(&["up", "--detach", "--nodes", "1"]);
    let nodes = scene.processes(Some("supernode"));

    let server = scene.process("server");
    kill(server);
    let next = eventually("another server", || Some(scene.process("server")).filter(|pid| *pid != server));
    eventually("it to serve", || served(&scene).then_some(()));
    assert_eq!(scene.serving().expect("an announcement")["pid"], next);

    let keeper = scene.process("keep");
    kill(keeper);
    eventually("another keeper", || Some(scene.process("keep")).filter(|pid| *pid != keeper));
    assert_eq!(scene.process("server"), next, "the server went on");

    // The new keeper works like the first one.
    kill(next);
    eventually("a third server", || Some(scene.process("server")).filter(|pid| *pid != next));
    eventually("it to serve", || served(&scene).then_some(()));

    let state = |scene: &Scene| scene.json(&["status", "local"])["summary"]["state"].clone();
    eventually("the federation to be ready", || (state(&scene) == json!("ready")).then_some(()));
    assert_eq!(scene.processes(Some("supernode")), nodes, "no node was started anew");
    scene.good(&["down"]);
    eventually("nobody", || scene.processes(None).is_empty().then_some(()));
}

#[test]
fn a_keeper_that_is_told_to_stop_takes_its_server_along_and_leaves_federations() {
    let scene = Scene::new();
    scene.good(&["up", "--detach", "--nodes", "1"]);
    terminate(scene.process("keep"));
    let left = || scene.processes(Some("keep")).is_empty() && scene.processes(Some("server")).is_empty();
    eventually("both to end", || left().then_some(()));
    assert_eq!(scene.serving(), None);
    assert_eq!(scene.processes(Some("supernode")).len(), 1, "federations go on without a server");
    // The next one finds them.
    scene.good(&["up", "--detach"]);
    assert_eq!(scene.processes(Some("supernode")).len(), 1);
    scene.good(&["down"]);
    eventually("nobody", || scene.processes(None).is_empty().then_some(()));
}

/// During an upgrade the file is replaced; running processes continue with the old one.
#[test]
fn a_program_whose_file_is_gone_still_starts_itself() {
    let scene = Scene::new();
    let program = scene.path("trellis");
    std::fs::copy(env!("CARGO_BIN_EXE_trellis"), &program).expect("a copy");
    let up = scene.command_of(&program, &["up", "--detach", "--nodes", "1"]).output().expect("it runs");
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    std::fs::remove_file(&program).expect("removed");
    for word in ["server", "keep", "supernode"] {
        let before = scene.process(word);
        kill(before);
        eventually(&format!("another {word}"), || {
            let now = scene.processes(Some(word));
            (now.len() == 1 && now != [before]).then_some(())
        });
    }
    scene.good(&["down"]);
}
