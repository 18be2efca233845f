//! Crashed programs and drivers, damaged records, reused process ids.

use std::net::TcpListener;
use std::num::NonZeroU16;

use serde_json::json;
use trellis_plan::{CoordinatorSpec, Desired, Outcome, Presence, ResourceId, Spec, Verb};
use trellis_testing::processes::{kill, with_variable};

use crate::scene::{Scene, coordinator, id, restart};

const MARK: &str = "TRELLIS_DRIVER_PART";

fn coordinator_id() -> ResourceId {
    id("demo/local/coordinator")
}

async fn ready() -> (Scene, Desired, u64) {
    let scene = Scene::new();
    let desired = scene.desired(&coordinator_id(), "", 0);
    scene.make(1, Verb::Create(desired.clone())).await;
    let instance = scene.until_ready(&desired.id).await.instance;
    (scene, desired, instance)
}

/// Processes of one part.
fn processes(scene: &Scene, id: &ResourceId) -> Vec<u32> {
    let environment = std::fs::read(format!("/proc/{}/environ", scene.pid(id))).expect("it lives");
    let entry = environment.split(|byte| *byte == 0).find_map(|entry| str::from_utf8(entry).ok()?.strip_prefix(MARK));
    with_variable(MARK, entry.and_then(|entry| entry.strip_prefix('=')).expect("it is marked"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_killed_is_seen_at_once_and_says_how_it_ended() {
    let (scene, desired, instance) = ready().await;
    kill(scene.pid(&desired.id));
    let why = scene.until_failed(&desired.id).await;
    assert!(why.contains("killed by signal 9"), "{why}");
    scene.make(2, restart(&desired, instance)).await;
    let again = scene.until_ready(&desired.id).await;
    assert_ne!(again.instance, instance);
    scene.make(3, Verb::Delete { id: desired.id.clone() }).await;
    scene.until(&desired.id, |presence| *presence == Presence::Absent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_refuses_its_arguments_says_why() {
    let scene = Scene::new();
    let spec = CoordinatorSpec { extra_args: vec!["--no-such-flag".to_owned()], ..coordinator() };
    let desired = Desired::new(coordinator_id(), Spec::Coordinator(spec));
    scene.make(1, Verb::Create(desired)).await;
    let why = scene.until_failed(&coordinator_id()).await;
    assert!(why.contains("exited with code 2") && why.contains("no-such-flag"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_driver_finds_what_runs_and_notices_its_end() {
    let (mut scene, desired, instance) = ready().await;
    let pid = scene.pid(&desired.id);
    scene.open();
    assert_eq!(scene.until_ready(&desired.id).await.instance, instance);
    assert_eq!(processes(&scene, &desired.id), [pid]);
    let session = rustix::process::getsid(rustix::process::Pid::from_raw(pid as i32)).expect("it lives");
    assert_eq!(session.as_raw_nonzero().get() as u32, pid, "it leads a session of its own");
    kill(pid);
    scene.until_failed(&desired.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_process_was_noted_leads_to_no_second_one() {
    let (mut scene, desired, instance) = ready().await;
    let pid = scene.pid(&desired.id);
    scene.close();
    scene.rewrite(&desired.id, |record| {
        record["launched"] = json!(false);
        record["processes"] = json!([]);
    });
    scene.open();
    assert_eq!(scene.until_ready(&desired.id).await.instance, instance);
    assert_eq!(processes(&scene, &desired.id), [pid]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_process_was_started_is_made_up_for() {
    let mut scene = Scene::new();
    let desired = scene.desired(&coordinator_id(), "", 0);
    scene.make(1, Verb::Create(desired.clone())).await;
    scene.close();
    scene.open();
    scene.until_ready(&desired.id).await;
    assert_eq!(processes(&scene, &desired.id).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_is_somebody_elses_by_now_is_left_alone() {
    let (mut scene, desired, _) = ready().await;
    kill(scene.pid(&desired.id));
    scene.until_failed(&desired.id).await;
    scene.close();
    // This process, as if it had got the recorded id.
    scene.rewrite(&desired.id, |record| record["processes"][0]["pid"] = json!(std::process::id()));
    scene.open();
    scene.until_failed(&desired.id).await;
    scene.make(2, Verb::Delete { id: desired.id.clone() }).await;
    scene.until(&desired.id, |presence| *presence == Presence::Absent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_is_unknown_and_nothing_is_done_to_it() {
    let (mut scene, desired, instance) = ready().await;
    let (pid, record) = (scene.pid(&desired.id), scene.record(&desired.id));
    scene.close();
    let path = scene.part(&desired.id).join("record.json");
    std::fs::write(&path, "{\"version\":1,").expect("a file");
    scene.open();
    let presence = scene.see(&desired.id).await;
    assert!(matches!(&presence, Presence::Unknown { why } if why.contains("cannot read the record")), "{presence:?}");
    for verb in [Verb::Create(desired.clone()), Verb::Delete { id: desired.id.clone() }] {
        let outcome = scene.apply(9, verb).await;
        assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    }
    std::fs::write(&path, record.to_string()).expect("a file");
    assert_eq!(scene.until_ready(&desired.id).await.instance, instance);
    assert_eq!(processes(&scene, &desired.id), [pid]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_without_a_record_is_there_and_can_be_replaced() {
    let (mut scene, desired, _) = ready().await;
    let pid = scene.pid(&desired.id);
    scene.close();
    std::fs::remove_file(scene.part(&desired.id).join("record.json")).expect("a record");
    scene.open();
    assert_eq!(scene.see(&desired.id).await.generation(), None);
    assert!(scene.see(&desired.id).await.facts().is_some());
    scene.make(5, Verb::Replace(desired.clone())).await;
    scene.until(&desired.id, |presence| presence.generation().is_some() && presence.serves()).await;
    assert_ne!(scene.pid(&desired.id), pid);
    assert_eq!(processes(&scene, &desired.id).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_started_where_its_record_cannot_be_written() {
    let scene = Scene::new();
    let desired = scene.desired(&coordinator_id(), "", 0);
    // A link that leads nowhere: reading finds no record, only writing fails.
    let directory = scene.part(&desired.id);
    std::fs::create_dir_all(directory.parent().expect("the site")).expect("a directory");
    std::os::unix::fs::symlink("missing", &directory).expect("a link");
    let outcome = scene.apply(1, Verb::Create(desired.clone())).await;
    let path = directory.display().to_string();
    assert!(matches!(&outcome, Outcome::Failed { why } if why.contains(&path)), "{outcome:?}");
    assert_eq!(scene.see(&desired.id).await, Presence::Absent);
    std::fs::remove_file(&directory).expect("a link");
    scene.make(1, Verb::Create(desired.clone())).await;
    scene.until_ready(&desired.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_document_that_is_taken_is_told_with_who_has_it() {
    let scene = Scene::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut spec = coordinator();
    spec.endpoints.fleet = NonZeroU16::new(port);
    let desired = Desired::new(coordinator_id(), Spec::Coordinator(spec));
    scene.make(1, Verb::Create(desired.clone())).await;
    let why = scene.until_failed(&desired.id).await;
    assert!(why.contains(&port.to_string()) && why.contains(&format!("({})", std::process::id())), "{why}");
    drop(listener);
    // A program that another test starts at this moment has it until it has become that program.
    while TcpListener::bind(("127.0.0.1", port)).is_err() {
        tokio::task::yield_now().await;
    }
    let instance = scene.see(&desired.id).await.facts().expect("it is there").instance;
    scene.make(2, restart(&desired, instance)).await;
    let facts = scene.until_ready(&desired.id).await;
    assert_eq!(facts.addresses.fleet, Some(format!("127.0.0.1:{port}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_kept_unless_somebody_else_took_them() {
    let (scene, desired, instance) = ready().await;
    let before = scene.until_ready(&desired.id).await.addresses;
    scene.make(2, restart(&desired, instance)).await;
    scene.until(&desired.id, |presence| presence.facts().is_some_and(|facts| facts.instance != instance)).await;
    let again = scene.until_ready(&desired.id).await;
    assert_eq!(again.addresses, before);
    kill(scene.pid(&desired.id));
    scene.until_failed(&desired.id).await;
    let _taken = TcpListener::bind(before.fleet.as_deref().expect("an address")).expect("it is free");
    scene.make(3, restart(&desired, again.instance)).await;
    let after = scene.until_ready(&desired.id).await.addresses;
    assert_ne!(after.fleet, before.fleet);
    assert_eq!(after.http, before.http);
}
