//! Asks the SuperLink of a federation what only it knows: how many runs are at work, and from which nodes it has heard. Where it
//! cannot be reached from here, which is the usual thing outside of its cluster, nobody knows, and nothing is lost by it.

use std::collections::BTreeMap;
use std::time::Duration;

use trellis_client::Patience;
use trellis_plan::{Phase, ResourceId, Sighting};
use trellis_wire::call::ListNodes;

use crate::enrolment;
use crate::home::Home;

const CONNECT: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_secs(3);
const ONLINE: &str = "online";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    runs: Option<u32>,
    /// By name.
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Node {
    id: String,
    online: bool,
}

/// `None`: it does not answer.
pub async fn ask(home: &Home, tls: bool) -> Option<Told> {
    let patience = Patience { connect: CONNECT, answer: ANSWER, retries: Vec::new() };
    let superlink = enrolment::superlink(home, tls).ok()?.with_patience(patience);
    let runs = superlink.list_runs(None).await.ok()?;
    let at_work = runs.iter().filter(|run| run.finished_at.is_empty()).count();
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for node in superlink.call(&ListNodes {}).await.ok()?.nodes {
        let known = nodes.entry(node.name).or_default();
        // One that was there before under the same name says nothing of the one that is there now.
        if !known.online {
            *known = Node { id: node.id, online: node.status == ONLINE };
        }
    }
    Some(Told { runs: u32::try_from(at_work).ok(), nodes })
}

impl Told {
    /// Adds what it says to what was seen.
    pub fn add_to(&self, id: &ResourceId, sighting: &mut Sighting) {
        let Sighting::Present { facts, .. } = sighting else { return };
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
            facts.hindrance = Some("its pod is ready, and the SuperLink hears nothing of it".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use trellis_plan::{Addresses, Facts};

    use super::*;
    use crate::testing::id;

    fn ready() -> Sighting {
        let facts = Facts {
            phase: Phase::Ready,
            busy: None,
            draining: false,
            version: None,
            addresses: Addresses::default(),
            runs: None,
            round_ms: None,
            waits_for: None,
            shard: None,
            shards: None,
            node_id: None,
            since_ms: 0,
            instance: 1,
            hindrance: None,
        };
        Sighting::Present { generation: None, facts }
    }

    #[test]
    fn what_the_superlink_says_is_added_to_what_is_ready() {
        let node = |id: &str, online| Node { id: id.to_owned(), online };
        let nodes = [("cpu-0".to_owned(), node("7", true)), ("cpu-1".to_owned(), node("8", false))];
        let told = Told { runs: Some(2), nodes: nodes.into() };
        let of = |part: &str| {
            let mut sighting = ready();
            told.add_to(&id(part), &mut sighting);
            sighting.facts().cloned().expect("it is there")
        };
        let link = of("f/lab/coordinator");
        assert_eq!((link.runs, link.busy), (Some(2), Some(true)));
        let online = of("f/lab/node/cpu-0");
        assert_eq!((online.phase, online.node_id.as_deref()), (Phase::Ready, Some("7")));
        let silent = of("f/lab/node/cpu-1");
        assert!(silent.phase == Phase::Starting && silent.hindrance.is_some());
        assert_eq!(of("f/lab/node/cpu-2").phase, Phase::Ready, "it may not have said its name yet");
    }
}
