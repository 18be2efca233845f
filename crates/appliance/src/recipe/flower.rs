//! The recipes of the official programs, 1.25 to 1.42: `flower-superlink`, `flower-supernode`, and `flower-superexec` beside
//! them where apps are to run apart. What changed between releases is in `trellis_flower::changes`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use trellis_flower::Release;
use trellis_flower::changes::{
    APPS_BY_HTTP, APPS_IN_DATABASE, AppApi, CONTROL_BY_HTTP, FLEET_BY_HTTP, NO_SUPEREXEC_PLUGINS,
};

use super::trellis::isolation;
use super::{
    Calls, NODE_CONFIG, Probe, Program, Recipe, Surroundings, coordinator, flower_version, named, node_config, reached,
};
use crate::place::Place;
use crate::settings::{Common, Isolation, Limit, LogLevel, Role, SuperLinkSettings, SuperNodeSettings};
use crate::trouble::Trouble;

/// Where apps connect.
const APPS_OF_SUPERLINK: u16 = 9091;
const APPS_OF_NODE: u16 = 9094;

pub fn superlink(common: &Common, link: &SuperLinkSettings, place: &Place) -> Recipe {
    let release = release(common);
    let state = place.service(Role::SuperLink);
    let database = state.join(&link.database);
    let mut program = official(Role::SuperLink, "flower-superlink", common, place);
    // What was said for the Fleet API is meant, also where it is part of the HTTP API now.
    let fleet = link.fleet;
    let control = if release >= FLEET_BY_HTTP { fleet } else { link.control };
    let apps = SocketAddr::from((Ipv4Addr::LOCALHOST, APPS_OF_SUPERLINK));
    if release >= FLEET_BY_HTTP {
        program = program.flag("--host", fleet.ip()).flag("--port", fleet.port());
    } else {
        program = program.flag("--fleet-api-address", fleet);
        program = match release.app_api() {
            AppApi::OwnGrpc => program.flag("--control-api-address", control).flag("--serverappio-api-address", apps),
            AppApi::OwnHttp => {
                program.flag("--control-api-address", control).flag("--host", apps.ip()).flag("--port", apps.port())
            }
            AppApi::Shared => program.flag("--host", control.ip()).flag("--port", control.port()),
        };
    }
    program = program.flag("--isolation", isolation(common.isolation)).file("--database", &database);
    if release < APPS_IN_DATABASE {
        program = program.file("--storage-dir", &state.join("apps"));
    }
    let served = place.served(&link.certificates);
    let trust = common.tls.then(|| served.join("ca.crt"));
    program = match &trust {
        None => program.arg("--insecure"),
        Some(trust) => program
            .file("--ssl-certfile", &served.join("server.pem"))
            .file("--ssl-keyfile", &served.join("server.key"))
            .file("--ssl-ca-certfile", trust),
    };
    if link.node_auth {
        program = program.arg("--enable-supernode-auth");
    }
    let mut programs = vec![program];
    if common.isolation == Isolation::Process {
        let (address, trust) =
            if release >= CONTROL_BY_HTTP { (reached(control), trust.as_deref()) } else { (apps, None) };
        programs.push(superexec(release, "serverapp", address, trust, common, place));
    }
    let calls = Calls { address: reached(control), http: release >= CONTROL_BY_HTTP, token: None };
    let http = release >= FLEET_BY_HTTP;
    let probe = Probe::SuperLink { fleet: reached(fleet), http, trust, calls: Some(calls) };
    let mut directories = vec![state.clone()];
    directories.extend(database.parent().filter(|parent| **parent != state).map(ToOwned::to_owned));
    let listens = if control == fleet { vec![fleet] } else { vec![fleet, control] };
    Recipe { files: BTreeMap::new(), directories, programs, probe, listens }
}

