use ::safetensors::SafeTensors;

use super::*;
use crate::model_file::tensors;
use crate::testing::every_dtype;

fn written(tensors: &[Tensor<'_>]) -> Bytes {
    let mut file = Vec::new();
    write(&mut file, tensors, &[]).unwrap();
    file.into()
}

/// A file with this header, and so many zeros behind it.
fn file(header: &str, data_bytes: usize) -> Bytes {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + data_bytes, 0);
    file.into()
}

#[test]
fn the_authors_of_the_format_read_the_same() {
    let model = every_dtype();
    let file = written(&tensors(&model));
    let theirs = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(theirs.len(), model.arrays.len());
    for (slot, data) in model.layout.0.iter().zip(&model.arrays) {
        let view = theirs.tensor(&slot.name).unwrap();
        let found = (format!("{:?}", view.dtype()), view.shape(), view.data());
        assert_eq!(found, (name_of(slot.dtype).to_owned(), slot.shape.as_slice(), data.as_ref()), "{}", slot.name);
    }
}

/// Readers that map the file into memory need it.
#[test]
fn all_elements_lie_at_multiples_of_their_size() {
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
fn headers_that_lie_are_refused() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let twice =
        r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let shared =
        r#"{"v":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
    let order = r#"{"__metadata__":{"order":"[\"v\"]"},"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#;
    let huge = "[4294967296, 4294967296, 0]";
    for (header, told) in [
        (one("F32", "[2]", "[0,4]"), "does not fit its data"),
        (one("F32", "[2]", "[8,0]"), "does not fit its data"),
        (one("F32", huge, "[0,0]"), "does not fit its data"),
        (one("F32", "[1]", "[4,8]"), "do not lie where the array before it ends"),
        (one("F32", "[3]", "[0,12]"), "do not lie where the array before it ends"),
        (one("F32", "[1]", "[0,4]"), "4 bytes at its end belong to no array"),
        (one("F8_E4M3", "[8]", "[0,8]"), "elements of the type F8_E4M3; known are BOOL, I8"),
        (one("F32", "[-1]", "[0,8]"), "not that of a safetensors file"),
        (one("U8", &format!("{:?}", [1; 65]), "[0,1]"), "more than 64 dimensions"),
        (twice.to_owned(), "\"w\" is there twice"),
        (shared.to_owned(), "do not lie where the array before it ends"),
        (order.to_owned(), "names others than it has"),
        ("[]".to_owned(), "not that of a safetensors file"),
    ] {
        let error = read(&file(&header, 8)).map(drop).unwrap_err();
        assert!(error.contains(told), "{header}: {error}");
    }
    let mut truths = file(&one("BOOL", "[8]", "[0,8]"), 8).to_vec();
    *truths.last_mut().unwrap() = 2;
    assert!(read(&truths.into()).map(drop).unwrap_err().contains("truth values"));
}
