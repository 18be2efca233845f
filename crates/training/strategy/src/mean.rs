//! The weighted mean of replies: sum of weight times number, divided by the sum of the weights.
//!
//! Numbers are multiplied and added in `f64`, reply after reply in the order given, without fused instructions, and the
//! quotient is rounded once. So each element has one right answer, whoever computes it: [`weighted_mean`], which reads all
//! replies span by span, or the accumulator, which takes one reply after another.
//!
//! Products of `f32` and whole weights below 2^29 are exact, and equal numbers stay what they are. Those of integers are
//! exact while number times sum of weights stays below 2^53; beyond it they are as exact as `f64` is. The loops are plain ones that
//! the compiler makes vector instructions of; those that every x86-64 has come within a tenth of the widest ones, because
//! memory is what they wait for.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use trellis_wire::records::Dtype;

use crate::element::{Element, by_dtype, narrow};
use crate::fault::{Fault, Whose};
use crate::frame::Frame;
use crate::model::{Layout, Model};
use crate::numbers::Numbers;
use crate::source::{Source, Unread};
use crate::work::{self, Span};

/// Replies that are added in one pass over the sums.
const AT_ONCE: usize = 4;
/// Far beyond any number of examples, and far enough from the end of `f64` that no sum of products gets there.
const MAX_WEIGHT: f64 = 1e100;
/// Where sums start: added to it, every number stays what it is, also -0. Added to 0 that one would not.
pub(crate) const NOTHING: f64 = -0.0;

/// The mean of replies that are all at hand.
pub fn weighted_mean(replies: &[(f64, &dyn Numbers)], layout: &Arc<Layout>) -> Result<Model, Fault> {
    let mut sources = Vec::with_capacity(replies.len());
    for (place, &(weight, numbers)) in replies.iter().enumerate() {
        let whose = Whose::Reply(place);
        check_weight(weight, whose)?;
        let source = Source::new(numbers, layout).map_err(|difference| Fault::Layout { whose, difference })?;
        sources.push((weight, source));
    }
    let total = total_weight(sources.iter().map(|(weight, _)| *weight))?;
    mean(&sources, total, &Frame::keeping(layout)).map_err(|unread| Fault::unread(unread, layout, Whose::Reply))
}

pub(crate) fn check_weight(weight: f64, whose: Whose) -> Result<(), Fault> {
    if (0.0..=MAX_WEIGHT).contains(&weight) { Ok(()) } else { Err(Fault::Weight { whose, weight }) }
}

pub(crate) fn total_weight(weights: impl ExactSizeIterator<Item = f64>) -> Result<f64, Fault> {
    if weights.len() == 0 {
        return Err(Fault::NoReplies);
    }
    let total: f64 = weights.sum();
    if total > 0.0 { Ok(total) } else { Err(Fault::NoWeight) }
}

/// What a thread works with: sums, and what is read of replies.
type Desk = (Vec<f64>, [Vec<u8>; AT_ONCE]);

/// The mean of replies whose weights and layouts are right.
pub(crate) fn mean(replies: &[(f64, Source)], total: f64, frame: &Frame) -> Result<Model, Unread> {
    let spans = work::spans(&frame.input);
    let mut arrays = work::blank(&frame.output);
    let elements: usize = spans.iter().map(|span| span.len).sum();
    let jobs = spans.iter().zip(work::cut(&frame.output, &mut arrays, |slot| slot.dtype.bytes()));
    let mut desks = work::desks(elements * replies.len());
    work::share(&mut desks, jobs, |(sums, buffers): &mut Desk, (span, out)| {
        sums.clear();
        sums.resize(span.len, NOTHING);
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
) -> Result<(), Unread> {
    for (group, replies) in replies.chunks(AT_ONCE).enumerate() {
        let mut parts: [(f64, &[u8]); AT_ONCE] = [(0.0, &[]); AT_ONCE];
        for (place, (buffer, (weight, source))) in buffers.iter_mut().zip(replies).enumerate() {
            let unread = |error: io::Error| Unread { reply: group * AT_ONCE + place, array: span.array, error };
            parts[place] = (*weight, source.read(span, buffer).map_err(unread)?);
        }
        add(dtype, &parts[..replies.len()], sums);
    }
    Ok(())
}

/// Adds bytes of elements, each times its factor, one reply after the other.
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
    // Cut to the same length, so that one check holds for the whole loop.
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
