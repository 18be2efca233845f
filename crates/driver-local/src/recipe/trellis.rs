//! The recipes of our own runtime: `trellis superlink` and `trellis supernode`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trellis_plan::{CoordinatorSpec, NodeSpec};
use trellis_spec::{GpuVendor, Isolation, Persistence};

use super::{Place, Probe, Program, Recipe, node_config};

const NODE_CONFIG: &str = "node-config.toml";
/// Of the SuperNode, in its state directory.
const SOCKET: &str = "node.sock";
/// File with the token of the SuperLink's first administrator, in its state directory.
const ADMIN_TOKEN: &str = "admin.token";

pub fn coordinator(spec: &CoordinatorSpec, place: &Place) -> Result<Recipe, Vec<String>> {
    let ports = &place.ports;
    let mut program = Program::new(&place.program)
        .arg("superlink")
        .flag("--host", place.listen.to_string())
        .flag("--port", ports.http.to_string())
        .flag("--fleet-api-address", place.listens(ports.fleet).to_string())
        .flag("--control-api-address", place.listens(ports.control).to_string())
        .flag("--serverappio-api-address", place.app_address().to_string())
        .flag("--isolation", isolation(spec.isolation))
        .flag("--models-dir", &place.models)
        // Other users of this machine can reach the ports, too.
        .flag("--account-auth", "on")
        .flag("--admin-token-file", admin_token(spec, &place.state));
    program = state(program, spec, place);
    program = match &place.tls {
        None => program.arg("--insecure"),
        Some(tls) => {
            let missing = || vec!["a coordinator with TLS needs a certificate, its key and its authority".to_owned()];
            let (served, trust) = tls.served.as_ref().zip(tls.trust.as_ref()).ok_or_else(missing)?;
            let program = program.flag("--ssl-certfile", &served.certificate).flag("--ssl-keyfile", &served.key);
            program.flag("--ssl-ca-certfile", trust)
        }
    };
    for name in &spec.endpoints.advertise {
        program = program.flag("--endpoint", name);
    }
    if spec.node_auth {
        program = program.arg("--enable-supernode-auth");
    }
    if let Some(python) = &spec.python {
        program = program.flag("--python", python);
    }
    program = sandbox(program, spec.isolation);
    let program = shared(program, spec.metrics, spec.json_logs, place, &spec.env, &spec.extra_args);
    let probe = Probe::SuperLink {
        address: place.reached(ports.http),
        tls: place.tls.is_some(),
        trust: place.trust().map(Path::to_owned),
        token: admin_token(spec, &place.state),
    };
    Ok(alone(program, probe, BTreeMap::new()))
}

/// Sandboxes the apps that the program starts, as far as this machine supports it.
fn sandbox(program: Program, isolation: Isolation) -> Program {
    match isolation {
        Isolation::Subprocess => program.flag("--sandbox", "best-effort"),
        Isolation::Process => program,
    }
}

fn state(program: Program, spec: &CoordinatorSpec, place: &Place) -> Program {
    match &spec.persistence {
        Persistence::Memory => program.flag("--database", ":memory:"),
        Persistence::Disk { .. } => program.flag("--state-dir", state_dir(spec, &place.state)),
    }
}

fn state_dir<'a>(spec: &'a CoordinatorSpec, state: &'a Path) -> &'a Path {
    match &spec.persistence {
        Persistence::Disk { path: Some(path), .. } => path,
        Persistence::Disk { path: None, .. } | Persistence::Memory => state,
    }
}

/// Path of the token of the SuperLink's first administrator; `state` is the state directory of the part.
pub fn admin_token(spec: &CoordinatorSpec, state: &Path) -> PathBuf {
    state_dir(spec, state).join(ADMIN_TOKEN)
}

pub fn node(spec: &NodeSpec, place: &Place) -> Result<Recipe, Vec<String>> {
    let settings = place.directory.join(NODE_CONFIG);
    let mut program = Program::new(&place.program)
        .arg("supernode")
        .flag("--superlink", &spec.coordinator)
        .flag("--name", place.id.part.name())
        .flag("--state-dir", &place.state)
        .flag("--node-config", &settings)
        .flag("--isolation", isolation(spec.isolation));
    program = match &place.tls {
        None => program.arg("--insecure"),
        Some(tls) => match &tls.trust {
            Some(trust) => program.flag("--root-certificates", trust),
            None => program,
        },
    };
    if let Some(key) = &place.node_key {
        program = program.flag("--auth-supernode-private-key", key);
    }
    if let Some(app) = &spec.client_app {
        program = program.flag("--client-app", app);
    }
    if let Some(python) = &spec.python {
        program = program.flag("--python", python);
    }
    if spec.client_app.is_none() {
        program = sandbox(program, spec.isolation);
    }
    if spec.isolation == Isolation::Process {
        program = program.flag("--clientappio-api-address", place.app_address().to_string());
    }
    program = limits(program, spec, place);
    let program = shared(program, spec.metrics, spec.json_logs, place, &spec.env, &spec.extra_args);
    let probe = Probe::SuperNode { socket: place.state.join(SOCKET) };
    let files = BTreeMap::from([(settings, node_config::toml(&spec.node_config))]);
    Ok(alone(program, probe, files))
}

