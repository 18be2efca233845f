//! One reply while it arrives: array by array, each in chunks of any length.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trellis_strategy::{Layout, Slot, first_non_finite};
use trellis_wire::object;
use trellis_wire::records::{Array, Dtype, MAX_INFLATED_BYTES, NUMPY, NpyError, NpyHead, npy_header};

use super::{Claim, SpoolError, Spooled, Storage};

/// The limit of a `.npy` header; numpy's have 128 bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The number of array names that an error lists.
const MAX_LISTED_NAMES: usize = 5;

/// A reply that is being received.
pub struct Draft {
    expected: Option<Arc<Layout>>,
    /// Whether element types may differ from the expected ones.
    any_type: bool,
    positions: HashMap<String, usize>,
    /// The completed arrays, by position.
    slots: Vec<Option<Slot>>,
    destination: Destination,
    current: Option<Current>,
}

pub(super) enum Destination {
    Memory {
        arrays: Vec<Vec<u8>>,
        claim: Option<Claim>,
    },
    /// The concatenated arrays, in the order of arrival.
    File {
        file: File,
        offsets: Vec<u64>,
        end: u64,
        directory: Arc<Path>,
    },
}

impl Destination {
    pub fn memory(layout: &Layout, claim: Claim) -> Destination {
        Destination::Memory { arrays: vec![Vec::new(); layout.0.len()], claim: Some(claim) }
    }

    pub fn file(file: File, layout: &Layout, directory: Arc<Path>) -> Destination {
        Destination::File { file, offsets: vec![0; layout.0.len()], end: 0, directory }
    }

    /// Allocates an array if its length is known to be right.
    fn begin(&mut self, array: usize, bytes: usize, is_known: bool) {
        match self {
            Destination::Memory { arrays, .. } => arrays[array].reserve_exact(if is_known { bytes } else { 0 }),
            Destination::File { offsets, end, .. } => {
                offsets[array] = *end;
                *end += bytes as u64;
            }
        }
    }

    fn put(&mut self, array: usize, at: usize, bytes: &[u8]) -> Result<(), SpoolError> {
        match self {
            Destination::Memory { arrays, .. } => {
                arrays[array].extend_from_slice(bytes);
                Ok(())
            }
            Destination::File { file, offsets, directory, .. } => {
                let failed = |source| SpoolError::Disk { directory: directory.to_path_buf(), source };
                file.write_all_at(bytes, offsets[array] + at as u64).map_err(failed)
            }
        }
    }
}

/// The array that is being received.
struct Current {
    position: usize,
    name: String,
    /// The type in the array's metadata.
    dtype: String,
    stage: Stage,
}

enum Stage {
    /// The header is incomplete.
    Head(Vec<u8>),
    /// Elements are stored as they arrive. `ragged` is an incomplete element.
    Plain { slot: Slot, done_bytes: usize, ragged: Vec<u8> },
    /// Elements in another byte or axis order are converted at the end: the whole file is buffered.
    Gathered { slot: Slot, file: Vec<u8>, file_bytes: usize },
}

impl Draft {
    pub(super) fn expecting(layout: Arc<Layout>, any_type: bool, destination: Destination) -> Draft {
        let positions = layout.0.iter().enumerate().map(|(position, slot)| (slot.name.clone(), position)).collect();
        let slots = vec![None; layout.0.len()];
        Draft { expected: Some(layout), any_type, positions, slots, destination, current: None }
    }

    pub(super) fn free() -> Draft {
        let destination = Destination::Memory { arrays: Vec::new(), claim: None };
        Draft {
            expected: None,
            any_type: true,
            positions: HashMap::new(),
            slots: Vec::new(),
            destination,
            current: None,
        }
    }

