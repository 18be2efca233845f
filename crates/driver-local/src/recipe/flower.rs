//! The recipes of the official programs, 1.25 to 1.42: `flower-superlink`, `flower-supernode`, and `flower-superexec` beside
//! them where apps are to run apart. What differs between releases is in `trellis_flower::changes`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use trellis_client::fleet::Transport;
use trellis_flower::Release;
use trellis_flower::changes::{
    APPS_BY_HTTP, APPS_IN_DATABASE, AppApi, CONTROL_BY_HTTP, FLEET_BY_HTTP, NO_SUPEREXEC_PLUGINS,
};
use trellis_plan::{Addresses, CoordinatorSpec, NodeSpec};
use trellis_spec::{Gpu, GpuVendor, Isolation, Persistence};

use super::{Place, Probe, Program, Recipe, node_config};
use crate::packages;

const NODE_CONFIG: &str = "node-config.toml";
const DATABASE: &str = "superlink.db";
/// Where releases that keep apps outside the database put them.
const APPS: &str = "apps";
const FLOWER_HOME: &str = "flower-home";
/// Where the log of a start begins, and in which file: what was said before it was said by another.
const LOG_NOTE: &str = "log-from";
/// The log is where this writes to.
const NOTE: &str = r#"{ stat -Lc %s /proc/self/fd/3 && readlink /proc/self/fd/3; } 3>&1 >"$0""#;

/// Where the programs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// On this machine, found or installed before each start.
    Machine,
    /// In an image that brings them.
    Image,
}

pub fn coordinator(
    release: Release,
    spec: &CoordinatorSpec,
    place: &Place,
    programs: Programs,
) -> Result<Recipe, Vec<String>> {
    let ports = OnePort::of(release, spec, place);
    let mut program = Program::new(path(programs, place, "flower-superlink"));
    program = listening(program, release, &ports, place).flag("--isolation", isolation(spec.isolation));
    program = match &place.tls {
        None => program.arg("--insecure"),
        Some(tls) => {
            let missing = || vec!["a coordinator with TLS needs a certificate, its key and its authority".to_owned()];
            let (served, trust) = tls.served.as_ref().zip(tls.trust.as_ref()).ok_or_else(missing)?;
            let program = program.flag("--ssl-certfile", &served.certificate).flag("--ssl-keyfile", &served.key);
            program.flag("--ssl-ca-certfile", trust)
        }
    };
    if let Persistence::Disk { path, .. } = &spec.persistence {
        let state = path.as_ref().unwrap_or(&place.state);
        program = program.flag("--database", state.join(DATABASE));
        if release < APPS_IN_DATABASE {
            program = program.flag("--storage-dir", state.join(APPS));
        }
    }
    if spec.node_auth {
        program = program.arg("--enable-supernode-auth");
    }
    let mut all = vec![said(program, &spec.extra_args)];
    if spec.isolation == Isolation::Process {
        let address = match release.app_api() {
            AppApi::Shared => place.reached(ports.http).to_string(),
            AppApi::OwnGrpc | AppApi::OwnHttp => place.app_address().to_string(),
        };
        let trust = (release.app_api() == AppApi::Shared).then(|| place.trust()).flatten();
        all.push(superexec(release, "serverapp", address, trust, programs, place));
    }
    let probe = Probe::FlowerSuperLink {
        address: place.reached(ports.control),
        transport: control_transport(release),
        tls: place.tls.is_some(),
        trust: place.trust().map(Path::to_owned),
        addresses: addresses(release, &ports, place),
    };
    let environment = |program| surroundings(program, place, programs, &spec.env);
    Ok(Recipe {
        files: BTreeMap::new(),
        before: provide(release, spec.python.as_deref(), programs, place),
        programs: all.into_iter().map(environment).collect(),
        after: Vec::new(),
        probe,
        version: Some(release.to_string()),
    })
}

pub fn node(release: Release, spec: &NodeSpec, place: &Place, programs: Programs) -> Result<Recipe, Vec<String>> {
    let settings = place.directory.join(NODE_CONFIG);
    let mut program = Program::new(path(programs, place, "flower-supernode"))
        .flag("--superlink", &spec.coordinator)
        .flag("--node-config", &settings)
        .flag("--isolation", isolation(spec.isolation));
    program = match release >= APPS_BY_HTTP {
        true => program.flag("--host", Ipv4Addr::LOCALHOST.to_string()).flag("--port", place.ports.app.to_string()),
        false => program.flag("--clientappio-api-address", place.app_address().to_string()),
    };
    program = match (&place.tls, place.trust()) {
        (None, _) => program.arg("--insecure"),
        (Some(_), Some(trust)) => program.flag("--root-certificates", trust),
        (Some(_), None) => program,
    };
    if let Some(key) = &place.node_key {
        program = program.flag("--auth-supernode-private-key", key);
    }
    let mut all = vec![said(program, &spec.extra_args)];
    if spec.isolation == Isolation::Process {
        // Apps of a node are on its machine, and without TLS.
        all.push(superexec(release, "clientapp", place.app_address().to_string(), None, programs, place));
    }
    let note = place.directory.join(LOG_NOTE);
    let mut before = provide(release, spec.python.as_deref(), programs, place);
    before.push(Program::new("/bin/sh").flag("-c", NOTE).arg(&note));
    let environment = |program| gpus(surroundings(program, place, programs, &spec.env), spec.gpu.as_ref(), place);
    Ok(Recipe {
        files: BTreeMap::from([(settings, node_config::toml(&spec.node_config))]),
        before,
        programs: all.into_iter().map(environment).collect(),
        after: Vec::new(),
        probe: Probe::FlowerSuperNode { note },
        version: Some(release.to_string()),
    })
}

