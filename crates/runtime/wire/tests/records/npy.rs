//! Data of arrays: every type, order and shape that numpy wrote is read; what it writes by itself is written alike.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use trellis_wire::records::{Array, Dtype, F16, NpyError, NpyHead, Tensor, Values, npy_header};

use crate::unhex;

const ARRAYS: &str = include_str!("../data/arrays.jsonl");

struct Recorded {
    form: String,
    dtype: Dtype,
    shape: Vec<usize>,
    /// In the order of C, little-endian.
    elements: Vec<u8>,
    array: Array,
}

fn recorded() -> Vec<Recorded> {
    ARRAYS.lines().map(|line| read_row(&serde_json::from_str(line).expect("a row of JSON"))).collect()
}

fn read_row(row: &Value) -> Recorded {
    let text = |key: &str| row[key].as_str().unwrap().to_owned();
    let shape: Vec<u64> = serde_json::from_value(row["shape"].clone()).unwrap();
    let name = text("dtype");
    Recorded {
        form: text("form"),
        dtype: *Dtype::ALL.iter().find(|dtype| dtype.name() == name).unwrap_or_else(|| panic!("{name}")),
        elements: unhex(&text("elements")),
        array: Array {
            dtype: text("declared"),
            shape: shape.clone(),
            stype: "numpy.ndarray".to_owned(),
            data: unhex(&text("hex")).into(),
        },
        shape: shape.iter().map(|&length| length as usize).collect(),
    }
}

#[test]
fn every_type_is_recorded() {
    for dtype in Dtype::ALL {
        assert!(recorded().iter().any(|row| row.dtype == *dtype), "{dtype:?}");
    }
    for form in ["plain", "fortran", "big-endian", "big-endian fortran"] {
        assert!(recorded().iter().any(|row| row.form == form), "{form}");
    }
}

#[test]
fn what_numpy_wrote_is_read() {
    for Recorded { form, dtype, shape, elements, array } in recorded() {
        let tensor = array.tensor().unwrap_or_else(|why| panic!("{form} {dtype:?} {shape:?}: {why}"));
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, &shape[..]), "{form}");
        // Written again the elements are in the order of C and little-endian, after a header of whole blocks.
        let written = Array::from(&tensor).data;
        assert_eq!(written[written.len() - elements.len()..], elements, "{form} {dtype:?} {shape:?}");
        assert_eq!((written.len() - elements.len()) % 64, 0);
    }
}

#[test]
fn what_numpy_writes_is_written_bit_for_bit() {
    for Recorded { form, dtype, shape, array, .. } in recorded() {
        if form == "plain" {
            assert_eq!(Array::from(array.tensor().unwrap()), array, "{dtype:?} {shape:?}");
        }
    }
}

#[test]
fn the_beginning_of_a_file_tells_what_follows() {
    for Recorded { form, dtype, shape, elements, array } in recorded() {
        let head = NpyHead::read(&array.data, &array.dtype).unwrap().expect("a whole header");
        assert_eq!((head.dtype, &head.shape, head.data_bytes), (dtype, &shape, elements.len()), "{form}");
        assert_eq!(head.data_offset + head.data_bytes, array.data.len(), "{form}");
        if head.is_plain() {
            assert_eq!(array.data[head.data_offset..], elements, "{form} {dtype:?} {shape:?}");
        }
        if form == "plain" {
            assert!(head.is_plain());
            assert_eq!(npy_header(dtype, &shape), array.data[..head.data_offset]);
        }
        for cut in [0, 1, 6, 8, 9, 11, head.data_offset - 1] {
            assert_eq!(NpyHead::read(&array.data[..cut], &array.dtype), Ok(None), "{cut}");
        }
    }
}

