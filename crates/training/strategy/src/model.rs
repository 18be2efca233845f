//! Models, which are named arrays in an order, and the state of a strategy between rounds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use trellis_wire::records::Dtype;

/// The description of an array.
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

/// The arrays of a model in their order.
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
    /// The elements of each array, little-endian and row-major; the layout defines their size.
    pub arrays: Vec<Bytes>,
}

/// The state of a strategy between rounds. Together with the model, it is the content of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Additional models, such as momentum and second moments, by name.
    pub models: BTreeMap<String, Model>,
    /// Numbers, such as the clipping norm, by name.
    pub numbers: BTreeMap<String, f64>,
}
