//! A state dict as `torch.save` writes it: a zip archive with a pickle that describes the tensors, and one member for the
//! elements of each. `torch.load` reads it with `weights_only` too: it contains no code.

mod pickle;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use zip::write::ZipWriter;

use crate::npz::stored;
use crate::safetensors::Tensor;

/// torch derives the directory of all members from the first one.
const DIRECTORY: &str = "model";
/// Alignment of the elements, so that the file can be mapped.
const ALIGNMENT: u16 = 64;
/// The version of the container format in which storages are members.
const VERSION: &[u8] = b"3\n";
const BYTE_ORDER: &[u8] = b"little";

pub fn write(file: &mut File, tensors: &[Tensor<'_>]) -> io::Result<()> {
    let mut zip = ZipWriter::new(BufWriter::new(file));
    let mut member = |name: &str, bytes: &[u8]| -> io::Result<()> {
        zip.start_file(format!("{DIRECTORY}/{name}"), stored(bytes.len()).with_alignment(ALIGNMENT))?;
        zip.write_all(bytes)
    };
    member("data.pkl", &pickle::state_dict(tensors))?;
    member("byteorder", BYTE_ORDER)?;
    for (index, tensor) in tensors.iter().enumerate() {
        member(&format!("data/{index}"), tensor.data)?;
    }
    member("version", VERSION)?;
    zip.finish()?.flush()
}
