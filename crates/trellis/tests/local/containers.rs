//! Parts in containers of a real podman, with our own program as the image.
//!
//! Needs `podman` on PATH, and the image `trellis` of this version in it, as `tests/control_plane/test_containers.py` makes them:
//! `cargo test -p trellis --test local -- --ignored containers`.

use std::process::Command;

use trellis_plan::{CoordinatorSpec, Desired, NodeSpec, Presence, ResourceId, Spec, Verb};
use trellis_spec::{Containers, Resources, Tls};
use trellis_testing::processes::kill;

use crate::scene::{Scene, coordinator, id, node, restart};

fn podman(arguments: &[&str]) -> String {
    let output = Command::new("podman").args(arguments).output().expect("podman is on PATH");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The containers of a part, running or not.
fn containers(id: &ResourceId) -> Vec<String> {
    let label = format!("label=dev.trellis.part={id}");
    let listed = podman(&["ps", "--all", "--filter", &label, "--format", "{{.Names}}"]);
    listed.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman and an image"]
async fn a_federation_in_containers() {
    let scene = Scene::new();
    let (link, edge) = (id("demo/local/coordinator"), id("demo/local/node/edge-0"));
    let held = Resources { memory_bytes: Some(512 << 20), ..Resources::default() };
    let spec = CoordinatorSpec {
        containers: Some(Containers::Podman),
        tls: Tls::Auto,
        node_auth: true,
        resources: held.clone(),
        ..coordinator()
    };
    scene.make(1, Verb::Create(Desired::new(link.clone(), Spec::Coordinator(spec)))).await;
    let fleet = scene.until_ready(&link).await.addresses.fleet.expect("an address");
    let spec = NodeSpec {
        containers: Some(Containers::Podman),
        tls: Tls::Auto,
        node_auth: true,
        resources: held,
        ..node(&fleet)
    };
    let desired = Desired::new(edge.clone(), Spec::Node(spec));
    scene.make(2, Verb::Create(desired.clone())).await;
    let facts = scene.until_ready(&edge).await;
    assert!(facts.node_id.is_some(), "{facts:?}");
    let there = containers(&edge);
    assert_eq!(there.len(), 1, "{there:?}");
    let held = podman(&["inspect", "--format", "{{.State.Status}} {{.HostConfig.Memory}}", &there[0]]);
    assert_eq!(held, format!("running {}", 512 << 20));

    // The engine's client dies, and its container does not: the next start finds the place free all the same.
    kill(scene.pid(&edge));
    scene.until_failed(&edge).await;
    scene.make(3, restart(&desired, facts.instance)).await;
    scene.until(&edge, |presence| presence.facts().is_some_and(|now| now.instance != facts.instance)).await;
    scene.until_ready(&edge).await;
    assert_eq!(containers(&edge).len(), 1);

    for (serial, part) in [(4, &edge), (5, &link)] {
        scene.make(serial, Verb::Delete { id: part.clone() }).await;
        scene.until(part, |presence| *presence == Presence::Absent).await;
        assert_eq!(containers(part), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman and an image"]
async fn an_image_in_containers_that_cannot_be_had_is_told_with_what_to_do() {
    let scene = Scene::new();
    let link = id("demo/local/coordinator");
    let image = Some("localhost/nobody/has-this:1".to_owned());
    let spec = CoordinatorSpec { containers: Some(Containers::Podman), image, ..coordinator() };
    scene.make(1, Verb::Create(Desired::new(link.clone(), Spec::Coordinator(spec)))).await;
    let why = scene.until_failed(&link).await;
    assert!(why.contains("has-this:1 is not on this machine and cannot be pulled: build or load it"), "{why}");
}
