//! Ports of parts: chosen free, kept as long as the part is there, and given up only where somebody else has taken them.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::num::NonZeroU16;

use trellis_plan::{NodeSpec, ResourceId, Spec};
use trellis_spec::{Endpoints, Isolation, Runtime};

use crate::recipe::Ports;
use trellis_digest::fnv1a;

/// Below those that systems give to outgoing connections: what is free here stays free.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port of a part.
struct Wanted<'a> {
    name: &'static str,
    port: &'a mut u16,
    fixed: Option<NonZeroU16>,
}

/// Gives a part the ports that it needs. Those that it has are kept, unless somebody else listens there by now; one that
/// the document fixes is never exchanged. Nobody of the part may be running. Errors are everything that stands in the way.
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
    for wanted in wanted(spec, &mut ports) {
        let is_free = |port: u16| !own.contains(&port) && !taken.contains(&port) && is_free(listen, port).is_ok();
        match wanted.fixed {
            Some(port) => match is_free_of_others(listen, port.get(), &own) {
                Ok(()) => *wanted.port = port.get(),
                Err(why) => problems.push(format!("port {port} for {} cannot be used: {why}", wanted.name)),
            },
            None if *wanted.port != 0 && is_free(*wanted.port) => {}
            None => match choose(home, id, wanted.name, is_free) {
                Some(port) => *wanted.port = port,
                None => problems.push(format!("no port is free for {}: all from {FIRST} on are taken", wanted.name)),
            },
        }
        own.insert(*wanted.port);
    }
    if problems.is_empty() { Ok(ports) } else { Err(problems) }
}

/// All that a part has.
pub fn list(ports: &Ports) -> impl Iterator<Item = u16> {
    let Ports { fleet, control, app, http, health, metrics } = *ports;
    [fleet, control, app, http, health, metrics].into_iter().filter(|port| *port != 0)
}

fn wanted<'a>(spec: &Spec, ports: &'a mut Ports) -> Vec<Wanted<'a>> {
    let Ports { fleet, control, app, http, health, metrics } = ports;
    let free = |name, port| Wanted { name, port, fixed: None };
    match spec {
        Spec::Coordinator(spec) => {
            let Endpoints { fleet: f, control: c, app: a, http: h, .. } = spec.endpoints;
            let mut wanted = vec![
                Wanted { name: "fleet", port: fleet, fixed: f },
                Wanted { name: "control", port: control, fixed: c },
                Wanted { name: "app", port: app, fixed: a },
                Wanted { name: "http", port: http, fixed: h },
            ];
            wanted.extend((spec.runtime != Runtime::Trellis).then_some(free("health", health)));
            wanted.extend(spec.metrics.then_some(free("metrics", metrics)));
            wanted
        }
        Spec::Node(spec) => {
            let mut wanted = Vec::new();
            wanted.extend(serves_apps(spec).then_some(free("app", app)));
            wanted.extend((spec.runtime != Runtime::Trellis).then_some(free("health", health)));
            wanted.extend(spec.metrics.then_some(free("metrics", metrics)));
            wanted
        }
    }
}

/// Ours finds a port by itself, unless others must know it.
pub fn serves_apps(spec: &NodeSpec) -> bool {
    spec.runtime != Runtime::Trellis || spec.isolation == Isolation::Process
}

/// The same part begins to look at the same place: after it was made anew it is often where it was. Its namesake in another
/// home begins elsewhere: both may be looking at this moment.
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
        return Err("the document uses it twice".to_owned());
    }
    match is_free(listen, port) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(match listener(port) {
            Some(who) => format!("{who} listens there; end it, or write another port into the document"),
            None => "somebody listens there; write another port into the document".to_owned(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// Who listens on a port, as far as it can be seen: `python3 (4711)`.
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

/// The sockets that listen on a port, in a table of the kernel.
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
    fn who_listens_is_named() {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let why = is_free_of_others(LOOPBACK, port, &BTreeSet::new()).unwrap_err();
        assert!(why.contains(&format!("({})", std::process::id())), "{why}");
        drop(listener);
        assert_eq!(is_free_of_others(LOOPBACK, port, &BTreeSet::new()), Ok(()));
    }

    #[test]
    fn the_same_part_looks_at_the_same_place_first() {
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
