//! Ports of parts. A part keeps its ports, and gets another one only if another process listens on it.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::num::NonZeroU16;

use trellis_plan::{NodeSpec, ResourceId, Spec};
use trellis_spec::{Endpoints, Isolation, Runtime};

use crate::recipe::Ports;
use trellis_digest::fnv1a;

/// Below the range for outgoing connections, which could take a free port at any time.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
const LAST: u16 = FIRST + COUNT - 1;

struct Request<'a> {
    name: &'static str,
    port: &'a mut u16,
    fixed: Option<NonZeroU16>,
}

/// Assigns the ports of a part. It keeps its ports, unless another process listens on one by now; a port that the document fixes is
/// never changed. No program of the part may be running. Returns all errors.
pub fn assign(
    home: &str,
    id: &ResourceId,
    spec: &Spec,
    had: Ports,
    listen: IpAddr,
    taken: &BTreeSet<u16>,
) -> Result<Ports, Vec<String>> {
    let mut ports = had;
    let mut problems = Vec::new();
    let mut own = BTreeSet::new();
    for request in requests(spec, &mut ports) {
        let is_free = |port: u16| !own.contains(&port) && !taken.contains(&port) && is_free(listen, port).is_ok();
        match request.fixed {
            Some(port) => match is_free_of_others(listen, port.get(), &own) {
                Ok(()) => *request.port = port.get(),
                Err(why) => problems.push(format!("port {port} for {} cannot be used: {why}", request.name)),
            },
            None if *request.port != 0 && is_free(*request.port) => {}
            None => match choose(home, id, request.name, is_free) {
                Some(port) => *request.port = port,
                None => problems
                    .push(format!("no port is free for {}: all from {FIRST} to {LAST} are in use", request.name)),
            },
        }
        own.insert(*request.port);
    }
    if problems.is_empty() { Ok(ports) } else { Err(problems) }
}

/// All assigned ports of a part.
pub fn list(ports: &Ports) -> impl Iterator<Item = u16> {
    let Ports { fleet, control, app, http, health, metrics } = *ports;
    [fleet, control, app, http, health, metrics].into_iter().filter(|port| *port != 0)
}

fn requests<'a>(spec: &Spec, ports: &'a mut Ports) -> Vec<Request<'a>> {
    let Ports { fleet, control, app, http, health, metrics } = ports;
    let free = |name, port| Request { name, port, fixed: None };
    match spec {
        Spec::Coordinator(spec) => {
            let Endpoints { fleet: f, control: c, app: a, http: h, .. } = spec.endpoints;
            let mut requests = vec![
                Request { name: "fleet", port: fleet, fixed: f },
                Request { name: "control", port: control, fixed: c },
                Request { name: "app", port: app, fixed: a },
                Request { name: "http", port: http, fixed: h },
            ];
            requests.extend((spec.runtime != Runtime::Trellis).then_some(free("health", health)));
            requests.extend(spec.metrics.then_some(free("metrics", metrics)));
            requests
        }
        Spec::Node(spec) => {
            let mut requests = Vec::new();
            requests.extend(serves_apps(spec).then_some(free("app", app)));
            requests.extend((spec.runtime != Runtime::Trellis).then_some(free("health", health)));
            requests.extend(spec.metrics.then_some(free("metrics", metrics)));
            requests
        }
    }
}

/// Our SuperNode chooses the port for its apps itself, unless they run outside of it.
pub fn serves_apps(spec: &NodeSpec) -> bool {
    spec.runtime != Runtime::Trellis || spec.isolation == Isolation::Process
}

/// A part starts its search at a port derived from its name, so that a part that is created again often gets the same ports.
/// Parts of the same name in other homes start elsewhere, since both may search at the same time.
fn choose(home: &str, id: &ResourceId, name: &str, is_free: impl Fn(u16) -> bool) -> Option<u16> {
    let start = fnv1a(format!("{home} {id} {name}").as_bytes()) % u64::from(COUNT);
    let start = u16::try_from(start).unwrap_or_default();
    (0..COUNT).map(|step| FIRST + (start + step) % COUNT).find(|port| is_free(*port))
}

fn is_free(listen: IpAddr, port: u16) -> io::Result<()> {
    TcpListener::bind(SocketAddr::new(listen, port)).map(drop)
}

fn is_free_of_others(listen: IpAddr, port: u16, own: &BTreeSet<u16>) -> Result<(), String> {
    if own.contains(&port) {
        return Err("the document assigns it twice".to_owned());
    }
    match is_free(listen, port) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(match listener(port) {
            Some(process) => {
                format!("{process} listens on it; stop that process, or choose another port in the document")
            }
            None => "another process listens on it; choose another port in the document".to_owned(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// The process that listens on a port, if it is visible to this user: `python3 (4711)`.
fn listener(port: u16) -> Option<String> {
    let sockets: BTreeSet<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let pids = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let has_it = |pid: &String| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        links.any(|link| link.to_str().is_some_and(|link| sockets.contains(link)))
    };
    let pid = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).find(has_it)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("{} ({pid})", name.trim()))
}

/// Inodes of the sockets that listen on a port, from a table of the kernel.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTENS: &str = "0A";
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let found = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (found == port && *state == LISTENS).then(|| (*inode).to_owned())
    };
    table.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn the_process_that_listens_is_named() {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let why = is_free_of_others(LOOPBACK, port, &BTreeSet::new()).unwrap_err();
        assert!(why.contains(&format!("({})", std::process::id())), "{why}");
        drop(listener);
        assert_eq!(is_free_of_others(LOOPBACK, port, &BTreeSet::new()), Ok(()));
    }

    #[test]
    fn a_part_starts_its_search_at_its_own_port() {
        let id = |text: &str| ResourceId::try_from(text.to_owned()).expect("an id");
        let one = choose("home", &id("a/b/coordinator"), "fleet", |_| true).unwrap();
        assert_eq!(choose("home", &id("a/b/coordinator"), "fleet", |_| true), Some(one));
        assert_eq!(
            choose("home", &id("a/b/coordinator"), "fleet", |port| port != one).map(|port| port != one),
            Some(true)
        );
        assert_ne!(choose("home", &id("a/c/coordinator"), "fleet", |_| true), Some(one));
        assert_eq!(choose("home", &id("a/b/coordinator"), "fleet", |_| false), None);
    }
}
