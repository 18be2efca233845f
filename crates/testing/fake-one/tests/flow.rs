//! OneFlow in the pure cloud, without servers and clocks: policies, updates, and descriptions before 7.0.

use serde_json::{Value, json};
use trellis_fake_one::cloud::{Cloud, FlowError, Id, ImageState, Pace, ServiceState, VmState};
use trellis_fake_one::faults::BootFailure;
use trellis_fake_one::template::Template;

/// 2026-11-16 08:29:30 UTC.
const NOW_MS: u64 = 1_794_817_770_000;

fn template(text: &str) -> Template {
    Template::parse(text).expect("it is a template")
}

fn cloud() -> Cloud {
    let mut cloud = Cloud::new(NOW_MS, 1, Pace::default(), "http://gate".to_owned());
    cloud.add_network(0, template("NAME=n\nAR=[IP=10.0.0.10,SIZE=50]")).expect("it is made");
    let machine = "NAME=t\nCPU=1\nMEMORY=64\nNIC=[NETWORK=n]\nCONTEXT=[TOKEN=YES,NETWORK=YES,A=\"$A\"]";
    cloud.add_template(0, template(machine)).expect("it is made");
    cloud
}

/// Machines that follow orders at once.
fn pass(cloud: &mut Cloud, seconds: u64) {
    for _ in 0..seconds * 10 {
        cloud.advance(cloud.now_ms + 100);
        for order in std::mem::take(&mut cloud.orders) {
            if let trellis_fake_one::cloud::Order::Stop { vm, .. } = order {
                cloud.machine_gone(vm);
            }
        }
    }
}

fn service(cloud: &mut Cloud, body: Value) -> Id {
    let template = cloud.add_service_template(0, body).expect("it is accepted");
    let id = cloud.instantiate_service(0, template, None).expect("it is accepted");
    pass(cloud, 2);
    assert_eq!(cloud.services[&id].state.name(), "RUNNING");
    id
}

fn cardinality(cloud: &Cloud, service: Id) -> i64 {
    cloud.services[&service].roles[0].cardinality
}

fn elastic(policies: &Value, scheduled: &Value) -> Value {
    json!({"name": "s", "roles": [{
        "name": "w", "type": "vm", "template_id": 0, "cardinality": 2, "min_vms": 1, "max_vms": 4, "cooldown": 1,
        "elasticity_policies": policies, "scheduled_policies": scheduled,
    }]})
}

#[test]
fn elastic_rules_look_at_what_vms_say_of_themselves() {
    let mut cloud = cloud();
    let rule = json!([{"type": "CHANGE", "adjust": 1, "expression": "LOAD > 10", "period": 1, "period_number": 3, "cooldown": 5}]);
    let id = service(&mut cloud, elastic(&rule, &json!([])));
    pass(&mut cloud, 5);
    assert_eq!(cardinality(&cloud, id), 2, "nobody says LOAD");
    for (vm, load) in [(0, "5"), (1, "21")] {
        let said = template(&format!("LOAD={load}"));
        cloud.update_user_template(vm, said, false, "oned").expect("it is there");
    }
    pass(&mut cloud, 2);
    assert_eq!(cardinality(&cloud, id), 2, "not often enough in a row");
    pass(&mut cloud, 2);
    assert_eq!(cardinality(&cloud, id), 3);
    assert_eq!(cloud.services[&id].roles[0].body["elasticity_policies"][0]["expression_evaluated"], "LOAD[13] > 10");
    pass(&mut cloud, 60);
    assert_eq!(cardinality(&cloud, id), 4, "never more than max_vms");
}

#[test]
fn scheduled_rules_fire_when_their_time_comes() {
    let mut cloud = cloud();
    let rules = json!([{"type": "CARDINALITY", "adjust": 4, "recurrence": "30 8 * * *"},
                       {"type": "PERCENTAGE_CHANGE", "adjust": -50, "start_time": (NOW_MS / 1000 + 120).to_string()}]);
    let id = service(&mut cloud, elastic(&json!([]), &rules));
    pass(&mut cloud, 20);
    assert_eq!(cardinality(&cloud, id), 2, "too early");
    pass(&mut cloud, 20);
    assert_eq!(cardinality(&cloud, id), 4);
    pass(&mut cloud, 90);
    assert_eq!(cardinality(&cloud, id), 2);
}

#[test]
fn rules_may_be_changed_and_roles_may_not() {
    let mut cloud = cloud();
    let id = service(&mut cloud, elastic(&json!([]), &json!([])));
    let policy = json!([{"type": "CARDINALITY", "adjust": 1, "expression": "5 > 3"}]);
    let change = json!({"roles": [{"name": "w", "elasticity_policies": policy, "max_vms": 9}]});
    cloud.update_service(0, id, &change, true).expect("it may be changed");
    assert_eq!(cloud.services[&id].roles[0].maximum(), Some(9));
    for (change, what) in [
        (json!({"name": "other"}), "service/name"),
        (json!({"roles": [{"name": "w", "cardinality": 3}]}), "role/cardinality"),
    ] {
        let refused = cloud.update_service(0, id, &change, true).expect_err("it is fixed");
        assert_eq!(refused.text, format!("Immutable value: `{what}` can not be changed"));
    }
    pass(&mut cloud, 3);
    assert_eq!(cardinality(&cloud, id), 1);
}

