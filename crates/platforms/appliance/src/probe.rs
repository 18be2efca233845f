//! Asks the programs of a VM whether they work, and how they are. Every question has a limit: a program that hangs holds up
//! nobody.

mod superlink;
mod supernode;

use std::path::Path;
use std::sync::Arc;

use trellis_client::{NodeKey, Security, Trust, announced_node};

use crate::readiness::Seen;
use crate::recipe::Probe;

/// What a node says before it is connected; each try in vain is a line.
const SEARCHED_BYTES: u64 = 16 << 20;

/// How much a SuperLink is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What a node asks first. Each time the SuperLink notes that it does not know the one who asks.
    Fleet,
    /// What people ask, and the handshake that every node makes; a node's own question where people get no answer.
    Calls,
}

/// How the programs are. `key` is one that no SuperLink knows, `before` is what was seen last.
pub async fn ask(probe: &Probe, depth: Depth, key: &Arc<NodeKey>, before: &Seen) -> Seen {
    match probe {
        Probe::Nobody => Seen::default(),
        Probe::SuperLink { fleet, http, trust, calls } => {
            let Some(security) = security(trust.as_deref()) else { return Seen::default() };
            let asked = superlink::Asked { fleet: *fleet, http: *http, security, calls: calls.as_ref() };
            superlink::ask(&asked, depth, key, before).await
        }
        Probe::SuperNode { socket } => supernode::ask(socket).await.unwrap_or_default(),
        Probe::FlowerSuperNode { log } => {
            let log = log.clone();
            let found = tokio::task::spawn_blocking(move || announced(&log)).await.ok().flatten();
            Seen { serving: found.is_some(), node_id: found, ..Seen::default() }
        }
    }
}

/// `None`: whom to trust cannot be found out, so nobody is.
fn security(trust: Option<&Path>) -> Option<Security> {
    match trust {
        None => Some(Security::Plaintext),
        Some(bundle) => Some(Security::Tls(Trust::bundle(bundle).ok()?)),
    }
}

/// What the SuperLink called an official node last. A line that is still being written says nothing yet.
fn announced(log: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(log).ok()?.take(SEARCHED_BYTES).read_to_end(&mut text).ok()?;
    announced_node(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_official_node_is_connected_when_it_says_so_in_a_whole_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        for (text, expected) in [
            ("INFO : Starting Flower SuperNode\n", None),
            ("INFO : SuperNode ID: 12", None),
            ("INFO : SuperNode ID: 12\u{1b}[0m\nmore\n", Some("12")),
            ("SuperNode ID: 1\nSuperNode ID: 2\n", Some("2")),
        ] {
            std::fs::write(&log, text).expect("written");
            assert_eq!(announced(&log).as_deref(), expected, "{text:?}");
        }
        assert_eq!(announced(&directory.path().join("none")), None);
    }

    #[tokio::test]
    async fn nobody_at_the_port_serves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let key = Arc::new(NodeKey::generate(&directory.path().join("key"), "probe").expect("a key"));
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
        let probe = Probe::SuperLink { fleet: free, http: false, trust: None, calls: None };
        for depth in [Depth::Fleet, Depth::Calls] {
            assert_eq!(ask(&probe, depth, &key, &Seen::default()).await, Seen::default());
        }
        let lost = Probe::SuperNode { socket: directory.path().join("none.sock") };
        assert_eq!(ask(&lost, Depth::Fleet, &key, &Seen::default()).await, Seen::default());
    }
}
