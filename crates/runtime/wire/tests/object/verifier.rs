//! The check of an arriving object: the same answer however the bytes are cut, and as early as can be.

use proptest::prelude::*;
use trellis_wire::object::{Header, MAX_HEADER_BYTES, Malformed, ObjectError, ObjectKind, Verifier, object_id, verify};

use crate::header::any_header;
use crate::{id, malformed};

/// Goes on after an error, as one does who wants the final judgement.
fn fed(verifier: Verifier, object: &[u8], cuts: &[usize]) -> Result<Header, ObjectError> {
    let mut verifier = verifier;
    let mut rest = object;
    for cut in cuts {
        let (piece, after) = rest.split_at(cut % (rest.len() + 1));
        let _ = verifier.update(piece);
        rest = after;
    }
    let _ = verifier.update(rest);
    verifier.finish()
}

#[test]
fn a_good_object_passes() {
    let object = b"ArrayChunk  3\0a\0b";
    let header = Header { kind: ObjectKind::ArrayChunk, children: vec![], body_bytes: 3 };
    assert_eq!(verify(object_id(object), object), Ok(header));
}

#[test]
fn another_hash_counts_for_more_than_bad_form() {
    for object in
        [&b"ArrayChunk  3\0abc"[..], b"ArrayChunk  3\0abcd", b"ArrayChunk  3\0ab", b"garbage\0", b"garbage", b""]
    {
        let wrong_hash = ObjectError::HashMismatch { expected: id(7), actual: object_id(object) };
        assert_eq!(verify(id(7), object), Err(wrong_hash));
    }
}

#[test]
fn bad_form_under_the_right_hash_is_told() {
    let table = [
        (&b""[..], Malformed::HeaderCutOff),
        (b"ArrayChunk  3", Malformed::HeaderCutOff),
        (b"garbage\0", Malformed::HeaderForm),
        (b"Nothing  0\0", Malformed::UnknownKind("Nothing".to_owned())),
        (b"ArrayChunk  3\0ab", Malformed::BodyTooShort { announced: 3, received: 2 }),
        (b"ArrayChunk  3\0abcd", Malformed::BodyTooLong { announced: 3 }),
        (b"ArrayChunk  0\0\0", Malformed::BodyTooLong { announced: 0 }),
    ];
    for (object, why) in table {
        assert_eq!(malformed(verify(object_id(object), object)), why, "{:?}", String::from_utf8_lossy(object));
    }
}

#[test]
fn hopeless_objects_are_refused_before_they_end() {
    let mut verifier = Verifier::new(id(7));
    assert_eq!(verifier.update(b"Array"), Ok(()));
    assert_eq!(malformed(verifier.update(b"  x\0")), Malformed::BodyLength);
    assert_eq!(malformed(verifier.update(b"more")), Malformed::BodyLength, "there is no way back");

    let mut verifier = Verifier::new(id(7));
    assert_eq!(verifier.update(b"Array  3\0abc"), Ok(()));
    assert_eq!(verifier.update(b""), Ok(()));
    assert_eq!(malformed(verifier.update(b"d")), Malformed::BodyTooLong { announced: 3 });
}

#[test]
fn an_endless_header_is_refused_at_the_limit() {
    let piece = vec![b'A'; 1024 * 1024];
    let mut verifier = Verifier::new(id(7));
    for _ in 1..MAX_HEADER_BYTES / piece.len() {
        assert_eq!(verifier.update(&piece), Ok(()));
    }
    assert_eq!(verifier.update(&piece[1..]), Ok(()), "one byte is left for the NUL");
    assert_eq!(malformed(verifier.update(b"A")), Malformed::HeaderTooLong);
    assert_eq!(malformed(Verifier::new(id(7)).update(&vec![b'A'; MAX_HEADER_BYTES])), Malformed::HeaderTooLong);
}

prop_compose! {
    /// Mostly objects, some of them cut short, some with bytes too many.
    fn any_bytes()(
        header in any_header(), body in prop::collection::vec(any::<u8>(), 0..300), announced in -2i64..4,
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) -> Vec<u8> {
        let body_bytes = (body.len() as i64 + announced.max(0)) as u64;
        let body_bytes = if announced < 0 { body_bytes.saturating_sub(1) } else { body_bytes };
        let object = [&Header { body_bytes, ..header }.encode()[..], b"\0", &body].concat();
        match cut {
            Some(at) => object[..at.index(object.len())].to_vec(),
            None => object,
        }
    }
}

proptest! {
    #[test]
    fn the_cuts_do_not_matter(
        object in any_bytes(), cuts in prop::collection::vec(any::<usize>(), 0..10), same in any::<bool>(),
    ) {
        let expected = if same { object_id(&object) } else { id(7) };
        prop_assert_eq!(fed(Verifier::new(expected), &object, &cuts), verify(expected, &object));
    }

    #[test]
    fn byte_by_byte_is_as_good_as_at_once(object in any_bytes()) {
        let expected = object_id(&object);
        let cuts = vec![1; object.len()];
        prop_assert_eq!(fed(Verifier::new(expected), &object, &cuts), verify(expected, &object));
    }

    #[test]
    fn an_early_error_is_also_the_last_word(object in any_bytes(), cuts in prop::collection::vec(any::<usize>(), 0..10)) {
        let mut verifier = Verifier::new(object_id(&object));
        let mut rest = &object[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut % (rest.len() + 1));
            rest = after;
            if let Err(early) = verifier.update(piece) {
                prop_assert_eq!(Err(early), verify(object_id(&object), &object));
                break;
            }
        }
    }
}
