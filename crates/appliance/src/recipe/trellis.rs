//! The recipes of our own runtime: `trellis superlink` and `trellis supernode`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::{
    Calls, NODE_CONFIG, Probe, Program, RUN_DEFAULTS, Recipe, Surroundings, coordinator, level, named, node_config,
    reached, submission,
};
use crate::place::Place;
use crate::settings::{Common, Isolation, Limit, Role, SuperLinkSettings, SuperNodeSettings, Training};
use crate::trouble::Trouble;

/// Of the SuperNode, in its state directory.
const SOCKET: &str = "node.sock";
/// Where a SuperLink puts the token of its first admin, in its state directory.
pub const ADMIN_TOKEN: &str = "admin.token";
/// Where apps connect: always at the same port, because they outlive the SuperLink and come back.
const APPS_OF_SUPERLINK: u16 = 9091;
const APPS_OF_NODE: u16 = 9094;

pub fn superlink(common: &Common, link: &SuperLinkSettings, around: &Surroundings, place: &Place) -> Recipe {
    let state = place.service(Role::SuperLink);
    let database = state.join(&link.database);
    let apps = around.apps_port.unwrap_or(APPS_OF_SUPERLINK);
    let mut program = named(Role::SuperLink, place)
        .arg("superlink")
        .flag("--host", link.http.ip())
        .flag("--port", link.http.port())
        .flag("--fleet-api-address", link.fleet)
        .flag("--control-api-address", link.control)
        .flag("--serverappio-api-address", SocketAddr::from((Ipv4Addr::LOCALHOST, apps)))
        .flag("--isolation", isolation(common.isolation))
        .file("--state-dir", &state)
        .file("--database", &database);
    let mut directories = vec![state.clone()];
    directories.extend(database.parent().filter(|parent| **parent != state).map(ToOwned::to_owned));
    let served = place.served(&link.certificates);
    let trust = common.tls.then(|| served.join("ca.crt"));
    program = match &trust {
        None => program.arg("--insecure").arg("--allow-insecure-network"),
        Some(trust) => program
            .file("--ssl-certfile", &served.join("server.pem"))
            .file("--ssl-keyfile", &served.join("server.key"))
            .file("--ssl-ca-certfile", trust),
    };
    if let (true, Some(ip)) = (common.tls, around.advertised) {
        program = program.flag("--endpoint", ip);
    }
    if link.node_auth {
        program = program.arg("--enable-supernode-auth");
    }
    if let Some(port) = link.metrics_port {
        program = program.flag("--metrics-address", SocketAddr::new(link.fleet.ip(), port));
    }
    if let Some(checkpoints) = &link.training.checkpoints {
        let models = match Path::new(&checkpoints.directory).is_absolute() {
            true => place.named(&checkpoints.directory),
            false => state.join(&checkpoints.directory),
        };
        program = program.file("--models-dir", &models);
        directories.push(models);
    }
    let mut files = BTreeMap::new();
    if let Some(defaults) = run_defaults(&link.training).filter(|_| link.use_case.is_none()) {
        let path = place.etc().join(RUN_DEFAULTS);
        program = program.file("--run-defaults", &path);
        files.insert(path, defaults);
    }
    let mut token = state.join(ADMIN_TOKEN);
    if let Some(chosen) = &link.admin_token {
        token = place.etc().join(ADMIN_TOKEN);
        program = program.file("--admin-token-file", &token);
        files.insert(token.clone(), format!("{chosen}\n"));
    }
    let program = shared(program, common, around, place);
    let accounts = !(link.http.ip().is_loopback() && link.control.ip().is_loopback());
    let calls = Calls { address: reached(link.http), http: true, token: accounts.then_some(token) };
    let probe = Probe::SuperLink { fleet: reached(link.fleet), http: false, trust, calls: Some(calls) };
    let listens = vec![link.fleet, link.control, link.http];
    Recipe { files, directories, programs: vec![program], probe, listens }
}

