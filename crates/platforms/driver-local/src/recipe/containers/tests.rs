use trellis_spec::Release;

use super::*;
use crate::recipe::testing::{context, coordinator as coordinator_spec, node as node_spec, typed, with_tls};

const FLOWER: Runtime = Runtime::Flower(Release { minor: 39, patch: 0 });

/// The command line of a container, without the parts that depend on the user of the tests.
fn line(program: &Program) -> String {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let owner = format!(" --user {}:{}", user.as_raw(), group.as_raw());
    typed(program).replace(&owner, "").replace(" --userns keep-id", "").replace("/h/fed/lab/", "")
}

fn only(recipe: &Recipe) -> String {
    assert_eq!(recipe.programs.len(), 1);
    line(&recipe.programs[0])
}

#[test]
fn a_container_sees_the_part_and_nothing_else() {
    let recipe = coordinator(Engine::Podman, &coordinator_spec(FLOWER), &with_tls(context("coordinator"))).unwrap();
    let line = only(&recipe);
    let name = line.split_whitespace().nth(3).unwrap().to_owned();
    let expected = format!(
        "podman run --name {name} --label dev.trellis.part=fed/lab/coordinator --restart no --network host \
         --log-driver none --cap-drop all --security-opt no-new-privileges --security-opt label=disable --volume coordinator:coordinator \
         --volume coordinator/state:coordinator/state --volume /h/tls:/h/tls:ro \
         --env-file coordinator/container-0.env \
         --entrypoint flower-superlink flwr/superlink:1.39.0 --isolation subprocess --ssl-certfile /h/tls/server.pem \
         --ssl-keyfile /h/tls/server.key --ssl-ca-certfile /h/tls/ca.crt --fleet-api-address 127.0.0.1:1 \
         --host 127.0.0.1 --port 4 --database coordinator/state/superlink.db"
    );
    assert_eq!(line, expected);
    assert!(name.starts_with("trellis-") && name.ends_with("-coordinator"), "{name}");
    assert_eq!(recipe.before[0].args[2..], ["podman", "flwr/superlink:1.39.0"]);
    let inside = &recipe.files[Path::new("/h/fed/lab/coordinator/container-0.env")];
    assert!(inside.starts_with("HOME=/h/fed/lab/coordinator/state\nFLWR_DISABLE_UPDATE_CHECK=1\n"), "{inside}");
    assert_eq!(recipe.after[0].args[2..], ["podman".to_owned(), name].map(OsString::from));
}

#[test]
fn no_container_has_or_gains_privileges() {
    let process = trellis_spec::Isolation::Process;
    for (engine, runtime) in
        [(Engine::Podman, Runtime::Trellis), (Engine::Docker, Runtime::Trellis), (Engine::Docker, FLOWER)]
    {
        let link = CoordinatorSpec { isolation: process, ..coordinator_spec(runtime.clone()) };
        let edge = NodeSpec { isolation: process, ..node_spec(runtime) };
        let link = coordinator(engine, &link, &context("coordinator")).unwrap();
        let edge = node(engine, &edge, &context("node/site-0")).unwrap();
        for program in link.programs.iter().chain(&edge.programs) {
            let line = line(program);
            let (flags, _) = line.split_once(" --entrypoint ").expect("an entrypoint after the flags");
            assert!(flags.contains(" --cap-drop all ") && flags.contains(" no-new-privileges "), "{line}");
            assert!(!flags.contains("--privileged") && !flags.contains("--cap-add"), "{line}");
        }
    }
}

#[test]
fn limits_are_the_container_s_and_apps_have_none_of_their_own() {
    let resources = Resources { cpu_millis: Some(1500), memory_bytes: Some(1 << 30), disk_bytes: None };
    let spec = NodeSpec { resources, ..node_spec(Runtime::Trellis) };
    let line = only(&node(Engine::Docker, &spec, &context("node/site-0")).unwrap());
    assert!(line.contains(" --cpus 1.500 --memory 1073741824 "), "{line}");
    assert!(
        line.contains(&format!(" --entrypoint trellis trellis:{} supernode ", env!("CARGO_PKG_VERSION"))),
        "{line}"
    );
    assert!(!line.contains("--app-"), "{line}");
}

#[test]
fn gpus_are_given_as_each_engine_wants_it() {
    let nvidia = Gpu { vendor: GpuVendor::Nvidia, count: 2, memory_fraction: None, fallback_to_cpu: false };
    let amd = Gpu { vendor: GpuVendor::Amd, ..nvidia.clone() };
    for (engine, gpu, gpus, expected) in [
        (Engine::Podman, &nvidia, vec![1, 3], "--device nvidia.com/gpu=1 --device nvidia.com/gpu=3 "),
        (Engine::Docker, &nvidia, vec![1, 3], "--gpus \"device=1,3\" "),
        (Engine::Docker, &nvidia, vec![], "--gpus 2 "),
        (Engine::Podman, &amd, vec![], "--device /dev/kfd --device /dev/dri "),
    ] {
        let spec = NodeSpec { gpu: Some(gpu.clone()), image: Some("mine:1".to_owned()), ..node_spec(FLOWER) };
        let recipe = node(engine, &spec, &PartContext { gpus: gpus.clone(), ..context("node/site-0") }).unwrap();
        let line = only(&recipe);
        assert!(line.contains(expected) && line.contains(" mine:1 "), "{line}");
        // GPUs are numbered from 0 inside.
        let inside = &recipe.files[Path::new("/h/fed/lab/site-0/container-0.env")];
        assert_eq!(inside.contains("CUDA_VISIBLE_DEVICES=0,1\n"), !gpus.is_empty(), "{inside}");
    }
}

#[test]
fn a_launcher_of_apps_has_its_own_container() {
    let spec = CoordinatorSpec { isolation: trellis_spec::Isolation::Process, ..coordinator_spec(FLOWER) };
    let recipe = coordinator(Engine::Docker, &spec, &context("coordinator")).unwrap();
    let lines: Vec<String> = recipe.programs.iter().map(line).collect();
    assert!(lines[1].contains(" --entrypoint flower-superexec flwr/superexec:1.39.0 "), "{}", lines[1]);
    assert_eq!(recipe.before[0].args[2..], ["docker", "flwr/superexec:1.39.0", "flwr/superlink:1.39.0"]);
    let names = recipe.after[0].args[3..].to_vec();
    assert_eq!(names.len(), 2);
    assert_ne!(names[0], names[1]);
}

#[test]
fn a_framework_chooses_our_image_and_none_of_the_official_ones() {
    let framework = Some(Framework::PyTorch);
    let ours = NodeSpec { framework, ..node_spec(Runtime::Trellis) };
    let line = only(&node(Engine::Podman, &ours, &context("node/site-0")).unwrap());
    assert!(line.contains(&format!(" trellis-pytorch:{} ", env!("CARGO_PKG_VERSION"))), "{line}");
    let official = NodeSpec { framework, ..node_spec(FLOWER) };
    let problems = node(Engine::Podman, &official, &context("node/site-0")).unwrap_err();
    assert_eq!(problems, ["the official images do not contain pytorch: set `image` to one that does"]);
}

#[test]
fn what_containers_cannot_be_given_is_told() {
    let env = [("A", "one\ntwo"), ("B", "one"), ("C", "\n")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let spec = NodeSpec { env: env.into(), ..node_spec(FLOWER) };
    let problems = node(Engine::Podman, &spec, &context("node/site-0")).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("variable A"), "{problems:?}");
}