#[test]
fn descriptions_of_before_7_are_kept_by_6_and_turned_by_7() {
    let body = json!({
        "name": "s", "custom_attrs": {"A": "O|text|a||"}, "custom_attrs_values": {"A": "it"},
        "networks": {"Own": "M|network|own||id:0"},
        "roles": [{"name": "w", "vm_template": 0, "cardinality": 1, "vm_template_contents": "NIC=[NETWORK_ID=\"$Own\"]\nA=\"$A\""}],
    });
    for (version, kept) in [("6.10.2", true), ("7.0.1", false)] {
        let mut cloud = cloud();
        cloud.version = version.to_owned();
        let id = service(&mut cloud, body.clone());
        let service = cloud.services[&id].body_json();
        assert_eq!(service["roles"][0].get("vm_template").is_some(), kept, "{version}");
        assert_eq!(service["roles"][0].get("type").is_none(), kept, "{version}");
        let vm = cloud.vms.values().next().expect("it has one");
        assert_eq!((vm.context()["A"].as_str(), vm.address()), ("it", Some("10.0.0.10")), "{version}");
    }
    let mut old = cloud();
    old.version = "6.10.2".to_owned();
    assert!(old.add_service_template(0, elastic(&json!([]), &json!([]))).is_err(), "6 knows no template_id");
}

#[test]
fn a_vm_waits_for_its_image_and_fails_with_it() {
    for (fails, wanted) in [(false, VmState::Active), (true, VmState::CloningFailure)] {
        let mut cloud = cloud();
        if fails {
            cloud.faults.images_in_error.push("disk".to_owned());
        }
        let image = cloud.add_image(0, template("NAME=disk\nPATH=/dev/null"), 1).expect("it is made");
        let wanted_vm = template("CPU=1\nMEMORY=1\nDISK=[IMAGE=disk]");
        let vm = cloud.create_vm(0, "v", false, wanted_vm, None).expect("it is made");
        assert_eq!(cloud.vms[&vm].state, VmState::Cloning);
        pass(&mut cloud, 1);
        assert_eq!(cloud.vms[&vm].state, wanted);
        assert_eq!(cloud.images[&image].state == ImageState::Error, fails);
    }
}

fn plain(cardinality: u32) -> Value {
    json!({"name": "s", "roles": [{"name": "w", "type": "vm", "template_id": 0, "cardinality": cardinality, "cooldown": 0}]})
}

type Act = fn(&mut Cloud, Id) -> Result<(), FlowError>;

/// Actions, and their error messages in a state that refuses them, as in OneFlow 7.5.
const ACTS: [(&str, Act, &str); 5] = [
    ("scale", |cloud, id| cloud.scale(0, id, "w", 2, true, None), "Service cannot be scaled in state: "),
    ("recover", |cloud, id| cloud.recover_service(0, id, false), "Service cannot be recovered in state: "),
    ("delete", |cloud, id| cloud.undeploy(0, id), "Service cannot be undeployed in state: "),
    ("add_role", add_role, "Cannot modify roles in state: "),
    ("remove_role", |cloud, id| cloud.remove_role(0, id, "w"), "Cannot modify roles in state: "),
];

fn add_role(cloud: &mut Cloud, id: Id) -> Result<(), FlowError> {
    cloud.add_role(0, id, json!({"name": "more", "type": "vm", "template_id": 0, "cardinality": 1}))
}

/// The `ACTS` that each state accepts.
const TAKEN: [(ServiceState, &[&str]); 16] = [
    (ServiceState::Pending, &["recover", "delete"]),
    (ServiceState::Deploying, &["recover"]),
    (ServiceState::Running, &["scale", "delete", "add_role", "remove_role"]),
    (ServiceState::Undeploying, &["recover", "delete"]),
    (ServiceState::Warning, &["delete"]),
    (ServiceState::Done, &[]),
    (ServiceState::FailedUndeploying, &["recover"]),
    (ServiceState::FailedDeploying, &["recover"]),
    (ServiceState::Scaling, &["recover"]),
    (ServiceState::FailedScaling, &["recover"]),
    (ServiceState::Cooldown, &["recover"]),
    (ServiceState::DeployingNets, &["recover"]),
    (ServiceState::UndeployingNets, &["recover"]),
    (ServiceState::FailedDeployingNets, &["recover"]),
    (ServiceState::FailedUndeployingNets, &["recover"]),
    (ServiceState::Hold, &["delete"]),
];

#[test]
fn each_state_takes_what_the_real_one_takes_and_refuses_the_rest_in_its_words() {
    for (state, taken) in TAKEN {
        for (name, act, words) in ACTS {
            let mut cloud = cloud();
            let id = service(&mut cloud, plain(1));
            cloud.services.get_mut(&id).expect("it is there").state = state;
            let refused = act(&mut cloud, id).err().map(|error| (error.status, error.text));
            let expected = (!taken.contains(&name)).then(|| (500, format!("{words}{}", state.name())));
            assert_eq!(refused, expected, "{name} in {}", state.name());
        }
    }
}

