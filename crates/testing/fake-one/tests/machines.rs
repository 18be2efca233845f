//! Hypervisors: programs and simulated agents.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use trellis_fake_one::cloud::{Cloud, Id, LcmState, Pace, ServiceState, VmState, state_name};
use trellis_fake_one::faults::{AgentFault, AgentFaultKind};
use trellis_fake_one::hypervisor::PretendSettings;
use trellis_fake_one::template::Template;
use trellis_fake_one::{Config, FakeOne, Handle, Machines, PlainRole};
use trellis_one::keys::{self, Assignment};

const LIMIT: Duration = Duration::from_secs(20);

async fn pretended() -> FakeOne {
    let pace = Pace { second_ms: 10, ..Pace::default() };
    let machines = Machines::Pretend(PretendSettings::default());
    FakeOne::start(Config { pace, machines, ..Config::default() }).await.expect("it starts")
}

async fn programs(script: &str, place: &Path) -> FakeOne {
    let command = vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let machines = Machines::Programs { command, directory: place.to_owned() };
    FakeOne::start(Config { machines, ..Config::default() }).await.expect("it starts")
}

async fn until(handle: &Handle, what: &str, look: impl Fn(&Cloud) -> bool) {
    let seen = handle.wait(LIMIT, |cloud| look(cloud).then_some(())).await;
    let vms =
        || handle.with(|cloud| format!("{:#?}", cloud.vms.values().map(|vm| &vm.user_template).collect::<Vec<_>>()));
    assert!(seen.is_some(), "{what} never came: {}", vms());
}

fn is(vm: Id, name: &str) -> impl Fn(&Cloud) -> bool + '_ {
    move |cloud| cloud.vms.get(&vm).is_some_and(|vm| state_name(vm.state, vm.lcm) == name)
}

fn says<'a>(vm: Id, key: &'a str, value: &'a str) -> impl Fn(&Cloud) -> bool + 'a {
    move |cloud| cloud.vms[&vm].user_template.get(key) == Some(value)
}

fn tell(handle: &Handle, vm: Id, key: &str, value: &str) {
    let mut said = Template::default();
    said.set(key, value);
    handle.with(|cloud| cloud.update_user_template(vm, said, false, "oned")).expect("the VM is there");
}

fn role(name: &str, cardinality: i64, parents: &[&str]) -> PlainRole {
    let parents = parents.iter().map(|parent| (*parent).to_owned()).collect();
    PlainRole { name: name.to_owned(), cardinality, parents, context: Vec::new() }
}

#[tokio::test]
async fn a_program_lives_and_dies_with_its_vm() {
    let place = tempfile::tempdir().expect("a directory");
    // The child of the program must end too.
    let script = "echo start >> $FAKE_ONE_VM_DIR/story; trap 'echo term >> $FAKE_ONE_VM_DIR/story; exit 0' TERM; \
                  sleep 1000 & echo $! > $FAKE_ONE_VM_DIR/child.new; mv $FAKE_ONE_VM_DIR/child.new $FAKE_ONE_VM_DIR/child; wait";
    let fake = programs(script, place.path()).await;
    let handle = fake.handle();
    let vm = handle.create_vm("one", &[("A", "it's $x")], &[]).expect("it is made");
    until(&handle, "RUNNING", is(vm, "RUNNING")).await;
    let own = place.path().join(format!("vm-{vm}"));
    let child = own.join("child");
    until(&handle, "the child", |_| child.exists()).await;
    let context = std::fs::read_to_string(own.join("context.sh")).expect("it is there");
    assert!(context.contains("A='it'\\''s '\n") && context.contains("ETH0_IP='192.168.150.10'"), "{context}");
    assert_eq!(std::fs::read_to_string(own.join("token.txt")).ok(), handle.token(vm));
    let pid = std::fs::read_to_string(&child).expect("it is there").trim().to_owned();
    handle.with(|cloud| cloud.act(vm, "terminate")).expect("it runs");
    until(&handle, "DONE", is(vm, "DONE")).await;
    assert_eq!(std::fs::read_to_string(own.join("story")).expect("it is there"), "start\nterm\n");
    let proc = Path::new("/proc").join(pid).join("stat");
    // A zombie counts as dead.
    until(&handle, "the child's end", |_| {
        std::fs::read_to_string(&proc)
            .map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
    })
    .await;
    fake.stop().await;
}

#[tokio::test]
async fn a_program_that_ends_is_a_vm_that_is_off() {
    let place = tempfile::tempdir().expect("a directory");
    let fake =
        programs("test -e $FAKE_ONE_VM_DIR/again && exec sleep 1000; touch $FAKE_ONE_VM_DIR/again", place.path()).await;
    let handle = fake.handle();
    let vm = handle.create_vm("one", &[], &[]).expect("it is made");
    until(&handle, "POWEROFF", is(vm, "POWEROFF")).await;
    handle.with(|cloud| cloud.act(vm, "resume")).expect("it is off");
    until(&handle, "RUNNING", is(vm, "RUNNING")).await;
    handle.with(|cloud| cloud.act(vm, "poweroff-hard")).expect("it runs");
    until(&handle, "POWEROFF", is(vm, "POWEROFF")).await;
    fake.stop().await;
}

