//! Faults of clouds, and how the driver handles them.

use trellis_driver_one::{Finding, Fitness, examine};
use trellis_fake_one::cloud::{Cloud, ImageState, LcmState, ServiceState, VmState};
use trellis_fake_one::faults::{BootFailure, LostAnswer, Refusal, Server, SlowAnswer, Unplaced};
use trellis_plan::{Desired, Driver, Observation, OpenDriver, Outcome, Presence, ResourceId, Spec, Verb};
use trellis_spec::{OneImages, OneSite};

use crate::scene::{Scene, TIMEOUT, USER_ID, desired, id, name, node};

async fn coordinator_and_nodes(scene: &Scene, nodes: u32) {
    coordinator_and_nodes_from(scene, 1, nodes).await;
}

async fn coordinator_and_nodes_from(scene: &Scene, serial: u64, nodes: u32) {
    let coordinator = desired(&id("demo/lab/coordinator"), 0);
    scene.make(serial, Verb::Create(coordinator.clone())).await;
    scene.until_ready(&coordinator).await;
    for index in 0..nodes {
        let node = desired(&id(&format!("demo/lab/node/pool-{index}")), 0);
        scene.make(serial + u64::from(index) + 1, Verb::Create(node)).await;
    }
    for index in 0..nodes {
        scene.until_ready(&desired(&id(&format!("demo/lab/node/pool-{index}")), 0)).await;
    }
}

