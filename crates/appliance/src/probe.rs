//! Asks the programs of a VM whether they work, and how they are. Every question has a limit: a program that hangs holds up
//! nobody.

mod supernode;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use trellis_client::fleet::{Fleet, FleetError, FleetOptions};
use trellis_client::{Error, ListNodes, NodeKey, Patience, Security, SuperLink, Target, Token, Trust, WhoAmI};
use trellis_core::id::NodeId;

pub use supernode::drain;

use crate::readiness::Seen;
use crate::recipe::{Calls, Probe};

/// The programs are on this machine; it may be busy with training.
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(4);
/// What a node says before it is connected; each try in vain is a line.
const SEARCHED_BYTES: u64 = 16 << 20;
const ANNOUNCEMENT: &str = "SuperNode ID: ";
/// A node that nobody has: who answers that it does not know it has understood the question.
const NOBODY: NodeId = NodeId(2);

/// How much a SuperLink is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What a node asks first. Each time the SuperLink notes that it does not know the one who asks.
    Fleet,
    /// What people ask; and whether somebody listens for nodes.
    Calls,
}

/// How the programs are. `key` is one that no SuperLink knows.
pub async fn ask(probe: &Probe, depth: Depth, key: &Arc<NodeKey>) -> Seen {
    match probe {
        Probe::Nobody => Seen::default(),
        Probe::SuperLink { fleet, http, trust, calls } => {
            let Some(security) = security(trust.as_deref()) else { return Seen::default() };
            let mut seen = Seen::default();
            let answered = match calls {
                Some(calls) => runs(calls, security.clone(), &mut seen).await,
                None => false,
            };
            seen.serving = match depth {
                Depth::Calls if answered => listens(*fleet).await,
                _ => serves(*fleet, *http, security, key).await,
            };
            if seen.serving { seen } else { Seen::default() }
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

fn target(address: SocketAddr, security: Security, token: Option<Token>) -> Target {
    Target { host: address.ip().to_string(), port: address.port(), security, token }
}

/// The Fleet API as nodes use it: handshake and a call.
async fn serves(address: SocketAddr, http: bool, security: Security, key: &Arc<NodeKey>) -> bool {
    let options = FleetOptions {
        transport: Some(Probe::transport(http)),
        connect_timeout: CONNECT,
        answer_timeout: ANSWER,
        ..FleetOptions::default()
    };
    let fleet = Fleet::new(target(address, security, None), Arc::clone(key), options);
    match fleet.send_heartbeat(NOBODY, 60.0).await {
        Ok(_) | Err(FleetError::NotKnown { .. } | FleetError::RunOver { .. }) => true,
        Err(FleetError::Refused { is_fault, .. }) => !is_fault,
        Err(FleetError::Unreachable { why, .. } | FleetError::Misdirected { why, .. }) => {
            tracing::debug!(%address, "the Fleet API does not answer: {why}");
            false
        }
    }
}

async fn listens(address: SocketAddr) -> bool {
    tokio::time::timeout(CONNECT, TcpStream::connect(address)).await.is_ok_and(|opened| opened.is_ok())
}

fn caller(calls: &Calls, security: Security) -> SuperLink {
    let said = calls.token.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let token = said.and_then(|text| Token::parse(&text).ok());
    let patience = Patience { connect: CONNECT, answer: ANSWER, retries: Vec::new() };
    let superlink = SuperLink::new(target(calls.address, security, token)).with_patience(patience);
    superlink.over(Probe::transport(calls.http))
}

/// What it does, and whether it answered at all.
async fn runs(calls: &Calls, security: Security, seen: &mut Seen) -> bool {
    let superlink = caller(calls, security);
    // An official one knows none of our calls.
    let ours = match superlink.call(&WhoAmI {}).await {
        Ok(_) => true,
        Err(Error::Refused { status, .. }) => status != 404 && status != 503,
        Err(_) => false,
    };
    let listed = superlink.list_runs(None).await;
    let answered = ours || listed.is_ok();
    if let Ok(runs) = listed {
        let is_over = |run: &trellis_wire::proto::Run| {
            !run.finished_at.is_empty() || run.status.as_ref().is_some_and(|status| status.status == "finished")
        };
        let at_work = runs.iter().filter(|run| !is_over(run)).count();
        seen.runs = u32::try_from(at_work).ok();
        seen.busy = Some(at_work > 0);
    }
    if ours && let Ok(nodes) = superlink.call(&ListNodes {}).await {
        let online = nodes.nodes.iter().filter(|node| node.status == "online").count();
        seen.nodes = u32::try_from(online).ok();
    }
    answered
}

/// What the SuperLink called an official node last. A line that is still being written says nothing yet.
fn announced(log: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(log).ok()?.take(SEARCHED_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let id = |line: &str| {
        let after = line.split_once(ANNOUNCEMENT)?.1;
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        (end > 0).then(|| after[..end].to_owned())
    };
    whole.filter_map(id).next_back()
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
            assert_eq!(ask(&probe, depth, &key).await, Seen::default());
        }
        let lost = Probe::SuperNode { socket: directory.path().join("none.sock") };
        assert_eq!(ask(&lost, Depth::Fleet, &key).await, Seen::default());
    }
}
