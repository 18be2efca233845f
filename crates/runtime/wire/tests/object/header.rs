//! Headers: one spelling, and everything else refused with its reason.

use proptest::prelude::*;
use trellis_core::id::ObjectId;
use trellis_wire::object::{Header, MAX_HEADER_BYTES, Malformed, ObjectKind, object_id};

use crate::{id, malformed};

#[test]
fn kinds_are_spelled_one_way() {
    for kind in ObjectKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
        assert_eq!(kind.to_string(), kind.as_str());
    }
    for unknown in ["", "array", "ARRAY", "Array ", "CustomDataClass", "ParametersRecord", "RecordSet"] {
        assert_eq!(unknown.parse::<ObjectKind>(), Err(Malformed::UnknownKind(unknown.to_owned())));
    }
    let Err(Malformed::UnknownKind(shown)) = "é".repeat(1000).parse::<ObjectKind>() else { panic!("known") };
    assert_eq!(shown.chars().count(), 32);
}

#[test]
fn well_formed_headers_are_read() {
    let (a, b) = (id(0xab), id(0xcd));
    let table = [
        ("ArrayChunk  0".to_owned(), ObjectKind::ArrayChunk, vec![], 0),
        (format!("Message {a} 10"), ObjectKind::Message, vec![a], 10),
        (format!("RecordDict {b},{a} 18446744073709551615"), ObjectKind::RecordDict, vec![b, a], u64::MAX),
    ];
    for (text, kind, children, body_bytes) in table {
        let header = Header { kind, children, body_bytes };
        assert_eq!(Header::parse(text.as_bytes()), Ok(header.clone()), "{text}");
        assert_eq!(header.encode(), text.as_bytes());
    }
}

#[test]
fn malformed_headers_are_refused() {
    let a = id(0xab);
    let upper = a.to_string().to_uppercase();
    let short = &a.to_string()[1..];
    let form = || Malformed::HeaderForm;
    let child = |index| Malformed::ChildId { index };
    let kind = |name: &str| Malformed::UnknownKind(name.to_owned());
    let table: Vec<(Vec<u8>, Malformed)> = vec![
        (b"".to_vec(), form()),
        (b"Array".to_vec(), form()),
        (b"Array 3".to_vec(), form()),
        (b"Array   3".to_vec(), form()),
        (b"Array  3 ".to_vec(), form()),
        (b" Array  3".to_vec(), form()),
        (b"Array\t\t3".to_vec(), form()),
        (b"Array  3 4".to_vec(), form()),
        (b"Array \xff 3".to_vec(), form()),
        (b"\xffArray  3".to_vec(), form()),
        (b"  3".to_vec(), kind("")),
        (b"array  3".to_vec(), kind("array")),
        (b"Arrayy  3".to_vec(), kind("Arrayy")),
        (b"CustomDataClass  3".to_vec(), kind("CustomDataClass")),
        (b"Array\n  3".to_vec(), kind("Array\n")),
        (b"Array x 3".to_vec(), child(0)),
        (b"Array , 3".to_vec(), child(0)),
        (format!("Array {upper} 3").into(), child(0)),
        (format!("Array {short} 3").into(), child(0)),
        (format!("Array 0x{} 3", &short[1..]).into(), child(0)),
        (format!("Array {a}, 3").into(), child(1)),
        (format!("Array ,{a} 3").into(), child(0)),
        (format!("Array {a};{a} 3").into(), child(0)),
        (format!("Array {a},{}{a} 3", '\u{a0}').into(), child(1)),
        (format!("Array {a},{},{a} 3", id(1)).into(), Malformed::RepeatedChild(a)),
    ];
    for (header, why) in table {
        let shown = String::from_utf8_lossy(&header).into_owned();
        assert_eq!(malformed(Header::parse(&header)), why, "{shown:?}");
        let object = [&header[..], b"\0abc"].concat();
        assert_eq!(malformed(Header::split(&object)), why, "{shown:?}");
    }
    let lengths = ["", "-1", "+3", "03", "00", "3_0", "0x3", "3.0", "3\n", "\t3", "３", "²", "18446744073709551616"];
    for length in lengths {
        assert_eq!(
            malformed(Header::parse(format!("Array  {length}").as_bytes())),
            Malformed::BodyLength,
            "{length:?}"
        );
    }
}

