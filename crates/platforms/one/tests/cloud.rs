//! The three clients together, against a simulated OpenNebula that was written independently.

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_fake_one::cloud::{Cloud, Pace, ServiceState as Inside};
use trellis_fake_one::{Config, FakeOne};
use trellis_one::flow::{FlowVersion, Instantiation, OneFlow, RoleTemplate, ServiceState, ServiceTemplate};
use trellis_one::gate::{GateError, GateToken, OneGate};
use trellis_one::template::Template;
use trellis_one::{Code, Endpoint, Error, FlowRefusal, Oned, Session, Update, VmAction, VmFilter};

const LIMIT: Duration = Duration::from_secs(20);
/// In a context, oned would substitute `$y`.
const HOSTILE: &str = "say \"a\\b\", [x] = y <&> ä\nnext";

struct Clients {
    cloud: FakeOne,
    oned: Oned,
    flow: OneFlow,
}

async fn clients() -> Clients {
    let users = vec![("alice".to_owned(), "secret".to_owned()), ("bob".to_owned(), "other".to_owned())];
    // A cooldown of five minutes takes a third of a second.
    let pace = Pace { second_ms: 1, ..Pace::default() };
    let cloud = FakeOne::start(Config { users, pace, ..Config::default() }).await.unwrap();
    let session = Session::new("alice", "secret");
    let oned = Oned::new(Endpoint::parse(&cloud.oned_url()).unwrap(), session.clone());
    let version = FlowVersion::of(&oned.version().await.unwrap()).unwrap();
    let flow = OneFlow::new(Endpoint::parse(&cloud.flow_url()).unwrap(), &session, version);
    Clients { cloud, oned, flow }
}

impl Clients {
    async fn vm_template(&self) -> i32 {
        let template = Template::new()
            .with("NAME", "node")
            .with("CPU", "1")
            .with("MEMORY", "64")
            .with("NIC", [("NETWORK", "net1")])
            .with("CONTEXT", [("TOKEN", "YES"), ("NETWORK", "YES"), ("NOTE", HOSTILE)]);
        self.oned.template_allocate(&template).await.unwrap()
    }

    async fn wait<R>(&self, what: &str, look: impl FnMut(&Cloud) -> Option<R>) -> R {
        self.cloud.handle().wait(LIMIT, look).await.unwrap_or_else(|| panic!("timed out waiting for {what}"))
    }

    async fn until(&self, service: i32, state: Inside) {
        self.wait("a state of the service", |cloud| {
            (cloud.services.get(&i64::from(service))?.state == state).then_some(())
        })
        .await;
    }

    fn gate(&self, vm: i64) -> OneGate {
        let token = self.cloud.handle().token(vm).expect("the VM has a token");
        OneGate::new(
            Endpoint::parse(&self.cloud.gate_url()).unwrap(),
            u32::try_from(vm).unwrap(),
            GateToken::parse(&token).unwrap(),
        )
    }
}

fn service(template_id: i32) -> ServiceTemplate {
    let role = |name: &str, cardinality, parents: &[&str]| RoleTemplate {
        name: name.into(),
        cardinality,
        template_id,
        parents: parents.iter().map(|parent| (*parent).to_owned()).collect(),
        template_contents: Template::new().with("CONTEXT", [("ROLE", name), ("NOTE", HOSTILE)]),
        ..RoleTemplate::default()
    };
    let roles = vec![role("superlink", 1, &[]), role("supernode", 2, &["superlink"])];
    ServiceTemplate { name: "f-s".into(), ready_status_gate: true, roles, ..ServiceTemplate::default() }
}

#[tokio::test]
async fn a_service_lives_from_its_template_to_its_end() {
    let clients = clients().await;
    let Clients { oned, flow, .. } = &clients;
    assert_eq!(oned.whoami().await.unwrap().name, "alice");
    let vm_template = clients.vm_template().await;
    assert_eq!(oned.template_info(vm_template).await.unwrap().template.pair("CONTEXT", "NOTE"), Some(HOSTILE));
    assert!(oned.templates().await.unwrap().iter().any(|template| template.id == vm_template));
    assert_eq!(oned.networks().await.unwrap()[0].name, "net1");

    let kept = flow.template_create(&service(vm_template)).await.unwrap();
    assert_eq!(flow.templates().await.unwrap(), [flow.template(kept.id).await.unwrap()]);
    let made = Instantiation { name: "f-s-1".into(), ..Instantiation::default() };
    let id = flow.instantiate(kept.id, &made).await.unwrap().id;
    clients.until(id, Inside::Deploying).await;

    // VMs become ready one after the other, the SuperLink first.
    let superlink = clients
        .wait("a VM of the first role", |cloud| {
            cloud.vms.iter().find(|(_, vm)| vm.user_template.get("ROLE_NAME") == Some("superlink")).map(|(id, _)| *id)
        })
        .await;
    ready(&clients, superlink).await;
    let nodes = clients
        .wait("VMs of the second role", |cloud| {
            let vms = cloud.vms.iter().filter(|(_, vm)| vm.user_template.get("ROLE_NAME") == Some("supernode"));
            let ids: Vec<i64> = vms.map(|(id, _)| *id).collect();
            (ids.len() == 2).then_some(ids)
        })
        .await;
    for node in nodes {
        ready(&clients, node).await;
    }
    clients.until(id, Inside::Running).await;

    let seen = flow.service(id).await.unwrap();
    assert_eq!((seen.state, seen.role("supernode").unwrap().nodes.len()), (ServiceState::Running, 2));
    assert_eq!(flow.services().await.unwrap(), [seen]);
    let vms = oned.vms_extended(VmFilter::NotDone).await.unwrap();
    assert_eq!(vms.iter().map(|vm| (vm.service_id(), vm.runs())).collect::<Vec<_>>(), [(Some(id), true); 3]);
    assert_eq!(vms[0].template.pair("CONTEXT", "NOTE"), Some(HOSTILE));
    assert!(vms[0].nics[0].ip.is_some());

    let refused = flow.scale(id, "supernode", 2, true).await.unwrap_err();
    assert!(matches!(refused, Error::Flow { kind: FlowRefusal::Already, .. }), "{refused:?}");
    flow.scale(id, "supernode", 1, true).await.unwrap();
    clients
        .wait("a smaller role", |cloud| {
            let service = cloud.services.get(&i64::from(id))?;
            (service.state == Inside::Running && service.roles[1].vms().len() == 1).then_some(())
        })
        .await;
    assert_eq!(oned.vms(VmFilter::NotDone).await.unwrap().len(), 2);

    flow.delete(id).await.unwrap();
    clients.wait("the end of the service", |cloud| cloud.services.is_empty().then_some(())).await;
    assert!(flow.service(id).await.unwrap_err().is_absent());
    flow.template_delete(kept.id).await.unwrap();
    oned.template_delete(vm_template).await.unwrap();
    assert!(oned.template_info(vm_template).await.unwrap_err().is_absent());
    clients.cloud.stop().await;
}

