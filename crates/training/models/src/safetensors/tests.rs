use ::safetensors::SafeTensors;

use super::*;
use crate::model_file::tensors;
use crate::testing::every_dtype;

fn written(tensors: &[Tensor<'_>]) -> Bytes {
    let mut file = Vec::new();
    write(&mut file, tensors, &[]).unwrap();
    file.into()
}

/// A file with this header and this number of zeros as data.
fn file(header: &str, data_bytes: usize) -> Bytes {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + data_bytes, 0);
    file.into()
}

#[test]
fn the_reference_implementation_reads_the_same() {
    let model = every_dtype();
    let file = written(&tensors(&model));
    let reference = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(reference.len(), model.arrays.len());
    for (slot, data) in model.layout.0.iter().zip(&model.arrays) {
        let view = reference.tensor(&slot.name).unwrap();
        let found = (format!("{:?}", view.dtype()), view.shape(), view.data());
        assert_eq!(found, (name_of(slot.dtype).to_owned(), slot.shape.as_slice(), data.as_ref()), "{}", slot.name);
    }
}

/// Readers that map the file into memory need aligned elements.
#[test]
fn all_elements_are_aligned() {
    let model = every_dtype();
    let file = written(&tensors(&model));
    let content = read(&file).unwrap();
    for (slot, data) in content.tensors {
        let offset = data.as_ptr() as usize - file.as_ptr() as usize;
        assert!(data.is_empty() || offset.is_multiple_of(slot.dtype.bytes()), "{} at {offset}", slot.name);
    }
}

#[test]
fn foreign_files_are_read_in_the_order_of_their_data() {
    let header = r#"{"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"none":{"dtype":"I8","shape":[0],"data_offsets":[4,4]},
        "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
    let names: Vec<String> = read(&file(header, 8)).unwrap().tensors.into_iter().map(|(slot, _)| slot.name).collect();
    assert_eq!(names, ["a", "none", "b"]);
}

#[test]
fn inconsistent_headers_are_refused() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let twice =
        r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let shared =
        r#"{"v":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
    let order = r#"{"__metadata__":{"order":"[\"v\"]"},"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#;
    let huge = "[4294967296, 4294967296, 0]";
    for (header, expected) in [
        (one("F32", "[2]", "[0,4]"), "does not fit its data"),
        (one("F32", "[2]", "[8,0]"), "does not fit its data"),
        (one("F32", huge, "[0,0]"), "does not fit its data"),
        (one("F32", "[1]", "[4,8]"), "do not begin where the previous array ends"),
        (one("F32", "[3]", "[0,12]"), "do not begin where the previous array ends"),
        (one("F32", "[1]", "[0,4]"), "its last 4 bytes belong to no array"),
        (one("F8_E4M3", "[8]", "[0,8]"), "unknown type F8_E4M3; known types: BOOL, I8"),
        (one("F32", "[-1]", "[0,8]"), "not a safetensors header"),
        (one("U8", &format!("{:?}", [1; 65]), "[0,1]"), "more than 64 dimensions"),
        (twice.to_owned(), "\"w\" occurs twice"),
        (shared.to_owned(), "do not begin where the previous array ends"),
        (order.to_owned(), "does not match its arrays"),
        ("[]".to_owned(), "not a safetensors header"),
    ] {
        let error = read(&file(&header, 8)).map(drop).unwrap_err();
        assert!(error.contains(expected), "{header}: {error}");
    }
    let mut booleans = file(&one("BOOL", "[8]", "[0,8]"), 8).to_vec();
    *booleans.last_mut().unwrap() = 2;
    assert!(read(&booleans.into()).map(drop).unwrap_err().contains("a value other than 0 and 1"));
}
