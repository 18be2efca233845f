//! Any bytes as an object, and any bytes as the body of each kind of object.
//!
//! Nothing may panic, the incremental check must agree with the decoder, and whatever can be read must come back from
//! its own encoding.
#![no_main]

mod seeds;

use bytes::Bytes;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use trellis_core::id::ObjectId;
use trellis_wire::object::{self, Header, Object, ObjectKind, Verifier};

/// One mutation in so many starts from a real object instead of from what the fuzzer has come to.
const SEED_EVERY: u32 = 64;

fuzz_target!(|data: &[u8]| {
    check_object(Bytes::copy_from_slice(data));
    check_arrival(data);
    if let Some((&choice, body)) = data.split_first() {
        let kind = ObjectKind::ALL[usize::from(choice) % ObjectKind::ALL.len()];
        let children = usize::from(choice) / ObjectKind::ALL.len() % 3;
        check_body(kind, children, body);
    }
});

// Without seeds it takes hours until chance has spelled a header, its lengths and its ids.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let seeds = seeds::all();
    let start = &seeds[(seed / SEED_EVERY) as usize % seeds.len()];
    if !seed.is_multiple_of(SEED_EVERY) || start.len() > max_size {
        return fuzzer_mutate(data, size, max_size);
    }
    data[..start.len()].copy_from_slice(start);
    fuzzer_mutate(data, start.len(), max_size)
});

fn check_object(bytes: Bytes) {
    if let Ok((header, body)) = object::decode(&bytes) {
        assert_eq!(object::encode(header.kind, &header.children, &body), bytes, "a header has one spelling");
    }
    if let Ok(meaning) = Object::decode(&bytes) {
        check_round_trip(&meaning);
    }
}

/// Compares bytes, not values: a NaN is not equal to itself.
fn check_round_trip(meaning: &Object) {
    let encoded = meaning.encode();
    let again = Object::decode(&encoded).expect("what was written can be read");
    assert_eq!(again.encode(), encoded, "{meaning:?}");
}

/// The first byte also says where the bytes are cut in two.
fn check_arrival(data: &[u8]) {
    let id = object::object_id(data);
    let whole = object::verify(id, data);
    let decoded = object::decode(&Bytes::copy_from_slice(data)).map(|(header, _)| header);
    assert_eq!(whole, decoded);
    if let Ok(Some((header, header_bytes))) = Header::split(data) {
        assert_eq!(header.encode(), data[..header_bytes - 1]);
    }

    let cut = data.first().map_or(0, |&byte| usize::from(byte) % data.len());
    let mut verifier = Verifier::new(id);
    let first = verifier.update(&data[..cut]);
    let second = verifier.update(&data[cut..]);
    let cut_in_two = verifier.finish();
    assert_eq!(cut_in_two, whole);
    if let Err(early) = first.and(second) {
        assert_eq!(Err(early), whole);
    }
}

/// In a body of names, the bytes 1 and 2 stand for two ids, which chance would never spell.
fn check_body(kind: ObjectKind, children: usize, body: &[u8]) {
    let ids = [ObjectId::new([0xa1; 32]), ObjectId::new([0xb2; 32])];
    let children = &ids[..children];
    let object = match kind {
        ObjectKind::ArrayRecord | ObjectKind::RecordDict => {
            let mut named = Vec::new();
            for &byte in body {
                match byte {
                    1 | 2 => named.extend_from_slice(ids[usize::from(byte) - 1].to_string().as_bytes()),
                    _ => named.push(byte),
                }
            }
            object::encode(kind, children, &named)
        }
        _ => object::encode(kind, children, body),
    };
    if let Ok(meaning) = Object::decode(&object) {
        check_round_trip(&meaning);
    }
}
