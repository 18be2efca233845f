//! The OneFlow client against recorded responses and requests of a real OneFlow.

mod server;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use server::Server;
use trellis_one::flow::{
    Adjustment, Deployment, ElasticityPolicy, FlowVersion, Instantiation, NetworkChoice, OneFlow, RoleState,
    RoleTemplate, ServiceState, ServiceTemplate, lint,
};
use trellis_one::{Endpoint, Error, FlowRefusal, Session, Template, explain};

fn recorded(name: &str) -> String {
    let path = format!("{}/tests/recorded/oneflow/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn recorded_json(name: &str) -> Value {
    serde_json::from_str(&recorded(name)).unwrap()
}

fn flow(server: &Server, version: FlowVersion) -> OneFlow {
    OneFlow::new(Endpoint::parse(&server.url()).unwrap(), &Session::new("oneadmin", "onepass"), version)
}

fn role(name: &str, cardinality: u32) -> RoleTemplate {
    RoleTemplate { name: name.into(), cardinality, ..RoleTemplate::default() }
}

fn two_tiers() -> ServiceTemplate {
    let mut db = role("db", 1);
    (db.min_vms, db.max_vms) = (Some(1), Some(3));
    let mut web = role("web", 2);
    (web.min_vms, web.max_vms, web.cooldown_s) = (Some(1), Some(5), Some(5));
    web.parents = vec!["db".into()];
    ServiceTemplate {
        name: "svc-2tier".into(),
        description: "two tiers".into(),
        ready_status_gate: true,
        roles: vec![db, web],
        ..ServiceTemplate::default()
    }
}

/// `wanted` is contained in `found`, which may have further fields.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        _ => found == wanted,
    }
}

#[test]
fn templates_have_the_shape_of_recorded_ones() {
    let rendered = two_tiers().render(FlowVersion::V7);
    assert_eq!(rendered, recorded_json("service_template-create.request.json"));

    let mut elastic = role("w", 1);
    (elastic.min_vms, elastic.max_vms, elastic.cooldown_s) = (Some(1), Some(2), Some(5));
    elastic.elasticity_policies = vec![ElasticityPolicy {
        adjustment: Adjustment::Change(1),
        expression: "CPU >= 0".into(),
        period_number: Some(1),
        period_s: Some(1),
        cooldown_s: Some(5),
    }];
    let elastic = ServiceTemplate { name: "svc-elastic".into(), roles: vec![elastic], ..ServiceTemplate::default() };
    let (rendered, wanted) =
        (elastic.render(FlowVersion::V7), recorded_json("service_template-create-elasticity.request.json"));
    assert!(contains(&rendered, &wanted), "{rendered}");

    let mut networked = role("a", 1);
    networked.template_contents = Template::new().with("NIC", [("NAME", "_NIC0"), ("NETWORK_ID", "$Private")]);
    let text = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let networked = ServiceTemplate {
        name: "svc-net".into(),
        user_inputs: text(&[("DB_PASS", "M|text|Password|| ")]),
        networks: text(&[("Private", "M|network|priv||reserve_from:0"), ("Public", "M|network|pub||id:0")]),
        roles: vec![networked],
        ..ServiceTemplate::default()
    };
    assert_eq!(lint(&networked), Vec::<String>::new());
    let wanted = recorded_json("service_template-create-networks-userinputs.request.json");
    assert!(contains(&networked.render(FlowVersion::V7), &wanted));

    let legacy = ServiceTemplate { name: "legacy".into(), roles: vec![role("a", 1)], ..ServiceTemplate::default() };
    let wanted = recorded_json("service_template-create-legacy-vm_template.request.json");
    assert!(contains(&legacy.render(FlowVersion::V6), &wanted));
    let old = networked.render(FlowVersion::V6);
    assert_eq!(old["custom_attrs"], json!({"DB_PASS": "M|text|Password|| "}));
    let contents = "NIC=[ NAME=\"_NIC0\", NETWORK_ID=\"$Private\" ]\n";
    assert_eq!(old["roles"][0]["vm_template_contents"], contents);
    assert_eq!(old["roles"][0].get("type"), None);
}

