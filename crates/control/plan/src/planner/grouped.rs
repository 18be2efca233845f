//! Groups equal messages about nodes of a pool into one message.

use std::collections::BTreeMap;

use trellis_spec::Name;

use super::Step;
use crate::report::Weight;
use crate::resource::NodeKey;

/// Names in one message; the remaining nodes are counted.
const MAX_NAMES: usize = 4;

#[derive(Default)]
pub(super) struct GroupedReport {
    nodes: BTreeMap<(Weight, Name, String), Vec<NodeKey>>,
}

impl GroupedReport {
    pub fn add(&mut self, weight: Weight, node: &NodeKey, text: impl Into<String>) {
        self.nodes.entry((weight, node.pool.clone(), text.into())).or_default().push(node.clone());
    }

    pub fn into_step(self, step: &mut Step) {
        for ((weight, pool, text), mut nodes) in self.nodes {
            nodes.sort();
            match &nodes[..] {
                [node] => step.report(weight, node.to_string(), text),
                nodes => step.report(weight, format!("pool {pool}"), format!("{}: {text}", names(nodes))),
            }
        }
    }
}

fn names(nodes: &[NodeKey]) -> String {
    let shown: Vec<String> = nodes.iter().take(MAX_NAMES).map(NodeKey::to_string).collect();
    match nodes.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
