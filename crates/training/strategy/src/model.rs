//! A model: named arrays in an order. And what a strategy remembers from round to round.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use trellis_wire::records::Dtype;

/// One array of a model, without its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
}

impl Slot {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }
}

/// What a model looks like: its arrays, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout(pub Vec<Slot>);

impl Layout {
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Slot::bytes).sum()
    }
}

/// A model in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    pub layout: Arc<Layout>,
    /// The elements of each array, little-endian, the last index fastest; as many bytes as the layout says.
    pub arrays: Vec<Bytes>,
}

/// What a strategy remembers from round to round; with the model it is all that a checkpoint needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Models beside the model: momentum, second moments. By name.
    pub models: BTreeMap<String, Model>,
    /// Single numbers: the clipping norm, steps taken. By name.
    pub numbers: BTreeMap<String, f64>,
}