#[test]
fn what_oneflow_would_refuse_is_refused_here_too() {
    let mut doubled = two_tiers();
    doubled.roles.push(role("db", 1));
    let mut over = two_tiers();
    over.roles[0].cardinality = 9;
    // OneFlow accepts these two, and then they never become ready.
    let mut cycle = two_tiers();
    cycle.roles[0].parents = vec!["web".into()];
    let mut orphan = two_tiers();
    orphan.roles[1].parents = vec!["nobody".into()];
    for (template, expected) in [
        (doubled, "two roles have the name db"),
        (over, "role \"db\": its cardinality 9 is more than max_vms 3"),
        (cycle, "the parents of these roles form a cycle: db, web"),
        (orphan, "role \"web\": its parent \"nobody\" does not exist"),
    ] {
        assert_eq!(lint(&template), [expected]);
    }
}

#[tokio::test]
async fn recorded_services_are_understood() {
    let server = Server::start().await;
    let flow = flow(&server, FlowVersion::V7);
    for (name, state, sizes) in [
        ("just-created", ServiceState::DeployingNets, vec![("db", 0, 0), ("web", 0, 0)]),
        ("deploying-db-not-ready", ServiceState::Deploying, vec![("db", 1, 1), ("web", 0, 0)]),
        ("running", ServiceState::Running, vec![("db", 2, 1), ("web", 2, 2)]),
        ("scaling-up", ServiceState::Scaling, vec![("db", 2, 1), ("web", 8, 3)]),
        ("cooldown", ServiceState::Cooldown, vec![("db", 2, 1), ("web", 10, 3)]),
        ("warning", ServiceState::Warning, vec![("db", 2, 1), ("web", 2, 2), ("cache", 4, 1)]),
        ("failed-no-such-vm-template", ServiceState::FailedDeploying, vec![("a", 7, 0)]),
        ("hold", ServiceState::Hold, vec![("a", 11, 1)]),
        ("cycle", ServiceState::DeployingNets, vec![("p", 0, 0), ("q", 0, 0)]),
        ("roles-empty", ServiceState::Running, vec![]),
        ("networks-running", ServiceState::Running, vec![("a", 2, 1)]),
        ("elasticity-after", ServiceState::Running, vec![("w", 2, 2)]),
    ] {
        server.respond(200, recorded(&format!("service-show-{name}.response.json")));
        let service = flow.service(6).await.unwrap();
        assert_eq!(server.asked().await.line, "GET /service/6");
        let found: Vec<_> =
            service.roles.iter().map(|role| (role.name.as_str(), role.state.number(), role.nodes.len())).collect();
        assert_eq!((service.state, found), (state, sizes), "{name}");
    }
    server.respond(200, recorded("service-show-warning.response.json"));
    let service = flow.service(7).await.unwrap();
    assert_eq!((service.id, service.name.as_str(), service.description.as_str()), (7, "svc-renamed", "two tiers"));
    let web = service.role("web").unwrap();
    assert_eq!((web.cardinality, web.min_vms, web.max_vms, web.template_id), (2, Some(1), Some(5), Some(0)));
    assert_eq!((web.nodes[0].vm_id, web.nodes[0].vm_name.as_str()), (8, "web_2_(service_7)"));
    assert_eq!(service.role("cache").unwrap().state, RoleState::Warning);
    assert_eq!(service.log.last().unwrap().message, "New state: WARNING");
    assert_eq!(service.last_error(), None);

    server.respond(200, recorded("service-show-failed-no-such-vm-template.response.json"));
    let failed = flow.service(11).await.unwrap();
    assert!(failed.last_error().unwrap().contains("Instantiate failed for template 9999"));
}

