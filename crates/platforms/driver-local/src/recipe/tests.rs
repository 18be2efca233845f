use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::Command;

use trellis_flower::Release;
use trellis_flower::launch::{Keepalive, SuperLink, SuperNode};
use trellis_spec::{Gpu, GpuVendor, Persistence, Resources, Tls};
use trellis_testing::launch::{User, undeclared};

use super::testing::{context, coordinator as coordinator_spec, node as node_spec, typed, with_tls};
use super::*;

fn version(minor: u16) -> Release {
    Release { minor, patch: 0 }
}

fn superlink(minor: u16, spec: &CoordinatorSpec, context: &PartContext) -> Vec<String> {
    let spec = CoordinatorSpec { runtime: Runtime::Flower(version(minor)), ..spec.clone() };
    let recipe = coordinator(&spec, context).expect("a recipe");
    recipe.programs.iter().map(|program| typed(program).replace("/h/fed/lab/coordinator/", "")).collect()
}

fn supernode(minor: u16, spec: &NodeSpec, context: &PartContext) -> Vec<String> {
    let spec = NodeSpec { runtime: Runtime::Flower(version(minor)), ..spec.clone() };
    let recipe = node(&spec, context).expect("a recipe");
    recipe.programs.iter().map(|program| typed(program).replace("/h/fed/lab/site-0/", "")).collect()
}

