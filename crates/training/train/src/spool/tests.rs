use trellis_strategy::Slot;
use trellis_wire::object;
use trellis_wire::records::{Array, Dtype, F16, NUMPY, Tensor, Values, npy_header};

use super::*;

fn slot(name: &str, dtype: Dtype, shape: &[usize]) -> Slot {
    Slot { name: name.to_owned(), dtype, shape: shape.to_vec() }
}

fn layout() -> Arc<Layout> {
    Arc::new(Layout(vec![slot("w", Dtype::F32, &[2, 3]), slot("b", Dtype::F64, &[2]), slot("n", Dtype::I64, &[])]))
}

/// A layout that is too large for memory.
fn long_layout() -> Arc<Layout> {
    Arc::new(Layout(vec![slot("w", Dtype::F32, &[300_000]), slot("b", Dtype::F16, &[5])]))
}

fn numbers(layout: &Layout) -> Vec<(String, Array)> {
    let array = |slot: &Slot| {
        let count = slot.elements();
        let values = match slot.dtype {
            Dtype::F32 => Values::F32((0..count).map(|number| number as f32).collect()),
            Dtype::F64 => Values::F64((0..count).map(|number| number as f64).collect()),
            Dtype::F16 => Values::F16((0..count).map(|number| F16::from_f32(number as f32)).collect()),
            _ => Values::I64((0..count).map(|number| number as i64).collect()),
        };
        (slot.name.clone(), Array::from(Tensor::new(slot.shape.clone(), values).unwrap()))
    };
    layout.0.iter().map(array).collect()
}

fn described(array: &Array) -> object::Array {
    object::Array { dtype: array.dtype.clone(), shape: Vec::new(), stype: array.stype.clone(), chunks: Vec::new() }
}

/// Adds arrays in chunks of this length.
fn bring(mut draft: Draft, arrays: &[(String, Array)], piece_bytes: usize) -> Result<Spooled, SpoolError> {
    draft.check_names(arrays.iter().map(|(name, _)| name.as_str()))?;
    for (name, array) in arrays {
        draft.begin(name, &described(array))?;
        for piece in array.data.chunks(piece_bytes) {
            draft.take(piece)?;
        }
        draft.end()?;
    }
    draft.finish()
}

fn elements(array: &Array) -> &[u8] {
    let head = trellis_wire::records::NpyHead::read(&array.data, &array.dtype).unwrap().unwrap();
    &array.data[head.data_offset..]
}

fn spool() -> (tempfile::TempDir, Spool) {
    let directory = tempfile::tempdir().unwrap();
    let spool = Spool::new(directory.path());
    (directory, spool)
}

#[test]
fn a_reply_round_trips_with_any_chunks_and_order_of_arrays() {
    let (_directory, spool) = spool();
    for (layout, is_in_memory) in [(layout(), true), (long_layout(), false)] {
        let mut arrays = numbers(&layout);
        for piece_bytes in [1, 7, 64, 100, 1 << 20, usize::MAX].into_iter().filter(|piece| is_in_memory || *piece > 50)
        {
            arrays.reverse();
            let spooled = bring(spool.draft(&layout, false).unwrap(), &arrays, piece_bytes).unwrap();
            assert_eq!(matches!(spooled.storage, Storage::Memory { .. }), is_in_memory);
            assert_eq!(spooled.layout(), &*layout, "the order is that of the model");
            let mut buffer = Vec::new();
            for (position, slot) in layout.0.iter().enumerate() {
                let (_, array) = arrays.iter().find(|(name, _)| *name == slot.name).unwrap();
                let whole = spooled.part(position, 0..slot.bytes(), &mut buffer).unwrap();
                assert_eq!(whole, elements(array));
                let end = slot.bytes();
                let part = spooled.part(position, end / 2..end, &mut buffer).unwrap();
                assert_eq!(part, &elements(array)[end / 2..]);
            }
            let model = spooled.into_model().unwrap();
            assert!(arrays.iter().all(|(_, array)| model.arrays.iter().any(|bytes| bytes == elements(array))));
        }
    }
}

#[test]
fn without_an_expected_layout_any_model_is_accepted() {
    let (_directory, spool) = spool();
    let arrays = numbers(&layout());
    let model = bring(spool.free_draft(), &arrays, 10).unwrap().into_model().unwrap();
    assert_eq!(model.layout, layout());
    assert_eq!(model.arrays[0], elements(&arrays[0].1));
}

#[test]
fn other_element_orders_are_converted() {
    let (_directory, spool) = spool();
    let layout = Arc::new(Layout(vec![slot("w", Dtype::I16, &[2, 3])]));
    let plain: Vec<u8> = [1i16, 2, 3, 4, 5, 6].iter().flat_map(|number| number.to_le_bytes()).collect();
    let fortran: Vec<u8> = [1i16, 4, 2, 5, 3, 6].iter().flat_map(|number| number.to_le_bytes()).collect();
    let big: Vec<u8> = [1i16, 2, 3, 4, 5, 6].iter().flat_map(|number| number.to_be_bytes()).collect();
    for (descr, order, data) in [("<i2", "False", &plain), ("<i2", "True", &fortran), (">i2", "False", &big)] {
        let head = String::from_utf8_lossy(&npy_header(Dtype::I16, &[2, 3])[10..])
            .replace("<i2", descr)
            .replace("False", if order == "True" { "True " } else { order });
        let file = [b"\x93NUMPY\x01\0".as_slice(), &(head.len() as u16).to_le_bytes(), head.as_bytes(), data].concat();
        let array = Array { dtype: "int16".into(), shape: vec![2, 3], stype: NUMPY.into(), data: file.into() };
        let spooled = bring(spool.draft(&layout, false).unwrap(), &[("w".to_owned(), array)], 11).unwrap();
        assert_eq!(spooled.into_model().unwrap().arrays[0], plain, "{descr} {order}");
    }
}

