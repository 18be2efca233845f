//! Sums of a whole model in `f64`, in exactly 8 bytes per element. The upper bytes of each sum are stored where its result will
//! be, the lower bytes in a second buffer. So the sums of an `f32` model need twice its memory, results included, without
//! depending on when an allocator returns memory.

use crate::mean::NEGATIVE_ZERO;
use crate::model::{Layout, Slot};
use crate::work;

const NUMBER_BYTES: usize = size_of::<f64>();

pub(crate) struct Sums {
    /// The upper bytes of each sum, finally the results.
    results: Vec<Vec<u8>>,
    /// The lower bytes of each sum.
    rest: Vec<Vec<u8>>,
    /// Nothing has been added yet, so no memory is initialised.
    fresh: bool,
}

/// The sums of a span, or of a part of it.
pub(crate) struct Part<'a> {
    upper: &'a mut [u8],
    lower: &'a mut [u8],
    element_bytes: usize,
    fresh: bool,
}

impl Sums {
    /// Of results with this layout.
    pub fn new(results: &Layout) -> Self {
        let rest = results.0.iter().map(|slot| vec![0; slot.elements() * rest_bytes(slot)]).collect();
        Self { results: work::blank(results), rest, fresh: true }
    }

    /// The parts by span; each must be written.
    pub fn parts<'a>(&'a mut self, results: &Layout) -> impl Iterator<Item = Part<'a>> + Send + use<'a> {
        let fresh = std::mem::replace(&mut self.fresh, false);
        let upper = work::cut(results, &mut self.results, |slot| slot.dtype.bytes());
        let lower = work::cut(results, &mut self.rest, rest_bytes);
        let element_bytes = work::spans(results).into_iter().map(|span| results.0[span.array].dtype.bytes());
        let element_bytes: Vec<usize> = element_bytes.collect();
        let parts = upper.into_iter().zip(lower).zip(element_bytes);
        parts.map(move |((upper, lower), element_bytes)| Part { upper, lower, element_bytes, fresh })
    }

    pub fn into_results(self) -> Vec<Vec<u8>> {
        self.results
    }
}

fn rest_bytes(slot: &Slot) -> usize {
    NUMBER_BYTES - slot.dtype.bytes()
}

impl<'a> Part<'a> {
    /// Splits the part.
    pub fn chunks(self, len: usize) -> impl Iterator<Item = Part<'a>> {
        let Self { upper, lower, element_bytes, fresh } = self;
        let mut lower = lower;
        upper.chunks_mut(len * element_bytes).map(move |upper| {
            let len = upper.len() / element_bytes;
            let (head, tail) = std::mem::take(&mut lower).split_at_mut(len * (NUMBER_BYTES - element_bytes));
            lower = tail;
            Part { upper, lower: head, element_bytes, fresh }
        })
    }

    pub fn read(&self, sums: &mut Vec<f64>) {
        sums.resize(self.upper.len() / self.element_bytes, NEGATIVE_ZERO);
        match self.element_bytes {
            _ if self.fresh => sums.fill(NEGATIVE_ZERO),
            8 => join_all(sums, self.upper),
            4 => join_halves(sums, self.upper, self.lower),
            2 => join::<2, 6>(sums, self.upper, self.lower),
            _ => join::<1, 7>(sums, self.upper, self.lower),
        }
    }

    pub fn write(&mut self, sums: &[f64]) {
        match self.element_bytes {
            8 => split_all(sums, self.upper),
            4 => split_halves(sums, self.upper, self.lower),
            2 => split::<2, 6>(sums, self.upper, self.lower),
            _ => split::<1, 7>(sums, self.upper, self.lower),
        }
    }

    /// The place of the results, once the sums are no longer needed.
    pub fn into_results(self) -> &'a mut [u8] {
        self.upper
    }
}

fn join_all(sums: &mut [f64], bytes: &[u8]) {
    for (sum, bytes) in sums.iter_mut().zip(bytes.as_chunks().0) {
        *sum = f64::from_le_bytes(*bytes);
    }
}

fn split_all(sums: &[f64], bytes: &mut [u8]) {
    for (sum, bytes) in sums.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = sum.to_le_bytes();
    }
}

/// In whole words, which the compiler vectorises.
fn join_halves(sums: &mut [f64], upper: &[u8], lower: &[u8]) {
    let halves = upper.as_chunks().0.iter().zip(lower.as_chunks().0);
    for (sum, (upper, lower)) in sums.iter_mut().zip(halves) {
        let [upper, lower] = [upper, lower].map(|half| u64::from(u32::from_le_bytes(*half)));
        *sum = f64::from_bits(upper << 32 | lower);
    }
}

fn split_halves(sums: &[f64], upper: &mut [u8], lower: &mut [u8]) {
    let halves = upper.as_chunks_mut().0.iter_mut().zip(lower.as_chunks_mut().0);
    for (sum, (upper, lower)) in sums.iter().zip(halves) {
        let bits = sum.to_bits();
        *upper = ((bits >> 32) as u32).to_le_bytes();
        *lower = (bits as u32).to_le_bytes();
    }
}

fn join<const UPPER: usize, const LOWER: usize>(sums: &mut [f64], upper: &[u8], lower: &[u8]) {
    let parts = upper.as_chunks::<UPPER>().0.iter().zip(lower.as_chunks::<LOWER>().0);
    for (sum, (upper, lower)) in sums.iter_mut().zip(parts) {
        let mut bytes = [0; NUMBER_BYTES];
        bytes[..LOWER].copy_from_slice(lower);
        bytes[LOWER..].copy_from_slice(upper);
        *sum = f64::from_le_bytes(bytes);
    }
}

fn split<const UPPER: usize, const LOWER: usize>(sums: &[f64], upper: &mut [u8], lower: &mut [u8]) {
    let parts = upper.as_chunks_mut::<UPPER>().0.iter_mut().zip(lower.as_chunks_mut::<LOWER>().0);
    for (sum, (upper, lower)) in sums.iter().zip(parts) {
        let bytes = sum.to_le_bytes();
        lower.copy_from_slice(&bytes[..LOWER]);
        upper.copy_from_slice(&bytes[LOWER..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trellis_wire::records::Dtype;

    #[test]
    fn sums_of_every_size_are_exact() {
        let len = work::SPAN + 3;
        let slot = |&dtype: &Dtype| Slot { name: dtype.name().into(), dtype, shape: vec![len] };
        let mut layout = Layout(Dtype::ALL.iter().map(slot).collect());
        layout.0.push(Slot { name: "none".into(), dtype: Dtype::F32, shape: vec![0] });
        let mut sums = Sums::new(&layout);
        let mut read = Vec::new();
        let number = |at: usize| (at as f64 + 0.1).sqrt() - 1e-9;
        for part in sums.parts(&layout) {
            for (at, mut part) in part.chunks(1000).enumerate() {
                part.read(&mut read);
                assert!(read.iter().all(|sum| sum.to_bits() == NEGATIVE_ZERO.to_bits()));
                read.iter_mut().enumerate().for_each(|(within, sum)| *sum = number(at * 1000 + within));
                part.write(&read);
            }
        }
        let mut total = 0;
        for part in sums.parts(&layout) {
            part.read(&mut read);
            total += read.len();
            assert!(read.iter().enumerate().all(|(at, sum)| *sum == number(at)));
        }
        assert_eq!(total, Dtype::ALL.len() * len);
        assert_eq!(sums.into_results()[0].len(), len);
    }
}
