//! The fields of the coordinator. Its site is resolved later, when all sites are known.

use std::collections::BTreeMap;

use trellis_flower::Isolation;

use crate::federation::{Coordinator, Endpoints, Name, Persistence, Resources};
use crate::kind::{Choice, ListOf, Scalar, arguments, bytes, choice, cpu, environment, name, path, port, word};
use crate::object::Object;
use crate::problem::Place;

pub(crate) const ISOLATIONS: [Choice<Isolation>; 2] =
    [("subprocess", Isolation::Subprocess), ("process", Isolation::Process)];
pub(crate) const MEDIA: [Choice<Medium>; 2] = [("disk", Medium::Disk), ("memory", Medium::Memory)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Disk,
    Memory,
}

pub(crate) struct CoordinatorDraft {
    pub coordinator: Coordinator,
    pub site: Option<Name>,
    pub site_at: Place,
    pub place: Place,
    pub fit: Fit,
}

/// Places of fields that only some drivers support.
pub(crate) struct Fit {
    pub image: Option<Place>,
    pub framework: Option<Place>,
    pub python: Option<Place>,
    pub env: Option<Place>,
    pub extra_args: Option<Place>,
}

impl Fit {
    pub fn of(object: &Object<'_>) -> Self {
        let at = |name: &str| object.has(name).then(|| object.at(name));
        Self {
            image: at("image"),
            framework: at("framework"),
            python: at("python"),
            env: at("env"),
            extra_args: at("extraArgs"),
        }
    }

    /// For programs: empty fields are not set.
    pub fn of_program(object: &Object<'_>, env: &BTreeMap<String, String>, extra_args: &[String]) -> Self {
        let fit = Self::of(object);
        let (env, extra_args) = (!env.is_empty(), !extra_args.is_empty());
        Self { env: fit.env.filter(|_| env), extra_args: fit.extra_args.filter(|_| extra_args), ..fit }
    }
}

pub(crate) fn read(object: &mut Object<'_>) -> CoordinatorDraft {
    let site = object.optional("site", name("cloud"), "Its site; the first one by default.");
    let coordinator = Coordinator {
        site: 0,
        image: object.optional("image", image(), "Container or VM image, instead of the default of the runtime."),
        endpoints: object.object("endpoints", "Ports and addresses.", endpoints),
        persistence: object.object("persistence", "Storage of runs, nodes, messages and models.", persistence),
        isolation: object.or("isolation", choice(&ISOLATIONS), "subprocess", ISOLATION_HELP),
        resources: object.object("resources", "Limits; none by default.", resources),
        env: object.any("env", environment(), "Environment variables. Only administrators see their values."),
        python: object.optional("python", path("/usr/bin/python3"), PYTHON_HELP),
        extra_args: object.any("extraArgs", arguments(), "Further arguments of the SuperLink, after all others."),
    };
    let fit = Fit::of_program(object, &coordinator.env, &coordinator.extra_args);
    CoordinatorDraft { coordinator, site, site_at: object.at("site"), place: object.place().clone(), fit }
}

const ISOLATION_HELP: &str =
    "How ServerApps are started: by the SuperLink (subprocess), or by a separate SuperExec (process).";
pub(crate) const PYTHON_HELP: &str =
    "Interpreter of Python apps, if the driver starts processes; the first on PATH by default.";

pub(crate) fn image() -> Scalar<String> {
    word("the name of an image", "flwr/superlink:1.42.0", "^[^\\s]+$", |_| true)
}

fn endpoints(object: &mut Object<'_>) -> Endpoints {
    let endpoints = Endpoints {
        fleet: object.optional("fleet", port(), "Port for SuperNodes; a free one by default."),
        control: object.optional("control", port(), "Port for `flwr run` and other commands; a free one by default."),
        app: object.optional("app", port(), "Port for ServerApps and SuperExecs; a free one by default."),
        http: object.optional("http", port(), "Port for all of these by HTTP; a free one by default."),
        advertise: object.any(
            "advertise",
            ListOf(host()),
            "Names and addresses under which others reach it; its certificate covers them.",
        ),
    };
    refuse_shared_ports(object, &endpoints);
    endpoints
}

fn refuse_shared_ports(object: &Object<'_>, endpoints: &Endpoints) {
    let ports =
        [("fleet", endpoints.fleet), ("control", endpoints.control), ("app", endpoints.app), ("http", endpoints.http)];
    for (index, (name, port)) in ports.iter().enumerate().filter(|(_, (_, port))| port.is_some()) {
        if let Some((other, _)) = ports[..index].iter().find(|(_, other)| other == port) {
            object.at(name).refuse(format!("the same port as {other}"), "give each its own port, or leave one out");
        }
    }
}

/// A host name or an address, without scheme and port.
fn host() -> Scalar<String> {
    let pattern = r"^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+)$";
    word("a host name or address, without a port", "link.example.org", pattern, |text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let edges = |c: char| c.is_ascii_alphanumeric();
        let name = text.chars().all(plain) && text.starts_with(edges) && text.ends_with(edges) && !text.contains("..");
        name || text.parse::<std::net::Ipv6Addr>().is_ok()
    })
}

fn persistence(object: &mut Object<'_>) -> Persistence {
    let medium = object.or("medium", choice(&MEDIA), "disk", "disk survives restarts and crashes; memory does not.");
    let path = object.optional("path", path("/var/lib/trellis"), "Directory; chosen by the driver by default.");
    let size_bytes = object.optional("size", bytes(), "Size of the volume, if the driver creates one.");
    match medium {
        Medium::Disk => Persistence::Disk { path, size_bytes },
        Medium::Memory => {
            object.refuse_idle(&["path", "size"], "with medium: memory");
            Persistence::Memory
        }
    }
}

pub(crate) fn resources(object: &mut Object<'_>) -> Resources {
    Resources {
        cpu_millis: object.optional("cpu", cpu(), "Processors."),
        memory_bytes: object.optional("memory", bytes(), "Memory."),
        disk_bytes: object.optional("disk", bytes(), "Disk."),
    }
}
