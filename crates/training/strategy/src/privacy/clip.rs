//! How far a reply is from the model it was made of, and the same reply pulled back to a limit. Block by block: neither
//! knows how large a model is.

use std::io;
use std::ops::Range;

use trellis_wire::records::Dtype;

use super::BLOCK_ELEMENTS;
use crate::element::{is_float, narrow, widen};
use crate::layout::check_names_and_shapes;
use crate::model::{Layout, Model};
use crate::numbers::Numbers;

/// Sums that run side by side, so that the processor need not wait for each addition. Part of the result's definition.
const LANES: usize = 8;

/// The L2 norm of reply minus model over all floating-point arrays together.
pub fn update_norm(model: &Model, reply: &dyn Numbers) -> io::Result<f64> {
    let mut squares = 0.0;
    let (mut buffer, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for (array, place) in places(model, reply)?.into_iter().enumerate() {
        let (Some(place), slot) = (place, &model.layout.0[array]) else { continue };
        for bytes in blocks(0..slot.bytes(), slot.dtype) {
            read(slot.dtype, &model.arrays[array][bytes.clone()], &mut old);
            read(slot.dtype, reply.part(place, bytes, &mut buffer)?, &mut new);
            squares += squared_distance(&old, &new);
        }
    }
    Ok(libm::sqrt(squares))
}

/// Where each array of the model is in the reply, if it is one of floating-point numbers in both. (What is an integer
/// in replies may be a float in the model, under `compat`.)
fn places(model: &Model, reply: &dyn Numbers) -> io::Result<Vec<Option<usize>>> {
    let layout = reply.layout();
    let places = check_names_and_shapes(&model.layout, layout).map_err(io::Error::other)?;
    let of_floats = |(slot, place): (&crate::model::Slot, usize)| {
        (is_float(slot.dtype) && layout.0[place].dtype == slot.dtype).then_some(place)
    };
    Ok(model.layout.0.iter().zip(places).map(of_floats).collect())
}

fn blocks(bytes: Range<usize>, dtype: Dtype) -> impl Iterator<Item = Range<usize>> {
    let block = BLOCK_ELEMENTS * dtype.bytes();
    bytes.clone().step_by(block).map(move |start| start..bytes.end.min(start + block))
}

pub(super) fn read(dtype: Dtype, bytes: &[u8], numbers: &mut Vec<f64>) {
    numbers.resize(bytes.len() / dtype.bytes(), 0.0);
    widen(dtype, bytes, numbers);
}

fn squared_distance(old: &[f64], new: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (old, new) in old.chunks(LANES).zip(new.chunks(LANES)) {
        for ((sum, old), new) in sums.iter_mut().zip(old).zip(new) {
            *sum += (new - old) * (new - old);
        }
    }
    sums.iter().sum()
}

/// A reply as it counts under privacy: model + factor * (reply - model) in floating-point arrays. Integer arrays are
/// those of the model: nothing limits what one client could tell by them, so nothing of them is taken.
pub struct Clipped<'a> {
    model: &'a Model,
    reply: &'a dyn Numbers,
    places: Vec<Option<usize>>,
    factor: f64,
}

impl<'a> Clipped<'a> {
    /// The factor comes from [`super::Privacy::factor`]. An error if the reply is not one of this model.
    pub fn new(model: &'a Model, reply: &'a dyn Numbers, factor: f64) -> io::Result<Self> {
        Ok(Self { model, reply, places: places(model, reply)?, factor })
    }
}

impl Numbers for Clipped<'_> {
    fn layout(&self) -> &Layout {
        &self.model.layout
    }

    /// The part is one of whole elements.
    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let dtype = self.model.layout.0[array].dtype;
        let model = &self.model.arrays[array];
        let place = match self.places[array] {
            // A factor of zero: the update was too large for its norm to be told.
            Some(place) if self.factor != 0.0 => place,
            _ => return Ok(&model[bytes]),
        };
        if self.factor == 1.0 {
            return self.reply.part(place, bytes, buffer);
        }
        buffer.resize(bytes.len(), 0);
        let (mut theirs, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for block in blocks(bytes.clone(), dtype) {
            read(dtype, &model[block.clone()], &mut old);
            read(dtype, self.reply.part(place, block.clone(), &mut theirs)?, &mut new);
            for (new, old) in new.iter_mut().zip(&old) {
                *new = old + self.factor * (*new - old);
            }
            narrow(dtype, &new, &mut buffer[block.start - bytes.start..block.end - bytes.start]);
        }
        Ok(buffer)
    }
}
