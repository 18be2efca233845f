//! Says for many nodes at once what would be the same sentence for each.

use std::collections::BTreeMap;

use trellis_spec::Name;

use super::Step;
use crate::report::Weight;
use crate::resource::NodeKey;

/// Names that a sentence holds; the others are a number.
const MOST_NAMES: usize = 4;

#[derive(Default)]
pub(super) struct Crowd {
    nodes: BTreeMap<(Weight, Name, String), Vec<NodeKey>>,
}

impl Crowd {
    pub fn tell(&mut self, weight: Weight, node: &NodeKey, text: impl Into<String>) {
        self.nodes.entry((weight, node.pool.clone(), text.into())).or_default().push(node.clone());
    }

    pub fn into_step(self, step: &mut Step) {
        for ((weight, pool, text), mut nodes) in self.nodes {
            nodes.sort();
            match &nodes[..] {
                [node] => step.tell(weight, node.to_string(), text),
                nodes => step.tell(weight, format!("pool {pool}"), format!("{}: {text}", names(nodes))),
            }
        }
    }
}

fn names(nodes: &[NodeKey]) -> String {
    let shown: Vec<String> = nodes.iter().take(MOST_NAMES).map(NodeKey::to_string).collect();
    match nodes.len().saturating_sub(MOST_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
