//! The same elements of all replies, side by side as numbers: what is looked at together.

use trellis_wire::records::Dtype;

use crate::element::widen;
use crate::source::{Source, Unread};
use crate::work::{SPAN, Span};

/// Numbers in a tile, 8 MiB: as much is in memory for each thread, however many replies there are.
const NUMBERS: usize = 1 << 20;
/// Elements that are worth a read, where there are very many replies.
const MIN_LEN: usize = 64;

#[derive(Default)]
pub(crate) struct Tile {
    numbers: Vec<f64>,
    len: usize,
    buffer: Vec<u8>,
}

impl Tile {
    /// How many elements of so many replies are read at once.
    pub fn len_for(replies: usize) -> usize {
        (NUMBERS / replies.max(1)).clamp(MIN_LEN, SPAN)
    }

    pub fn read(&mut self, sources: &[Source], span: &Span, dtype: Dtype) -> Result<(), Unread> {
        self.len = span.len;
        self.numbers.resize(sources.len() * span.len, 0.0);
        for (reply, (source, row)) in sources.iter().zip(self.numbers.chunks_exact_mut(span.len)).enumerate() {
            let unread = |error| Unread { reply, array: span.array, error };
            widen(dtype, source.read(span, &mut self.buffer).map_err(unread)?, row);
        }
        Ok(())
    }

    /// What each reply has, in the order of the replies.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.numbers.chunks_exact(self.len)
    }
}
