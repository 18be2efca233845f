//! Objects that the official package made: read, written again, and made from the same values.

use bytes::Bytes;
use serde_json::Value;
use trellis_core::id::ObjectId;
use trellis_wire::object::{
    Array, ConfigRecord, ConfigValue, Entries, MAX_CHUNK_BYTES, MetricRecord, MetricValue, Object, ObjectKind, decode,
    encode, object_id, verify,
};

const OBJECTS: &str = include_str!("../data/objects.jsonl");
const MADE: &str = include_str!("../data/made.jsonl");
const MIB: usize = 1024 * 1024;

pub struct Vector {
    pub case: String,
    pub kind: ObjectKind,
    pub id: ObjectId,
    pub object: Bytes,
}

/// The recorded objects whose bytes are recorded too (large ones have an id only).
pub fn recorded() -> Vec<Vector> {
    let vectors = OBJECTS.lines().chain(MADE.lines()).filter_map(|line| {
        let row: Value = serde_json::from_str(line).expect("a row of JSON");
        Some(Vector {
            case: row["case"].as_str()?.to_owned(),
            kind: row["type"].as_str()?.parse().expect("a known kind"),
            id: row["id"].as_str()?.parse().expect("an id"),
            object: unhex(row["hex"].as_str()?).into(),
        })
    });
    vectors.collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn find(case: &str, kind: ObjectKind) -> Vector {
    let found = recorded().into_iter().find(|vector| vector.case == case && vector.kind == kind);
    found.unwrap_or_else(|| panic!("no recorded {kind} in the case {case:?}"))
}

#[test]
fn every_kind_is_recorded() {
    for kind in ObjectKind::ALL {
        assert!(recorded().iter().any(|vector| vector.kind == kind), "{kind}");
    }
    assert_eq!(recorded().len(), 40 + 21);
}

#[test]
fn recorded_objects_have_their_ids_and_pass_the_check() {
    for Vector { case, kind, id, object } in recorded() {
        assert_eq!(object_id(&object), id, "{case} {kind}");
        let header = verify(id, &object).unwrap_or_else(|why| panic!("{case} {kind}: {why}"));
        assert_eq!(header.kind, kind, "{case}");
        let nul = object.iter().position(|&byte| byte == 0).unwrap();
        assert_eq!(header.encode(), object[..nul], "{case} {kind}");
    }
}

#[test]
fn recorded_objects_are_written_again_bit_for_bit() {
    for Vector { case, kind, object, .. } in recorded() {
        let (header, body) = decode(&object).unwrap();
        assert_eq!(encode(header.kind, &header.children, &body), object, "{case} {kind}");
        let meaning = Object::decode(&object).unwrap_or_else(|why| panic!("{case} {kind}: {why}"));
        assert_eq!(meaning.encode(), object, "{case} {kind}: {meaning:?}");
    }
}

#[test]
fn config_values_take_the_wire_types_that_python_takes() {
    let record = ConfigRecord(named(&[
        ("zero", 0i64.into()),
        ("minus", (-1i64).into()),
        ("top", (i64::MAX as u64).into()),
        ("bottom", i64::MIN.into()),
        ("unsigned", (1u64 << 63).into()),
        ("most", u64::MAX.into()),
        ("float", 0.1.into()),
        ("negative zero", (-0.0).into()),
        ("infinite", f64::INFINITY.into()),
        ("not a number", f64::NAN.into()),
        ("true", true.into()),
        ("false", false.into()),
        ("", String::new().into()),
        ("text", "grün ✓".to_owned().into()),
        ("bytes", Bytes::from_static(b"\x00\xff").into()),
        ("no bytes", Bytes::new().into()),
        ("none", Vec::<String>::new().into()),
        ("ints", vec![0, -1, i64::MAX].into()),
        ("mixed width", vec![1, 1u64 << 63].into()),
        ("floats", vec![-0.0, f64::INFINITY, 1e-310].into()),
        ("bools", vec![true, false].into()),
        ("texts", vec![String::new(), "ß".to_owned(), "\0".to_owned()].into()),
        ("byte strings", vec![Bytes::new(), Bytes::from_static(b"\0")].into()),
    ]));
    assert_eq!(record.encode(), find("config values", ObjectKind::ConfigRecord).object);
    assert_eq!(record.0.get("top"), Some(&ConfigValue::Sint64(i64::MAX)));
}

#[test]
fn metric_values_take_the_wire_types_that_python_takes() {
    let record = MetricRecord(named(&[
        ("zero", 0u64.into()),
        ("minus", (-1i64).into()),
        ("top", i64::MAX.into()),
        ("bottom", i64::MIN.into()),
        ("unsigned", (1u64 << 63).into()),
        ("most", u64::MAX.into()),
        ("float", 0.1.into()),
        ("negative zero", (-0.0).into()),
        ("infinite", f64::INFINITY.into()),
        ("not a number", f64::NAN.into()),
        ("none", Vec::<u64>::new().into()),
        ("ints", vec![0, -1, i64::MAX].into()),
        ("mixed width", vec![1, 1u64 << 63].into()),
        ("floats", vec![-0.0, f64::INFINITY, 1e-310].into()),
    ]));
    assert_eq!(record.encode(), find("metric values", ObjectKind::MetricRecord).object);
    assert_eq!(MetricValue::from(vec![1u64, 2]), MetricValue::from(vec![1i64, 2]));
}

fn named<V: Clone>(entries: &[(&str, V)]) -> Entries<V> {
    Entries::new(entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()).unwrap()
}

#[test]
fn data_is_cut_into_chunks_as_python_cuts_it() {
    let pattern = |length: usize| -> Vec<u8> { (0..length).map(|i| (((i * i) >> 8) + (i >> 20)) as u8).collect() };
    let cases = [
        ("chunks", pattern(12 * MIB + 5), 3, 3),
        ("equal chunks", [vec![0; 10 * MIB], pattern(5 * MIB), vec![0; 6 * MIB]].concat(), 5, 3),
        ("full chunk", vec![0; MAX_CHUNK_BYTES], 1, 1),
    ];
    for (case, data, chunks, distinct) in cases {
        let (array, objects) = Array::from_data("uint8", &[data.len() as u64], "raw", &data);
        assert_eq!((array.chunks.len(), objects.len()), (chunks, distinct), "{case}");
        // The array's object holds the ids of its chunks, so equal bytes mean that the chunks are equal too.
        assert_eq!(array.encode(), find(case, ObjectKind::Array).object, "{case}");
        for (id, object) in &objects {
            assert_eq!(verify(*id, object).map(|header| header.kind), Ok(ObjectKind::ArrayChunk), "{case}");
        }
    }
}

#[test]
fn an_array_without_data_has_no_chunks() {
    let (array, objects) = Array::from_data("x", &[], "y", b"");
    assert!(objects.is_empty());
    assert_eq!(array.encode(), find("names", ObjectKind::Array).object);
}
