//! Scenarios of federations in a cluster: interruptions, conflicts, missing permissions, pods that do not start.

use std::time::Duration;

use trellis_fake_kubelet::rules::{Behaviour, Pods};
use trellis_plan::{Action, Driver, Observation, OpenDriver, Order, Outcome, Phase, Verb};
use trellis_spec::KubeSite;
use trellis_testing::kube::{ControlPlane, Parts};

use crate::scene::{Scene, desired, id, name};

#[tokio::test(flavor = "multi_thread")]
async fn a_federation_becomes_ready_and_is_deleted_completely() {
    let Some(scene) = Scene::new("whole").await else { return };
    let link = desired(&id("demo/lab/coordinator"), 0);
    scene.make(1, Verb::Create(link.clone())).await;
    let facts = scene.until_ready(&link).await;
    let fleet = facts.addresses.fleet.expect("nodes need an address");
    assert_eq!(fleet, format!("demo-superlink.{}.svc:9092", scene.namespace));
    let trust = scene.sites().trust_path(&name("demo")).expect("users need to know whom to trust");
    assert!(std::fs::read_to_string(trust).expect("it is there").contains("BEGIN CERTIFICATE"));
    let token = scene.sites().token_path(&name("demo")).expect("users need the token");
    assert!(std::fs::read(token).expect("it is there").len() > 20);

    let node = desired(&id("demo/lab/node/cpu-0"), 0);
    scene.make(2, Verb::Create(node.clone())).await;
    scene.until_ready(&node).await;
    let pod = scene.get(&["pod", "demo-supernode-cpu-0-0"]);
    let args = pod["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains(&format!("--superlink={fleet}")), "beside the coordinator by its Service: {args}");
    assert!(args.contains("--name=cpu-0") && args.contains("--client-app=native:mlp"), "{args}");

    for (serial, part) in [(3, &node), (4, &link)] {
        scene.make(serial, Verb::Delete { id: part.id.clone() }).await;
        scene.until_absent(&part.id).await;
    }
    scene.until_nothing_is_left().await;
    assert_eq!(scene.sites().token_path(&name("demo")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_with_an_empty_disk_finds_everything() {
    let Some(scene) = Scene::new("disk").await else { return };
    let link = desired(&id("demo/lab/coordinator"), 0);
    scene.make(1, Verb::Create(link.clone())).await;
    let before = scene.until_ready(&link).await;
    let read = |path: Option<std::path::PathBuf>| std::fs::read(path.expect("there is one")).expect("it is there");
    let token = read(scene.sites().token_path(&name("demo")));
    scene.open();
    assert_eq!(scene.sites().token_path(&name("demo")), None);
    let after = scene.until_ready(&link).await;
    assert_eq!(after.instance, before.instance);
    assert_eq!(read(scene.sites().token_path(&name("demo"))), token);
    let outcome = scene.apply(0, Verb::Delete { id: link.id.clone() }).await;
    assert!(matches!(outcome, Outcome::Refused { .. }), "the last order is stored: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_creation_is_completed() {
    let Some(scene) = Scene::new("interrupted").await else { return };
    // Each call is cancelled a little later than the one before.
    for pause_ms in [0, 2, 4, 6, 8, 11, 15, 20, 30, 45] {
        let link = desired(&id(&format!("at-{pause_ms}/lab/coordinator")), 0);
        let action = Action { order: Order { fence: 1, serial: 1 }, verb: Verb::Create(link.clone()) };
        let driver = scene.driver();
        let _ = tokio::time::timeout(Duration::from_millis(pause_ms), driver.apply(&action)).await;
        scene.open();
        match scene.see(&link.id).await.generation() {
            // A controller that observes no part creates it.
            None => scene.make(1, Verb::Create(link.clone())).await,
            // A controller that observes a part only reports the desired state.
            Some(_) => scene.driver().set_desired(&link.id.federation, &link.id.site, &[&link]),
        }
        scene.until_ready(&link).await;
        let service = scene.get(&["service", &format!("at-{pause_ms}-superlink")]);
        assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_in_steady_state() {
    let Some(scene) = Scene::new("calm").await else { return };
    let link = desired(&id("demo/lab/coordinator"), 0);
    scene.make(1, Verb::Create(link.clone())).await;
    scene.until_ready(&link).await;
    let driver = scene.driver();
    let ours = |write: &trellis_testing::kube::AuditedWrite| {
        format!("{write:?}").contains(&format!("platform-of-{}", scene.namespace))
    };
    let look = async || {
        driver.set_desired(&link.id.federation, &link.id.site, &[&link]);
        driver.observe(&link.id.federation, &link.id.site).await
    };
    look().await;
    let before = scene.plane.writes().iter().filter(|write| ours(write)).count();
    assert!(before > 0, "the audit log has the writes of the driver");
    for _ in 0..20 {
        look().await;
    }
    assert_eq!(scene.plane.writes().iter().filter(|write| ours(write)).count(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_are_not_changed() {
    let Some(scene) = Scene::new("foreign").await else { return };
    let theirs = "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: demo-superlink}
spec:
  serviceName: demo
  selector: {matchLabels: {app: theirs}}
  template:
    metadata: {labels: {app: theirs}}
    spec: {containers: [{name: one, image: none}]}
";
    scene.kubectl(&["apply", "-f", "-"], theirs);
    let link = desired(&id("demo/lab/coordinator"), 0);
    let outcome = scene.apply(1, Verb::Create(link.clone())).await;
    assert!(
        matches!(&outcome, Outcome::Refused { why, .. } if why.contains("was not created by this driver")),
        "{outcome:?}"
    );
    scene.make(2, Verb::Delete { id: link.id.clone() }).await;
    let live = scene.get(&["statefulset", "demo-superlink"]);
    assert!(live["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "none");
    // A foreign Service is reported too, and the federation becomes ready once it is deleted.
    let other = desired(&id("second/lab/coordinator"), 0);
    scene.kubectl(&["create", "service", "clusterip", "second-superlink", "--tcp=1:1"], "");
    scene.make(3, Verb::Create(other.clone())).await;
    scene.until_hindered(&other.id, "Service second-superlink").await;
    scene.kubectl(&["delete", "service", "second-superlink"], "");
    scene.driver().set_desired(&other.id.federation, &other.id.site, &[&other]);
    scene.until_ready(&other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exceeded_quota_is_reported() {
    let Some(scene) = Scene::new("quota").await else { return };
    scene.kubectl(&["create", "quota", "none", "--hard=pods=0"], "");
    let node = desired(&id("demo/lab/node/cpu-0"), 0);
    scene.make(1, Verb::Create(node.clone())).await;
    let why = scene.until_hindered(&node.id, "exceeded quota").await;
    assert!(why.contains("pods=0"), "{why}");
    scene.kubectl(&["delete", "quota", "none"], "");
    scene.until_ready(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permissions_are_reported_with_advice() {
    let Some(scene) = Scene::new("forbidden").await else { return };
    let stranger = scene.plane.kubeconfig_for_user("stranger", None);
    scene.open_with(KubeSite { kubeconfig: Some(stranger), ..scene.site() });
    let link = desired(&id("demo/lab/coordinator"), 0);
    match scene.driver().observe(&link.id.federation, &link.id.site).await {
        Observation::Unreachable { why } => assert!(why.contains("not allowed") && why.contains("Role"), "{why}"),
        seen => panic!("it has no permission: {seen:?}"),
    }
    let outcome = scene.apply(1, Verb::Create(link)).await;
    assert!(matches!(&outcome, Outcome::Refused { why, retry: true } if why.contains("Role")), "{outcome:?}");
    let lost = KubeSite { kubeconfig: Some("/nowhere/kubeconfig".into()), ..scene.site() };
    scene.open_with(lost);
    let seen = scene.driver().observe(&name("demo"), &name("lab")).await;
    assert!(matches!(&seen, Observation::Unreachable { why } if why.contains("/nowhere/kubeconfig")), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_do_not_start_are_reported() {
    let Some(scene) = Scene::new("hindered").await else { return };
    let pods = |pod: &str| Pods::of_namespace(&scene.namespace).named(pod);
    scene.kubelet.let_pods(pods("demo-supernode-cpu-0-0"), Behaviour::Waits("ImagePullBackOff".to_owned()));
    scene.kubelet.let_pods(pods("demo-supernode-cpu-1-0"), Behaviour::Waits("CreateContainerConfigError".to_owned()));
    let unplaced = {
        let mut wanted = desired(&id("demo/lab/node/cpu-2"), 0);
        if let trellis_plan::Spec::Node(spec) = &mut wanted.spec {
            spec.resources.cpu_millis = Some(10_000_000);
        }
        trellis_plan::Desired::new(wanted.id, wanted.spec)
    };
    let wanted = [desired(&id("demo/lab/node/cpu-0"), 0), desired(&id("demo/lab/node/cpu-1"), 0), unplaced];
    for (serial, node) in (1..).zip(&wanted) {
        scene.make(serial, Verb::Create(node.clone())).await;
    }
    scene.until_hindered(&wanted[0].id, "cannot be pulled").await;
    scene.until_hindered(&wanted[1].id, "CreateContainerConfigError").await;
    scene.until_hindered(&wanted[2].id, "cannot be scheduled").await;
    // Another generation replaces one that never became ready.
    let next = desired(&wanted[0].id, 1);
    scene.kubelet.let_pods(pods("demo-supernode-cpu-0-0"), Behaviour::Ready);
    scene.make(9, Verb::Replace(next.clone())).await;
    scene.until_ready(&next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_an_earlier_controller_are_refused() {
    let Some(scene) = Scene::new("fence").await else { return };
    let link = desired(&id("demo/lab/coordinator"), 0);
    let earlier = scene.driver();
    let order = |fence, serial, verb| Action { order: Order { fence, serial }, verb };
    let outcome = earlier.apply(&order(4, 1, Verb::Create(link.clone()))).await;
    assert_eq!(outcome, Outcome::Started);
    scene.open();
    let later = scene.driver();
    assert!(matches!(later.apply(&order(5, 1, Verb::Create(link.clone()))).await, Outcome::Done | Outcome::Started));
    for part in ["demo/lab/coordinator", "demo/lab/node/cpu-0"] {
        let outcome = earlier.apply(&order(4, 9, Verb::Delete { id: id(part) })).await;
        assert!(matches!(outcome, Outcome::Refused { retry: false, .. }), "{outcome:?}");
    }
    scene.until_ready(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_api_server_is_not_an_empty_site() {
    let Some(plane) =
        tokio::task::spawn_blocking(|| ControlPlane::start(Parts::WithControllers)).await.expect("no panic")
    else {
        return;
    };
    let Some(scene) = Scene::new("away").await else { return };
    scene.open_with(KubeSite { kubeconfig: Some(plane.kubeconfig()), ..KubeSite::of("default") });
    let link = desired(&id("demo/lab/coordinator"), 0);
    scene.make(1, Verb::Create(link.clone())).await;
    plane.stop_api_server();
    let seen = scene.driver().observe(&link.id.federation, &link.id.site).await;
    assert!(matches!(&seen, Observation::Unreachable { why } if why.contains("cannot be reached")), "{seen:?}");
    let outcome = scene.apply(2, Verb::Delete { id: link.id.clone() }).await;
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    let plane = tokio::task::spawn_blocking(move || {
        plane.start_api_server();
        plane
    });
    let plane = plane.await.expect("no panic");
    let presence = scene.see(&link.id).await;
    assert_eq!(presence.generation(), Some(link.generation));
    assert_eq!(presence.facts().map(|facts| &facts.phase), Some(&Phase::Starting), "there is no kubelet");
    drop(plane);
}