#[tokio::test]
async fn every_recorded_service_and_template_is_understood() {
    let server = Server::start().await;
    let flow = flow(&server, FlowVersion::V7);
    let directory = format!("{}/tests/recorded/oneflow", env!("CARGO_MANIFEST_DIR"));
    let mut understood = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".response.json") else { continue };
        server.respond(200, recorded(&name));
        match stem {
            _ if stem.starts_with("service-show-") => drop(flow.service(1).await.unwrap()),
            _ if stem.starts_with("service-list") => drop(flow.services().await.unwrap()),
            _ if stem.starts_with("service_template-list") => drop(flow.templates().await.unwrap()),
            "service_template-instantiate" => drop(flow.service(1).await.unwrap()),
            _ if stem.starts_with("service_template-") => drop(flow.template(1).await.unwrap()),
            _ if stem.starts_with("instantiate-") => drop(flow.service(1).await.unwrap()),
            // Errors may be lists, and internal failures.
            _ => drop(flow.services().await),
        }
        understood += 1;
    }
    assert!(understood > 40, "{understood}");
    server.respond(200, recorded("service-list-empty.response.json"));
    assert_eq!(flow.services().await.unwrap(), []);
    server.respond(200, recorded("service-list.response.json"));
    assert_eq!(flow.services().await.unwrap()[0].id, 6);
    server.respond(200, recorded("service_template-list.response.json"));
    let templates = flow.templates().await.unwrap();
    assert_eq!((templates[0].id, templates[0].name.as_str()), (2, "svc-2tier"));
    assert_eq!(templates[0].body["roles"][1]["parents"], json!(["db"]));
}

#[tokio::test]
async fn requests_are_those_that_were_understood() {
    let server = Server::start().await;
    let flow = flow(&server, FlowVersion::V7);
    macro_rules! same {
        ($line:literal, $answer:literal, $request:expr, $call:expr) => {{
            server.respond(200, if $answer.is_empty() { String::new() } else { recorded($answer) });
            $call.await.unwrap();
            let asked = server.asked().await;
            assert_eq!(asked.line, $line);
            assert_eq!(asked.header("authorization"), "Basic b25lYWRtaW46b25lcGFzcw==");
            let request: &str = $request;
            if request.is_empty() {
                assert_eq!(asked.body, "");
            } else {
                assert_eq!(asked.header("content-type"), "application/json");
                let (found, wanted) = (serde_json::from_str(&asked.body).unwrap(), recorded_json(request));
                assert!(contains(&found, &wanted), "{found}");
            }
        }};
    }
    let create = "service_template-create.request.json";
    same!(
        "POST /service_template",
        "service_template-create.response.json",
        create,
        flow.template_create(&two_tiers())
    );
    let plain = ServiceTemplate {
        name: "svc-net".into(),
        deployment: Deployment::None,
        roles: vec![role("a", 1)],
        ..ServiceTemplate::default()
    };
    same!(
        "PUT /service_template/12",
        "service_template-update-put.response.json",
        "service_template-update-put.request.json",
        flow.template_update(12, &plain)
    );
    same!("GET /service_template/2", "service_template-show.response.json", "", flow.template(2));
    same!("DELETE /service_template/12", "", "", flow.template_delete(12));
    let named = Instantiation { name: "svc-run-1".into(), ..Instantiation::default() };
    same!(
        "POST /service_template/2/action",
        "service_template-instantiate.response.json",
        "service_template-instantiate.request.json",
        flow.instantiate(2, &named)
    );
    let networked = Instantiation {
        name: "svc-net-1".into(),
        values: BTreeMap::from([("DB_PASS".to_owned(), "s3cret".to_owned())]),
        networks: vec![
            ("Private".into(), NetworkChoice::Reservation(0, "NAME=priv-x\nSIZE=3".into())),
            ("Public".into(), NetworkChoice::Existing(0)),
        ],
        ..Instantiation::default()
    };
    same!(
        "POST /service_template/12/action",
        "instantiate-networks-userinputs.response.json",
        "instantiate-networks-userinputs.request.json",
        flow.instantiate(12, &networked)
    );
    same!("POST /service/7/scale", "", "scale-up.request.json", flow.scale(7, "web", 3, false));
    same!("POST /service/6/action", "", "recover-delete.request.json", flow.recover_delete(6));
    same!("POST /service/7/action", "", "recover-running.request.json", flow.recover(7));
    same!("POST /service/7/action", "", "action-rename.request.json", flow.rename(7, "svc-renamed"));
    same!("DELETE /service/7", "", "", flow.delete(7));
    same!("POST /service/7/role_action", "", "service-add-role.request.json", flow.add_role(7, &role("cache", 1)));
    same!("POST /service/7/role_action", "", "service-remove-role.request.json", flow.remove_role(7, "cache"));
    same!("POST /service_pool/purge_done", "", "", flow.purge_done());
    assert_eq!(server.connections(), 1, "the connection was not kept");
}

