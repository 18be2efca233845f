//! A state dict as `torch.save` writes it: a zip with a pickle that describes tensors, and the elements of each in a member
//! of its own. It is read by `torch.load`, also with `weights_only`: nothing in it is code.

mod pickle;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use zip::write::ZipWriter;

use crate::npz::stored;
use crate::safetensors::Tensor;

/// torch takes the directory of the first member for that of all.
const DIRECTORY: &str = "model";
/// Where elements begin, so that a file can be mapped.
const ALIGNMENT: u16 = 64;
/// Of the container: the one whose storages are members.
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
