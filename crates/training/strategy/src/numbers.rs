//! The arrays of one reply, readable by part: from memory without a copy, otherwise through a buffer.

use std::io;
use std::ops::Range;

use crate::model::{Layout, Model};

pub trait Numbers: Send + Sync {
    fn layout(&self) -> &Layout;

    /// Bytes of one array, laid out as in [`Model::arrays`]. Data outside of memory is read into `buffer`.
    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]>;
}

/// A reply in memory.
pub struct InMemory(pub Model);

impl Numbers for InMemory {
    fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, _: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        Ok(&self.0.arrays[array][bytes])
    }
}