/// Reports readiness, like the agent in the VM.
async fn ready(clients: &Clients, vm: i64) {
    clients.wait("a VM that runs", |cloud| (cloud.vms.get(&vm)?.lcm as u32 == 3).then_some(())).await;
    clients.gate(vm).update(&BTreeMap::from([("READY".to_owned(), "YES".to_owned())])).await.unwrap();
}

#[tokio::test]
async fn what_one_side_writes_the_other_reads() {
    let clients = clients().await;
    let vm_template = clients.vm_template().await;
    let extra = Template::new().with("MARK", "a, b");
    let vm = clients.oned.template_instantiate(vm_template, "lonely", false, &extra).await.unwrap();
    assert_eq!(clients.oned.vm_info(vm).await.unwrap().name, "lonely");

    let told = Template::new().with("PRICE", "$y").with("NOTE", HOSTILE);
    clients.oned.vm_update(vm, &told, Update::Merge).await.unwrap();
    let gate = clients.gate(vm.into());
    let seen = gate.vm().await.unwrap();
    assert_eq!((seen.attribute("PRICE"), seen.attribute("NOTE")), (Some("$y"), Some(HOSTILE)));

    let mine = [
        ("READY", "NO"),
        ("FL_ERROR", "bad: \"a\", [b] = \\c ä"),
        ("FL_CA_CERT", "QUJD+/=="),
        ("TRELLIS_SHARDS", "1:0,2:1"),
    ];
    let mine: BTreeMap<String, String> = mine.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    gate.update_and_read_back(&mine).await.unwrap();
    let read = clients.oned.vm_info(vm).await.unwrap();
    for (key, value) in &mine {
        assert_eq!(read.attribute(key), Some(value.as_str()), "{key}");
    }
    gate.erase("FL_ERROR").await.unwrap();
    gate.erase("FL_ERROR").await.unwrap();
    let read = clients.oned.vm_set(&[vm]).await.unwrap();
    assert_eq!((read[0].attribute("FL_ERROR"), read[0].attribute("NOTE")), (None, Some(HOSTILE)));
    assert!(matches!(gate.service().await, Err(GateError::Refused { status: 400, .. })));

    clients.oned.vm_rename(vm, "renamed").await.unwrap();
    clients.wait("a VM that runs", |cloud| (cloud.vms.get(&i64::from(vm))?.lcm as u32 == 3).then_some(())).await;
    clients.oned.vm_action(vm, VmAction::TerminateHard).await.unwrap();
    clients.wait("the end of the VM", |cloud| (cloud.vms.get(&i64::from(vm))?.state as u32 == 6).then_some(())).await;
    assert_eq!(clients.oned.vms(VmFilter::NotDone).await.unwrap(), []);
    clients.cloud.stop().await;
}

#[tokio::test]
async fn strangers_are_told_so() {
    let clients = clients().await;
    let vm_template = clients.vm_template().await;
    let as_user = |user: &str, secret: &str| {
        Oned::new(Endpoint::parse(&clients.cloud.oned_url()).unwrap(), Session::new(user, secret))
    };
    let nobody = as_user("alice", "wrong").whoami().await.unwrap_err();
    assert!(matches!(&nobody, Error::Refused(refusal) if refusal.code == Code::Authentication), "{nobody:?}");
    let stranger = as_user("bob", "other").template_info(vm_template).await.unwrap_err();
    assert!(matches!(&stranger, Error::Refused(refusal) if refusal.code == Code::Authorization), "{stranger:?}");
    let endpoint = Endpoint::parse(&clients.cloud.flow_url()).unwrap();
    let nobody = OneFlow::new(endpoint, &Session::new("alice", "wrong"), FlowVersion::V7).services().await.unwrap_err();
    assert!(matches!(nobody, Error::Flow { kind: FlowRefusal::Authentication, .. }), "{nobody:?}");
    clients.cloud.stop().await;
}
