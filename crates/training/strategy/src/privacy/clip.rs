//! The norm of an update, and an update that is clipped to a norm. Both work block by block, so that the model may have any
//! size.

use std::io;
use std::ops::Range;

use trellis_wire::records::Dtype;

use super::BLOCK_ELEMENTS;
use crate::element::{is_float, narrow, widen};
use crate::layout::check_names_and_shapes;
use crate::model::{Layout, Model};
use crate::numbers::Numbers;

/// Parallel sums, which hide the latency of additions. Their number affects the result, so it must not change.
const LANES: usize = 8;

/// The L2 norm of reply minus model over all floating-point arrays.
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

/// The position of each array of the model in the reply, if it is floating-point in both. (With `compat` an integer array of
/// replies is a float array in the model.)
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

/// A clipped reply: model + factor * (reply - model) in floating-point arrays. Integer arrays are those of the model: nothing
/// bounds the influence of one client on them, so the reply's are ignored.
pub struct Clipped<'a> {
    model: &'a Model,
    reply: &'a dyn Numbers,
    places: Vec<Option<usize>>,
    factor: f64,
}

impl<'a> Clipped<'a> {
    /// `factor` is the result of [`super::Privacy::factor`]. Fails if the reply does not match the model.
    pub fn new(model: &'a Model, reply: &'a dyn Numbers, factor: f64) -> io::Result<Self> {
        Ok(Self { model, reply, places: places(model, reply)?, factor })
    }
}

impl Numbers for Clipped<'_> {
    fn layout(&self) -> &Layout {
        &self.model.layout
    }

    /// The part consists of whole elements.
    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let dtype = self.model.layout.0[array].dtype;
        let model = &self.model.arrays[array];
        let place = match self.places[array] {
            // The factor is zero if the norm of the update overflowed.
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