    /// Checks the array names of a reply before anything is fetched.
    pub fn check_names<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<(), SpoolError> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let names: Vec<&str> = names.collect();
        let unknown: Vec<&str> = names.iter().copied().filter(|name| !self.positions.contains_key(*name)).collect();
        let missing = expected.0.iter().map(|slot| slot.name.as_str()).filter(|name| !names.contains(name));
        let missing: Vec<&str> = missing.collect();
        let mut errors = Vec::new();
        if !missing.is_empty() {
            errors.push(format!("it lacks {}", listed(&missing)));
        }
        if !unknown.is_empty() {
            errors.push(format!("it has {}, which the model does not have", listed(&unknown)));
        }
        if errors.is_empty() { Ok(()) } else { Err(SpoolError::Unusable(errors.join("; "))) }
    }

    /// Starts an array; the next chunks belong to it.
    pub fn begin(&mut self, name: &str, array: &object::Array) -> Result<(), SpoolError> {
        if array.stype != NUMPY {
            return Err(unreadable(name, &NpyError::OtherForm(array.stype.clone())));
        }
        let position = match (&self.expected, self.positions.get(name)) {
            (_, Some(position)) => *position,
            (None, None) => {
                let position = self.slots.len();
                self.positions.insert(name.to_owned(), position);
                self.slots.push(None);
                if let Destination::Memory { arrays, .. } = &mut self.destination {
                    arrays.push(Vec::new());
                }
                position
            }
            (Some(_), None) => {
                return Err(SpoolError::Unusable(format!("it has {name:?}, which the model does not have")));
            }
        };
        let stage = Stage::Head(Vec::new());
        self.current = Some(Current { position, name: name.to_owned(), dtype: array.dtype.clone(), stage });
        Ok(())
    }

    /// Adds the next chunk. May write to a file, so it must not run on an async thread.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        let mut current = self.current.take().expect("an array was started");
        let Stage::Head(head) = &mut current.stage else {
            current.elements(bytes, &mut self.destination)?;
            self.current = Some(current);
            return Ok(());
        };
        let before = head.len();
        head.extend_from_slice(&bytes[..bytes.len().min(MAX_HEAD_BYTES - before)]);
        match NpyHead::read(head, &current.dtype) {
            Err(reason) => return Err(unreadable(&current.name, &reason)),
            Ok(None) if head.len() >= MAX_HEAD_BYTES => {
                return Err(unreadable(&current.name, &NpyError::Form("its header is too long")));
            }
            Ok(None) => {}
            Ok(Some(found)) => {
                let header = head[..found.data_offset].to_vec();
                self.describe(&mut current, &found)?;
                if let Stage::Gathered { file, .. } = &mut current.stage {
                    file.extend_from_slice(&header);
                }
                // Everything before this chunk belongs to the header too.
                current.elements(&bytes[found.data_offset - before..], &mut self.destination)?;
            }
        }
        self.current = Some(current);
        Ok(())
    }

    /// Compares the header with the array of the model.
    fn describe(&mut self, current: &mut Current, head: &NpyHead) -> Result<(), SpoolError> {
        let name = current.name.clone();
        let slot = Slot { name, dtype: head.dtype, shape: head.shape.clone() };
        match &self.expected {
            Some(expected) if !self.is_like(&expected.0[current.position], &slot) => {
                let model = &expected.0[current.position];
                let describe = |slot: &Slot| format!("{} {:?}", slot.dtype.name(), slot.shape);
                let reason = format!("{:?} is {}, the model has {}", slot.name, describe(&slot), describe(model));
                return Err(SpoolError::Unusable(reason));
            }
            Some(_) => {}
            None => {
                let so_far: usize = self.slots.iter().flatten().map(Slot::bytes).sum();
                if head.data_bytes > MAX_INFLATED_BYTES - so_far {
                    return Err(SpoolError::Unusable(format!("the arrays have more than {MAX_INFLATED_BYTES} bytes")));
                }
            }
        }
        // A header may lie: without an expected layout, memory grows with the received elements.
        self.destination.begin(current.position, head.data_bytes, self.expected.is_some());
        current.stage = match head.is_plain() {
            true => Stage::Plain { slot, done_bytes: 0, ragged: Vec::new() },
            false => Stage::Gathered { slot, file: Vec::new(), file_bytes: head.data_offset + head.data_bytes },
        };
        Ok(())
    }

    fn is_like(&self, model: &Slot, slot: &Slot) -> bool {
        model.shape == slot.shape && (self.any_type || model.dtype == slot.dtype)
    }

    /// Completes the current array.
    pub fn end(&mut self) -> Result<(), SpoolError> {
        let current = self.current.take().expect("an array was started");
        let slot = match current.stage {
            Stage::Head(_) => return Err(unreadable(&current.name, &NpyError::Form("it ends within its header"))),
            Stage::Plain { slot, done_bytes, .. } if done_bytes < slot.bytes() => {
                let reason = NpyError::Length { needed: slot.bytes(), present: done_bytes };
                return Err(unreadable(&current.name, &reason));
            }
            Stage::Plain { slot, .. } => slot,
            Stage::Gathered { slot, file, .. } => {
                let elements = in_order(&current.name, &current.dtype, file)?;
                check_finite(&current.name, slot.dtype, &elements, 0)?;
                self.destination.put(current.position, 0, &elements)?;
                slot
            }
        };
        self.slots[current.position] = Some(slot);
        Ok(())
    }

    /// Completes the reply.
    pub fn finish(self) -> Result<Spooled, SpoolError> {
        let layout = match self.expected {
            Some(expected) => {
                let missing = expected.0.iter().zip(&self.slots).find(|(_, slot)| slot.is_none());
                if let Some((slot, _)) = missing {
                    return Err(SpoolError::Unusable(format!("it lacks {:?}", slot.name)));
                }
                let got = Layout(self.slots.into_iter().flatten().collect());
                if got == *expected { expected } else { Arc::new(got) }
            }
            None => Arc::new(Layout(self.slots.into_iter().flatten().collect())),
        };
        let storage = match self.destination {
            Destination::Memory { arrays, claim } => {
                Storage::Memory { arrays: arrays.into_iter().map(Bytes::from).collect(), _claim: claim }
            }
            Destination::File { file, offsets, .. } => Storage::File { file, offsets },
        };
        Ok(Spooled { layout, storage })
    }
}