#[test]
fn known_values() {
    let rows = recorded();
    let find = |form: &str, dtype| {
        let row = rows.iter().find(|row| row.form == form && row.dtype == dtype && row.shape == [2, 3]).unwrap();
        row.array.tensor().unwrap().into_values()
    };
    assert_eq!(find("plain", Dtype::F32), Values::F32(vec![1., 2., 3., 4., 5., 6.]));
    assert_eq!(find("big-endian", Dtype::I64), Values::I64(vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(find("fortran", Dtype::I16), Values::I16(vec![1, 2, 3, 4, 5, 6]));
    for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64] {
        assert_eq!(find("plain", dtype).to_f32(), Some(vec![1., 2., 3., 4., 5., 6.]), "{dtype:?}");
    }
    assert_eq!(find("plain", Dtype::I32).to_f32(), None);
    assert_eq!(find("big-endian", Dtype::F16), Values::F16([1., 2., 3., 4., 5., 6.].map(F16::from_f32).to_vec()));
}

fn numpy(data: impl Into<Bytes>) -> Array {
    Array { dtype: "float32".into(), shape: vec![2], stype: "numpy.ndarray".into(), data: data.into() }
}

fn file(version: &[u8], literal: &str, data: &[u8]) -> Array {
    numpy([b"\x93NUMPY", version, literal.as_bytes(), data].concat())
}

#[test]
fn other_spellings_of_a_header_are_read() {
    let two = [0, 0, 128, 63, 0, 0, 0, 64];
    let literal = "{\"shape\":(2L,),'descr':'<f4','fortran_order':False}\n";
    let length = literal.len() as u8;
    for version in [&[1, 0, length, 0][..], &[2, 0, length, 0, 0, 0], &[3, 0, length, 0, 0, 0]] {
        let tensor = file(version, literal, &two).tensor().unwrap();
        assert_eq!(tensor, Tensor::new(vec![2], vec![1.0f32, 2.0]).unwrap());
    }
}

#[test]
fn data_that_is_not_numbers_is_refused() {
    let with = |literal: &str| file(&[1, 0, literal.len() as u8, 0], literal, &[0; 8]).tensor().unwrap_err();
    let lengths = |shape: &str| with(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"));
    assert_eq!(lengths("(3,)"), NpyError::Length { needed: 12, present: 8 });
    assert_eq!(lengths("(1,)"), NpyError::Length { needed: 4, present: 8 });
    for shape in ["(2,", "2", "(-2,)", "(2, x)", "(99999999999, 99999999999)", "(0, 99999999999, 99999999999)"] {
        assert!(matches!(lengths(shape), NpyError::Form(_)), "{shape}");
    }
    for descr in ["|O", "<c8", "<U3", "<V2", "=f4", "", "ü", "<f16"] {
        let error = with(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}"));
        assert_eq!(error, NpyError::Type(descr.to_owned()));
    }
    for literal in
        ["", "{}", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "{'descr': '<f4'}", "{'x': 1}"]
    {
        assert!(matches!(with(literal), NpyError::Form(_)), "{literal}");
    }
    for data in [&b""[..], b"PK\x03\x04", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff", b"\x93NUMPY\x09\x00\x00\x00"] {
        assert!(matches!(numpy(data.to_vec()).tensor(), Err(NpyError::Form(_))), "{data:?}");
    }
    let other = Array { stype: "torch".into(), ..numpy(Bytes::new()) };
    assert_eq!(other.tensor(), Err(NpyError::OtherForm("torch".into())));
}

#[test]
fn a_tensor_fills_its_shape() {
    assert!(Tensor::new(vec![2, 2], vec![1u8, 2, 3]).is_err());
    assert!(Tensor::new(vec![usize::MAX, 2], vec![1u8]).is_err());
    assert!(Tensor::new(vec![0, 7], Vec::<f64>::new()).is_ok());
}

proptest! {
    #[test]
    fn tensors_come_back(shape in prop::collection::vec(0usize..5, 0..5), seed: u64) {
        let count: usize = shape.iter().product();
        let values: Vec<i64> = (0..count as u64).map(|i| (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64).collect();
        let tensor = Tensor::new(shape, values).unwrap();
        prop_assert_eq!(Array::from(&tensor).tensor().unwrap(), tensor);
    }

    #[test]
    fn no_header_is_a_crash(literal in "[{]('(descr|shape|fortran_order)': ['(]?[<|>]?[a-zA-Z0-9, )]{0,6}'?, ?){0,4}[}]?") {
        let _ = file(&[1, 0, literal.len() as u8, 0], &literal, &[0; 8]).tensor();
    }
}