#[tokio::test]
async fn a_template_with_problems_is_not_sent() {
    let server = Server::start().await;
    let flow = flow(&server, FlowVersion::V7);
    let empty = ServiceTemplate { name: "x".into(), ..ServiceTemplate::default() };
    assert!(matches!(flow.template_create(&empty).await, Err(Error::InvalidRequest(problems)) if problems.len() == 1));
    assert!(matches!(flow.add_role(1, &role("a b", 1)).await, Err(Error::InvalidRequest(_))));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn refusals_mean_what_they_say_not_what_their_status_says() {
    let server = Server::start().await;
    let flow = flow(&server, FlowVersion::V7);
    for (status, name, kind, advice) in [
        (401, "auth-bad.response.txt", FlowRefusal::Authentication, "one_auth"),
        (401, "user-alice-show-template.response.txt", FlowRefusal::Authorization, "oneacl create"),
        (404, "service-show-noexist.response.txt", FlowRefusal::NoExists, "oneflow list"),
        (500, "service-show-is-template-id.response.txt", FlowRefusal::NoExists, "oneflow list"),
        (404, "path-unknown.response.txt", FlowRefusal::Invalid, "Not Found"),
        (500, "delete-while-scaling.response.txt", FlowRefusal::State, "SCALING"),
        (500, "scale-while-scaling.response.txt", FlowRefusal::State, "RUNNING"),
        (500, "recover-running.response.txt", FlowRefusal::State, "RUNNING"),
        (500, "scale-same-cardinality.response.txt", FlowRefusal::Already, "nothing to do"),
        (500, "scale-over-max-noforce.response.txt", FlowRefusal::Invalid, "Maximum cardinality is 5"),
        (500, "scale-unknown-role.response.txt", FlowRefusal::Invalid, "Role nope not found"),
        (500, "recover-delete.response.txt", FlowRefusal::Internal, "oneflow.log"),
        (500, "scale-missing-force.response.json", FlowRefusal::Invalid, "unexpected token"),
        (400, "instantiate-missing-user-inputs.response.txt", FlowRefusal::Invalid, "User Inputs"),
        (400, "service_template-create-duplicate-role.response.txt", FlowRefusal::Invalid, "is repeated"),
    ] {
        server.respond(status, recorded(name));
        let error = flow.service(7).await.unwrap_err();
        assert!(matches!(&error, Error::Flow { kind: found, .. } if *found == kind), "{name}: {error:?}");
        assert!(explain(&error).contains(advice), "{name}: {}", explain(&error));
        assert_eq!(error.is_absent(), kind == FlowRefusal::NoExists, "{name}");
        assert_eq!(error.is_transient(), matches!(kind, FlowRefusal::State | FlowRefusal::Internal), "{name}");
    }
}
