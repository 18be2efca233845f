//! The state of the default ports, and the processes that use them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use crate::facts::{Holder, Port, PortState};

/// The default ports of Trellis and Flower.
const DEFAULT_PORTS: [(u16, &str); 4] =
    [(7766, "page and API"), (8000, "SuperLink, HTTP"), (9092, "SuperLink, nodes"), (9093, "SuperLink, flwr")];
/// The state in the kernel's tables of sockets.
const LISTENING: &str = "0A";

pub fn ports() -> Vec<Port> {
    let state = |number| match TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
        Ok(_) => PortState::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => PortState::Taken(holder(number)),
        Err(error) => PortState::Refused(error.to_string()),
    };
    DEFAULT_PORTS.map(|(number, purpose)| Port { number, purpose, state: state(number) }).to_vec()
}

fn holder(port: u16) -> Option<Holder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: HashMap<u16, Vec<String>> = tables.iter().flat_map(|text| listening(text)).fold(
        HashMap::new(),
        |mut all: HashMap<u16, Vec<String>>, (port, inode)| {
            all.entry(port).or_default().push(format!("socket:[{inode}]"));
            all
        },
    );
    let wanted = sockets.get(&port)?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| wanted.iter().any(|socket| link.as_os_str() == socket.as_str()))
    };
    let pid = pids.into_iter().find(holds)?;
    Some(Holder { pid, name: name(pid) })
}

/// The name of its program file: processes can change their own name.
fn name(pid: u32) -> String {
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.and_then(|path| Some(path.file_name()?.to_str()?.trim_end_matches(" (deleted)").to_owned()));
    program.unwrap_or_else(|| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned())
}

/// Listening ports with the inodes of their sockets, from the kernel's table.
fn listening(text: &str) -> Vec<(u16, String)> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (*state == LISTENING).then(|| (port, (*inode).to_owned()))
    };
    text.lines().skip(1).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_listens_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = holder(port).unwrap();
        assert_eq!(found.pid, std::process::id());
        assert!(found.name.starts_with("trellis"), "{found:?}");
        drop(listener);
        assert_eq!(holder(port), None);
    }

    #[test]
    fn the_kernels_table() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 4711 1 0 100 0 0 10 0\n\
            1: 0100007F:1F40 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000 0 4712 1 0 100 0 0 10 0\n";
        assert_eq!(listening(text), [(8000, "4711".to_owned())]);
    }
}