#[test]
fn errors_describe_the_difference_from_the_model() {
    let (_directory, spool) = spool();
    let layout = layout();
    let good = numbers(&layout);
    let with = |name: &str, array: Array| {
        let mut arrays = good.clone();
        arrays.iter_mut().find(|(known, _)| known == name).unwrap().1 = array;
        arrays
    };
    let tensor = |shape: &[usize], values: Vec<f32>| Array::from(Tensor::new(shape.to_vec(), values).unwrap());
    let cut = |array: &Array, bytes: usize| Array { data: array.data.slice(..bytes), ..array.clone() };
    let longer = |array: &Array| Array { data: [&array.data[..], &[0; 4]].concat().into(), ..array.clone() };
    let b = &good[1].1;
    let cases = [
        ("fewer", good[..2].to_vec(), "it lacks \"n\""),
        (
            "more",
            [good.clone(), vec![("x".to_owned(), b.clone())]].concat(),
            "it has \"x\", which the model does not have",
        ),
        ("shape", with("w", tensor(&[3, 2], vec![0.0; 6])), "\"w\" is float32 [3, 2], the model has float32 [2, 3]"),
        ("type", with("b", tensor(&[2], vec![0.0; 2])), "\"b\" is float32 [2], the model has float64 [2]"),
        (
            "cut in the elements",
            with("b", cut(b, 136)),
            "\"b\" cannot be read: the shape needs 16 bytes of data, and there are 8",
        ),
        (
            "cut in the header",
            with("b", cut(b, 60)),
            "\"b\" cannot be read: the data is not a .npy file: it ends within its header",
        ),
        ("empty", with("b", cut(b, 0)), "it ends within its header"),
        ("too long", with("b", longer(b)), "the shape needs 16 bytes of data, and there are 20"),
        (
            "no numbers",
            with("b", Array { data: vec![7; 300].into(), ..b.clone() }),
            "\"b\" cannot be read: the data is not a .npy file",
        ),
        (
            "another form",
            with("b", Array { stype: "pickle".into(), ..b.clone() }),
            "the data is of the form \"pickle\"",
        ),
        ("no header ends", with("b", Array { data: endless().into(), ..b.clone() }), "its header is too long"),
    ];
    for (name, arrays, expected) in cases {
        for piece_bytes in [13, usize::MAX] {
            let error = bring(spool.draft(&layout, false).unwrap(), &arrays, piece_bytes).unwrap_err();
            assert!(matches!(&error, SpoolError::Unusable(reason) if reason.contains(expected)), "{name}: {error}");
        }
    }
}

/// A header that declares a huge length.
fn endless() -> Vec<u8> {
    let mut file = b"\x93NUMPY\x02\0\xff\xff\xff\x7f".to_vec();
    file.resize(100 << 10, b' ');
    file
}

#[test]
fn non_finite_values_are_found_with_any_chunks() {
    let (_directory, spool) = spool();
    let layout = Arc::new(Layout(vec![slot("w", Dtype::F64, &[100])]));
    for at in [0, 1, 50, 99] {
        let mut values = vec![1.5; 100];
        values[at] = f64::NAN;
        let array = ("w".to_owned(), Array::from(Tensor::new(vec![100], values).unwrap()));
        for piece_bytes in [1, 3, 129, 133, usize::MAX] {
            let error =
                bring(spool.draft(&layout, false).unwrap(), std::slice::from_ref(&array), piece_bytes).unwrap_err();
            let expected = format!("\"w\" has a non-finite value at index {at}");
            assert!(matches!(&error, SpoolError::NonFinite(reason) if *reason == expected), "{error}");
        }
    }
}

#[test]
fn types_may_differ_if_allowed() {
    let (_directory, spool) = spool();
    let mut arrays = numbers(&layout());
    arrays[1].1 = Array::from(Tensor::new(vec![2], vec![7i64, 8]).unwrap());
    let spooled = bring(spool.draft(&layout(), true).unwrap(), &arrays, 99).unwrap();
    assert_eq!(spooled.layout().0[1].dtype, Dtype::I64);
    assert_eq!(spooled.into_model().unwrap().arrays[1], elements(&arrays[1].1));
}

#[test]
fn memory_is_limited_and_released() {
    let (_directory, spool) = spool();
    let layout = Arc::new(Layout(vec![slot("w", Dtype::F32, &[REPLY_IN_MEMORY_BYTES / 4])]));
    let arrays = numbers(&layout);
    let place = |spooled: &Spooled| matches!(spooled.storage, Storage::Memory { .. });
    let bring = || bring(spool.draft(&layout, false).unwrap(), &arrays, usize::MAX).unwrap();
    let mut kept: Vec<Spooled> = (0..IN_MEMORY_BYTES / REPLY_IN_MEMORY_BYTES).map(|_| bring()).collect();
    assert!(kept.iter().all(place));
    assert!(!place(&bring()), "the limit is reached");
    kept.pop();
    assert!(place(&bring()), "memory was released");
    drop(kept);
    assert_eq!(spool.in_memory_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn an_unusable_spool_directory_is_an_error() {
    let (directory, spool) = spool();
    drop(directory);
    let error = spool.draft(&long_layout(), false).map(drop).unwrap_err();
    assert!(matches!(error, SpoolError::Disk { .. }), "{error}");
}