/// What the node lets its apps use. A node that did not ask for GPUs has none, as everywhere else.
fn limits(mut program: Program, spec: &NodeSpec, place: &Place) -> Program {
    if let Some(millis) = spec.resources.cpu_millis {
        program = program.flag("--app-cpus", format!("{}.{:03}", millis / 1000, millis % 1000));
    }
    if let Some(bytes) = spec.resources.memory_bytes {
        program = program.flag("--app-memory", bytes.to_string());
    }
    if let Some(bytes) = spec.resources.disk_bytes {
        program = program.flag("--disk-limit", bytes.to_string());
    }
    match &spec.gpu {
        None => program.flag("--gpus", "none"),
        // Not managed: apps see what the node sees.
        Some(gpu) if gpu.vendor == GpuVendor::Amd => program,
        Some(gpu) => {
            let list = place.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let missing = if gpu.fallback_to_cpu { "warn" } else { "refuse" };
            program = match list.is_empty() {
                // Nobody knows which there are: the node finds out.
                true => program.flag("--gpus", gpu.count.to_string()),
                false => program.flag("--cuda-visible-devices", list),
            };
            program = program.flag("--gpu-missing", missing);
            match gpu.memory_fraction {
                Some(share) => program.flag("--gpu-memory-fraction", share.to_string()),
                None => program,
            }
        }
    }
}

/// What both have, and last what the document says itself: it has the last word.
fn shared(
    mut program: Program,
    metrics: bool,
    json_logs: bool,
    place: &Place,
    env: &BTreeMap<String, String>,
    extra_args: &[String],
) -> Program {
    if metrics {
        program = program.flag("--metrics-address", place.reached(place.ports.metrics).to_string());
    }
    if json_logs {
        program = program.flag("--log-format", "json");
    }
    for (name, value) in env {
        program = program.env(name, value);
    }
    extra_args.iter().fold(program, |program, arg| program.arg(arg))
}

fn isolation(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Subprocess => "subprocess",
        Isolation::Process => "process",
    }
}

fn alone(program: Program, probe: Probe, files: BTreeMap<std::path::PathBuf, String>) -> Recipe {
    Recipe { files, before: Vec::new(), programs: vec![program], after: Vec::new(), probe, version: None }
}

#[cfg(test)]
mod tests {
    use trellis_spec::{Gpu, Resources, Runtime, Tls};

    use super::super::testing::{self, place, typed, with_tls};
    use super::*;

    #[test]
    fn a_superlink_serves_what_it_was_given_and_the_document_has_the_last_word() {
        let mut spec = testing::coordinator(Runtime::Trellis);
        spec.extra_args = vec!["--log-level".to_owned(), "debug".to_owned()];
        spec.endpoints.advertise = vec!["link.example.org".to_owned()];
        spec.node_auth = true;
        let recipe = coordinator(&spec, &with_tls(place("coordinator"))).expect("a recipe");
        assert_eq!(
            typed(&recipe.programs[0]),
            "/bin/trellis superlink --host 127.0.0.1 --port 4 --fleet-api-address 127.0.0.1:1 --control-api-address \
             127.0.0.1:2 --serverappio-api-address 127.0.0.1:3 --isolation subprocess --models-dir /h/models/fed \
             --account-auth on --admin-token-file /h/fed/lab/coordinator/state/admin.token --state-dir \
             /h/fed/lab/coordinator/state --ssl-certfile /h/tls/server.pem --ssl-keyfile /h/tls/server.key \
             --ssl-ca-certfile /h/tls/ca.crt --endpoint link.example.org --enable-supernode-auth --sandbox best-effort \
             --log-level debug"
        );
    }

    #[test]
    fn a_node_gets_its_share_and_its_settings() {
        let mut spec = testing::node(Runtime::Trellis);
        spec.tls = Tls::Auto;
        spec.resources = Resources { cpu_millis: Some(1500), memory_bytes: Some(1 << 30), disk_bytes: None };
        let vendor = GpuVendor::Nvidia;
        spec.gpu = Some(Gpu { vendor, count: 1, memory_fraction: Some(0.5), fallback_to_cpu: false });
        let place = Place { gpus: vec![2], ..with_tls(place("node/edge-0")) };
        let recipe = node(&spec, &place).expect("a recipe");
        assert_eq!(
            typed(&recipe.programs[0]),
            "/bin/trellis supernode --superlink 127.0.0.1:1 --name edge-0 --state-dir /h/fed/lab/edge-0/state \
             --node-config /h/fed/lab/edge-0/node-config.toml --isolation subprocess --root-certificates /h/tls/ca.crt \
             --sandbox best-effort --app-cpus 1.500 --app-memory 1073741824 --cuda-visible-devices 2 --gpu-missing refuse \
             --gpu-memory-fraction 0.5"
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
            for place in [place("coordinator"), with_tls(place("coordinator"))] {
                let spec =
                    CoordinatorSpec { persistence: persistence.clone(), ..testing::coordinator(Runtime::Trellis) };
                let recipe = coordinator(&spec, &place).expect("a recipe");
                let line = typed(&recipe.programs[0]);
                assert!(line.contains(&format!(" --account-auth on --admin-token-file {token} ")), "{line}");
                assert!(matches!(&recipe.probe, Probe::SuperLink { token: read, .. } if read == Path::new(token)));
            }
        }
    }
}