fn delete(text: &str) -> Verb {
    Verb::Delete { id: id(text) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_that_is_deleted_goes_and_no_other() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 3).await;
    let parts = ["demo/lab/coordinator", "demo/lab/node/pool-0", "demo/lab/node/pool-2"];
    let before: Vec<Option<i64>> = parts.iter().map(|part| scene.vm_of(&id(part))).collect();
    scene.make(9, delete("demo/lab/node/pool-1")).await;
    scene.until_absent(&id("demo/lab/node/pool-1")).await;
    let after: Vec<Option<i64>> = parts.iter().map(|part| scene.vm_of(&id(part))).collect();
    assert_eq!(after, before, "the VMs of the others are what they were");
    assert!(after.iter().all(Option::is_some));
    assert_eq!(scene.vms().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_federation_that_is_deleted() {
    let scene = Scene::new().await;
    let images = scene.cloud().with(|cloud| cloud.images.len());
    coordinator_and_nodes(&scene, 1).await;
    scene.make(8, delete("demo/lab/node/pool-0")).await;
    scene.make(9, delete("demo/lab/coordinator")).await;
    scene.until_absent(&id("demo/lab/coordinator")).await;
    scene.until_absent(&id("demo/lab/node/pool-0")).await;
    assert_eq!(scene.vms(), Vec::<i64>::new());
    let left = scene.cloud().with(|cloud| (cloud.templates.len(), cloud.services.len(), cloud.images.len()));
    assert_eq!(left, (0, 0, images), "VM templates, services, images");
    assert!(scene.sites().token_path(&name("demo")).is_none(), "the secret went with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_dropped_at_any_time_goes_on_where_it_was() {
    let scene = Scene::new().await;
    let coordinator = desired(&id("demo/lab/coordinator"), 0);
    let node = desired(&id("demo/lab/node/pool-0"), 0);
    scene.make(1, Verb::Create(coordinator.clone())).await;
    scene.make(2, Verb::Create(node.clone())).await;
    // Each iteration stops the driver a little later.
    for millis in [0, 5, 10, 20, 40, 80, 160] {
        tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
        scene.open();
        scene.see(&coordinator.id).await;
    }
    scene.until_ready(&coordinator).await;
    scene.until_ready(&node).await;
    assert_eq!(scene.vms().len(), 2, "none was made twice");
    let count = scene.cloud().with(|cloud| (cloud.services.len(), cloud.templates.len()));
    assert_eq!(count, (1, 2), "one service, one template for each role");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_lost_cost_nothing() {
    let scene = Scene::new().await;
    let lost = |server, matching: &str| LostAnswer { server, matching: matching.to_owned(), times: Some(1) };
    scene.cloud().faults(|faults| {
        faults.lost_answers = vec![
            lost(Server::Oned, "one.image.allocate"),
            lost(Server::Oned, "one.template.allocate"),
            lost(Server::Oned, "one.vm.update"),
            lost(Server::Flow, "POST /service_template"),
            lost(Server::Flow, "/action"),
            lost(Server::Flow, "/role_action"),
        ];
    });
    coordinator_and_nodes(&scene, 2).await;
    assert_eq!(scene.vms().len(), 3);
    let count = scene.cloud().with(|cloud| (cloud.services.len(), cloud.templates.len()));
    assert_eq!(count, (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_disk_the_driver_finds_its_parts_by_their_marks() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 1).await;
    let vm = scene.vm_of(&id("demo/lab/node/pool-0"));
    scene.close();
    std::fs::remove_dir_all(scene.directory.path().join("opennebula")).expect("the disk is lost");
    scene.open();
    let node = desired(&id("demo/lab/node/pool-0"), 0);
    scene.until_ready(&node).await;
    scene.make(20, Verb::Create(node.clone())).await;
    assert_eq!(scene.vm_of(&node.id), vm, "it is the same VM");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_stuck_is_brought_back() {
    for state in [ServiceState::FailedScaling, ServiceState::Cooldown, ServiceState::Scaling, ServiceState::Warning] {
        let scene = Scene::new().await;
        coordinator_and_nodes(&scene, 1).await;
        let service = scene.cloud().with(|cloud| *cloud.services.keys().next().expect("there is a service"));
        scene.cloud().stick(service, state);
        let node = desired(&id("demo/lab/node/pool-1"), 0);
        scene.make(9, Verb::Create(node.clone())).await;
        scene.until_ready(&node).await;
    }
}

/// Restarts a failed part, as the planner does.
async fn restart(scene: &Scene, serial: u64, desired: &Desired) {
    let instance = scene.see(&desired.id).await.facts().expect("it is there").instance;
    scene.make(serial, Verb::Restart { id: desired.id.clone(), generation: desired.generation, instance }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_does_not_boot_is_replaced_with_the_rights_of_an_ordinary_user() {
    let scene = Scene::new().await;
    let coordinator = desired(&id("demo/lab/coordinator"), 0);
    let fail = |times| {
        let failure = BootFailure { matching: String::new(), times };
        scene.cloud().faults(|faults| faults.boot_failures = vec![failure]);
    };
    fail(Some(1));
    scene.make(1, Verb::Create(coordinator.clone())).await;
    let why = scene.until_failed(&coordinator.id).await;
    assert!(why.contains("BOOT_FAILURE") && why.contains("cannot start the domain"), "{why}");
    let first = scene.vms();
    restart(&scene, 2, &coordinator).await;
    scene.until_ready(&coordinator).await;
    assert_ne!(scene.vms(), first, "another VM took its place");
    assert_eq!(scene.vms().len(), 1);
    // The same for a node that is added later.
    let node = desired(&id("demo/lab/node/pool-0"), 0);
    fail(Some(1));
    scene.make(3, Verb::Create(node.clone())).await;
    scene.until_failed(&node.id).await;
    restart(&scene, 4, &node).await;
    scene.until_ready(&node).await;
    assert_eq!(scene.vms().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_was_turned_off_and_terminated_is_made_again() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 2).await;
    let (lost, kept) = (desired(&id("demo/lab/node/pool-0"), 0), id("demo/lab/node/pool-1"));
    let (vm, other) = (scene.vm_of(&lost.id).expect("it has a VM"), scene.vm_of(&kept));
    let coordinator = scene.vm_of(&id("demo/lab/coordinator"));
    scene.cloud().with(|cloud| cloud.act(vm, "poweroff-hard")).expect("it is turned off");
    let off = |cloud: &Cloud| (cloud.vms[&vm].state == VmState::Poweroff).then_some(());
    scene.cloud().wait(TIMEOUT, off).await.expect("it is off");
    scene.until_failed(&lost.id).await;
    scene.cloud().with(|cloud| cloud.act(vm, "terminate")).expect("it is terminated");
    let gone = |presence: &Presence| format!("{presence:?}").contains("is gone");
    scene.until(&lost.id, "gone", gone).await;
    let warns = |cloud: &Cloud| cloud.services.values().any(|service| service.state == ServiceState::Warning);
    assert!(scene.cloud().with(|cloud| warns(cloud)), "OneFlow takes no orders for it");
    restart(&scene, 9, &lost).await;
    scene.until_ready(&lost).await;
    assert_eq!((scene.vm_of(&kept), scene.vm_of(&id("demo/lab/coordinator"))), (other, coordinator));
    assert_eq!((scene.vms().len(), scene.cloud().with(|cloud| cloud.services.len())), (3, 2));
    // All services are deleted.
    for (serial, part) in [(10, "node/pool-0"), (11, "node/pool-1"), (12, "coordinator")] {
        scene.make(serial, delete(&format!("demo/lab/{part}"))).await;
    }
    scene.until_absent(&id("demo/lab/coordinator")).await;
    assert_eq!((scene.vms().len(), scene.cloud().with(|cloud| cloud.services.len())), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_home_is_recovered_from_the_cloud_and_nothing_is_taken_down() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 2).await;
    let parts = ["demo/lab/coordinator", "demo/lab/node/pool-0", "demo/lab/node/pool-1"].map(id);
    let vms = || parts.iter().map(|part| scene.vm_of(part)).collect::<Vec<Option<i64>>>();
    let token = || std::fs::read_to_string(scene.sites().token_path(&name("demo")).expect("there is a token"));
    let before = (vms(), token().expect("a file"));
    scene.close();
    std::fs::remove_dir_all(scene.directory.path().join("opennebula")).expect("the home is lost");
    scene.open();
    let wanted = |parts: &[ResourceId]| parts.iter().map(|part| desired(part, 0)).collect::<Vec<Desired>>();
    let hear = |wanted: &[Desired]| {
        scene.driver().set_desired(&name("demo"), &name("lab"), &wanted.iter().collect::<Vec<&Desired>>());
    };
    for desired in wanted(&parts) {
        scene.until_ready(&desired).await;
    }
    hear(&wanted(&parts));
    // The next request creates another node.
    let more = id("demo/lab/node/pool-2");
    hear(&wanted(&[parts.as_slice(), std::slice::from_ref(&more)].concat()));
    scene.make(1, Verb::Create(desired(&more, 0))).await;
    scene.until_ready(&desired(&more, 0)).await;
    assert_eq!((vms(), token().expect("a file")), before);
    assert_eq!((scene.vms().len(), scene.cloud().with(|cloud| cloud.services.len())), (4, 1));
    let states = scene.cloud().updates(0);
    let ended = states.iter().filter(|update| update.name == "VM_STATE" && update.new.as_deref() == Some("SHUTDOWN"));
    assert_eq!(ended.count(), 0, "nothing was taken down");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_a_part_waits_is_told_in_the_words_of_the_cloud() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 0).await;
    let why = "[HOST] Not enough MEMORY on hosts: 3";
    let unplaced = Unplaced { matching: "supernode".to_owned(), why: why.to_owned() };
    scene.cloud().faults(|faults| faults.unplaced = vec![unplaced]);
    let node = desired(&id("demo/lab/node/pool-0"), 0);
    scene.make(2, Verb::Create(node.clone())).await;
    let says = |text: &'static str| {
        move |presence: &Presence| {
            presence.facts().and_then(|facts| facts.waiting_for.as_ref()).is_some_and(|why| why.contains(text))
        }
    };
    scene.until(&node.id, "told why it waits", says("is PENDING: [HOST] Not enough MEMORY on hosts: 3")).await;
    scene.cloud().faults(|faults| faults.unplaced.clear());
    scene.until_ready(&node).await;
    // OneFlow reports a refusal by any quota in its log and in the answer.
    let history = scene.cloud().with(|cloud| cloud.used(USER_ID, "MEMORY"));
    let quota = |limit: f64| {
        scene
            .cloud()
            .with(|cloud| cloud.users.get_mut(&USER_ID).expect("it is there").vm_quota.insert("MEMORY".into(), limit))
    };
    quota(history);
    let second = desired(&id("demo/lab/node/pool-1"), 0);
    scene.make(3, Verb::Create(second.clone())).await;
    let agent_state = |presence: &Presence| format!("{presence:?}").contains("the quota for memory is used up");
    scene.until(&second.id, "told of the quota", agent_state).await;
    quota(history * 3.0);
    restart(&scene, 4, &second).await;
    scene.until_ready(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_cloud_is_not_a_broken_one() {
    let scene = Scene::new().await;
    // Slower than a controller's timeout for a driver, as with a front-end under load.
    let slow = SlowAnswer { server: Server::Flow, matching: "GET /service".to_owned(), delay_ms: 3_500 };
    scene.cloud().faults(|faults| faults.slow = vec![slow]);
    let coordinator = desired(&id("demo/lab/coordinator"), 0);
    let limit = std::time::Duration::from_secs(3);
    let seen = tokio::time::timeout(limit, scene.driver().observe(&name("demo"), &name("lab"))).await;
    let Ok(Observation::Reached(seen)) = seen else { panic!("{seen:?}") };
    assert!(!seen.complete, "nothing is said to be absent before the cloud has answered");
    scene.make(1, Verb::Create(coordinator.clone())).await;
    scene.until_ready(&coordinator).await;
    let again = tokio::time::timeout(limit, scene.driver().observe(&name("demo"), &name("lab"))).await;
    assert!(matches!(again, Ok(Observation::Reached(_))), "{again:?}");
}

/// Number of requests to oned and OneFlow since the last call.
fn requests(scene: &Scene) -> u64 {
    scene.cloud().with(|cloud| std::mem::take(&mut cloud.requests).values().sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_asked_for_a_federation_of_which_nothing_is_left() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 1).await;
    scene.make(8, delete("demo/lab/node/pool-0")).await;
    scene.make(9, delete("demo/lab/coordinator")).await;
    scene.until_absent(&id("demo/lab/coordinator")).await;
    scene.until_absent(&id("demo/lab/node/pool-0")).await;
    // The last observation may still be running; each pause is longer than many observations.
    let pause = std::time::Duration::from_millis(500);
    let mut quiet = false;
    for _ in 0..20 {
        requests(&scene);
        tokio::time::sleep(pause).await;
        quiet = requests(&scene) == 0;
        if quiet {
            break;
        }
    }
    assert!(quiet, "the keeper goes on asking");
    coordinator_and_nodes_from(&scene, 20, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_used_are_those_that_are_documented() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 2).await;
    let node = desired(&id("demo/lab/node/pool-0"), 0);
    restart(&scene, 8, &node).await;
    scene.until_ready(&node).await;
    scene.make(9, Verb::Replace(desired(&node.id, 1))).await;
    scene.until_ready(&desired(&node.id, 1)).await;
    for (serial, part) in [(10, "node/pool-0"), (11, "node/pool-1"), (12, "coordinator")] {
        scene.make(serial, delete(&format!("demo/lab/{part}"))).await;
    }
    scene.until_absent(&id("demo/lab/coordinator")).await;
    let used = scene.cloud().with(|cloud| cloud.rights_used.borrow().clone());
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/opennebula.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let rights = ["USE ", "MANAGE ", "ADMIN ", "CREATE "];
    let agent_state: std::collections::BTreeSet<String> = rows
        .map(|(right, _)| right.to_owned())
        .filter(|word| rights.iter().any(|right| word.starts_with(right)))
        .collect();
    assert_eq!(used, agent_state, "left: used; right: the table of docs/opennebula.md");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_whose_host_is_silent_is_unknown_and_one_that_is_off_has_failed() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 1).await;
    let node = desired(&id("demo/lab/node/pool-0"), 0);
    let vm = scene.vm_of(&node.id).expect("it has a VM");
    scene.cloud().set_vm_state(vm, VmState::Active, LcmState::Unknown);
    let unknown = |presence: &trellis_plan::Presence| matches!(presence, trellis_plan::Presence::Unknown { .. });
    scene.until(&node.id, "unknown", unknown).await;
    scene.cloud().set_vm_state(vm, VmState::Poweroff, LcmState::Init);
    let why = scene.until_failed(&node.id).await;
    assert!(why.contains("POWEROFF"), "{why}");
    let instance = scene.see(&node.id).await.facts().expect("it is there").instance;
    let restart = Verb::Restart { id: node.id.clone(), generation: node.generation, instance };
    scene.make(9, restart).await;
    scene.until_ready(&node).await;
    assert_eq!(scene.vm_of(&node.id), Some(vm), "the same VM was resumed");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_size_is_another_vm_and_the_coordinator_keeps_its_disk() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 0).await;
    let id = id("demo/lab/coordinator");
    let before = scene.vm_of(&id);
    let disks = |scene: &Scene| {
        scene.cloud().with(|cloud| cloud.images.values().filter(|image| image.owned.name.ends_with("-state")).count())
    };
    assert_eq!(disks(&scene), 1);
    let mut spec = crate::scene::coordinator(0);
    spec.resources.memory_bytes = Some(8 << 30);
    let larger = trellis_plan::Desired::new(id.clone(), Spec::Coordinator(spec));
    scene.make(9, Verb::Replace(larger.clone())).await;
    scene.until_ready(&larger).await;
    assert_ne!(scene.vm_of(&id), before);
    assert_eq!((scene.vms().len(), disks(&scene)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cloud_refuses_is_told_with_what_to_do() {
    let scene = Scene::new().await;
    let error = Refusal {
        method: "one.template.allocate".to_owned(),
        code: 512,
        message: "User [2] : Not authorized to perform CREATE TEMPLATE.".to_owned(),
        times: None,
    };
    scene.cloud().faults(|faults| faults.refusals = vec![error]);
    scene.make(1, Verb::Create(desired(&id("demo/lab/coordinator"), 0))).await;
    let why = scene.until_failed(&id("demo/lab/coordinator")).await;
    assert!(why.contains("Not authorized") && why.contains("oneacl"), "{why}");
    scene.cloud().faults(|faults| faults.refusals.clear());
    scene.until_ready(&desired(&id("demo/lab/coordinator"), 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_is_told_and_room_is_used_when_there_is_some() {
    let scene = Scene::new().await;
    let limit = |vms: f64| {
        scene
            .cloud()
            .with(|cloud| cloud.users.get_mut(&USER_ID).expect("it is there").vm_quota.insert("VMS".into(), vms))
    };
    limit(0.0);
    scene.make(1, Verb::Create(desired(&id("demo/lab/coordinator"), 0))).await;
    let why = scene.until_failed(&id("demo/lab/coordinator")).await;
    assert!(why.to_lowercase().contains("quota"), "{why}");
    limit(9.0);
    scene.make(2, delete("demo/lab/coordinator")).await;
    scene.until_absent(&id("demo/lab/coordinator")).await;
    scene.make(3, Verb::Create(desired(&id("demo/lab/coordinator"), 0))).await;
    scene.until_ready(&desired(&id("demo/lab/coordinator"), 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_a_file_is_uploaded_once_and_goes_with_the_federation() {
    let scene = Scene::new().await;
    let images = OneImages { superlink: Some("/var/tmp/mine.qcow2".to_owned()), supernode: None };
    scene.open_with(OneSite { images, ..scene.site() });
    let uploads = || {
        scene.cloud().with(|cloud| cloud.images.values().filter(|image| image.path == "/var/tmp/mine.qcow2").count())
    };
    coordinator_and_nodes(&scene, 1).await;
    assert_eq!(uploads(), 1);
    scene.make(8, delete("demo/lab/node/pool-0")).await;
    scene.make(9, delete("demo/lab/coordinator")).await;
    scene.until_absent(&id("demo/lab/coordinator")).await;
    scene.until_absent(&id("demo/lab/node/pool-0")).await;
    assert_eq!(uploads(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_the_cloud_does_not_know_are_told_before_anything_is_sent() {
    let scene = Scene::new().await;
    scene.open_with(OneSite { network: "nowhere".to_owned(), ..scene.site() });
    scene.make(1, Verb::Create(desired(&id("demo/lab/coordinator"), 0))).await;
    let why = scene.until_failed(&id("demo/lab/coordinator")).await;
    assert!(why.contains("no network nowhere") && why.contains("net1"), "{why}");
    assert_eq!(scene.cloud().with(|cloud| cloud.templates.len()), 0);
    scene.open_with(OneSite { endpoint: "http://127.0.0.1:1/RPC2".to_owned(), ..scene.site() });
    let seen = scene.driver().observe(&name("demo"), &name("lab")).await;
    assert!(matches!(seen, Observation::Unreachable { .. }), "what cannot be seen is not absent: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_site_lacks_is_told_for_good_and_used_once_it_is_there() {
    let scene = Scene::new().await;
    let images = OneImages { superlink: Some("later".to_owned()), supernode: None };
    scene.open_with(OneSite { images, ..scene.site() });
    let coordinator = desired(&id("demo/lab/coordinator"), 0);
    scene.make(1, Verb::Create(coordinator.clone())).await;
    let why = scene.until_failed(&coordinator.id).await;
    assert!(why.contains("no image later"), "{why}");
    // The outcome says that a restart does not help, so callers need not wait.
    let instance = scene.see(&coordinator.id).await.facts().expect("it is there").instance;
    let restart = Verb::Restart { id: coordinator.id.clone(), generation: coordinator.generation, instance };
    let outcome = scene.apply(2, restart).await;
    assert!(
        matches!(&outcome, Outcome::Refused { why, retry: false } if why.contains("no image later")),
        "{outcome:?}"
    );
    scene.add_image("later");
    scene.until_ready(&coordinator).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_is_told_its_own_and_all_trust_the_coordinator() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 2).await;
    for index in 0..2 {
        let part = id(&format!("demo/lab/node/pool-{index}"));
        let vm = scene.vm_of(&part).expect("it has a VM");
        let agent_state = scene.cloud().attribute(vm, "TRELLIS_ASSIGNMENT").expect("it was told");
        let agent_state = trellis_one::keys::Assignment::from_attribute(&agent_state).expect("it can be read");
        assert_eq!(agent_state.part, part.to_string());
        let Spec::Node(spec) = desired(&part, 0).spec else { unreachable!("it is a node") };
        assert_eq!(spec.shard, node(index, 0).shard);
        assert!(agent_state.settings.contains_key("FL_SSL_CA_CERTFILE"), "{agent_state:?}");
        assert!(!agent_state.settings.contains_key("FL_ADMIN_TOKEN"), "{agent_state:?}");
    }
    let trust = scene.sites().trust_path(&name("demo")).expect("users can trust it");
    assert!(std::fs::read_to_string(trust).expect("a file").contains("BEGIN CERTIFICATE"));
    let secrets = scene.cloud().with(|cloud| {
        cloud.vms.values().filter(|vm| format!("{:?}", vm.user_template).contains("ADMIN_TOKEN")).count()
    });
    assert_eq!(secrets, 0, "OneGate shows attributes to all VMs of a service");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_driver_does_not_get_in_the_way() {
    let scene = Scene::new().await;
    coordinator_and_nodes(&scene, 0).await;
    let first = scene.driver();
    scene.open();
    let outcome = scene.apply(3, Verb::Create(desired(&id("demo/lab/node/pool-0"), 0))).await;
    assert!(matches!(outcome, Outcome::Refused { retry: true, .. }), "{outcome:?}");
    drop(first);
    scene.make(3, Verb::Create(desired(&id("demo/lab/node/pool-0"), 0))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_is_examined_before_anything_is_made() {
    let scene = Scene::new().await;
    let gate = scene.one.gate_url();
    let bad = |findings: &[Finding]| {
        let bad = findings.iter().filter(|finding| finding.fitness == Fitness::Bad);
        bad.map(|finding| (finding.name, finding.found.clone())).collect::<Vec<(&str, String)>>()
    };
    let site = scene.site();
    let ready = |cloud: &Cloud| cloud.images.values().all(|image| image.state == ImageState::Ready).then_some(());
    scene.cloud().wait(TIMEOUT, ready).await.expect("the images are copied");
    let findings = examine(&site.clone().into(), Some(&gate)).await;
    let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
    let expected = [
        "endpoint",
        "oneflow",
        "user",
        "quota",
        "network",
        "superlink image",
        "supernode image",
        "datastore",
        "onegate",
    ];
    assert_eq!(names, expected);
    assert!(findings.iter().all(|finding| finding.fitness == Fitness::Good), "{findings:?}");
    assert_eq!(scene.cloud().with(|cloud| (cloud.templates.len(), cloud.vms.len())), (0, 0), "nothing is made");
    scene.cloud().with(|cloud| cloud.users.get_mut(&USER_ID).expect("it is there").vm_quota.insert("VMS".into(), 0.0));
    let images = OneImages { superlink: Some("mine".to_owned()), supernode: None };
    let wrong = OneSite { network: "nowhere".to_owned(), datastore: Some("none".to_owned()), images, ..site.clone() };
    let found = bad(&examine(&wrong.into(), Some(&gate)).await);
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["quota", "network", "superlink image", "datastore"], "{found:?}");
    assert!(found[1].1.contains("net1"), "{found:?}");
    for (site, words) in [
        (OneSite { zone: Some("nowhere".to_owned()), ..site.clone() }, "there is no zone nowhere"),
        (OneSite { endpoint: "http://127.0.0.1:1/RPC2".to_owned(), ..site.clone() }, "cannot be reached"),
    ] {
        let found = bad(&examine(&site.clone().into(), Some(&gate)).await);
        assert!(found.len() == 1 && found[0].1.contains(words), "{found:?}");
    }
}
