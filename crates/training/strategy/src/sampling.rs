//! Which nodes a round asks, and how many must answer. Which nodes there are, and for how long one waits for more of
//! them, is not known here.

use std::sync::Arc;

use trellis_core::id::NodeId;
use trellis_wire::records::Dtype;

use crate::model::{Layout, Model, Slot, State};
use crate::random::{Purpose, Random};

/// How many of the nodes that are online take part in a phase; names and meaning as Flower's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Of the nodes online; 0: the phase is left out.
    pub fraction: f64,
    /// So many at least, whatever the fraction gives.
    pub min_nodes: usize,
    /// So many must be online before anybody is asked.
    pub min_available: usize,
    /// Share of nodes asked beyond those that are needed, so that the slowest of them need not be waited for.
    pub over_selection: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How many nodes are asked.
    pub ask: usize,
    /// How many answers end the phase.
    pub enough: usize,
}

impl Sampling {
    /// What is wrong with the numbers, all of it.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        if !(0.0..=1.0).contains(&self.fraction) {
            problems.push(format!("the fraction of nodes is {}: it must be 0 to 1", self.fraction));
        }
        if !(self.over_selection >= 0.0 && self.over_selection.is_finite()) {
            problems.push(format!("the over-selection is {}: it must be 0 or more", self.over_selection));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// How many to ask with so many online; `None`: more must come first.
    pub fn needed(&self, online: usize) -> Option<Wanted> {
        let enough = self.enough(online);
        if enough == 0 {
            return Some(Wanted { ask: 0, enough: 0 });
        }
        let more = (enough as f64 * self.over_selection).ceil() as usize;
        (self.missing(online) == 0).then_some(Wanted { ask: enough.saturating_add(more).min(online), enough })
    }

    /// How many nodes must come before anybody is asked.
    pub fn missing(&self, online: usize) -> usize {
        match self.enough(online) {
            0 => 0,
            enough => self.min_available.max(enough).saturating_sub(online),
        }
    }

    fn enough(&self, online: usize) -> usize {
        if self.fraction == 0.0 { 0 } else { self.min_nodes.max((online as f64 * self.fraction) as usize) }
    }
}

/// What nodes are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// For the first model.
    Init,
    Train,
    Evaluate,
}

/// `n` of the nodes, in the order of their ids. Decided by the arguments alone; the order of `nodes` does not matter.
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

/// The node whose turn it is in a round (from 1) when the model goes from one to the next; `None` if there is no node.
/// `order` remembers in which order nodes were first seen, and so keeps turns as nodes come and go.
pub fn cyclic(nodes: &[NodeId], order: &mut Vec<NodeId>, round: u64) -> Option<NodeId> {
    let mut newcomers: Vec<NodeId> = nodes.iter().copied().filter(|node| !order.contains(node)).collect();
    newcomers.sort_unstable();
    newcomers.dedup();
    order.extend(newcomers);
    let here: Vec<NodeId> = order.iter().copied().filter(|node| nodes.contains(node)).collect();
    let turn = round.saturating_sub(1).checked_rem(here.len() as u64)?;
    Some(here[turn as usize])
}

/// Under which name the order of [`cyclic`] is kept among the models of a [`State`].
const STATE_ORDER: &str = "cyclic-order";

/// The order that [`cyclic`] left in a state.
pub fn cyclic_order(state: &State) -> Vec<NodeId> {
    let ids = state.models.get(STATE_ORDER).and_then(|model| model.arrays.first());
    let id = |bytes: &[u8]| NodeId(u64::from_le_bytes(bytes.try_into().expect("cut by size")));
    ids.map(|ids| ids.chunks_exact(size_of::<u64>()).map(id).collect()).unwrap_or_default()
}

/// Ids of nodes do not fit a number of a state, so they are kept as an array.
pub fn keep_cyclic_order(state: &mut State, order: &[NodeId]) {
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
    fn how_many_are_asked_and_when() {
        let of = |fraction, min_nodes, min_available, over_selection| Sampling {
            fraction,
            min_nodes,
            min_available,
            over_selection,
        };
        let wanted = |ask, enough| Some(Wanted { ask, enough });
        for (sampling, online, expected, missing) in [
            (of(1.0, 2, 2, 0.0), 0, None, 2),
            (of(1.0, 2, 2, 0.0), 2, wanted(2, 2), 0),
            (of(1.0, 2, 2, 0.0), 7, wanted(7, 7), 0),
            (of(0.5, 2, 2, 0.0), 7, wanted(3, 3), 0),
            (of(0.1, 2, 2, 0.0), 7, wanted(2, 2), 0),
            (of(0.1, 2, 9, 0.0), 7, None, 2),
            (of(0.1, 9, 2, 0.0), 7, None, 2),
            (of(0.5, 2, 2, 0.3), 20, wanted(13, 10), 0),
            (of(0.5, 2, 2, 0.01), 20, wanted(11, 10), 0),
            (of(1.0, 2, 2, 0.5), 4, wanted(4, 4), 0),
            (of(0.0, 2, 2, 0.0), 0, wanted(0, 0), 0),
            // As Flower computes it: 0.29 * 100 is 28.999...
            (of(0.29, 1, 1, 0.0), 100, wanted(28, 28), 0),
        ] {
            assert_eq!(sampling.needed(online), expected, "{sampling:?} with {online}");
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
    fn every_node_is_as_likely_as_any_other() {
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
    fn turns_are_kept_as_nodes_come_and_go() {
        let mut order = Vec::new();
        let mut turn = |ids: &[u64], round| cyclic(&nodes(ids), &mut order, round).map(|node| node.0);
        assert_eq!(turn(&[30, 20], 1), Some(20));
        assert_eq!(turn(&[30, 20], 2), Some(30));
        assert_eq!(turn(&[10, 30, 20], 3), Some(10), "who comes later has a later turn");
        assert_eq!(turn(&[10, 30], 4), Some(10));
        assert_eq!(turn(&[10, 30, 20], 5), Some(30), "who comes back has the old turn");
        assert_eq!(turn(&[], 6), None);

        let mut state = State::default();
        assert!(cyclic_order(&state).is_empty());
        keep_cyclic_order(&mut state, &order);
        assert_eq!(cyclic_order(&state), nodes(&[20, 30, 10]));
    }
}