#[test]
fn a_header_is_split_off_as_soon_as_its_nul_is_there() {
    let header = Header { kind: ObjectKind::Array, children: vec![id(1)], body_bytes: 4 };
    let object = [&header.encode()[..], b"\0a\0bc"].concat();
    let end = object.len() - 4;
    for cut in 0..end {
        assert_eq!(Header::split(&object[..cut]), Ok(None), "{cut}");
    }
    for cut in end..=object.len() {
        assert_eq!(Header::split(&object[..cut]), Ok(Some((header.clone(), end))), "{cut}");
    }
}

#[test]
fn a_header_has_a_largest_size() {
    let children_of = |count: usize| (0..count).map(|number| object_id(&number.to_le_bytes())).collect();
    // "Array", two spaces, one digit and the NUL; a child has 64 digits and, but for the first, a comma.
    let most = (MAX_HEADER_BYTES - 9 + 1) / 65;
    let header = Header { kind: ObjectKind::Array, children: children_of(most), body_bytes: 0 };
    assert_eq!(Header::parse(&header.encode()), Ok(header));
    let header = Header { kind: ObjectKind::Array, children: children_of(most + 1), body_bytes: 0 };
    assert_eq!(malformed(Header::parse(&header.encode())), Malformed::HeaderTooLong);

    let mut object = vec![b'A'; MAX_HEADER_BYTES];
    assert_eq!(malformed(Header::split(&object)), Malformed::HeaderTooLong, "no NUL can save it");
    assert_eq!(Header::split(&object[1..]), Ok(None), "the NUL may still come");
    assert_eq!(malformed(Header::parse(&object)), Malformed::HeaderTooLong);
    assert_eq!(malformed(Header::parse(&object[1..])), Malformed::HeaderForm);
    object.push(0);
    assert_eq!(malformed(Header::split(&object)), Malformed::HeaderTooLong);
    assert_eq!(malformed(Header::split(&object[1..])), Malformed::HeaderForm, "not too long, but no header");
}

prop_compose! {
    pub fn any_header()(
        kind in prop::sample::select(&ObjectKind::ALL[..]),
        children in prop::collection::hash_set(any::<[u8; 32]>(), 0..20),
        body_bytes in any::<u64>(),
    ) -> Header {
        Header { kind, children: children.into_iter().map(ObjectId::new).collect(), body_bytes }
    }
}

proptest! {
    #[test]
    fn headers_round_trip(header in any_header(), body in any::<Vec<u8>>()) {
        let bytes = header.encode();
        prop_assert_eq!(Header::parse(&bytes), Ok(header.clone()));
        let object = [&bytes[..], b"\0", &body].concat();
        prop_assert_eq!(Header::split(&object), Ok(Some((header, bytes.len() + 1))));
    }

    /// Were a second spelling accepted (a leading zero, say), it would not come back.
    #[test]
    fn what_is_read_is_written_the_same(header in any_header(), length in "[+-]?[0-9]{1,3}", gap in " {1,2}") {
        let start = Header { body_bytes: 0, ..header }.encode();
        let text = [start.strip_suffix(b" 0").unwrap(), gap.as_bytes(), length.as_bytes()].concat();
        if let Ok(read) = Header::parse(&text) {
            prop_assert_eq!(read.encode(), text);
        }
    }

    #[test]
    fn a_changed_byte_is_refused_or_means_something_else(
        header in any_header(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let good = header.encode();
        let mut changed = good.clone();
        changed[at.index(good.len())] = byte;
        if let Ok(other) = Header::parse(&changed) {
            prop_assert_eq!(other == header, changed == good);
        }
    }
}
