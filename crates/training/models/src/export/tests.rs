//! Exports read back by this crate. `tests/models` reads them with numpy and torch.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use bytes::Bytes;
use tempfile::TempDir;
use trellis_strategy::Slot;
use trellis_wire::records::Dtype;
use zip::ZipArchive;

use super::*;
use crate::read_model;
use crate::testing::{array, checkpoint, every_dtype, model};

fn target() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model");
    (directory, path)
}

fn options(format: Format) -> Export {
    Export { format, overwrite: false, positional: false }
}

#[test]
fn safetensors_round_trip() {
    let (_directory, path) = target();
    let notes = options(Format::Safetensors).write(&every_dtype(), &path).unwrap();
    assert_eq!(read_model(&path).unwrap(), every_dtype());
    assert!(notes.is_empty());
}

#[test]
fn npz_round_trips_except_for_bfloat16() {
    let (_directory, path) = target();
    let notes = options(Format::Npz).write(&every_dtype(), &path).unwrap();
    let widened = |(slot, data): (&Slot, &Bytes)| match slot.dtype {
        Dtype::Bf16 => {
            let wide = data.chunks(2).flat_map(|half| [0, 0, half[0], half[1]]).collect();
            (Slot { dtype: Dtype::F32, ..slot.clone() }, wide)
        }
        _ => (slot.clone(), data.clone()),
    };
    let written = every_dtype();
    let expected = model(written.layout.0.iter().zip(&written.arrays).map(widened));
    assert_eq!(read_model(&path).unwrap(), expected);
    assert_eq!(notes, ["numpy has no bfloat16: written as float32, with the same values: z2.bfloat16, a2/weight é"]);
}

#[test]
fn positional_arrays_are_sorted_by_number_and_named_like_in_flower() {
    let (_directory, path) = target();
    let arrays: Vec<_> = (0..12).map(|index| array(&format!("layer {index}"), Dtype::F32, &[index])).collect();
    Export { positional: true, ..options(Format::Npz) }.write(&model(arrays), &path).unwrap();
    let shapes: Vec<(String, Vec<usize>)> =
        read_model(&path).unwrap().layout.0.iter().map(|slot| (slot.name.clone(), slot.shape.clone())).collect();
    let expected: Vec<_> = (0..12).map(|index| (index.to_string(), vec![index])).collect();
    assert_eq!(shapes, expected);
}

/// As numpy.savez_compressed writes them.
#[test]
fn compressed_npz_are_read() {
    let (_directory, path) = target();
    let (slot, data) = array("w", Dtype::F32, &[100, 3]);
    let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
    let deflated = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    zip.start_file("w.npy", deflated).unwrap();
    zip.write_all(&trellis_wire::records::npy_header(slot.dtype, &slot.shape)).unwrap();
    zip.write_all(&data).unwrap();
    zip.finish().unwrap();
    assert_eq!(read_model(&path).unwrap(), model([(slot, data)]));
}

#[test]
fn elements_of_pytorch_storages_are_aligned_and_uncompressed() {
    let (_directory, path) = target();
    options(Format::PyTorch).write(&every_dtype(), &path).unwrap();
    let mut file = File::open(&path).unwrap();
    let mut zip = ZipArchive::new(file.try_clone().unwrap()).unwrap();
    for (index, data) in every_dtype().arrays.iter().enumerate() {
        let member = zip.by_name(&format!("model/data/{index}")).unwrap();
        let start = member.data_start().unwrap();
        assert_eq!((start % 64, member.compression()), (0, zip::CompressionMethod::Stored), "{index}");
        let mut found = vec![0; data.len()];
        file.seek(SeekFrom::Start(start)).unwrap();
        file.read_exact(&mut found).unwrap();
        assert_eq!(found, *data, "{index}");
    }
}

#[test]
fn an_existing_file_is_replaced_only_with_overwrite() {
    for format in [Format::Safetensors, Format::Npz, Format::PyTorch] {
        let (directory, path) = target();
        fs::write(&path, b"mine").unwrap();
        let error = export(&checkpoint("17", 1), format, &path).unwrap_err();
        assert!(matches!(error, ModelError::Exists { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        Export { overwrite: true, ..options(format) }.write(&every_dtype(), &path).unwrap();
        assert_ne!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_failed_export_leaves_no_file() {
    let (directory, path) = target();
    let mut bad = every_dtype();
    bad.arrays[0] = Bytes::new();
    let error = options(Format::Npz).write(&bad, &path).unwrap_err().to_string();
    assert!(error.contains("which does not match its shape"), "{error}");
    let nowhere = directory.path().join("nowhere/model.npz");
    let error = options(Format::Npz).write(&every_dtype(), &nowhere).unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("nowhere"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Every write to /dev/full fails like on a full disk.
#[test]
fn a_full_disk_is_an_error_in_every_format() {
    for format in [Format::Safetensors, Format::Npz, Format::PyTorch] {
        let error = options(format).fill(&every_dtype(), Path::new("/dev/full")).unwrap_err();
        let ModelError::Disk { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull, "{format:?}: {source}");
    }
}

#[test]
fn extensions_determine_formats() {
    for (name, format) in [
        ("a.safetensors", Some(Format::Safetensors)),
        ("a.npz", Some(Format::Npz)),
        ("a.pt", Some(Format::PyTorch)),
        ("a.pth", Some(Format::PyTorch)),
        ("a.bin", None),
        ("npz", None),
    ] {
        assert_eq!(Format::of(Path::new(name)), format, "{name}");
    }
}

#[test]
fn a_file_without_a_model_is_refused_with_the_reason() {
    let (_directory, path) = target();
    let error_of = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read_model(&path).unwrap_err().to_string()
    };
    for (bytes, expected) in [
        (&b""[..], "shorter than the header"),
        (b"\x80\x02}q\x00.", "shorter than the header"),
        (b"hello, this is a text", "does not begin like a safetensors file"),
        (b"PK\x03\x04 and no more", "not a complete zip archive"),
        (b"\x02\0\0\0\0\0\0\0{}", "it contains no arrays"),
    ] {
        let error = error_of(bytes);
        assert!(error.contains(expected) && error.contains("cannot be read as a model"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    options(Format::PyTorch).write(&every_dtype(), &path).unwrap();
    let error = read_model(&path).unwrap_err().to_string();
    assert!(error.contains("but not .npz: its member \"model/data.pkl\" is not an array"), "{error}");
    assert!(read_model(path.with_file_name("nothing")).unwrap_err().to_string().contains("cannot open"));
}