fn addresses(minor: u16, spec: &CoordinatorSpec) -> Addresses {
    let spec = CoordinatorSpec { runtime: Runtime::Flower(version(minor)), ..spec.clone() };
    match coordinator(&spec, &context("coordinator")).expect("a recipe").probe {
        Probe::FlowerSuperLink { addresses, .. } => addresses,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_superlink_has_the_ports_that_its_release_knows() {
    let start = "flower/flower-superlink --isolation subprocess --insecure";
    let three = format!("{start} --fleet-api-address 127.0.0.1:1 --control-api-address 127.0.0.1:2");
    let database = "--database state/superlink.db";
    for (minor, expected) in [
        (25, format!("{three} --serverappio-api-address 127.0.0.1:3 {database} --storage-dir state/apps")),
        (29, format!("{three} --serverappio-api-address 127.0.0.1:3 {database}")),
        (34, format!("{three} --serverappio-api-address 127.0.0.1:3 {database}")),
        (35, format!("{three} --host 127.0.0.1 --port 3 {database}")),
        (37, format!("{start} --fleet-api-address 127.0.0.1:1 --host 127.0.0.1 --port 4 {database}")),
        (40, format!("{start} --host 127.0.0.1 --port 4 {database}")),
    ] {
        let spec = coordinator_spec(Runtime::Flower(version(minor)));
        assert_eq!(superlink(minor, &spec, &context("coordinator")), [expected], "1.{minor}");
    }
}

#[test]
fn users_are_told_where_each_release_is_reached() {
    for (minor, fleet, control, app, http) in [
        (25, 1, 2, 3, None),
        (36, 1, 2, 3, None),
        (37, 1, 4, 4, Some(4)),
        (39, 1, 4, 4, Some(4)),
        (40, 4, 4, 4, Some(4)),
    ] {
        let at = |port: u16| format!("127.0.0.1:{port}");
        let spec = coordinator_spec(Runtime::Flower(version(minor)));
        let found = addresses(minor, &spec);
        let expected =
            Addresses { fleet: Some(at(fleet)), control: Some(at(control)), app: Some(at(app)), http: http.map(at) };
        assert_eq!(found, expected, "1.{minor}");
    }
}

#[test]
fn the_one_port_may_be_fixed_by_the_name_it_had() {
    let mut spec = coordinator_spec(Runtime::Flower(version(42)));
    spec.endpoints.fleet = NonZeroU16::new(1);
    let found = addresses(42, &spec);
    assert_eq!(found.fleet.as_deref(), Some("127.0.0.1:1"));
    assert_eq!((&found.control, &found.http), (&found.fleet, &found.fleet));
    spec.endpoints.http = NonZeroU16::new(4);
    assert_eq!(addresses(42, &spec).fleet.as_deref(), Some("127.0.0.1:4"));
}

#[test]
fn apps_apart_have_a_launcher_beside_the_superlink() {
    for (minor, expected) in [
        (25, "flower/flower-superexec --plugin-type serverapp --appio-api-address 127.0.0.1:3 --insecure"),
        (36, "flower/flower-superexec --plugin-type serverapp --runtime-api-address 127.0.0.1:3 --insecure"),
        (
            37,
            "flower/flower-superexec --plugin-type serverapp --runtime-api-address 127.0.0.1:4 --root-certificates /h/tls/ca.crt",
        ),
        (42, "flower/flower-superexec --runtime-api-address 127.0.0.1:4 --root-certificates /h/tls/ca.crt"),
    ] {
        let mut spec = coordinator_spec(Runtime::Flower(version(minor)));
        spec.isolation = Isolation::Process;
        let programs = superlink(minor, &spec, &with_tls(context("coordinator")));
        assert!(programs[0].contains("--isolation process --ssl-certfile /h/tls/server.pem"), "{}", programs[0]);
        assert_eq!(programs[1..], [expected], "1.{minor}");
    }
}

#[test]
fn a_node_has_one_address_for_its_apps() {
    let start = "flower/flower-supernode --superlink 127.0.0.1:1 --isolation subprocess";
    let config = "--node-config node-config.toml";
    for (minor, apps) in [(25, "--clientappio-api-address 127.0.0.1:3"), (35, "--host 127.0.0.1 --port 3")] {
        let mut spec = node_spec(Runtime::Flower(version(minor)));
        spec.extra_args = vec!["--max-retries".to_owned(), "3".to_owned()];
        let plain = supernode(minor, &spec, &context("node/site-0"));
        assert_eq!(plain, [format!("{start} --insecure {apps} {config} --max-retries 3")], "1.{minor}");
        let keyed = PartContext { node_key: Some("key".into()), ..with_tls(context("node/site-0")) };
        let secure = supernode(minor, &node_spec(Runtime::Flower(version(minor))), &keyed);
        let expected =
            format!("{start} --root-certificates /h/tls/ca.crt {apps} --auth-supernode-private-key key {config}");
        assert_eq!(secure, [expected], "1.{minor}");
    }
}

#[test]
fn a_node_sees_its_own_gpus_and_no_others() {
    let gpu = |vendor| Some(Gpu { vendor, count: 2, memory_fraction: None, fallback_to_cpu: false });
    for (gpu, gpus, expected) in [
        (None, vec![], Some("")),
        (gpu(GpuVendor::Nvidia), vec![1, 3], Some("1,3")),
        (gpu(GpuVendor::Nvidia), vec![], None),
        (gpu(GpuVendor::Amd), vec![], None),
    ] {
        let spec = NodeSpec { gpu, ..node_spec(Runtime::Flower(version(42))) };
        let recipe = node(&spec, &PartContext { gpus, ..context("node/site-0") });
        let env = &recipe.expect("a recipe").programs[0].env;
        assert_eq!(env.get("CUDA_VISIBLE_DEVICES").and_then(|list| list.to_str()), expected);
    }
}

#[test]
fn the_document_has_the_last_word_about_the_environment() {
    let mut spec = coordinator_spec(Runtime::Flower(version(42)));
    spec.env.insert("FLWR_TELEMETRY_ENABLED".to_owned(), "1".to_owned());
    let recipe = coordinator(&spec, &context("coordinator")).expect("a recipe");
    let env = &recipe.programs[0].env;
    assert_eq!(env["FLWR_TELEMETRY_ENABLED"], "1");
    assert!(env["PATH"].to_string_lossy().starts_with("/h/fed/lab/coordinator/flower:"), "{:?}", env["PATH"]);
}

#[test]
fn a_superlink_serves_what_it_was_given_and_the_document_has_the_last_word() {
    let mut spec = coordinator_spec(Runtime::Trellis);
    spec.extra_args = vec!["--log-level".to_owned(), "debug".to_owned()];
    spec.endpoints.advertise = vec!["link.example.org".to_owned()];
    spec.node_auth = true;
    let recipe = coordinator(&spec, &with_tls(context("coordinator"))).expect("a recipe");
    assert_eq!(
        typed(&recipe.programs[0]),
        "/bin/trellis superlink --isolation subprocess --ssl-certfile /h/tls/server.pem --ssl-keyfile /h/tls/server.key \
         --ssl-ca-certfile /h/tls/ca.crt --account-auth on --host 127.0.0.1 --port 4 --control-api-address 127.0.0.1:2 \
         --fleet-api-address 127.0.0.1:1 --serverappio-api-address 127.0.0.1:3 --endpoint link.example.org \
         --admin-token-file /h/fed/lab/coordinator/state/admin.token --state-dir /h/fed/lab/coordinator/state \
         --models-dir /h/models/fed --sandbox best-effort --enable-supernode-auth --log-level debug"
    );
}

#[test]
fn a_node_gets_its_share_and_its_settings() {
    let mut spec = node_spec(Runtime::Trellis);
    spec.tls = Tls::Auto;
    spec.resources = Resources { cpu_millis: Some(1500), memory_bytes: Some(1 << 30), disk_bytes: None };
    let vendor = GpuVendor::Nvidia;
    spec.gpu = Some(Gpu { vendor, count: 1, memory_fraction: Some(0.5), fallback_to_cpu: false });
    let context = PartContext { gpus: vec![2], ..with_tls(context("node/edge-0")) };
    let recipe = node(&spec, &context).expect("a recipe");
    assert_eq!(
        typed(&recipe.programs[0]),
        "/bin/trellis supernode --superlink 127.0.0.1:1 --isolation subprocess --root-certificates /h/tls/ca.crt --name edge-0 \
         --state-dir /h/fed/lab/edge-0/state --sandbox best-effort --app-cpus 1.500 --app-memory 1073741824 \
         --cuda-visible-devices 2 --gpu-missing refuse --gpu-memory-fraction 0.5 --node-config \
         /h/fed/lab/edge-0/node-config.toml"
    );
    assert_eq!(recipe.files.values().collect::<Vec<_>>(), ["\"partition-id\" = 0\n"]);
}

#[test]
fn every_superlink_asks_who_calls() {
    let on_disk = |path: Option<&str>| Persistence::Disk { path: path.map(Into::into), size_bytes: None };
    for (persistence, token) in [
        (on_disk(None), "/h/fed/lab/coordinator/state/admin.token"),
        (on_disk(Some("/data/link")), "/data/link/admin.token"),
        (Persistence::Memory, "/h/fed/lab/coordinator/state/admin.token"),
    ] {
        for context in [context("coordinator"), with_tls(context("coordinator"))] {
            let spec = CoordinatorSpec { persistence: persistence.clone(), ..coordinator_spec(Runtime::Trellis) };
            let recipe = coordinator(&spec, &context).expect("a recipe");
            let line = typed(&recipe.programs[0]);
            assert!(line.contains(" --account-auth on "), "{line}");
            assert!(line.contains(&format!(" --admin-token-file {token} ")), "{line}");
            assert!(matches!(&recipe.probe, Probe::SuperLink { token: read, .. } if read == Path::new(token)));
        }
    }
}

#[test]
fn programs_are_told_how_often_to_ping_silent_connections() {
    let keepalive = Some(Keepalive { interval_s: 45, timeout_s: 15 });
    let link = CoordinatorSpec { keepalive, ..coordinator_spec(Runtime::Trellis) };
    let edge = NodeSpec { keepalive, ..node_spec(Runtime::Trellis) };
    for recipe in [coordinator(&link, &context("coordinator")), node(&edge, &context("node/site-0"))] {
        let line = typed(&recipe.expect("a recipe").programs[0]);
        assert!(line.contains(" --keepalive-interval 45s --keepalive-timeout 15s"), "{line}");
    }
}

/// Descriptions that each differ from the default in one input from a document or this machine.
fn superlinks() -> Vec<SuperLink> {
    let usual = || (coordinator_spec(Runtime::Trellis), context("coordinator"));
    let mut all = vec![usual()];
    let mut change = |change: &dyn Fn(&mut CoordinatorSpec, &mut PartContext)| {
        let (mut spec, mut context) = usual();
        change(&mut spec, &mut context);
        all.push((spec, context));
    };
    change(&|spec, _| spec.runtime = Runtime::Flower(Release::NEWEST));
    change(&|spec, _| spec.isolation = Isolation::Process);
    change(&|spec, _| spec.python = Some("/p".into()));
    change(&|spec, _| spec.keepalive = Some(Keepalive { interval_s: 1, timeout_s: 1 }));
    change(&|spec, _| spec.metrics = true);
    change(&|spec, _| spec.json_logs = true);
    change(&|spec, _| spec.env = [("A".to_owned(), "b".to_owned())].into());
    change(&|spec, _| spec.extra_args = vec!["--x".to_owned()]);
    change(&|spec, _| spec.endpoints.advertise = vec!["a".to_owned()]);
    change(&|spec, _| spec.node_auth = true);
    change(&|spec, _| spec.persistence = Persistence::Memory);
    change(&|_, context| context.ports = Ports { fleet: 11, control: 12, app: 13, http: 14, ..context.ports });
    change(&|_, context| *context = with_tls(context.clone()));
    change(&|_, context| context.models = "/m".into());
    change(&|_, context| context.directory = "/other".into());
    change(&|_, context| context.state = "/other".into());
    all.iter().map(|(spec, context)| superlink::describe(spec, context, Programs::Machine).expect("it fits")).collect()
}

fn supernodes() -> Vec<SuperNode> {
    let usual = || (node_spec(Runtime::Trellis), context("node/site-0"));
    let mut all = vec![usual()];
    let mut change = |change: &dyn Fn(&mut NodeSpec, &mut PartContext)| {
        let (mut spec, mut context) = usual();
        change(&mut spec, &mut context);
        all.push((spec, context));
    };
    let gpu = Gpu { vendor: GpuVendor::Nvidia, count: 1, memory_fraction: Some(0.5), fallback_to_cpu: false };
    change(&|spec, _| spec.runtime = Runtime::Flower(Release::NEWEST));
    change(&|spec, _| spec.isolation = Isolation::Process);
    change(&|spec, _| spec.python = Some("/p".into()));
    change(&|spec, _| spec.keepalive = Some(Keepalive { interval_s: 1, timeout_s: 1 }));
    change(&|spec, _| spec.metrics = true);
    change(&|spec, _| spec.json_logs = true);
    change(&|spec, _| spec.env = [("A".to_owned(), "b".to_owned())].into());
    change(&|spec, _| spec.extra_args = vec!["--x".to_owned()]);
    change(&|spec, _| spec.coordinator = "b:1".to_owned());
    change(&|spec, _| spec.client_app = Some("native:mlp".to_owned()));
    change(&|spec, _| spec.node_config.clear());
    change(&|spec, _| spec.resources.cpu_millis = Some(1));
    change(&|spec, _| spec.gpu = Some(gpu.clone()));
    change(&|_, context| context.node_key = Some("/k".into()));
    change(&|_, context| *context = with_tls(context.clone()));
    change(&|_, context| context.directory = "/other".into());
    change(&|_, context| context.state = "/other".into());
    change(&|_, context| context.id = testing::context("node/site-1").id);
    all.iter().map(|(spec, context)| supernode::describe(spec, context, Programs::Machine)).collect()
}

#[test]
fn every_field_of_a_launch_can_be_changed_or_is_declared() {
    let (links, nodes) = (superlinks(), supernodes());
    let mut common = BTreeSet::new();
    common.extend(links.iter().flat_map(|link| link.common.differences(&links[0].common)));
    common.extend(nodes.iter().flat_map(|node| node.common.differences(&nodes[0].common)));
    let link = links.iter().flat_map(|link| link.differences(&links[0])).collect();
    let node = nodes.iter().flat_map(|node| node.differences(&nodes[0])).collect();
    for (name, fields, changed) in [
        ("Common", Common::FIELDS, common),
        ("SuperLink", SuperLink::FIELDS, link),
        ("SuperNode", SuperNode::FIELDS, node),
    ] {
        assert_eq!(undeclared(User::Local, name, fields, &changed), Vec::<String>::new());
    }
}

/// The flags of a command line that are not in the help of the program.
fn unknown_flags(program: &PathBuf, line: &str) -> Vec<String> {
    let said = Command::new(program).arg("--help").env("FLWR_TELEMETRY_ENABLED", "0").output().expect("it runs");
    let help = String::from_utf8_lossy(&said.stdout).into_owned();
    let flags = line.split_whitespace().filter(|word| word.starts_with("--"));
    flags.filter(|flag| !help.contains(*flag)).map(str::to_owned).collect()
}

/// Takes minutes: `cargo test -p trellis-driver-local -- --ignored flags`.
#[test]
#[ignore = "runs every program of every release that is installed"]
fn flags_are_those_of_each_release() {
    let cache = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
    let cache =
        cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/trellis-test"));
    for minor in Release::OLDEST.minor..=Release::NEWEST.minor {
        let programs = cache.join(format!("flwr-1.{minor}/bin"));
        assert!(programs.exists(), "Flower 1.{minor} is not installed: tests/provision.py 1.{minor}");
        let runtime = Runtime::Flower(version(minor));
        let coordinator =
            CoordinatorSpec { isolation: Isolation::Process, node_auth: true, ..coordinator_spec(runtime.clone()) };
        let node = NodeSpec { isolation: Isolation::Process, ..node_spec(runtime) };
        let keyed = PartContext { node_key: Some("key".into()), ..with_tls(context("node/site-0")) };
        let lines = superlink(minor, &coordinator, &with_tls(context("coordinator")));
        for line in lines.into_iter().chain(supernode(minor, &node, &keyed)) {
            let name = line.split_whitespace().next().and_then(|path| path.strip_prefix("flower/")).expect("a program");
            assert_eq!(unknown_flags(&programs.join(name), &line), Vec::<String>::new(), "1.{minor}: {line}");
        }
    }
}
