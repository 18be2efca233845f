//! Injected faults, as clients see them.

use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trellis_fake_one::cloud::{Cloud, Pace};
use trellis_fake_one::{Config, FakeOne, Handle, PlainRole};

const LIMIT: Duration = Duration::from_secs(20);

/// Status and body; `None` if the connection was closed.
async fn ask(url: &str, line: &str, headers: &[(&str, String)], body: &str) -> Option<(u16, String)> {
    let at = url.trim_start_matches("http://").split('/').next().expect("an address");
    let mut head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    let mut stream = TcpStream::connect(at).await.ok()?;
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

async fn gate(fake: &FakeOne, vm: i64, line: &str) -> Option<(u16, String)> {
    let token = fake.handle().token(vm).expect("it has one");
    let headers = [("X-ONEGATE-VMID", vm.to_string()), ("X-ONEGATE-TOKEN", token)];
    ask(&fake.gate_url(), line, &headers, "").await
}

async fn oned(fake: &FakeOne, method: &str, parameters: &str) -> Option<String> {
    let session = "<param><value><string>oneadmin:onepass</string></value></param>";
    let body =
        format!("<methodCall><methodName>{method}</methodName><params>{session}{parameters}</params></methodCall>");
    ask(&fake.oned_url(), "POST /RPC2", &[], &body).await.map(|(_, body)| body)
}

async fn control(fake: &FakeOne, line: &str, body: Value) -> (u16, Value) {
    let (status, body) = ask(&fake.control_url(), line, &[], &body.to_string()).await.expect("it answers");
    (status, serde_json::from_str(&body).expect("it is JSON"))
}

async fn running(handle: &Handle, role: &str) -> i64 {
    let roles = [PlainRole { name: role.to_owned(), cardinality: 2, parents: Vec::new(), context: Vec::new() }];
    let service = handle.create_service("s", false, &roles).expect("it is made");
    let up = |cloud: &Cloud| (cloud.services[&service].state.name() == "RUNNING").then_some(());
    handle.wait(LIMIT, up).await.expect("it comes up");
    service
}

#[tokio::test]
async fn onegate_fails_in_every_way() {
    let fake = FakeOne::start(Config::default()).await.expect("it starts");
    let handle = fake.handle();
    let service = running(&handle, "a").await;
    let vms = handle.role_vms(service, "a");
    let other = format!("GET /vms/{}", vms[1]);
    assert_eq!(gate(&fake, vms[0], &other).await.expect("it answers").0, 200);

    for status in [401, 500] {
        handle.faults(|faults| faults.gate.status = Some(status));
        assert_eq!(gate(&fake, vms[0], "GET /vm").await.expect("it answers").0, status);
    }
    handle.faults(|faults| faults.gate.status = None);

    handle.faults(|faults| faults.gate.slow_ms = 150);
    let begun = Instant::now();
    assert_eq!(gate(&fake, vms[0], "GET /vm").await.expect("it answers").0, 200);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    handle.faults(|faults| faults.gate.slow_ms = 0);

    handle.faults(|faults| faults.gate.foreign = true);
    let refused = gate(&fake, vms[0], &other).await.expect("it answers");
    assert_eq!(refused, (400, format!("Service {service} does not contain VM {}.", vms[1])));

    handle.faults(|faults| faults.gate.refuse = true);
    assert_eq!(gate(&fake, vms[0], "GET /vm").await, None);
    handle.faults(|faults| faults.gate.refuse = false);

    handle.faults(|faults| faults.gate.stale = true);
    handle.with(|cloud| {
        let said = trellis_fake_one::template::Template::parse("SINCE=\"1\"").expect("it is one");
        cloud.update_user_template(vms[0], said, false, "oned").expect("it is there");
    });
    let seen = |answer: Option<(u16, String)>| answer.expect("it answers").1.contains("SINCE");
    assert!(!seen(gate(&fake, vms[0], "GET /service?extended=true").await));
    assert!(seen(gate(&fake, vms[0], "GET /vm").await));
    handle.faults(|faults| faults.gate.stale = false);
    assert!(seen(gate(&fake, vms[0], "GET /service?extended=true").await));

    // Only with its own token.
    let headers = [("X-ONEGATE-VMID", vms[0].to_string()), ("X-ONEGATE-TOKEN", handle.token(vms[1]).expect("one"))];
    assert_eq!(ask(&fake.gate_url(), "GET /vm", &headers, "").await.expect("it answers").0, 401);
    fake.stop().await;
}

#[tokio::test]
async fn an_answer_is_lost_after_the_deed() {
    let fake = FakeOne::start(Config::default()).await.expect("it starts");
    let lost = json!([{"server": "oned", "matching": "document.allocate", "times": 1},
                      {"server": "flow", "matching": "POST /service_template", "times": 1}]);
    assert_eq!(control(&fake, "PUT /faults", json!({"lost_answers": lost})).await.0, 200);
    let one = "<param><value><string>NAME=\"x\"</string></value></param><param><value><i4>55</i4></value></param>";
    assert_eq!(oned(&fake, "one.document.allocate", one).await, None);
    assert!(oned(&fake, "one.document.allocate", one).await.is_some_and(|body| body.contains("<i4>1</i4>")));
    let basic = base64::engine::general_purpose::STANDARD.encode("oneadmin:onepass");
    let headers = [("Authorization", format!("Basic {basic}"))];
    let body = json!({"name": "t", "roles": []}).to_string();
    assert_eq!(ask(&fake.flow_url(), "POST /service_template", &headers, &body).await, None);
    let (_, list) = ask(&fake.flow_url(), "GET /service_template", &headers, "").await.expect("it answers");
    assert!(list.contains("\"t\""), "{list}");
    fake.stop().await;
}

#[tokio::test]
async fn calls_are_refused_and_vms_do_not_boot() {
    let fake = FakeOne::start(Config { users: vec![("alice".into(), "pw".into())], ..Config::default() })
        .await
        .expect("it starts");
    let handle = fake.handle();
    let refusal = json!([{"method": "one.vm.info", "code": 512, "message": "User [0] : no."}]);
    let faults = json!({"refusals": refusal, "boot_failures": [{"matching": "bad", "times": 1}]});
    assert_eq!(control(&fake, "PUT /faults", faults).await.0, 200);
    assert_eq!(control(&fake, "PUT /faults", json!({"typo": 1})).await.0, 400);
    let zero = "<param><value><i4>0</i4></value></param>";
    let answer = oned(&fake, "one.vm.info", zero).await.expect("it answers");
    assert!(answer.contains("[one.vm.info] User [0] : no.") && answer.contains("<i4>512</i4>"), "{answer}");

    let vm = handle.create_vm("bad", &[], &[]).expect("it is made");
    let is = |name: &'static str| {
        move |cloud: &Cloud| {
            (trellis_fake_one::cloud::state_name(cloud.vms[&vm].state, cloud.vms[&vm].lcm) == name).then_some(())
        }
    };
    handle.wait(LIMIT, is("BOOT_FAILURE")).await.expect("it fails");
    handle.with(|cloud| cloud.recover_vm(vm, 2)).expect("it may try again");
    handle.wait(LIMIT, is("RUNNING")).await.expect("it boots");
    let (_, vms) = control(&fake, "GET /vms", Value::Null).await;
    assert_eq!((&vms[0]["state"], &vms[0]["ip"]), (&json!("RUNNING"), &json!("192.168.150.10")));
    let (_, updates) = control(&fake, "GET /updates?since=0", Value::Null).await;
    let states: Vec<&str> =
        updates.as_array().expect("a list").iter().filter_map(|update| update["new"].as_str()).collect();
    assert_eq!(states, ["PENDING", "PROLOG", "BOOT", "BOOT_FAILURE", "BOOT", "RUNNING"]);

    handle.with(|cloud| cloud.users.get_mut(&2).expect("alice").vm_quota.insert("VMS".to_owned(), 0.0));
    let template = trellis_fake_one::template::Template::parse("CPU=1\nMEMORY=1").expect("it is one");
    let refused = handle.with(|cloud| cloud.create_vm(2, "x", false, template, None)).expect_err("there is no room");
    assert_eq!((refused.code, refused.message.contains("limit of 0 reached for VMS quota")), (512, true));
    fake.stop().await;
}

#[test]
fn the_same_seed_makes_the_same_cloud() {
    let shown = |seed: u64| {
        let mut cloud = Cloud::new(1_000_000, seed, Pace::default(), "http://gate".to_owned());
        let template = |text: &str| trellis_fake_one::template::Template::parse(text).expect("it is one");
        cloud.add_network(0, template("NAME=n\nAR=[IP=10.0.0.10,SIZE=5]")).expect("it is made");
        let wanted = template("CPU=1\nMEMORY=1\nNIC=[NETWORK=n]\nCONTEXT=[TOKEN=YES,NETWORK=YES]");
        let vm = cloud.create_vm(0, "v", false, wanted, None).expect("it is made");
        (1..50).for_each(|step| cloud.advance(1_000_000 + step * 10));
        cloud.vm_element(&cloud.vms[&vm]).to_xml()
    };
    assert_eq!(shown(7), shown(7));
    assert_ne!(shown(7), shown(8));
    assert!(shown(7).contains("<LCM_STATE>3</LCM_STATE>"));
}
