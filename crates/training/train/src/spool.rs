//! Stores incoming replies. The numbers of a reply are checked while they arrive: arrays must match those of the model in type
//! and shape, and numbers must be finite. Small replies stay in memory; others are written to an unnamed file, which vanishes
//! with the process.
//!
//! Knows nothing of links: the receiver passes the bytes.

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

/// Longer replies are written to a file.
const REPLY_IN_MEMORY_BYTES: usize = 1 << 20;
/// The limit of all replies in memory.
const IN_MEMORY_BYTES: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The reply does not match the model.
    #[error("{0}")]
    Unusable(String),
    /// The reply contains non-finite numbers.
    #[error("{0}")]
    NonFinite(String),
    /// A failure that the reply did not cause.
    #[error("a reply cannot be stored in {}", directory.display())]
    Disk { directory: PathBuf, source: io::Error },
}

/// The storage of replies. Clones share the limits.
#[derive(Debug, Clone)]
pub struct Spool {
    directory: Arc<Path>,
    in_memory_bytes: Arc<AtomicUsize>,
}

impl Spool {
    /// `directory` must exist, with room for the replies that are stored at a time.
    pub fn new(directory: impl Into<PathBuf>) -> Spool {
        Spool { directory: Arc::from(directory.into()), in_memory_bytes: Arc::default() }
    }

    /// A reply whose arrays must match the layout; with `any_type`, element types may differ. May open a file, so it must not run on
    /// an async thread.
    pub fn draft(&self, expected: &Arc<Layout>, any_type: bool) -> Result<Draft, SpoolError> {
        let max_bytes = match any_type {
            false => expected.bytes(),
            true => expected.0.iter().map(|slot| slot.elements() * size_of::<f64>()).sum(),
        };
        let place = match self.claim(max_bytes) {
            Some(claim) => draft::Destination::memory(expected, claim),
            None => draft::Destination::file(self.open()?, expected, Arc::clone(&self.directory)),
        };
        Ok(Draft::expecting(Arc::clone(expected), any_type, place))
    }

    /// A reply with any arrays: the initial model, or trees. Stored in memory.
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

/// Accounted memory, released on drop.
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

/// The complete, checked arrays of a reply, in the order of the model.
#[derive(Debug)]
pub struct Spooled {
    layout: Arc<Layout>,
    storage: Storage,
}

#[derive(Debug)]
enum Storage {
    Memory {
        arrays: Vec<Bytes>,
        _claim: Option<Claim>,
    },
    /// The concatenated arrays, and the offset of each.
    File {
        file: File,
        offsets: Vec<u64>,
    },
}

impl Spooled {
    /// Reads the reply into memory as a model.
    pub fn into_model(self) -> io::Result<Model> {
        let arrays = match self.storage {
            Storage::Memory { arrays, .. } => arrays,
            Storage::File { file, offsets } => {
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
        match &self.storage {
            Storage::Memory { arrays, .. } => Ok(&arrays[array][bytes]),
            Storage::File { file, offsets } => {
                buffer.resize(bytes.len(), 0);
                file.read_exact_at(buffer, offsets[array] + bytes.start as u64)?;
                Ok(buffer)
            }
        }
    }
}

#[cfg(test)]
mod tests;