pub fn supernode(
    common: &Common,
    node: &SuperNodeSettings,
    around: &Surroundings,
    place: &Place,
) -> Result<Recipe, Trouble> {
    let found = coordinator(around)?;
    let release = release(common);
    let config = place.etc().join(NODE_CONFIG);
    let log = place.logs().join("supernode.log");
    let apps = SocketAddr::from((Ipv4Addr::LOCALHOST, APPS_OF_NODE));
    let mut program = official(Role::SuperNode, "flower-supernode", common, place)
        .flag("--superlink", &found.endpoint)
        .file("--node-config", &config)
        .flag("--isolation", isolation(common.isolation));
    program = match release >= APPS_BY_HTTP {
        true => program.flag("--host", apps.ip()).flag("--port", apps.port()),
        false => program.flag("--clientappio-api-address", apps),
    };
    program = match (common.tls, &found.trust) {
        (false, _) => program.arg("--insecure"),
        (true, Some(_)) => program.file("--root-certificates", &place.trust()),
        (true, None) => program,
    };
    // There 0 means once: what is without end is not said.
    if let Limit::At(retries) = node.max_retries {
        program = program.flag("--max-retries", retries);
    }
    if let Limit::At(seconds) = node.max_wait {
        program = program.flag("--max-wait-time", seconds);
    }
    if let Some(key) = &around.node_key {
        program = program.file("--auth-supernode-private-key", key);
    }
    let visible = node.gpu.as_ref().map(|gpu| gpu.visible.as_ref());
    program = match visible {
        None => program.env("CUDA_VISIBLE_DEVICES", ""),
        Some(None) => program,
        Some(Some(list)) => {
            program.env("CUDA_VISIBLE_DEVICES", list.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
        }
    };
    program.log = Some(log.clone());
    let mut programs = vec![program];
    if common.isolation == Isolation::Process {
        programs.push(superexec(release, "clientapp", apps, None, common, place));
    }
    Ok(Recipe {
        files: BTreeMap::from([(config, node_config(&node.node_config, found.shard))]),
        directories: vec![place.service(Role::SuperNode), place.logs()],
        programs,
        probe: Probe::FlowerSuperNode { log },
        listens: Vec::new(),
    })
}

/// The launcher of apps that `--isolation process` expects somebody to run.
fn superexec(
    release: Release,
    kind: &str,
    address: SocketAddr,
    trust: Option<&Path>,
    common: &Common,
    place: &Place,
) -> Program {
    let role = if kind == "serverapp" { Role::SuperLink } else { Role::SuperNode };
    let mut program = official(role, "flower-superexec", common, place).flag(release.superexec_address_flag(), address);
    program.name = "superexec".to_owned();
    program.description = "Launcher of Flower apps".to_owned();
    program = match trust {
        Some(trust) => program.file("--root-certificates", trust),
        None => program.arg("--insecure"),
    };
    if release < NO_SUPEREXEC_PLUGINS { program.flag("--plugin-type", kind) } else { program }
}

/// A home of its own, no word to others about it, and output that can be read at once.
fn official(role: Role, program: &str, common: &Common, place: &Place) -> Program {
    let programs = place.flower(flower_version(common));
    let level = match common.log_level {
        LogLevel::Debug => "DEBUG",
        LogLevel::Info => "INFO",
        LogLevel::Warning => "WARNING",
        LogLevel::Error => "ERROR",
    };
    // Its connection is known by what it writes at this level.
    let level = if role == Role::SuperNode && level != "DEBUG" { "INFO" } else { level };
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
    let mut official = named(role, place)
        .env("FLWR_HOME", place.service(role).join("flower-home").display().to_string())
        .env("FLWR_LOG_LEVEL", level)
        .env("FLWR_TELEMETRY_ENABLED", "0")
        .env("FLWR_DISABLE_UPDATE_CHECK", "1")
        .env("PYTHONUNBUFFERED", "1")
        .env("PATH", path);
    official.path = programs.join(program);
    official
}

/// Versions are checked when the context is read.
fn release(common: &Common) -> Release {
    Release::read(flower_version(common)).unwrap_or(Release::NEWEST)
}
