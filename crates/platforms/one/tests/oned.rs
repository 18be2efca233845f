//! Calls of oned against recorded responses and requests of a real oned.

mod server;

use server::Server;
use trellis_one::xmlrpc::{Value, decode_call};
use trellis_one::{
    Code, DatastoreKind, Endpoint, Error, HostState, ImageState, LcmState, NetworkState, Oned, Session, Template,
    Update, Vm, VmAction, VmFilter, VmState, VmTemplate, XmlObject, explain, interpret, parse, parse_pool,
};

fn recorded(name: &str) -> String {
    let path = format!("{}/tests/recorded/xmlrpc/{name}.xml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn answer(name: &str) -> Result<Value, Error> {
    interpret(&recorded(&format!("{name}.response")))
}

fn text(name: &str) -> String {
    answer(name).unwrap().as_text().unwrap().to_owned()
}

fn told<T: XmlObject>(name: &str) -> T {
    parse(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn pool<T: XmlObject>(name: &str) -> Vec<T> {
    parse_pool(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn vms() {
    let vm: Vm = told("vm.info-running");
    assert_eq!((vm.id, vm.name.as_str(), vm.owner.uname.as_str()), (0, "web-renamed", "oneadmin"));
    assert!(vm.runs() && !vm.failed());
    assert_eq!(vm.template.pair("CONTEXT", "ONEGATE_ENDPOINT"), Some("http://127.0.0.1:5030"));
    assert_eq!(vm.template.text("CPU"), Some("0.1"));
    assert_eq!(vm.attribute("MYATTR"), Some("hello"));
    assert_eq!(vm.nics[0].ip.as_deref(), Some("192.168.150.15"));
    assert_eq!(vm.nics[0].network_id, Some(0));
    assert_eq!(vm.history.last().unwrap().host, "dummy-b");

    for (name, state, lcm, condition) in [
        ("vm.info-done", VmState::Done, LcmState::Init, "DONE"),
        ("vm.info-hold", VmState::Hold, LcmState::Init, "HOLD"),
        ("vm.info-pending", VmState::Pending, LcmState::Init, "PENDING"),
        ("vm.info-poweroff", VmState::Poweroff, LcmState::Init, "POWEROFF"),
        ("vm.info-attached", VmState::Active, LcmState::Running, "RUNNING"),
    ] {
        let vm: Vm = told(name);
        assert_eq!((vm.state, vm.lcm_state, vm.condition().as_str()), (state, lcm, condition), "{name}");
    }
    let of_service: Vm = told("flow-vm.info-db");
    assert_eq!((of_service.service_id(), of_service.role_name()), (Some(6), Some("db")));
    assert_eq!(told::<Vm>("flow-vm.info-networks").attribute("DB_PASS"), Some("s3cret"));
}

#[test]
fn pools() {
    assert_eq!(pool::<Vm>("vmpool.info").len(), 2);
    assert_eq!(pool::<Vm>("vmpool.infoextended").len(), 2);
    assert_eq!(pool::<Vm>("vmpool.infoset")[0].id, 0);
    assert_eq!(pool::<Vm>("user-vmpool.info"), []);
    assert!(pool::<Vm>("vmpool.info-done-included").iter().any(|vm| vm.state == VmState::Done));
    let templates: Vec<VmTemplate> = pool("templatepool.info");
    assert_eq!((templates[0].id, templates[0].name.as_str()), (0, "vm1"));
    assert_eq!(parse_pool::<Vm>("<IMAGE_POOL/>"), Err("expected VM_POOL, found IMAGE_POOL".into()));
}

#[test]
fn images_networks_datastores_hosts() {
    let image: trellis_one::Image = told("image.info");
    assert_eq!((image.name.as_str(), image.size_mb, image.datastore.as_str()), ("disk1", 1024, "default"));
    assert_eq!(told::<trellis_one::Image>("image.info-disabled").state, ImageState::Disabled);
    assert_eq!(pool::<trellis_one::Image>("imagepool.info")[0].state, ImageState::Ready);

    let network: trellis_one::VirtualNetwork = told("vn.info-with-leases");
    assert_eq!((network.name.as_str(), network.state), ("net1", NetworkState::Ready));
    assert_eq!((network.ranges.len(), network.used_leases, network.free_leases()), (2, 6, Some(104)));
    assert_eq!(pool::<trellis_one::VirtualNetwork>("vnpool.info").len(), 1);
    told::<trellis_one::VirtualNetwork>("vn.info");

    let datastores: Vec<trellis_one::Datastore> = pool("datastorepool.info");
    let kinds: Vec<_> = datastores.iter().map(|datastore| (datastore.name.as_str(), datastore.kind)).collect();
    let expected =
        [("files", DatastoreKind::File), ("default", DatastoreKind::Image), ("system", DatastoreKind::System)];
    assert_eq!(kinds, expected);
    assert_eq!(datastores[2].free_mb, 3_333_260);

    let hosts: Vec<trellis_one::Host> = pool("hostpool.info");
    assert_eq!((hosts[0].name.as_str(), hosts[0].state, hosts[0].max_cpu), ("dummy-b", HostState::Monitored, 800));
    let gpu = &hosts[0].pci[0];
    assert_eq!((gpu.class.as_str(), gpu.device_name.as_str(), gpu.vm_id), ("0302", "C79 [GeForce 9400M]", None));

    let zones: Vec<trellis_one::Zone> = pool("zonepool.info");
    assert_eq!((zones[0].id, zones[0].endpoint.as_str()), (0, "http://localhost:2633/RPC2"));
    let document: trellis_one::Document = told("document.info");
    assert_eq!((document.kind, document.template.text("BODY")), (55, Some("{\"a\": 1}")));
    told::<trellis_one::Document>("document.info-locked");
    assert_eq!(pool::<trellis_one::Document>("documentpool.info-empty"), []);
    assert!(!pool::<trellis_one::Document>("documentpool.info").is_empty());
}

#[test]
fn refusals_say_what_to_do() {
    for (name, code, object, advice) in [
        ("userdenied-vm.info", Code::Authorization, None, "oneacl create"),
        ("userdenied-host.info", Code::Authorization, None, "Not authorized to perform USE HOST [0]. The owner"),
        ("userdenied-template.instantiate", Code::Authorization, None, "onetemplate chmod"),
        ("auth-bad-password", Code::Authentication, None, "one_auth"),
        ("vm.info-noexist", Code::NoExists, Some(9999), "Error getting virtual machine [9999]. It was deleted"),
        ("template.info-noexist", Code::NoExists, Some(9999), "onetemplate list"),
        ("image.info-deleted", Code::NoExists, Some(1), "oneimage list"),
        ("image.allocate-no-such-datastore", Code::NoExists, Some(999), "Error getting datastore [999]"),
        ("image.allocate-duplicate-name", Code::Allocate, None, "Choose another name"),
        ("image.delete-in-use", Code::Action, None, "terminate the VMs"),
        ("vn.delete-in-use", Code::Action, None, "terminate the VMs"),
        ("vm.action-hold-wrong-state", Code::Action, None, "does not allow this"),
        ("vm.action-unknown-action", Code::Action, None, "frobnicate"),
        ("document.update-locked", Code::Authorization, None, "unlock"),
        ("template.allocate-bad-syntax", Code::Internal, None, "OpenNebula cannot parse"),
    ] {
        let error = answer(name).unwrap_err();
        let Error::Refused(refusal) = &error else { panic!("{name}: {error}") };
        assert_eq!((refusal.code, refusal.object), (code, object), "{name}: {refusal}");
        let text = explain(&error);
        assert!(text.contains(advice) && !text.contains("[one."), "{name}: {text}");
        assert_eq!(error.is_absent(), code == Code::NoExists);
        assert!(!error.is_transient(), "{name}");
    }
    for (name, code) in [("fault-unknown-method", -506), ("fault-wrong-arity", -501), ("fault-wrong-type", -501)] {
        let error = answer(name).unwrap_err();
        assert!(matches!(&error, Error::Fault(fault) if fault.code == code), "{name}: {error}");
        assert!(explain(&error).contains("version"));
    }
}

#[test]
fn a_quota_is_told_by_its_name() {
    let refusal = |message: &str, code: i32| {
        let parts = [false.into(), message.into(), code.into(), (-1).into(), Value::Long(-1)];
        interpret(&trellis_one::xmlrpc::encode_response(Ok(&Value::Array(parts.to_vec())))).unwrap_err()
    };
    let quota = refusal(
        "[one.template.instantiate] User [2] : user [2] limit of 2048 reached for MEMORY quota in VM.",
        Code::Authorization.number() as i32,
    );
    let text = explain(&quota);
    assert!(text.starts_with("the quota for memory is used up") && text.contains("oneuser show"), "{text}");
    let election = refusal("[one.vm.info] Cannot process request, no leader found", Code::Internal.number() as i32);
    assert!(election.is_transient() && explain(&election).contains("no leader"));
    assert_eq!(Code::from_number(7), Code::Other(7));
}

/// Types of the parameters after the session.
fn shape(body: &str) -> (String, Vec<String>) {
    let call = decode_call(body).unwrap();
    let kind = |value: &Value| format!("{value:?}").split('(').next().unwrap().to_owned();
    (call.method, call.parameters.iter().map(kind).collect())
}

#[tokio::test]
async fn requests_have_the_shape_of_recorded_ones() {
    let server = Server::start().await;
    let endpoint = Endpoint::parse(&format!("{}/RPC2", server.url())).unwrap();
    let one = Oned::new(endpoint, Session::new("oneadmin", "onepass"));
    let small = Template::new().with("FOO", "bar");
    // Returns the recorded response of the call, and compares the request with the recorded one.
    macro_rules! same {
        ($name:literal, $call:expr) => {{
            server.respond(200, recorded(concat!($name, ".response")));
            $call.await.unwrap();
            let asked = server.asked().await;
            assert_eq!(asked.line, "POST /RPC2");
            assert_eq!(asked.header("content-type"), "text/xml");
            assert_eq!(shape(&asked.body), shape(&recorded(concat!($name, ".request"))), $name);
        }};
    }
    same!("system.version", one.version());
    same!("user.login-token", one.login("alice", 3600));
    same!("template.allocate", one.template_allocate(&small));
    same!("template.info", one.template_info(0));
    same!("template.update-merge", one.template_update(1, &small, Update::Merge));
    same!("template.delete", one.template_delete(1));
    same!("template.instantiate", one.template_instantiate(0, "web-1", false, &small));
    same!("templatepool.info", one.templates());
    same!("vm.info-running", one.vm_info(0));
    same!("vm.action-poweroff", one.vm_action(0, VmAction::Poweroff));
    same!("vm.update", one.vm_update(0, &small, Update::Merge));
    same!("vm.info-update-conf", one.vm_update_conf(0, &small, Update::Merge));
    same!("vm.rename", one.vm_rename(0, "web-renamed"));
    same!("vmpool.info-page", one.vms(VmFilter::NotDone));
    same!("vmpool.infoset", one.vm_set(&[0]));
    same!("image.allocate", one.image_allocate(&small, 1));
    same!("image.info", one.image_info(0));
    same!("image.update", one.image_update(1, &small, Update::Merge));
    same!("image.persistent", one.image_persistent(1, true));
    same!("image.delete", one.image_delete(1));
    same!("imagepool.info", one.images());
    same!("datastorepool.info", one.datastores());
    same!("vn.info", one.network_info(0));
    same!("vnpool.info", one.networks());
    same!("document.info", one.document_info(0));
    same!("documentpool.info", one.documents(55));
    same!("zonepool.info", one.zones());
    same!("hostpool.info", one.hosts());

    // The last recorded parameter is an optional query.
    server.respond(200, recorded("vmpool.infoextended.response"));
    one.vms_extended(VmFilter::NotDone).await.unwrap();
    let (method, mut kinds) = shape(&recorded("vmpool.infoextended.request"));
    kinds.pop();
    assert_eq!(shape(&server.asked().await.body), (method, kinds));
    assert_eq!(server.connections(), 1, "the connection was not kept");
}

#[tokio::test]
async fn a_page_that_is_not_oned_is_no_answer() {
    let server = Server::start().await;
    let one = Oned::new(Endpoint::parse(&server.url()).unwrap(), Session::new("a", "hush"));
    server.respond(404, "<h1>Not Found</h1>");
    let error = one.version().await.unwrap_err();
    assert!(explain(&error).contains("404") && !explain(&error).contains("hush"), "{}", explain(&error));
    assert!(!error.is_transient());
    server.respond(503, "Service Unavailable");
    assert!(one.version().await.unwrap_err().is_transient());
    server.respond(200, "<html/>");
    assert!(matches!(one.version().await, Err(Error::InvalidResponse(_))));
    let unsendable = one.vm_update(0, &Template::new().with("A B", "\u{1}"), Update::Merge).await.unwrap_err();
    assert!(matches!(unsendable, Error::InvalidRequest(problems) if problems.len() == 2));
    drop(server);
    let gone = one.version().await.unwrap_err();
    assert!(gone.is_transient() && explain(&gone).contains("the front-end is running"), "{}", explain(&gone));
}

#[tokio::test]
async fn pools_are_read_page_by_page() {
    let server = Server::start().await;
    let one = Oned::new(Endpoint::parse(&server.url()).unwrap(), Session::new("a", "b"));
    let page = |ids: std::ops::Range<i32>| {
        let vms: String =
            ids.map(|id| format!("<VM><ID>{id}</ID><STATE>3</STATE><LCM_STATE>3</LCM_STATE></VM>")).collect();
        let parts = [true.into(), Value::Text(format!("<VM_POOL>{vms}</VM_POOL>")), 0.into()];
        trellis_one::xmlrpc::encode_response(Ok(&Value::Array(parts.to_vec())))
    };
    server.respond(200, page(0..500));
    server.respond(200, page(499..520));
    let vms = one.vms_extended(VmFilter::NotDone).await.unwrap();
    assert_eq!(vms.iter().map(|vm| vm.id).collect::<Vec<_>>(), (0..520).collect::<Vec<_>>());
    for start in [0, 500] {
        let call = decode_call(&server.asked().await.body).unwrap();
        assert_eq!(call.parameters[1..], [(-2).into(), start.into(), (-500).into(), (-1).into()]);
    }
}
