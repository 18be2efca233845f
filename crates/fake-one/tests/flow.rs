//! OneFlow by the cloud alone, without servers and clocks: rules, changes, and descriptions of before 7.0.

use serde_json::{Value, json};
use trellis_fake_one::cloud::{Cloud, Id, ImageState, Pace, VmState};
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

/// Machines that obey at once.
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