/// The defaults of all runs: what somebody set. What nobody did is the app's own business.
fn run_defaults(training: &Training) -> Option<String> {
    let table: toml::Table = submission::said(training).map(|(key, value)| (key.to_owned(), value.clone())).collect();
    (!table.is_empty()).then(|| toml::to_string(&table).expect("a table of plain values is TOML"))
}

pub fn supernode(
    common: &Common,
    node: &SuperNodeSettings,
    around: &Surroundings,
    place: &Place,
) -> Result<Recipe, Trouble> {
    let found = coordinator(around)?;
    let state = place.service(Role::SuperNode);
    let config = place.etc().join(NODE_CONFIG);
    let mut program = named(Role::SuperNode, place)
        .arg("supernode")
        .flag("--superlink", &found.endpoint)
        .file("--state-dir", &state)
        .file("--node-config", &config)
        .flag("--isolation", isolation(common.isolation));
    program = match (common.tls, &found.trust) {
        (false, _) => program.arg("--insecure"),
        (true, Some(_)) => program.file("--root-certificates", &place.trust()),
        (true, None) => program,
    };
    if let Some(name) = &around.name {
        program = program.flag("--name", name);
    }
    if let Some(key) = &around.node_key {
        program = program.file("--auth-supernode-private-key", key);
    }
    if let Some(app) = &node.client_app {
        program = program.flag("--client-app", app);
    }
    if common.isolation == Isolation::Process {
        program = program.flag("--clientappio-api-address", SocketAddr::from((Ipv4Addr::LOCALHOST, APPS_OF_NODE)));
    }
    let program = shared(gpus(patience(program, node), node), common, around, place);
    Ok(Recipe {
        files: BTreeMap::from([(config, node_config(&node.node_config, found.shard))]),
        directories: vec![state.clone()],
        programs: vec![program],
        probe: Probe::SuperNode { socket: state.join(SOCKET) },
        listens: Vec::new(),
    })
}

/// No limit is no flag: 0 has two meanings.
fn patience(mut program: Program, node: &SuperNodeSettings) -> Program {
    if let Limit::At(retries) = node.max_retries {
        program = program.flag("--max-retries", retries);
    }
    if let Limit::At(seconds) = node.max_wait {
        program = program.flag("--max-wait-time", format!("{seconds}s"));
    }
    match node.backoff.exponential {
        true => program.flag("--backoff", "exponential").flag("--backoff-max", seconds(node.backoff.longest)),
        false => program.flag("--backoff", "fixed").flag("--backoff-first", seconds(node.backoff.longest)),
    }
}

fn gpus(program: Program, node: &SuperNodeSettings) -> Program {
    let Some(gpu) = &node.gpu else { return program.flag("--gpus", "none") };
    let program = match &gpu.visible {
        None => program.flag("--gpus", "all"),
        Some(list) => {
            program.flag("--cuda-visible-devices", list.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
        }
    };
    let missing = if gpu.fallback_to_cpu { "warn" } else { "refuse" };
    let program = program.flag("--gpu-missing", missing);
    // All of it is the default, and none of it is no setting.
    if gpu.memory_fraction > 0.0 && gpu.memory_fraction < 1.0 {
        program.flag("--gpu-memory-fraction", gpu.memory_fraction)
    } else {
        program
    }
}

/// What both have.
fn shared(program: Program, common: &Common, around: &Surroundings, place: &Place) -> Program {
    let mut program = program
        .flag("--keepalive-interval", seconds(common.keepalive.interval))
        .flag("--keepalive-timeout", seconds(common.keepalive.timeout))
        .flag("--log-level", level(common.log_level));
    if common.json_logs {
        program = program.flag("--log-format", "json");
    }
    if around.python {
        // The kernels of the appliance images support every rule of the sandbox.
        program = program.file("--python", &place.python()).flag("--sandbox", "required");
    }
    program
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs().max(1))
}

pub fn isolation(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Subprocess => "subprocess",
        Isolation::Process => "process",
    }
}
