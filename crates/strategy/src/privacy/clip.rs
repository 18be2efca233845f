//! How far a reply is from the model it was made of, and the same reply pulled back to a limit. Block by block: neither
//! knows how large a model is.

use std::io;
use std::ops::Range;

use super::floats::{decode, encode, is_float};
use crate::model::{Layout, Model};
use crate::numbers::Numbers;

/// Elements that are worked on at a time; two blocks of `f64` fit the inner caches of any machine.
const BLOCK_ELEMENTS: usize = 8192;
/// Sums that run side by side, so that the processor need not wait for each addition. Part of the result's definition.
const LANES: usize = 8;

/// The L2 norm of reply minus model over all floating-point arrays together. The reply has the layout of the model.
pub fn update_norm(model: &Model, reply: &dyn Numbers) -> io::Result<f64> {
    let mut squares = 0.0;
    let (mut buffer, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for (array, slot) in model.layout.0.iter().enumerate().filter(|(_, slot)| is_float(slot.dtype)) {
        for bytes in blocks(slot.bytes(), BLOCK_ELEMENTS * slot.dtype.bytes()) {
            decode(slot.dtype, &model.arrays[array][bytes.clone()], &mut old);
            decode(slot.dtype, reply.part(array, bytes, &mut buffer)?, &mut new);
            squares += squared_distance(&old, &new);
        }
    }
    Ok(libm::sqrt(squares))
}

fn blocks(bytes: usize, block: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes).step_by(block).map(move |start| start..bytes.min(start + block))
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

/// A reply as it counts under privacy: model + factor * (reply - model) in floating-point arrays. Integer arrays are those
/// of the model: nothing limits what one client could tell by them, so nothing of them is taken.
pub struct Clipped<'a> {
    model: &'a Model,
    reply: &'a dyn Numbers,
    factor: f64,
}

impl<'a> Clipped<'a> {
    /// The factor comes from [`super::Privacy::factor`].
    pub fn new(model: &'a Model, reply: &'a dyn Numbers, factor: f64) -> Self {
        Self { model, reply, factor }
    }

    fn pulled_back(&self, old: &[f64], new: &mut [f64]) {
        for (new, old) in new.iter_mut().zip(old) {
            *new = old + self.factor * (*new - old);
        }
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
        // A factor of zero: the update was too large for its norm to be told.
        if !is_float(dtype) || self.factor == 0.0 {
            return Ok(&model[bytes]);
        }
        if self.factor == 1.0 {
            return self.reply.part(array, bytes, buffer);
        }
        buffer.clear();
        buffer.reserve(bytes.len());
        let (mut read, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for block in blocks(bytes.len(), BLOCK_ELEMENTS * dtype.bytes()) {
            let block = bytes.start + block.start..bytes.start + block.end;
            decode(dtype, &model[block.clone()], &mut old);
            decode(dtype, self.reply.part(array, block, &mut read)?, &mut new);
            self.pulled_back(&old, &mut new);
            encode(dtype, &new, buffer);
        }
        Ok(buffer)
    }
}
