//! Probes the programs of a VM. Every probe has a timeout.

mod superlink;
mod supernode;

use std::path::Path;
use std::sync::Arc;

use trellis_client::{NodeKey, Security, Trust, announced_node};

use crate::readiness::Observed;
use crate::recipe::Probe;

/// Maximum length of the log before a node connects. Each failed attempt adds a line.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// Depth of the probe of a SuperLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Includes a call of a node. The SuperLink logs each of these as a call of an unknown node.
    Fleet,
    /// A handshake of a node and the calls of a user. If the calls fail, the call of a node too.
    Calls,
}

/// Probes the programs. `key` is unknown to all SuperLinks; `before` is the last observation.
pub async fn ask(probe: &Probe, depth: Depth, key: &Arc<NodeKey>, before: &Observed) -> Observed {
    match probe {
        Probe::None => Observed::default(),
        Probe::SuperLink { fleet, http, trust, calls } => {
            let Some(security) = security(trust.as_deref()) else { return Observed::default() };
            let asked = superlink::Endpoints { fleet: *fleet, http: *http, security, calls: calls.as_ref() };
            superlink::ask(&asked, depth, key, before).await
        }
        Probe::SuperNode { socket } => supernode::ask(socket).await.unwrap_or_default(),
        Probe::FlowerSuperNode { log } => {
            let log = log.clone();
            let found = tokio::task::spawn_blocking(move || announced(&log)).await.ok().flatten();
            Observed { serving: found.is_some(), node_id: found, ..Observed::default() }
        }
    }
}

/// `None` if the trust bundle cannot be read.
fn security(trust: Option<&Path>) -> Option<Security> {
    match trust {
        None => Some(Security::Plaintext),
        Some(bundle) => Some(Security::Tls(Trust::bundle(bundle).ok()?)),
    }
}

/// Last node id in the log of an official node. An incomplete line is ignored.
fn announced(log: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(log).ok()?.take(MAX_LOG_BYTES).read_to_end(&mut text).ok()?;
    announced_node(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_official_node_is_connected_after_a_complete_log_line() {
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
    async fn an_unused_port_does_not_serve() {
        let directory = tempfile::tempdir().expect("a directory");
        let key = Arc::new(NodeKey::generate(&directory.path().join("key"), "probe").expect("a key"));
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
        let probe = Probe::SuperLink { fleet: free, http: false, trust: None, calls: None };
        for depth in [Depth::Fleet, Depth::Calls] {
            assert_eq!(ask(&probe, depth, &key, &Observed::default()).await, Observed::default());
        }
        let lost = Probe::SuperNode { socket: directory.path().join("none.sock") };
        assert_eq!(ask(&lost, Depth::Fleet, &key, &Observed::default()).await, Observed::default());
    }
}
