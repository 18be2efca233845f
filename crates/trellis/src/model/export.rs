//! `trellis model export`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use trellis_models::{Export, Format};
use trellis_terminal::size::rounded;
use trellis_terminal::{OutputArgs, clean, print, remark};

use super::{PlaceArgs, WhichArgs, failure};
use crate::remote::CommandError;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// File to write; it appears whole or not at all
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// In which format [default: as FILE ends: .safetensors, .npz, .pt or .pth]
    #[arg(id = "file_format", long = "format")]
    format: Option<FormatName>,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    /// Call the arrays arr_0, arr_1, ... in their order, as numpy.savez without names does; only for npz
    #[arg(long)]
    positional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// Readable by every framework, and by trellis as an initial model
    Safetensors,
    /// For numpy.load; bfloat16 becomes float32
    Npz,
    /// A state dict for torch.load, also with weights_only=True
    Pytorch,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Format {
        match name {
            FormatName::Safetensors => Format::Safetensors,
            FormatName::Npz => Format::Npz,
            FormatName::Pytorch => Format::PyTorch,
        }
    }
}

impl ExportArgs {
    pub(super) fn run(&self, which: &WhichArgs, place: &PlaceArgs, output: &OutputArgs) -> Result<(), CommandError> {
        let export = self.check()?;
        let loaded = which.open(place)?;
        let notes = export.write(&loaded.checkpoint.model, &self.out).map_err(failure)?;
        notes.iter().for_each(|note| remark(&format!("note: {}", clean(note))));
        let manifest = &loaded.checkpoint.manifest;
        let bytes = self.out.metadata().map(|metadata| metadata.len()).unwrap_or_default();
        let (run, round, out) = (&manifest.run_id, manifest.round, self.out.display().to_string());
        output.print(&json!({"run_id": run, "round": round, "path": out, "bytes": bytes}), || {
            print(&format!("{}\n", clean(&format!("{run}@{round} is in {out} ({})", rounded(bytes)))));
        });
        Ok(())
    }

    /// All that is wrong with the arguments.
    fn check(&self) -> Result<Export, CommandError> {
        let format = self.format.map(Format::from).or_else(|| Format::of(&self.out));
        let out = self.out.display();
        let mut failures = Vec::new();
        if format.is_none() {
            let what = format!("the file name {out} does not determine a format");
            failures.push(CommandError::usage(what, "give --format safetensors, npz or pytorch"));
        }
        if self.positional && format.is_some_and(|format| format != Format::Npz) {
            failures.push(CommandError::usage("--positional is for npz only", "leave it out, or give --format npz"));
        }
        if !self.force && self.out.symlink_metadata().is_ok() {
            failures.push(CommandError::usage(format!("{out} exists"), "name another file, or give --force"));
        }
        match (format, failures.into_iter().reduce(CommandError::and)) {
            (Some(format), None) => Ok(Export { format, overwrite: self.force, positional: self.positional }),
            (_, failure) => Err(failure.expect("without a format there is a problem")),
        }
    }
}
