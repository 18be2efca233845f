//! The state of an optimiser as arrays: read from a [`State`], written into the next one.
//!
//! It has the floating-point arrays of the model, in their types. 16-bit arrays are stored as `f32`: small steps would be lost
//! otherwise.

use std::sync::Arc;

use bytes::Bytes;
use trellis_wire::records::Dtype;

use crate::element::{is_float, narrow, widen};
use crate::layout::check_layout;
use crate::model::{Layout, Model, Slot, State};
use crate::optimiser::Rule;
use crate::work::{self, Span};

pub(crate) struct OptimiserState<'a> {
    names: &'static [&'static str],
    layout: Arc<Layout>,
    /// The position of each array of the model in the layout; integers have none.
    places: Vec<Option<usize>>,
    /// The models of the state by name; `None` before the first round.
    old: Option<Vec<&'a Model>>,
}

impl<'a> OptimiserState<'a> {
    /// Fails if the state does not match.
    pub fn new(rule: &Rule, model: &Layout, state: &'a State) -> Result<Self, String> {
        let mut remembered = 0..;
        let places = model.0.iter().map(|slot| if is_float(slot.dtype) { remembered.next() } else { None }).collect();
        let layout = Layout(model.0.iter().filter(|slot| is_float(slot.dtype)).map(stored_as).collect());
        let old = match state.models.is_empty() {
            true => None,
            false => Some(find_all(rule.state_names(), &layout, state)?),
        };
        Ok(Self { names: rule.state_names(), layout: Arc::new(layout), places, old })
    }

    /// Zeroed arrays for the next state.
    pub fn blank(&self) -> Vec<Vec<Vec<u8>>> {
        self.names.iter().map(|_| work::blank(&self.layout)).collect()
    }

    /// Their parts, by span of the model.
    pub fn cut<'b>(&self, spans: &[Span], blank: &'b mut [Vec<Vec<u8>>]) -> Vec<Vec<&'b mut [u8]>> {
        let cuts =
            blank.iter_mut().map(|arrays| work::cut(&self.layout, arrays, |slot| slot.dtype.bytes()).into_iter());
        let mut cuts: Vec<_> = cuts.collect();
        let of_span = |span: &Span| match self.places[span.array] {
            Some(_) => cuts.iter_mut().filter_map(Iterator::next).collect(),
            None => Vec::new(),
        };
        spans.iter().map(of_span).collect()
    }

    /// Reads the state of a span.
    pub fn read(&self, span: &Span, numbers: &mut Vec<Vec<f64>>) {
        let Some(place) = self.places[span.array] else { return };
        let dtype = self.layout.0[place].dtype;
        numbers.resize_with(self.names.len(), Vec::new);
        for (name, numbers) in numbers.iter_mut().enumerate() {
            numbers.clear();
            numbers.resize(span.len, 0.0);
            if let Some(old) = &self.old {
                widen(dtype, &old[name].arrays[place][span.bytes(dtype.bytes())], numbers);
            }
        }
    }

    /// Writes the state of a span.
    pub fn write(&self, span: &Span, numbers: &[Vec<f64>], cut: Vec<&mut [u8]>) {
        let Some(place) = self.places[span.array] else { return };
        for (numbers, bytes) in numbers.iter().zip(cut) {
            narrow(self.layout.0[place].dtype, numbers, bytes);
        }
    }

    pub fn next_state(&self, written: Vec<Vec<Vec<u8>>>) -> State {
        let model = |arrays: Vec<Vec<u8>>| Model {
            layout: Arc::clone(&self.layout),
            arrays: arrays.into_iter().map(Bytes::from).collect(),
        };
        let models = self.names.iter().zip(written).map(|(name, arrays)| ((*name).to_owned(), model(arrays)));
        State { models: models.collect(), ..State::default() }
    }
}

fn stored_as(slot: &Slot) -> Slot {
    let dtype = if slot.dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    Slot { dtype, ..slot.clone() }
}

fn find_all<'a>(names: &[&str], layout: &Layout, state: &'a State) -> Result<Vec<&'a Model>, String> {
    let mut errors = Vec::new();
    let mut found = Vec::new();
    for name in names {
        let Some(model) = state.models.get(*name) else {
            errors.push(format!("'{name}' is missing"));
            continue;
        };
        // The order of both derives from the order of the model.
        match check_layout(layout, &model.layout) {
            Ok(places) if places.is_sorted() => found.push(model),
            Ok(_) => errors.push(format!("'{name}': the arrays are in another order")),
            Err(difference) => errors.push(format!("'{name}': {difference}")),
        }
    }
    let unexpected = state.models.keys().filter(|name| !names.contains(&name.as_str()));
    errors.extend(unexpected.map(|name| format!("'{name}' belongs to another strategy")));
    if errors.is_empty() { Ok(found) } else { Err(errors.join("; ")) }
}
