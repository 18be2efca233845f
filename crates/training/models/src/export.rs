//! Exports of a model in other formats, each written atomically.

#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use trellis_strategy::Model;

use crate::error::ModelError;
use crate::model_file::{model_errors, tensors};
use crate::store::Checkpoint;
use crate::{npz, pytorch, safetensors};
use trellis_files::{parent_of, sync_directory};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Safetensors,
    Npz,
    /// A state dict for `torch.load`.
    PyTorch,
}

impl Format {
    /// The format that the extension of a file name stands for.
    pub fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "safetensors" => Some(Format::Safetensors),
            "npz" => Some(Format::Npz),
            "pt" | "pth" => Some(Format::PyTorch),
            _ => None,
        }
    }
}

/// Format and options of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    pub format: Format,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
    /// Only for npz: `arr_0`, `arr_1`, ... instead of the names of the arrays.
    pub positional: bool,
}

/// Writes the model of a checkpoint to a file that does not exist yet.
pub fn export(checkpoint: &Checkpoint, format: Format, to: &Path) -> Result<(), ModelError> {
    Export { format, overwrite: false, positional: false }.write(&checkpoint.model, to).map(drop)
}

impl Export {
    /// Writes the file; returns notes about differences that a reader does not expect.
    pub fn write(&self, model: &Model, to: &Path) -> Result<Vec<String>, ModelError> {
        let errors = model_errors("the model", model);
        if !errors.is_empty() {
            return Err(ModelError::Unfit { errors });
        }
        if !self.overwrite && to.symlink_metadata().is_ok() {
            return Err(ModelError::Exists { path: to.to_owned() });
        }
        let new = unfinished(to)?;
        let done = self.fill(model, &new).and_then(|notes| self.place(&new, to).map(|()| notes));
        if done.is_err() {
            let _ = fs::remove_file(&new);
        }
        done
    }

    fn fill(&self, model: &Model, path: &Path) -> Result<Vec<String>, ModelError> {
        let tensors = tensors(model);
        let write = || -> io::Result<Vec<String>> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
            let notes = match self.format {
                Format::Npz => npz::write(&mut file, &tensors, self.positional)?,
                Format::PyTorch => pytorch::write(&mut file, &tensors).map(|()| Vec::new())?,
                Format::Safetensors => {
                    let mut out = BufWriter::new(&mut file);
                    safetensors::write(&mut out, &tensors, &[])?;
                    out.flush()?;
                    Vec::new()
                }
            };
            file.sync_all()?;
            Ok(notes)
        };
        write().map_err(ModelError::disk("write", path))
    }

    fn place(&self, new: &Path, to: &Path) -> Result<(), ModelError> {
        let placed = match self.overwrite {
            true => fs::rename(new, to),
            // Another process may have created the file since the check.
            false => match renameat_with(CWD, new, CWD, to, RenameFlags::NOREPLACE) {
                Err(rustix::io::Errno::EXIST) => return Err(ModelError::Exists { path: to.to_owned() }),
                // The file system has no RENAME_NOREPLACE.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::rename(new, to),
                other => other.map_err(io::Error::from),
            },
        };
        placed.and_then(|()| sync_directory(parent_of(to))).map_err(ModelError::disk("rename to", to))
    }
}

/// A name beside the target, so that a rename is possible; processes use different names.
fn unfinished(to: &Path) -> Result<PathBuf, ModelError> {
    let no_name = || ModelError::disk("write", to)(io::Error::other("the path does not end with a file name"));
    let mut name = std::ffi::OsString::from(".unfinished-");
    name.push(to.file_name().ok_or_else(no_name)?);
    name.push(format!("-{}", std::process::id()));
    Ok(to.with_file_name(name))
}