#[test]
fn a_service_that_is_recovered_with_delete_is_undeploying_until_its_vms_are_gone() {
    let mut cloud = cloud();
    let id = service(&mut cloud, plain(1));
    cloud.services.get_mut(&id).expect("it is there").state = ServiceState::FailedUndeploying;
    cloud.recover_service(0, id, true).expect("it is taken");
    assert_eq!(cloud.services[&id].state, ServiceState::Undeploying);
    pass(&mut cloud, 60);
    assert!(!cloud.services.contains_key(&id) && cloud.vms.values().all(|vm| vm.state == VmState::Done));
}

fn shown(cloud: &Cloud, service: Id) -> (&'static str, i64, i64) {
    let known = &cloud.services[&service];
    (known.state.name(), known.roles[0].state as i64, known.roles[0].cardinality)
}

#[test]
fn a_warning_outlives_the_vm_it_was_for_until_another_of_the_role_comes_up() {
    let mut cloud = cloud();
    let id = service(&mut cloud, plain(3));
    pass(&mut cloud, 1);
    cloud.act(0, "suspend").expect("it runs");
    pass(&mut cloud, 1);
    assert_eq!(shown(&cloud, id), ("RUNNING", 2, 3), "a VM that is suspended is no warning");
    cloud.act(1, "poweroff").expect("it runs");
    pass(&mut cloud, 1);
    assert_eq!(shown(&cloud, id), ("WARNING", 4, 3));
    cloud.act(1, "terminate").expect("it may be ended");
    pass(&mut cloud, 1);
    assert_eq!(shown(&cloud, id), ("WARNING", 4, 2), "its end is noticed, and is no reason to be well");
    cloud.act(0, "resume").expect("it is suspended");
    pass(&mut cloud, 1);
    assert_eq!(shown(&cloud, id), ("RUNNING", 2, 2));
}

#[test]
fn only_an_administrator_has_failed_vms_retried() {
    for (ordinary, expected) in [(false, ("RUNNING", 2, 1)), (true, ("WARNING", 4, 1))] {
        let mut cloud = cloud();
        let uid = if ordinary { cloud.add_user("alice", "pw", 1) } else { 0 };
        cloud.networks.values_mut().for_each(|network| network.owned.permissions[6] = true);
        cloud.templates.values_mut().for_each(|template| template.owned.permissions[6] = true);
        cloud.faults.boot_failures = vec![BootFailure { matching: String::new(), times: Some(1) }];
        let template = cloud.add_service_template(uid, plain(1)).expect("it is accepted");
        let id = cloud.instantiate_service(uid, template, None).expect("it is accepted");
        pass(&mut cloud, 1);
        assert_eq!(shown(&cloud, id).0, "FAILED_DEPLOYING");
        cloud.recover_service(uid, id, false).expect("it is taken, whoever asks");
        pass(&mut cloud, 2);
        assert_eq!(shown(&cloud, id), expected);
        let log = format!("{:?}", cloud.services[&id].log);
        assert_eq!(log.contains("Not authorized to perform ADMIN VM [0]"), ordinary, "{log}");
        let vm = cloud.vms[&0].owned.clone();
        let may = cloud
            .check(uid, &vm, trellis_fake_one::cloud::Right::Manage, "VM")
            .and_then(|()| cloud.act(0, "terminate"));
        assert!(may.is_ok(), "its owner may end it");
    }
}

#[test]
fn a_quota_of_any_kind_reaches_the_caller_and_the_log() {
    for (metric, limit) in [("VMS", 1.0), ("CPU", 1.5), ("MEMORY", 100.0)] {
        let mut cloud = cloud();
        let id = service(&mut cloud, plain(1));
        cloud.users.get_mut(&0).expect("oneadmin").vm_quota.insert(metric.to_owned(), limit);
        let refused = cloud.scale(0, id, "w", 2, true, None).expect_err("there is no room");
        let words = format!("limit of {limit} reached for {metric} quota in VM");
        assert!(refused.status == 500 && refused.text.contains(&words), "{refused:?}");
        assert_eq!(shown(&cloud, id), ("FAILED_SCALING", 9, 2));
        // `recover` retries, logs the reason of the failure, and keeps the state.
        let lines = cloud.services[&id].log.len();
        cloud.recover_service(0, id, false).expect("it is taken");
        pass(&mut cloud, 1);
        assert_eq!((shown(&cloud, id), cloud.services[&id].log.len()), (("FAILED_SCALING", 9, 2), lines + 1));
        cloud.users.get_mut(&0).expect("oneadmin").vm_quota.clear();
        cloud.recover_service(0, id, false).expect("it is taken");
        pass(&mut cloud, 2);
        assert_eq!(shown(&cloud, id), ("RUNNING", 2, 2));
    }
}
