//! Replies on their way in. The numbers of a reply are checked while they arrive: the arrays are those of the model, in type
//! and shape, and the numbers are finite. What is small stays in memory, the rest goes to a file that has no name and so
//! vanishes with the process, whatever ends it.
//!
//! Knows nothing of links: whoever receives a reply brings its bytes.

mod draft;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use trellis_strategy::{Layout, Model, Numbers};

pub use self::draft::Draft;

/// A longer reply goes to a file.
const REPLY_IN_MEMORY_BYTES: usize = 1 << 20;
/// Replies that wait in memory are not longer than this altogether.
const IN_MEMORY_BYTES: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The reply is not what was asked for.
    #[error("{0}")]
    Unfit(String),
    /// The reply has numbers that are not finite.
    #[error("{0}")]
    NotFinite(String),
    /// It is not the reply's fault.
    #[error("a reply cannot be kept in {}", directory.display())]
    Disk { directory: PathBuf, source: io::Error },
}

/// Where replies wait for their turn. Clones share the limits.
#[derive(Debug, Clone)]
pub struct Spool {
    directory: Arc<Path>,
    in_memory_bytes: Arc<AtomicUsize>,
}

impl Spool {
    /// `directory` must exist. Of a model and as many replies as are kept at a time, that much must fit.
    pub fn new(directory: impl Into<PathBuf>) -> Spool {
        Spool { directory: Arc::from(directory.into()), in_memory_bytes: Arc::default() }
    }

    /// A reply whose arrays must be those of the layout, with `any_type` in all but their types. May open a file: not for
    /// threads that must not wait.
    pub fn draft(&self, expected: &Arc<Layout>, any_type: bool) -> Result<Draft, SpoolError> {
        let most_bytes = match any_type {
            false => expected.bytes(),
            true => expected.0.iter().map(|slot| slot.elements() * size_of::<f64>()).sum(),
        };
        let place = match self.claim(most_bytes) {
            Some(claim) => draft::Place::memory(expected, claim),
            None => draft::Place::file(self.open()?, expected, Arc::clone(&self.directory)),
        };
        Ok(Draft::expecting(Arc::clone(expected), any_type, place))
    }

    /// A reply that may have any arrays: the first model, or trees. It is kept in memory.
    pub fn free_draft(&self) -> Draft {
        Draft::free()
    }

    fn open(&self) -> Result<File, SpoolError> {
        let failed = |source| SpoolError::Disk { directory: self.directory.to_path_buf(), source };
        tempfile::tempfile_in(&self.directory).map_err(failed)
    }

    fn claim(&self, bytes: usize) -> Option<Claim> {
        if bytes > REPLY_IN_MEMORY_BYTES {
            return None;
        }
        let taken = self.in_memory_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            Some(taken + bytes).filter(|taken| *taken <= IN_MEMORY_BYTES)
        });
        taken.ok().map(|_| Claim { taken: Arc::clone(&self.in_memory_bytes), bytes })
    }
}

/// Memory that is counted until it is given back.
#[derive(Debug)]
struct Claim {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The arrays of a reply, whole and checked, in the order of the model's.
#[derive(Debug)]
pub struct Spooled {
    layout: Arc<Layout>,
    place: Kept,
}

#[derive(Debug)]
enum Kept {
    Memory {
        arrays: Vec<Bytes>,
        _claim: Option<Claim>,
    },
    /// The arrays one after the other; where each begins.
    File {
        file: File,
        offsets: Vec<u64>,
    },
}

impl Spooled {
    /// As a model, read whole into memory.
    pub fn into_model(self) -> io::Result<Model> {
        let arrays = match self.place {
            Kept::Memory { arrays, .. } => arrays,
            Kept::File { file, offsets } => {
                let read = |(slot, offset): (&trellis_strategy::Slot, &u64)| {
                    let mut bytes = vec![0; slot.bytes()];
                    file.read_exact_at(&mut bytes, *offset).map(|()| Bytes::from(bytes))
                };
                self.layout.0.iter().zip(&offsets).map(read).collect::<io::Result<_>>()?
            }
        };
        Ok(Model { layout: self.layout, arrays })
    }
}

impl Numbers for Spooled {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        match &self.place {
            Kept::Memory { arrays, .. } => Ok(&arrays[array][bytes]),
            Kept::File { file, offsets } => {
                buffer.resize(bytes.len(), 0);
                file.read_exact_at(buffer, offsets[array] + bytes.start as u64)?;
                Ok(buffer)
            }
        }
    }
}

#[cfg(test)]
mod tests;
