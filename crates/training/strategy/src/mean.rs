//! The weighted mean of replies: the sum of weight times number, divided by the sum of the weights.
//!
//! Numbers are multiplied and added in `f64`, reply after reply in the given order, without fused instructions, and the
//! quotient is rounded once. So each element has one correct result, whether [`weighted_mean`] computes it, which reads all
//! replies span by span, or the accumulator, which adds one reply after another.
//!
//! Products of `f32` and integer weights below 2^29 are exact, and the mean of equal numbers is that number. Sums of integers
//! are exact while number times sum of weights stays below 2^53. The compiler vectorises the plain loops; with the baseline
//! instructions of x86-64 they are within a tenth of the widest ones, because memory bandwidth is the limit.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use trellis_wire::records::Dtype;

use crate::element::{Element, by_dtype, narrow};
use crate::error::{AggregateError, Sender};
use crate::frame::Frame;
use crate::model::{Layout, Model};
use crate::numbers::Numbers;
use crate::source::{ReadError, Source};
use crate::work::{self, Span};

/// Replies that are added in one pass over the sums.
const AT_ONCE: usize = 4;
/// Far above any number of examples, and low enough that no sum of products overflows `f64`.
const MAX_WEIGHT: f64 = 1e100;
/// The initial value of sums: adding a number to it gives that number, including -0. Adding to +0 would lose the sign.
pub(crate) const NEGATIVE_ZERO: f64 = -0.0;

/// The mean of replies that are all available.
pub fn weighted_mean(replies: &[(f64, &dyn Numbers)], layout: &Arc<Layout>) -> Result<Model, AggregateError> {
    let mut sources = Vec::with_capacity(replies.len());
    for (place, &(weight, numbers)) in replies.iter().enumerate() {
        let sender = Sender::Reply(place);
        check_weight(weight, sender)?;
        let source =
            Source::new(numbers, layout).map_err(|difference| AggregateError::Layout { sender, difference })?;
        sources.push((weight, source));
    }
    let total = total_weight(sources.iter().map(|(weight, _)| *weight))?;
    mean(&sources, total, &Frame::keeping(layout)).map_err(|error| AggregateError::read(error, layout, Sender::Reply))
}

pub(crate) fn check_weight(weight: f64, sender: Sender) -> Result<(), AggregateError> {
    if (0.0..=MAX_WEIGHT).contains(&weight) { Ok(()) } else { Err(AggregateError::Weight { sender, weight }) }
}

pub(crate) fn total_weight(weights: impl ExactSizeIterator<Item = f64>) -> Result<f64, AggregateError> {
    if weights.len() == 0 {
        return Err(AggregateError::NoReplies);
    }
    let total: f64 = weights.sum();
    if total > 0.0 { Ok(total) } else { Err(AggregateError::NoWeight) }
}

/// The buffers of a thread: sums, and the read parts of replies.
type Scratch = (Vec<f64>, [Vec<u8>; AT_ONCE]);

/// The mean of replies with checked weights and layouts.
pub(crate) fn mean(replies: &[(f64, Source)], total: f64, frame: &Frame) -> Result<Model, ReadError> {
    let spans = work::spans(&frame.input);
    let mut arrays = work::blank(&frame.output);
    let elements: usize = spans.iter().map(|span| span.len).sum();
    let jobs = spans.iter().zip(work::cut(&frame.output, &mut arrays, |slot| slot.dtype.bytes()));
    let mut scratch_buffers = work::scratch_buffers(elements * replies.len());
    work::share(&mut scratch_buffers, jobs, |(sums, buffers): &mut Scratch, (span, out)| {
        sums.clear();
        sums.resize(span.len, NEGATIVE_ZERO);
        sum_span(replies, span, frame.input.0[span.array].dtype, buffers, sums)?;
        divide(sums, total);
        narrow(frame.output.0[span.array].dtype, sums, out);
        Ok(())
    })?;
    Ok(Model { layout: Arc::clone(&frame.output), arrays: arrays.into_iter().map(Bytes::from).collect() })
}

fn sum_span(
    replies: &[(f64, Source)],
    span: &Span,
    dtype: Dtype,
    buffers: &mut [Vec<u8>; AT_ONCE],
    sums: &mut [f64],
) -> Result<(), ReadError> {
    for (group, replies) in replies.chunks(AT_ONCE).enumerate() {
        let mut parts: [(f64, &[u8]); AT_ONCE] = [(0.0, &[]); AT_ONCE];
        for (place, (buffer, (weight, source))) in buffers.iter_mut().zip(replies).enumerate() {
            let read_error = |error: io::Error| ReadError { reply: group * AT_ONCE + place, array: span.array, error };
            parts[place] = (*weight, source.read(span, buffer).map_err(read_error)?);
        }
        add(dtype, &parts[..replies.len()], sums);
    }
    Ok(())
}

/// Adds elements, given as bytes, times their factors, one reply after another.
pub(crate) fn add(dtype: Dtype, parts: &[(f64, &[u8])], sums: &mut [f64]) {
    for parts in parts.chunks(AT_ONCE) {
        by_dtype!(dtype, add_elements(parts, sums));
    }
}

fn add_elements<E: Element<N>, const N: usize>(parts: &[(f64, &[u8])], sums: &mut [f64]) {
    match *parts {
        [a, b, c, d] => pass::<E, N, 4>([a, b, c, d], sums),
        [a, b, c] => pass::<E, N, 3>([a, b, c], sums),
        [a, b] => pass::<E, N, 2>([a, b], sums),
        [a] => pass::<E, N, 1>([a], sums),
        _ => unreachable!("parts come in groups of up to {AT_ONCE}"),
    }
}

fn pass<E: Element<N>, const N: usize, const PARTS: usize>(parts: [(f64, &[u8]); PARTS], sums: &mut [f64]) {
    let factors = parts.map(|(factor, _)| factor);
    // Slices of equal length need one bounds check for the whole loop.
    let elements = parts.map(|(_, bytes)| &bytes.as_chunks::<N>().0[..sums.len()]);
    for (at, sum) in sums.iter_mut().enumerate() {
        for part in 0..PARTS {
            *sum += factors[part] * E::number(elements[part][at]);
        }
    }
}

pub(crate) fn divide(sums: &mut [f64], divisor: f64) {
    for sum in sums {
        *sum /= divisor;
    }
}
