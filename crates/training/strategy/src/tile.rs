//! The same elements of all replies, side by side.

use trellis_wire::records::Dtype;

use crate::element::widen;
use crate::source::{ReadError, Source};
use crate::work::{SPAN, Span};

/// Elements of a tile (8 MiB): the memory of a thread, independent of the number of replies.
const NUMBERS: usize = 1 << 20;
/// The minimum of elements per read, with very many replies.
const MIN_LEN: usize = 64;

#[derive(Default)]
pub(crate) struct Tile {
    numbers: Vec<f64>,
    len: usize,
    buffer: Vec<u8>,
}

impl Tile {
    /// The number of elements that are read at once from this many replies.
    pub fn len_for(replies: usize) -> usize {
        (NUMBERS / replies.max(1)).clamp(MIN_LEN, SPAN)
    }

    pub fn read(&mut self, sources: &[Source], span: &Span, dtype: Dtype) -> Result<(), ReadError> {
        self.len = span.len;
        self.numbers.resize(sources.len() * span.len, 0.0);
        for (reply, (source, row)) in sources.iter().zip(self.numbers.chunks_exact_mut(span.len)).enumerate() {
            let read_error = |error| ReadError { reply, array: span.array, error };
            widen(dtype, source.read(span, &mut self.buffer).map_err(read_error)?, row);
        }
        Ok(())
    }

    /// The elements of each reply, in the order of the replies.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.numbers.chunks_exact(self.len)
    }
}
