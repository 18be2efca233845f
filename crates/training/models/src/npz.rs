//! The npz format of numpy: a zip of `.npy` files, one for each array.
//!
//! numpy has no bfloat16, so such arrays are written as float32 with the same values, and never read.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};

use bytes::Bytes;
use trellis_strategy::Slot;
use trellis_wire::records::{Array, Bf16, Dtype, NUMPY, npy_header};
use zip::ZipArchive;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::safetensors::Tensor;

const SUFFIX: &str = ".npy";
/// numpy's prefix for arrays without a name.
const POSITIONAL: &str = "arr_";
/// The zip format stores larger members with Zip64 fields only.
const LARGE_MEMBER_BYTES: usize = 0xffff_0000;
/// Elements that are converted at once.
const BLOCK_ELEMENTS: usize = 1 << 16;

/// Writes the arrays under their names, or as `arr_0`, `arr_1`, ... Returns notes about changed element types.
pub fn write(file: &mut File, tensors: &[Tensor<'_>], positional: bool) -> io::Result<Vec<String>> {
    let mut zip = ZipWriter::new(BufWriter::new(file));
    let mut widened = Vec::new();
    for (index, tensor) in tensors.iter().enumerate() {
        let name = if positional { format!("{POSITIONAL}{index}") } else { tensor.name.to_string() };
        zip.start_file(format!("{name}{SUFFIX}"), stored(tensor.data.len() * 2))?;
        match tensor.dtype {
            Dtype::Bf16 => {
                zip.write_all(&npy_header(Dtype::F32, tensor.shape))?;
                write_widened(&mut zip, tensor.data)?;
                widened.push(name);
            }
            dtype => {
                zip.write_all(&npy_header(dtype, tensor.shape))?;
                zip.write_all(tensor.data)?;
            }
        }
    }
    zip.finish()?.flush()?;
    Ok(match widened.is_empty() {
        true => Vec::new(),
        false => {
            vec![format!("numpy has no bfloat16: written as float32, with the same values: {}", widened.join(", "))]
        }
    })
}

/// Options of an uncompressed member of about this size.
pub fn stored(bytes: usize) -> SimpleFileOptions {
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    options.large_file(bytes > LARGE_MEMBER_BYTES)
}

fn write_widened(out: &mut impl io::Write, halves: &[u8]) -> io::Result<()> {
    let mut wide = Vec::with_capacity(BLOCK_ELEMENTS * 4);
    for block in halves.chunks(BLOCK_ELEMENTS * 2) {
        wide.clear();
        for half in block.chunks_exact(2) {
            wide.extend_from_slice(&Bf16(u16::from_le_bytes([half[0], half[1]])).to_f32().to_le_bytes());
        }
        out.write_all(&wide)?;
    }
    Ok(())
}

pub fn read(file: File) -> Result<Vec<(Slot, Bytes)>, String> {
    let mut zip =
        ZipArchive::new(BufReader::new(file)).map_err(|error| format!("not a complete zip archive: {error}"))?;
    let mut found = Vec::with_capacity(zip.len());
    for index in 0..zip.len() {
        let mut member = zip.by_index(index).map_err(|error| error.to_string())?;
        let name = member.name().map_err(|error| error.to_string())?.into_owned();
        let Some(array) = name.strip_suffix(SUFFIX) else {
            return Err(format!("a zip archive, but not .npz: its member {name:?} is not an array"));
        };
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).map_err(|error| format!("its member {name:?} is damaged: {error}"))?;
        found.push(tensor(array, bytes.into()).map_err(|error| format!("the array {array:?}: {error}"))?);
    }
    let position = |slot: &Slot| slot.name.strip_prefix(POSITIONAL)?.parse::<u64>().ok();
    if found.iter().all(|(slot, _)| position(slot).is_some()) {
        found.sort_by_key(|(slot, _)| position(slot));
        // Flower names the arrays of a list 0, 1, ...; a model saved by `np.savez(file, *arrays)` must match them.
        for (slot, _) in &mut found {
            slot.name.drain(..POSITIONAL.len());
        }
    }
    Ok(found)
}

fn tensor(name: &str, data: Bytes) -> Result<(Slot, Bytes), String> {
    let array = Array { dtype: String::new(), shape: Vec::new(), stype: NUMPY.to_owned(), data };
    let tensor = array.tensor().map_err(|error| error.to_string())?;
    let mut elements = Vec::with_capacity(tensor.values().len() * tensor.dtype().bytes());
    tensor.values().write_little_endian(&mut elements);
    let slot = Slot { name: name.to_owned(), dtype: tensor.dtype(), shape: tensor.shape().to_owned() };
    Ok((slot, elements.into()))
}
