use std::path::PathBuf;
use std::process::Command;

use trellis_spec::Runtime;

use super::*;
use crate::recipe::testing::{coordinator as coordinator_spec, node as node_spec, place, typed, with_tls};

fn version(minor: u16) -> Release {
    Release { minor, patch: 0 }
}

fn superlink(minor: u16, spec: &CoordinatorSpec, place: &Place) -> Vec<String> {
    let recipe = coordinator(version(minor), spec, place, Programs::Machine).expect("a recipe");
    recipe.programs.iter().map(|program| typed(program).replace("/h/fed/lab/coordinator/", "")).collect()
}

fn supernode(minor: u16, spec: &NodeSpec, place: &Place) -> Vec<String> {
    let recipe = node(version(minor), spec, place, Programs::Machine).expect("a recipe");
    recipe.programs.iter().map(|program| typed(program).replace("/h/fed/lab/site-0/", "")).collect()
}

fn reached(minor: u16, spec: &CoordinatorSpec) -> Addresses {
    let recipe = coordinator(version(minor), spec, &place("coordinator"), Programs::Machine).expect("a recipe");
    match recipe.probe {
        Probe::FlowerSuperLink { addresses, .. } => addresses,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_superlink_has_the_ports_that_its_release_knows() {
    let three = "flower/flower-superlink --fleet-api-address 127.0.0.1:1 --control-api-address 127.0.0.1:2";
    let database = "--isolation subprocess --insecure --database state/superlink.db";
    for (minor, expected) in [
        (25, format!("{three} --serverappio-api-address 127.0.0.1:3 {database} --storage-dir state/apps")),
        (29, format!("{three} --serverappio-api-address 127.0.0.1:3 {database}")),
        (34, format!("{three} --serverappio-api-address 127.0.0.1:3 {database}")),
        (35, format!("{three} --host 127.0.0.1 --port 3 {database}")),
        (37, format!("flower/flower-superlink --fleet-api-address 127.0.0.1:1 --host 127.0.0.1 --port 4 {database}")),
        (40, format!("flower/flower-superlink --host 127.0.0.1 --port 4 {database}")),
    ] {
        let spec = coordinator_spec(Runtime::Flower(version(minor)));
        assert_eq!(superlink(minor, &spec, &place("coordinator")), [expected], "1.{minor}");
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
        let found = reached(minor, &spec);
        let expected =
            Addresses { fleet: Some(at(fleet)), control: Some(at(control)), app: Some(at(app)), http: http.map(at) };
        assert_eq!(found, expected, "1.{minor}");
    }
}

#[test]
fn the_one_port_may_be_fixed_by_the_name_it_had() {
    let mut spec = coordinator_spec(Runtime::Flower(version(42)));
    spec.endpoints.fleet = std::num::NonZeroU16::new(1);
    let found = reached(42, &spec);
    assert_eq!(found.fleet.as_deref(), Some("127.0.0.1:1"));
    assert_eq!((&found.control, &found.http), (&found.fleet, &found.fleet));
    spec.endpoints.http = std::num::NonZeroU16::new(4);
    assert_eq!(reached(42, &spec).fleet.as_deref(), Some("127.0.0.1:4"));
}

#[test]
fn apps_apart_have_a_launcher_beside_the_superlink() {
    for (minor, expected) in [
        (25, "flower/flower-superexec --appio-api-address 127.0.0.1:3 --insecure --plugin-type serverapp"),
        (36, "flower/flower-superexec --runtime-api-address 127.0.0.1:3 --insecure --plugin-type serverapp"),
        (
            37,
            "flower/flower-superexec --runtime-api-address 127.0.0.1:4 --root-certificates /h/tls/ca.crt --plugin-type serverapp",
        ),
        (42, "flower/flower-superexec --runtime-api-address 127.0.0.1:4 --root-certificates /h/tls/ca.crt"),
    ] {
        let mut spec = coordinator_spec(Runtime::Flower(version(minor)));
        spec.isolation = Isolation::Process;
        let programs = superlink(minor, &spec, &with_tls(place("coordinator")));
        assert!(programs[0].contains("--isolation process --ssl-certfile /h/tls/server.pem"), "{}", programs[0]);
        assert_eq!(programs[1..], [expected], "1.{minor}");
    }
}

#[test]
fn a_node_has_one_address_for_its_apps() {
    let start = "flower/flower-supernode --superlink 127.0.0.1:1 --node-config node-config.toml --isolation subprocess";
    for (minor, apps) in [(25, "--clientappio-api-address 127.0.0.1:3"), (35, "--host 127.0.0.1 --port 3")] {
        let mut spec = node_spec(Runtime::Flower(version(minor)));
        spec.extra_args = vec!["--max-retries".to_owned(), "3".to_owned()];
        let plain = supernode(minor, &spec, &place("node/site-0"));
        assert_eq!(plain, [format!("{start} {apps} --insecure --max-retries 3")], "1.{minor}");
        let keyed = Place { node_key: Some("key".into()), ..with_tls(place("node/site-0")) };
        let secure = supernode(minor, &node_spec(Runtime::Flower(version(minor))), &keyed);
        let expected = format!("{start} {apps} --root-certificates /h/tls/ca.crt --auth-supernode-private-key key");
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
        let recipe = node(version(42), &spec, &Place { gpus, ..place("node/site-0") }, Programs::Machine);
        let env = &recipe.expect("a recipe").programs[0].env;
        assert_eq!(env.get("CUDA_VISIBLE_DEVICES").and_then(|list| list.to_str()), expected);
    }
}

#[test]
fn the_document_has_the_last_word_about_the_environment() {
    let mut spec = coordinator_spec(Runtime::Flower(version(42)));
    spec.env.insert("FLWR_TELEMETRY_ENABLED".to_owned(), "1".to_owned());
    let recipe = coordinator(version(42), &spec, &place("coordinator"), Programs::Machine).expect("a recipe");
    let env = &recipe.programs[0].env;
    assert_eq!(env["FLWR_TELEMETRY_ENABLED"], "1");
    assert!(env["PATH"].to_string_lossy().starts_with("/h/fed/lab/coordinator/flower:"), "{:?}", env["PATH"]);
}

/// The flags of a command line that a program does not tell of in its help.
fn unknown_flags(program: &PathBuf, line: &str) -> Vec<String> {
    let said = Command::new(program).arg("--help").env("FLWR_TELEMETRY_ENABLED", "0").output().expect("it runs");
    let help = String::from_utf8_lossy(&said.stdout).into_owned();
    let flags = line.split_whitespace().filter(|word| word.starts_with("--"));
    flags.filter(|flag| !help.contains(*flag)).map(str::to_owned).collect()
}

/// Minutes, for all of them: `cargo test -p trellis-driver-local -- --ignored flags`.
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
        let keyed = Place { node_key: Some("key".into()), ..with_tls(place("node/site-0")) };
        let lines = superlink(minor, &coordinator, &with_tls(place("coordinator")));
        for line in lines.into_iter().chain(supernode(minor, &node, &keyed)) {
            let name = line.split_whitespace().next().and_then(|path| path.strip_prefix("flower/")).expect("a program");
            assert_eq!(unknown_flags(&programs.join(name), &line), Vec::<String>::new(), "1.{minor}: {line}");
        }
    }
}
