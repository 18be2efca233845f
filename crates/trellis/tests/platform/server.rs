//! `trellis server` alone: one per home, with an announcement that is removed at its stop.

use std::net::TcpListener;
use std::process::{Child, Stdio};

use trellis_testing::processes::terminate;

use crate::scene::{Scene, eventually};

fn start(scene: &Scene) -> Child {
    let mut command = scene.command(&["server", "--listen", "127.0.0.1:0"]);
    let child = command.stderr(Stdio::null()).spawn().expect("it starts");
    let ours = |serving: &serde_json::Value| serving["pid"] == child.id();
    eventually("the server to serve", || scene.serving().filter(ours));
    child
}

#[test]
fn a_home_has_one_server() {
    let scene = Scene::new();
    let mut first = start(&scene);
    let (code, told) = scene.bad(&["server", "--listen", "127.0.0.1:0"]);
    assert!(code == 1 && told.contains(&format!("another server, process {}", first.id())), "{told}");
    let answered = eventually("the admin token", || {
        let output = scene.run(&["status", "-o", "json"]);
        output.status.success().then_some(output.stdout)
    });
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&answered).expect("JSON"), serde_json::json!({"items": []}));
    // It has no keeper: the user started it.
    assert_eq!(scene.good(&["down", "--all"]), "");
    assert!(scene.serving().is_some());
    terminate(first.id());
    assert_eq!(first.wait().expect("it ends").code(), Some(0));
    assert_eq!(scene.serving(), None);
    let (code, told) = scene.bad(&["status"]);
    assert!(code == 1 && told.contains("no server runs"), "{told}");
}

#[test]
fn what_a_dead_server_has_left_is_not_believed() {
    let scene = Scene::new();
    let mut server = start(&scene);
    server.kill().expect("it is killed");
    server.wait().expect("it ends");
    assert!(scene.serving().is_some(), "who is killed tidies nothing up");
    let (code, told) = scene.bad(&["status"]);
    assert!(code == 1 && told.contains("no server runs"), "{told}");
    // The next one uses the same port.
    let before = scene.serving().expect("the announcement of the dead server")["url"].clone();
    let mut command = scene.command(&["server"]);
    let mut next = command.stderr(Stdio::null()).spawn().expect("it starts");
    let serving = eventually("the next server", || scene.serving().filter(|serving| serving["pid"] == next.id()));
    assert_eq!(serving["url"], before);
    terminate(next.id());
    assert_eq!(next.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_told() {
    let scene = Scene::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (code, told) = scene.bad(&["server", "--listen", &address]);
    assert!(code == 1 && told.contains(&format!("{address} is in use by another program")), "{told}");
}

#[test]
fn mistakes_are_told_at_once() {
    let scene = Scene::new();
    let wrong = ["server", "--listen", "0.0.0.0:0", "--log-level", "loud", "--host", "a b"];
    let (code, told) = scene.bad(&wrong);
    assert_eq!(code, 2);
    for part in ["tokens would travel in plain text", "is not a log level", "--host cannot be"] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    let (code, told) = scene.bad(&["server", "--certificate", "missing.pem"]);
    assert!(code == 2 && told.contains("--key, --trust") && told.contains("missing.pem cannot be read"), "{told}");
    assert!(!scene.home().exists());
}