#[tokio::test]
async fn a_reboot_is_the_same_vm_with_a_new_program() {
    let place = tempfile::tempdir().expect("a directory");
    let script = "trap 'echo term >> $FAKE_ONE_VM_DIR/story; exit 0' TERM; echo start >> $FAKE_ONE_VM_DIR/story; \
                  while :; do sleep 1000 & wait; done";
    let fake = programs(script, place.path()).await;
    let handle = fake.handle();
    let vm = handle.create_vm("one", &[], &[]).expect("it is made");
    let story = place.path().join(format!("vm-{vm}/story"));
    let told = |wanted: &'static str| {
        let story = story.clone();
        move |_: &Cloud| std::fs::read_to_string(&story).is_ok_and(|text| text == wanted)
    };
    until(&handle, "RUNNING", is(vm, "RUNNING")).await;
    until(&handle, "the start", told("start\n")).await;
    handle.with(|cloud| cloud.act(vm, "reboot")).expect("it runs");
    until(&handle, "the reboot", told("start\nterm\nstart\n")).await;
    assert!(handle.with(|cloud| is(vm, "RUNNING")(cloud)));
    fake.stop().await;
}

#[tokio::test]
async fn agents_say_what_real_ones_would() {
    let fake = pretended().await;
    let handle = fake.handle();
    let roles = [role("superlink", 1, &[]), role("supernode", 2, &["superlink"])];
    let service = handle.create_service("fed", true, &roles).expect("it is made");
    until(&handle, "RUNNING", |cloud| cloud.services[&service].state == ServiceState::Running).await;
    let (link, nodes) = (handle.role_vms(service, "superlink")[0], handle.role_vms(service, "supernode"));
    assert_eq!(handle.attribute(link, keys::FL_ENDPOINT).as_deref(), Some("192.168.150.10:9092"));
    let first = handle.attribute(nodes[0], keys::TRELLIS_INSTANCE).expect("it says so");

    let given = Assignment { part: "fed/s/node/p-0".into(), generation: "00ab".into(), settings: BTreeMap::new() };
    tell(&handle, nodes[0], keys::TRELLIS_ASSIGNMENT, &given.to_attribute());
    until(&handle, "the generation", says(nodes[0], keys::TRELLIS_GENERATION, "00ab")).await;
    let second = handle.attribute(nodes[0], keys::TRELLIS_INSTANCE).expect("it says so");
    assert_ne!(first, second);
    tell(&handle, nodes[0], keys::TRELLIS_RESTART, &second);
    until(&handle, "another instance", |cloud| {
        let vm = &cloud.vms[&nodes[0]].user_template;
        vm.get(keys::TRELLIS_INSTANCE) != Some(&second) && vm.get(keys::READY) == Some("YES")
    })
    .await;
    tell(&handle, nodes[0], keys::TRELLIS_DRAIN, "YES");
    until(&handle, "draining", says(nodes[0], keys::TRELLIS_DRAINING, "YES")).await;

    let kind = AgentFaultKind::Failed("start_failed: no".to_owned());
    handle.faults(|faults| faults.agents.push(AgentFault { matching: "superlink".to_owned(), kind }));
    until(&handle, "the nodes' NO", says(nodes[1], keys::READY, "NO")).await;
    assert_eq!(handle.attribute(link, keys::FL_ERROR).as_deref(), Some("start_failed: no"));
    fake.stop().await;
}

#[tokio::test]
async fn the_oldest_go_first_and_what_is_gone_is_not_missed() {
    let fake = pretended().await;
    let handle = fake.handle();
    let service =
        handle.create_service("fed", true, &[role("superlink", 1, &[]), role("supernode", 3, &["superlink"])]);
    let service = service.expect("it is made");
    let state = |wanted: ServiceState| move |cloud: &Cloud| cloud.services[&service].state == wanted;
    until(&handle, "RUNNING", state(ServiceState::Running)).await;
    let nodes = handle.role_vms(service, "supernode");
    handle.with(|cloud| cloud.scale(0, service, "supernode", 2, false, Some(1))).expect("it runs");
    until(&handle, "RUNNING", state(ServiceState::Running)).await;
    assert_eq!(handle.role_vms(service, "supernode"), nodes[1..]);

    handle.with(|cloud| cloud.act(nodes[1], "terminate")).expect("it runs");
    until(&handle, "one node", |cloud| cloud.services[&service].roles[1].cardinality == 1).await;
    assert_eq!(handle.role_vms(service, "supernode"), nodes[2..]);

    handle.set_vm_state(nodes[2], VmState::Active, LcmState::Unknown);
    until(&handle, "WARNING", state(ServiceState::Warning)).await;
    handle.set_vm_state(nodes[2], VmState::Active, LcmState::Running);
    until(&handle, "RUNNING", state(ServiceState::Running)).await;

    handle.stick(service, ServiceState::Scaling);
    let refused = handle.with(|cloud| cloud.undeploy(0, service)).expect_err("it is stuck");
    assert_eq!(refused.text, "Service cannot be undeployed in state: SCALING");
    handle.with(|cloud| cloud.recover_service(0, service, false)).expect("it can be recovered");
    until(&handle, "RUNNING", state(ServiceState::Running)).await;
    handle.with(|cloud| cloud.undeploy(0, service)).expect("it runs");
    until(&handle, "the end", |cloud| !cloud.services.contains_key(&service)).await;
    let order: Vec<Id> = handle
        .updates(0)
        .into_iter()
        .filter(|update| update.new.as_deref() == Some("DONE"))
        .map(|update| update.vm)
        .collect();
    assert_eq!(order, [nodes[0], nodes[1], nodes[2], 0], "children first");
    fake.stop().await;
}
