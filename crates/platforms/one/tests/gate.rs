//! The OneGate client against recorded responses, and against a scripted server.

mod server;

use std::collections::BTreeMap;

use server::Server;
use trellis_one::gate::{GateError, GateToken, Nic, OneGate, parse_service, parse_vm, render_update};
use trellis_one::{Endpoint, HttpLimits, Trust};

fn recorded(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/recorded/onegate/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn gate(server: &Server) -> OneGate {
    let endpoint = Endpoint::parse(&server.url()).unwrap();
    let token = GateToken::parse("MHI5V10+r4fZ44xbi8iqFw==\n").unwrap();
    OneGate::with(endpoint, 2, token, Trust::system(), HttpLimits::for_gate())
}

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn recorded_vms() {
    let vm = parse_vm(recorded("vm-get.response.json").as_bytes()).unwrap();
    assert_eq!((vm.id, vm.name.as_str(), vm.runs()), (2, "db_0_(service_6)", true));
    assert_eq!(vm.attributes, attributes(&[("ROLE_NAME", "db"), ("SERVICE_ID", "6")]));
    let nic = Nic {
        name: Some("NIC0".into()),
        ip: Some("192.168.150.17".into()),
        network: Some("net1".into()),
        mac: Some("02:00:c0:a8:96:11".into()),
        ..Nic::default()
    };
    assert_eq!(vm.nics, [nic]);
    let after = parse_vm(recorded("vm-get-after-put.response.json").as_bytes()).unwrap();
    assert_eq!(after.attribute("FOO"), Some("bar baz"));
    assert_eq!(after.attribute("NUM"), None);
    for name in ["vm-get-networks", "vm-get-other-in-service"] {
        let vm = parse_vm(recorded(&format!("{name}.response.json")).as_bytes()).unwrap();
        assert_eq!((vm.runs(), vm.nics.len()), (true, 1), "{name}");
    }
}

#[test]
fn recorded_services() {
    let service = parse_service(recorded("service-get-running.response.json").as_bytes()).unwrap();
    assert_eq!((service.id, service.name.as_str(), service.state), (6, "svc-run-1", 2));
    let web = service.role("web").unwrap();
    assert_eq!((web.cardinality, web.state), (2, 2));
    assert_eq!(web.nodes.iter().map(|node| node.deploy_id).collect::<Vec<_>>(), [3, 4]);
    let vm = web.nodes[0].vm.as_ref().unwrap();
    assert_eq!((vm.id, vm.state, vm.runs()), (3, None, false));

    let extended = parse_service(recorded("service-get-extended.response.json").as_bytes()).unwrap();
    let db = extended.role("db").unwrap().nodes[0].vm.as_ref().unwrap();
    assert!(db.runs());
    assert_eq!(db.attribute("READY"), Some("YES"));
    // The extended form has no list around a single interface.
    assert_eq!(db.nics[0].ip.as_deref(), Some("192.168.150.17"));

    let deploying = parse_service(recorded("service-get-deploying.response.json").as_bytes()).unwrap();
    assert_eq!(deploying.state, 1);
}

#[test]
fn updates_are_what_was_recorded() {
    let ready = render_update(&attributes(&[("READY", "YES")])).unwrap();
    assert_eq!(ready.trim_end(), recorded("vm-put-ready.request.txt").trim_end());
    let custom = render_update(&attributes(&[("FOO", "bar baz"), ("NUM", "5")])).unwrap();
    assert_eq!(custom.trim_end(), recorded("vm-put-custom.request.txt").trim_end());
}

#[tokio::test]
async fn a_vm_asks_and_tells_with_its_token() {
    let server = Server::start().await;
    let gate = gate(&server);
    server.respond(200, recorded("vm-get.response.json"));
    assert_eq!(gate.vm().await.unwrap().id, 2);
    let asked = server.asked().await;
    assert_eq!(asked.line, "GET /vm");
    assert_eq!(asked.header("x-onegate-token"), "MHI5V10+r4fZ44xbi8iqFw==");
    assert_eq!(asked.header("x-onegate-vmid"), "2");

    server.respond(200, "");
    gate.update(&attributes(&[("READY", "YES")])).await.unwrap();
    let asked = server.asked().await;
    assert_eq!((asked.line.as_str(), asked.body.as_str()), ("PUT /vm", "READY=YES\n"));
    assert_eq!(asked.header("content-type"), "text/plain");

    server.respond(200, recorded("service-get-extended.response.json"));
    assert_eq!(gate.service_extended().await.unwrap().roles.len(), 2);
    assert_eq!(server.asked().await.line, "GET /service?extended=true");
    assert_eq!(server.connections(), 1, "the connection was not kept");
}

#[tokio::test]
async fn what_oned_dropped_is_noticed() {
    let server = Server::start().await;
    let gate = gate(&server);
    server.respond(200, "");
    server.respond(200, recorded("vm-get-after-put.response.json"));
    gate.update_and_read_back(&attributes(&[("READY", "YES"), ("FOO", "bar baz")])).await.unwrap();
    server.respond(200, "");
    server.respond(200, recorded("vm-get-after-put.response.json"));
    let lost = gate.update_and_read_back(&attributes(&[("READY", "YES"), ("NUM", "5")])).await.unwrap_err();
    assert!(matches!(&lost, GateError::NotKept(keys) if keys == &["NUM"]), "{lost}");
}

#[tokio::test]
async fn an_attribute_is_erased_only_where_it_is() {
    let server = Server::start().await;
    let gate = gate(&server);
    server.respond(200, recorded("vm-get-after-put.response.json"));
    gate.erase("NUM").await.unwrap();
    assert_eq!(server.asked().await.line, "GET /vm");
    server.respond(200, recorded("vm-get-after-put.response.json"));
    server.respond(200, "");
    gate.erase("FOO").await.unwrap();
    assert_eq!(server.asked().await.line, "GET /vm");
    let asked = server.asked().await;
    assert_eq!((asked.line.as_str(), asked.body.as_str()), ("PUT /vm?type=2", "FOO"));
    assert!(matches!(gate.erase("FOO=\"x\"").await, Err(GateError::InvalidRequest(_))));
}

#[tokio::test]
async fn refusals_have_their_kinds() {
    let server = Server::start().await;
    let gate = gate(&server);
    server.respond(401, "Not authorized");
    assert!(matches!(gate.vm().await, Err(GateError::Unauthorised)));
    server.respond(403, "Attribute (SERVICE_ID) cannot be modified");
    let refused = gate.update(&attributes(&[("A", "b")])).await.unwrap_err();
    assert_eq!(refused.to_string(), "OneGate rejected the request (403): Attribute (SERVICE_ID) cannot be modified");
    assert!(!refused.is_transient());
    server.respond(500, "Internal server error");
    assert!(gate.vm().await.unwrap_err().is_transient());
    server.respond(200, "<html>");
    assert!(matches!(gate.vm().await, Err(GateError::InvalidResponse(_))));
    drop(server);
    let gone = gate.vm().await.unwrap_err();
    assert!(matches!(gone, GateError::Unreachable(_)) && gone.is_transient(), "{gone}");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_missed() {
    let server = Server::start().await;
    let gate = gate(&server);
    for _ in 0..3 {
        server.respond_and_close(200, recorded("vm-get.response.json"));
        gate.vm().await.unwrap();
    }
    assert_eq!(server.connections(), 3);
}

#[test]
fn a_token_is_needed_and_never_shown() {
    assert!(GateToken::parse(" \n").is_err());
    assert!(GateToken::parse("two words").is_err());
    assert_eq!(format!("{:?}", GateToken::parse("hush").unwrap()), "GateToken");
}
