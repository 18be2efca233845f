//! The layouts of a round: that of the replies and that of the next model.

use std::sync::Arc;

use trellis_wire::records::Dtype;

use crate::element::is_float;
use crate::model::{Layout, Slot};

#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub input: Arc<Layout>,
    pub output: Arc<Layout>,
}

impl Frame {
    /// Arrays preserve their types.
    pub fn keeping(layout: &Arc<Layout>) -> Self {
        Self { input: Arc::clone(layout), output: Arc::clone(layout) }
    }

    /// As in Flower, arrays that are not floating-point become `float64`.
    pub fn widening(layout: &Arc<Layout>) -> Self {
        let widened = |slot: &Slot| Slot { dtype: widened(slot.dtype), ..slot.clone() };
        Self { input: Arc::clone(layout), output: Arc::new(Layout(layout.0.iter().map(widened).collect())) }
    }
}

fn widened(dtype: Dtype) -> Dtype {
    if is_float(dtype) { dtype } else { Dtype::F64 }
}
