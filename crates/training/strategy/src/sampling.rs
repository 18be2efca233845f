//! Which nodes a round selects, and how many must answer. This module does not know which nodes exist and how long to wait for
//! more.

use std::sync::Arc;

use trellis_core::id::NodeId;
use trellis_wire::records::Dtype;

use crate::model::{Layout, Model, Slot, State};
use crate::random::{Purpose, Random};

/// How many online nodes take part in a phase. Names and meaning are Flower's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// The fraction of online nodes; 0 skips the phase.
    pub fraction: f64,
    /// The minimum number of selected nodes.
    pub min_nodes: usize,
    /// The number of nodes that must be online before the selection.
    pub min_available: usize,
    /// The fraction of nodes selected in addition to the required ones, so that the slowest need not be awaited.
    pub over_selection: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSize {
    /// The number of selected nodes.
    pub selected: usize,
    /// The number of answers that end the phase.
    pub required: usize,
}

impl Sampling {
    /// Validates the parameters; returns all errors.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if !(0.0..=1.0).contains(&self.fraction) {
            errors.push(format!("the fraction of nodes is {}: it must be 0 to 1", self.fraction));
        }
        if !(self.over_selection >= 0.0 && self.over_selection.is_finite()) {
            errors.push(format!("the over-selection is {}: it must be 0 or more", self.over_selection));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The sample size with this many nodes online; `None` if too few are online.
    pub fn size(&self, online: usize) -> Option<SampleSize> {
        let required = self.required(online);
        if required == 0 {
            return Some(SampleSize { selected: 0, required: 0 });
        }
        let more = (required as f64 * self.over_selection).ceil() as usize;
        (self.missing(online) == 0)
            .then_some(SampleSize { selected: required.saturating_add(more).min(online), required })
    }

    /// How many more nodes must come online before the selection.
    pub fn missing(&self, online: usize) -> usize {
        match self.required(online) {
            0 => 0,
            required => self.min_available.max(required).saturating_sub(online),
        }
    }

    fn required(&self, online: usize) -> usize {
        if self.fraction == 0.0 { 0 } else { self.min_nodes.max((online as f64 * self.fraction) as usize) }
    }
}

/// The purpose of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The request for initial parameters.
    Init,
    Train,
    Evaluate,
}

/// Selects `n` nodes, sorted by id. Depends on the arguments only, not on the order of `nodes`.
pub fn sample(nodes: &[NodeId], n: usize, seed: u64, round: u64, phase: Phase) -> Vec<NodeId> {
    let purpose = match phase {
        Phase::Init => Purpose::SampleInit,
        Phase::Train => Purpose::SampleTrain,
        Phase::Evaluate => Purpose::SampleEvaluate,
    };
    let mut chosen = nodes.to_vec();
    chosen.sort_unstable();
    Random::new(&seed.into(), purpose, round).choose(&mut chosen, n);
    chosen.truncate(n);
    chosen.sort_unstable();
    chosen
}

/// The node whose turn it is in a round (counted from 1) if the model is passed from node to node; `None` without nodes.
/// `order` records the order in which nodes were first seen, so turns are stable as nodes come and go.
pub fn cyclic(nodes: &[NodeId], order: &mut Vec<NodeId>, round: u64) -> Option<NodeId> {
    let mut newcomers: Vec<NodeId> = nodes.iter().copied().filter(|node| !order.contains(node)).collect();
    newcomers.sort_unstable();
    newcomers.dedup();
    order.extend(newcomers);
    let here: Vec<NodeId> = order.iter().copied().filter(|node| nodes.contains(node)).collect();
    let turn = round.saturating_sub(1).checked_rem(here.len() as u64)?;
    Some(here[turn as usize])
}

/// The key of the order of [`cyclic`] among the models of a [`State`].
const STATE_ORDER: &str = "cyclic-order";

/// Reads the order of [`cyclic`] from a state.
pub fn cyclic_order(state: &State) -> Vec<NodeId> {
    let ids = state.models.get(STATE_ORDER).and_then(|model| model.arrays.first());
    let id = |bytes: &[u8]| NodeId(u64::from_le_bytes(bytes.try_into().expect("cut by size")));
    ids.map(|ids| ids.chunks_exact(size_of::<u64>()).map(id).collect()).unwrap_or_default()
}