/// Where the coordinator is reached, by those on this machine.
fn addresses(release: Release, ports: &OnePort, place: &Place) -> Addresses {
    let at = |port: u16| Some(place.reached(port).to_string());
    let (app, http) = match release.app_api() {
        AppApi::Shared => (at(ports.http), at(ports.http)),
        AppApi::OwnGrpc | AppApi::OwnHttp => (Some(place.app_address().to_string()), None),
    };
    Addresses { fleet: at(ports.fleet), control: at(ports.control), app, http }
}

/// Ports of a coordinator, where several interfaces may have become one.
#[derive(Debug, Clone, Copy)]
struct OnePort {
    fleet: u16,
    control: u16,
    http: u16,
}

impl OnePort {
    fn of(release: Release, spec: &CoordinatorSpec, place: &Place) -> OnePort {
        let (ports, wanted) = (&place.ports, &spec.endpoints);
        let control_is_http = release >= CONTROL_BY_HTTP;
        // The document may know the one port by the name it had before.
        let http = match (wanted.http, wanted.fleet, wanted.control) {
            (None, Some(_), _) if release >= FLEET_BY_HTTP => ports.fleet,
            (None, _, Some(_)) if control_is_http => ports.control,
            _ => ports.http,
        };
        OnePort {
            fleet: if release >= FLEET_BY_HTTP { http } else { ports.fleet },
            control: if control_is_http { http } else { ports.control },
            http,
        }
    }
}

fn listening(program: Program, release: Release, ports: &OnePort, place: &Place) -> Program {
    let fleet = |program: Program| program.flag("--fleet-api-address", place.listens(ports.fleet).to_string());
    let control = |program: Program| program.flag("--control-api-address", place.listens(ports.control).to_string());
    let http = |program: Program, host: IpAddr, port: u16| {
        program.flag("--host", host.to_string()).flag("--port", port.to_string())
    };
    match release.app_api() {
        AppApi::OwnGrpc => control(fleet(program)).flag("--serverappio-api-address", place.app_address().to_string()),
        AppApi::OwnHttp => http(control(fleet(program)), Ipv4Addr::LOCALHOST.into(), place.ports.app),
        AppApi::Shared if release >= FLEET_BY_HTTP => http(program, place.listen, ports.http),
        AppApi::Shared => http(fleet(program), place.listen, ports.http),
    }
}

/// The launcher of apps that `--isolation process` expects somebody to run.
fn superexec(
    release: Release,
    kind: &str,
    address: String,
    trust: Option<&Path>,
    programs: Programs,
    place: &Place,
) -> Program {
    let program =
        Program::new(path(programs, place, "flower-superexec")).flag(release.superexec_address_flag(), address);
    let program = match trust {
        Some(trust) => program.flag("--root-certificates", trust),
        None => program.arg("--insecure"),
    };
    if release < NO_SUPEREXEC_PLUGINS { program.flag("--plugin-type", kind) } else { program }
}

/// What the document says itself comes last: it has the last word.
fn said(program: Program, extra_args: &[String]) -> Program {
    extra_args.iter().fold(program, |program, arg| program.arg(arg))
}

/// A home of its own, no word to others about it, and output that can be read at once.
fn surroundings(program: Program, place: &Place, programs: Programs, env: &BTreeMap<String, String>) -> Program {
    let mut program = program
        .env("FLWR_HOME", place.state.join(FLOWER_HOME))
        .env("FLWR_TELEMETRY_ENABLED", "0")
        .env("FLWR_DISABLE_UPDATE_CHECK", "1")
        .env("PYTHONUNBUFFERED", "1");
    if programs == Programs::Machine {
        program = program.env("PATH", search_path(place));
    }
    env.iter().fold(program, |program, (name, value)| program.env(name, value))
}

/// The programs start each other by name.
fn search_path(place: &Place) -> OsString {
    let mut path = OsString::from(packages::programs(place));
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

/// A node that did not ask for GPUs has none. Those of AMD are not managed: apps see what the node sees.
fn gpus(program: Program, gpu: Option<&Gpu>, place: &Place) -> Program {
    let list = || place.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    match gpu {
        None => program.env("CUDA_VISIBLE_DEVICES", ""),
        Some(gpu) if gpu.vendor == GpuVendor::Nvidia && !place.gpus.is_empty() => {
            program.env("CUDA_VISIBLE_DEVICES", list())
        }
        Some(_) => program,
    }
}

/// How users and the control plane call the SuperLink.
fn control_transport(release: Release) -> Transport {
    if release < CONTROL_BY_HTTP { Transport::Grpc } else { Transport::Http }
}

fn provide(release: Release, python: Option<&Path>, programs: Programs, place: &Place) -> Vec<Program> {
    match programs {
        Programs::Machine => vec![packages::provide(release, python, place)],
        Programs::Image => Vec::new(),
    }
}

fn path(programs: Programs, place: &Place, name: &str) -> PathBuf {
    match programs {
        Programs::Machine => packages::programs(place).join(name),
        Programs::Image => PathBuf::from(name),
    }
}

fn isolation(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Subprocess => "subprocess",
        Isolation::Process => "process",
    }
}

#[cfg(test)]
mod tests;