impl Current {
    /// Handles chunks after the header.
    fn elements(&mut self, bytes: &[u8], destination: &mut Destination) -> Result<(), SpoolError> {
        let too_long = |name: &str, needed, present| unreadable(name, &NpyError::Length { needed, present });
        match &mut self.stage {
            Stage::Head(_) => unreachable!("the header comes first"),
            Stage::Plain { slot, done_bytes, ragged } => {
                let all = *done_bytes + bytes.len();
                if all > slot.bytes() {
                    return Err(too_long(&self.name, slot.bytes(), all));
                }
                check_pieces(&self.name, slot.dtype, *done_bytes, ragged, bytes)?;
                destination.put(self.position, *done_bytes, bytes)?;
                *done_bytes = all;
            }
            Stage::Gathered { slot, file, file_bytes } => {
                if file.len() + bytes.len() > *file_bytes {
                    return Err(too_long(&self.name, slot.bytes(), slot.bytes() + 1));
                }
                file.extend_from_slice(bytes);
            }
        }
        Ok(())
    }
}

/// Checks elements that chunk boundaries may split.
fn check_pieces(
    name: &str,
    dtype: Dtype,
    done_bytes: usize,
    ragged: &mut Vec<u8>,
    bytes: &[u8],
) -> Result<(), SpoolError> {
    let size = dtype.bytes();
    let missing = (size - ragged.len()) % size;
    let (first, rest) = bytes.split_at(missing.min(bytes.len()));
    let element = (done_bytes - ragged.len()) / size;
    ragged.extend_from_slice(first);
    if ragged.len() == size {
        check_finite(name, dtype, ragged, element)?;
        ragged.clear();
    }
    let whole = rest.len() / size * size;
    check_finite(name, dtype, &rest[..whole], (done_bytes + first.len()) / size)?;
    ragged.extend_from_slice(&rest[whole..]);
    Ok(())
}

fn check_finite(name: &str, dtype: Dtype, bytes: &[u8], from: usize) -> Result<(), SpoolError> {
    match first_non_finite(dtype, bytes) {
        None => Ok(()),
        Some(at) => Err(SpoolError::NonFinite(format!("{name:?} has a non-finite value at index {}", from + at))),
    }
}

/// Converts the elements of a `.npy` file to little-endian C order.
fn in_order(name: &str, dtype: &str, file: Vec<u8>) -> Result<Bytes, SpoolError> {
    let array = Array { dtype: dtype.to_owned(), shape: Vec::new(), stype: NUMPY.to_owned(), data: file.into() };
    let tensor = array.tensor().map_err(|reason| unreadable(name, &reason))?;
    let head = npy_header(tensor.dtype(), tensor.shape());
    Ok(Array::from(tensor).data.slice(head.len()..))
}

fn unreadable(name: &str, error: &NpyError) -> SpoolError {
    SpoolError::Unusable(format!("{name:?} cannot be read: {error}"))
}

fn listed(names: &[&str]) -> String {
    let listed: Vec<String> = names.iter().take(MAX_LISTED_NAMES).map(|name| format!("{name:?}")).collect();
    match names.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}