/// Stores the order as an array: node ids exceed the precision of a state's numbers.
pub fn store_cyclic_order(state: &mut State, order: &[NodeId]) {
    let slot = Slot { name: STATE_ORDER.into(), dtype: Dtype::U64, shape: vec![order.len()] };
    let ids: Vec<u8> = order.iter().flat_map(|node| node.0.to_le_bytes()).collect();
    let model = Model { layout: Arc::new(Layout(vec![slot])), arrays: vec![ids.into()] };
    state.models.insert(STATE_ORDER.into(), model);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u64]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn sample_sizes() {
        let of = |fraction, min_nodes, min_available, over_selection| Sampling {
            fraction,
            min_nodes,
            min_available,
            over_selection,
        };
        let size = |selected, required| Some(SampleSize { selected, required });
        for (sampling, online, expected, missing) in [
            (of(1.0, 2, 2, 0.0), 0, None, 2),
            (of(1.0, 2, 2, 0.0), 2, size(2, 2), 0),
            (of(1.0, 2, 2, 0.0), 7, size(7, 7), 0),
            (of(0.5, 2, 2, 0.0), 7, size(3, 3), 0),
            (of(0.1, 2, 2, 0.0), 7, size(2, 2), 0),
            (of(0.1, 2, 9, 0.0), 7, None, 2),
            (of(0.1, 9, 2, 0.0), 7, None, 2),
            (of(0.5, 2, 2, 0.3), 20, size(13, 10), 0),
            (of(0.5, 2, 2, 0.01), 20, size(11, 10), 0),
            (of(1.0, 2, 2, 0.5), 4, size(4, 4), 0),
            (of(0.0, 2, 2, 0.0), 0, size(0, 0), 0),
            // As Flower computes it: 0.29 * 100 is 28.999...
            (of(0.29, 1, 1, 0.0), 100, size(28, 28), 0),
        ] {
            assert_eq!(sampling.size(online), expected, "{sampling:?} with {online}");
            assert_eq!(sampling.missing(online), missing, "{sampling:?} with {online}");
        }
        assert_eq!(of(1.5, 2, 2, -1.0).check().unwrap_err().len(), 2);
        assert_eq!(of(f64::NAN, 2, 2, f64::INFINITY).check().unwrap_err().len(), 2);
        assert_eq!(of(1.0, 2, 2, 0.2).check(), Ok(()));
    }

    #[test]
    fn a_sample_depends_on_its_arguments_and_not_on_the_order_of_nodes() {
        let (up, down) = (nodes(&[1, 2, 3, 4, 5, 6, 7, 8]), nodes(&[8, 7, 6, 5, 4, 3, 2, 1]));
        let of = |nodes: &[NodeId], seed, round, phase| sample(nodes, 4, seed, round, phase);
        let first = of(&up, 7, 1, Phase::Train);
        assert_eq!(of(&down, 7, 1, Phase::Train), first);
        assert!(first.is_sorted() && first.len() == 4);
        let others = [of(&up, 7, 2, Phase::Train), of(&up, 8, 1, Phase::Train), of(&up, 7, 1, Phase::Evaluate)];
        assert!(others.iter().all(|other| *other != first), "{first:?} {others:?}");
        assert_eq!(sample(&up, 100, 7, 1, Phase::Train), up);
        assert!(sample(&[], 3, 7, 1, Phase::Init).is_empty());
    }

    #[test]
    fn all_nodes_are_equally_likely() {
        let all = nodes(&[3, 14, 15, 92, 65]);
        let mut chosen = std::collections::BTreeMap::new();
        for round in 0..10_000 {
            for node in sample(&all, 2, 1, round, Phase::Train) {
                *chosen.entry(node).or_insert(0) += 1;
            }
        }
        // 4,000 expected, with a deviation of about 49.
        assert!(chosen.values().all(|&times| (3800..4200).contains(&times)), "{chosen:?}");
    }

    #[test]
    fn turns_are_stable_as_nodes_come_and_go() {
        let mut order = Vec::new();
        let mut turn = |ids: &[u64], round| cyclic(&nodes(ids), &mut order, round).map(|node| node.0);
        assert_eq!(turn(&[30, 20], 1), Some(20));
        assert_eq!(turn(&[30, 20], 2), Some(30));
        assert_eq!(turn(&[10, 30, 20], 3), Some(10), "a new node is appended");
        assert_eq!(turn(&[10, 30], 4), Some(10));
        assert_eq!(turn(&[10, 30, 20], 5), Some(30), "a returning node keeps its turn");
        assert_eq!(turn(&[], 6), None);

        let mut state = State::default();
        assert!(cyclic_order(&state).is_empty());
        store_cyclic_order(&mut state, &order);
        assert_eq!(cyclic_order(&state), nodes(&[20, 30, 10]));
    }
}
