//! Queries the SuperLink of a federation for runs and nodes. Outside of its cluster it is usually not reachable; then these facts
//! stay unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_client::Timeouts;
use trellis_plan::{Phase, Presence, ResourceId};
use trellis_wire::call::ListNodes;

use crate::client_files::ClientFiles;
use crate::enrolment;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
const ONLINE: &str = "online";

/// Runs and nodes of a SuperLink.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SuperLinkReport {
    runs: Option<u32>,
    /// By name.
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Node {
    id: String,
    online: bool,
}

/// `None`: the SuperLink does not respond.
pub async fn query(files: &ClientFiles, tls: bool) -> Option<SuperLinkReport> {
    let timeouts = Timeouts { connect: CONNECT_TIMEOUT, answer: RESPONSE_TIMEOUT, retries: Vec::new() };
    let superlink = enrolment::superlink(files, tls).ok()?.with_timeouts(timeouts);
    let runs = superlink.list_runs(None).await.ok()?;
    let active = runs.iter().filter(|run| run.finished_at.is_empty()).count();
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for node in superlink.call(&ListNodes {}).await.ok()?.nodes {
        let known = nodes.entry(node.name).or_default();
        // An earlier node with the same name says nothing about the current one.
        if !known.online {
            *known = Node { id: node.id, online: node.status == ONLINE };
        }
    }
    Some(SuperLinkReport { runs: u32::try_from(active).ok(), nodes })
}

impl SuperLinkReport {
    /// Adds the reported facts to the observed state of a part.
    pub fn add_to(&self, id: &ResourceId, presence: &mut Presence) {
        let Presence::Present { facts, .. } = presence else { return };
        if facts.phase != Phase::Ready {
            return;
        }
        if id.node_key().is_none() {
            facts.runs = self.runs;
            facts.busy = self.runs.map(|runs| runs > 0);
            return;
        }
        let Some(node) = self.nodes.get(&id.part.name()) else { return };
        facts.node_id = Some(node.id.clone());
        if !node.online {
            facts.phase = Phase::Starting;
            facts.waiting_for = Some("its pod is ready, but the SuperLink reports the node as offline".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use trellis_plan::{Addresses, Facts};

    use super::*;
    use crate::testing::id;

    fn ready() -> Presence {
        let facts = Facts {
            phase: Phase::Ready,
            busy: None,
            draining: false,
            version: None,
            addresses: Addresses::default(),
            runs: None,
            round_ms: None,
            required_nodes: None,
            shard: None,
            shards: None,
            node_id: None,
            since_ms: 0,
            instance: 1,
            waiting_for: None,
        };
        Presence::Present { generation: None, facts }
    }

    #[test]
    fn reported_facts_are_added_to_ready_parts() {
        let node = |id: &str, online| Node { id: id.to_owned(), online };
        let nodes = [("cpu-0".to_owned(), node("7", true)), ("cpu-1".to_owned(), node("8", false))];
        let report = SuperLinkReport { runs: Some(2), nodes: nodes.into() };
        let of = |part: &str| {
            let mut presence = ready();
            report.add_to(&id(part), &mut presence);
            presence.facts().cloned().expect("it exists")
        };
        let link = of("f/lab/coordinator");
        assert_eq!((link.runs, link.busy), (Some(2), Some(true)));
        let online = of("f/lab/node/cpu-0");
        assert_eq!((online.phase, online.node_id.as_deref()), (Phase::Ready, Some("7")));
        let offline = of("f/lab/node/cpu-1");
        assert!(offline.phase == Phase::Starting && offline.waiting_for.is_some());
        assert_eq!(of("f/lab/node/cpu-2").phase, Phase::Ready, "a node that the SuperLink does not know yet");
    }
}
