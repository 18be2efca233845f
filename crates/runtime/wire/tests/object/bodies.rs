//! Typed objects: encoding round-trips, and invalid bodies are refused.

use bytes::Bytes;
use proptest::prelude::*;
use trellis_core::id::ObjectId;
use trellis_wire::object::{
    Array, ArrayChunk, ArrayRecord, ConfigRecord, ConfigValue, Entries, MAX_ARRAY_CHUNKS, MAX_ARRAY_DIMENSIONS,
    Malformed, Message, MetricRecord, MetricValue, Object, ObjectKind, Payload, RecordDict, RepeatedName, encode,
};
use trellis_wire::proto;

use crate::{id, malformed};

#[test]
fn each_decoder_accepts_only_its_kind() {
    for kind in ObjectKind::ALL {
        let object = encode(kind, &[], b"");
        let refusals = [
            (ObjectKind::ArrayChunk, ArrayChunk::decode(&object).map(drop)),
            (ObjectKind::Array, Array::decode(&object).map(drop)),
            (ObjectKind::ArrayRecord, ArrayRecord::decode(&object).map(drop)),
            (ObjectKind::ConfigRecord, ConfigRecord::decode(&object).map(drop)),
            (ObjectKind::MetricRecord, MetricRecord::decode(&object).map(drop)),
            (ObjectKind::RecordDict, RecordDict::decode(&object).map(drop)),
            (ObjectKind::Message, Message::decode(&object).map(drop)),
        ];
        for (expected, result) in refusals {
            if expected != kind {
                assert_eq!(malformed(result), Malformed::WrongKind { expected, actual: kind });
            }
        }
    }
}

#[test]
fn an_object_must_be_whole() {
    let object = ArrayChunk { data: Bytes::from_static(b"abc") }.encode();
    assert_eq!(malformed(Object::decode(&object.slice(..5))), Malformed::HeaderCutOff);
    assert_eq!(
        malformed(Object::decode(&object.slice(..object.len() - 1))),
        Malformed::BodyTooShort { announced: 3, received: 2 }
    );
    let longer = Bytes::from([&object[..], b"d"].concat());
    assert_eq!(malformed(Object::decode(&longer)), Malformed::BodyTooLong { announced: 3 });
}

/// Checks that the object is refused because of its body.
fn check_refused(kind: ObjectKind, children: &[ObjectId], body: &[u8], because: &str) {
    match malformed(Object::decode(&encode(kind, children, body))) {
        Malformed::Body { kind: found, reason } if found == kind => {
            assert!(reason.contains(because), "{kind} {:?}: {reason}", String::from_utf8_lossy(body));
        }
        other => panic!("{kind} {:?}: {other:?}", String::from_utf8_lossy(body)),
    }
}

#[test]
fn kinds_without_children_refuse_children() {
    for kind in [ObjectKind::ArrayChunk, ObjectKind::ConfigRecord, ObjectKind::MetricRecord] {
        check_refused(kind, &[id(1)], b"", "children");
    }
}

#[test]
fn bad_arrays_are_refused() {
    let body = |shape: &str, chunks: &str| {
        format!(r#"{{"dtype": "f", "shape": {shape}, "stype": "s", "arraychunk_ids": {chunks}}}"#)
    };
    let one = [id(1)];
    let two = [id(1), id(2)];
    let zeros = |count: usize| format!("[0{}]", ",0".repeat(count - 1));
    let table: Vec<(&[ObjectId], String, &str)> = vec![
        (&[], String::new(), "JSON object"),
        (&[], "[]".into(), "JSON object"),
        (&one, r#"["f", [1], "s", [0]]"#.into(), "JSON object"),
        (&[], "{}".into(), "missing field"),
        (&[], body("[]", "[]") + "x", "trailing"),
        (&[], body("[]", "[]").replace("stype", "dtype"), "duplicate field"),
        (&[], body("[]", "[]").replace("{", r#"{"more": 1, "#), "unknown field"),
        (&[], body("[-1]", "[]"), "invalid value"),
        (&[], body("[1.5]", "[]"), "invalid type"),
        (&[], body("[true]", "[]"), "invalid type"),
        (&[], body("[18446744073709551616]", "[]"), "invalid"),
        (&[], body("3", "[]"), "invalid type"),
        (&one, body("[]", "[1]"), "not among the children"),
        (&one, body("[]", "[-1]"), "invalid value"),
        (&one, body("[]", "[4294967296]"), "invalid value"),
        (&one, body("[]", "[]"), "not among the chunks"),
        (&two, body("[]", "[1, 1]"), "not among the chunks"),
        (&[], body(&zeros(MAX_ARRAY_DIMENSIONS + 1), "[]"), "dimensions"),
        (&one, body("[]", &zeros(MAX_ARRAY_CHUNKS + 1)), "too many chunks"),
        (&[], body("[]", "[]").replace("\"f\"", "\"\\ud800\""), "escape"),
    ];
    for (children, body, because) in table {
        check_refused(ObjectKind::Array, children, body.as_bytes(), because);
    }
    let largest =
        encode(ObjectKind::Array, &one, body(&zeros(MAX_ARRAY_DIMENSIONS), &zeros(MAX_ARRAY_CHUNKS)).as_bytes());
    assert_eq!(Array::decode(&largest).map(|array| array.chunks.len()), Ok(MAX_ARRAY_CHUNKS));
}

#[test]
fn bad_names_are_refused() {
    let (a, b) = (id(0xaa), id(0xbb));
    let table: Vec<(Vec<ObjectId>, String, &str)> = vec![
        (vec![], String::new(), "EOF"),
        (vec![], "[]".into(), "map of names"),
        (vec![], "null".into(), "map of names"),
        (vec![], "{} {}".into(), "trailing"),
        (vec![], r#"{"a": 1}"#.into(), "invalid type"),
        (vec![], r#"{"a": "1"}"#.into(), "object ID"),
        (vec![a], format!(r#"{{"a": "{a}", "a": "{a}"}}"#), "twice"),
        (vec![], format!(r#"{{"a": "{a}"}}"#), "not the children"),
        (vec![a, b], format!(r#"{{"a": "{a}"}}"#), "not the children"),
        (vec![b], format!(r#"{{"a": "{a}"}}"#), "not the children"),
        (vec![a], "{}".into(), "not the children"),
        (vec![a], format!(r#"{{"\udc00": "{a}"}}"#), "escape"),
    ];
    for (children, body, because) in table {
        check_refused(ObjectKind::ArrayRecord, &children, body.as_bytes(), because);
        check_refused(ObjectKind::RecordDict, &children, body.as_bytes(), because);
    }
}

#[test]
fn bad_values_are_refused() {
    let table: [(&[u8], &str); 7] = [
        (b"\x0a", "varint"),
        (b"\x0a\x05\x0a\x01", "underflow"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "varint"),
        (b"\x0a\x03\x0a\x01\xff", "UTF-8"),
        (b"\x0a\x00", "no value"),
        (b"\x0a\x05\x0a\x01a\x12\x00", "no value"),
        (b"\x0a\x07\x0a\x01a\x12\x02\x10\x02\x0a\x07\x0a\x01a\x12\x02\x10\x02", "twice"),
    ];
    for (body, because) in table {
        check_refused(ObjectKind::ConfigRecord, &[], body, because);
        check_refused(ObjectKind::MetricRecord, &[], body, because);
    }
    let text = ConfigRecord(Entries::new(vec![("a".into(), "x".to_owned().into())]).unwrap()).encode();
    let (_, body) = trellis_wire::object::decode(&text).unwrap();
    check_refused(ObjectKind::MetricRecord, &[], &body, "no value");
}

#[test]
fn bad_messages_are_refused() {
    use prost::Message as _;
    let good = proto::Message { metadata: Some(proto::Metadata::default()), content: None, error: None };
    let own_id = proto::Metadata { message_id: id(1).to_string(), ..Default::default() };
    let error = Some(proto::Error::default());
    let table = [
        (vec![id(1)], proto::Message { metadata: None, ..good.clone() }, "no metadata"),
        (vec![id(1)], proto::Message { metadata: Some(own_id), ..good.clone() }, "own id"),
        (vec![id(1)], proto::Message { content: Some(Default::default()), ..good.clone() }, "inside it"),
        (vec![], good.clone(), "neither"),
        (vec![id(1), id(2)], good.clone(), "neither"),
        (vec![id(1)], proto::Message { error, ..good.clone() }, "neither"),
    ];
    for (children, message, because) in table {
        check_refused(ObjectKind::Message, &children, &message.encode_to_vec(), because);
    }
    check_refused(ObjectKind::Message, &[], b"\x0a", "varint");
}

#[test]
fn names_are_unique() {
    let twice = vec![("a".to_owned(), 1), ("b".to_owned(), 2), ("a".to_owned(), 3)];
    assert_eq!(Entries::new(twice), Err(RepeatedName("a".to_owned())));
}

fn any_id() -> impl Strategy<Value = ObjectId> {
    // Few different ones, so that children repeat.
    prop_oneof![(0u8..4).prop_map(id), any::<[u8; 32]>().prop_map(ObjectId::new)]
}

fn entries_of<V: std::fmt::Debug + Clone>(value: impl Strategy<Value = V>) -> impl Strategy<Value = Entries<V>> {
    let named = prop::collection::vec((any::<String>(), value), 0..12);
    named.prop_map(|mut entries| {
        let mut seen = std::collections::HashSet::new();
        entries.retain(|(name, _)| seen.insert(name.clone()));
        Entries::new(entries).unwrap()
    })
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    any::<Vec<u8>>().prop_map(Bytes::from)
}

fn any_config_value() -> impl Strategy<Value = ConfigValue> {
    prop_oneof![
        any::<f64>().prop_map(ConfigValue::from),
        any::<i64>().prop_map(ConfigValue::from),
        any::<u64>().prop_map(ConfigValue::from),
        any::<bool>().prop_map(ConfigValue::from),
        any::<String>().prop_map(ConfigValue::from),
        any_bytes().prop_map(ConfigValue::from),
        any::<Vec<f64>>().prop_map(ConfigValue::from),
        any::<Vec<i64>>().prop_map(ConfigValue::from),
        any::<Vec<u64>>().prop_map(ConfigValue::from),
        any::<Vec<bool>>().prop_map(ConfigValue::from),
        any::<Vec<String>>().prop_map(ConfigValue::from),
        prop::collection::vec(any_bytes(), 0..5).prop_map(ConfigValue::from),
    ]
}

fn any_metric_value() -> impl Strategy<Value = MetricValue> {
    prop_oneof![
        any::<f64>().prop_map(MetricValue::from),
        any::<i64>().prop_map(MetricValue::from),
        any::<u64>().prop_map(MetricValue::from),
        any::<Vec<f64>>().prop_map(MetricValue::from),
        any::<Vec<i64>>().prop_map(MetricValue::from),
        any::<Vec<u64>>().prop_map(MetricValue::from),
    ]
}

prop_compose! {
    fn any_array()(
        dtype in any::<String>(), shape in prop::collection::vec(any::<u64>(), 0..MAX_ARRAY_DIMENSIONS),
        stype in any::<String>(), chunks in prop::collection::vec(any_id(), 0..30),
    ) -> Array {
        Array { dtype, shape, stype, chunks }
    }
}

prop_compose! {
    fn any_message()(
        ids in any::<(u64, u64, u64)>(), tasks in any::<(Option<u64>, Option<u64>)>(), texts in any::<(String, String, String)>(), times in any::<(f64, f64)>(),
        payload in prop_oneof![
            any_id().prop_map(Payload::Content),
            any::<(i64, String)>().prop_map(|(code, reason)| Payload::Error(proto::Error { code, reason })),
        ],
    ) -> Message {
        let metadata = proto::Metadata {
            run_id: ids.0,
            message_id: String::new(),
            src_node_id: ids.1,
            dst_node_id: ids.2,
            reply_to_message_id: texts.0,
            group_id: texts.1,
            ttl: times.0,
            message_type: texts.2,
            created_at: times.1,
            src_task_id: tasks.0,
            dst_task_id: tasks.1,
        };
        Message { metadata, payload }
    }
}

fn any_object() -> impl Strategy<Value = Object> {
    prop_oneof![
        any_bytes().prop_map(|data| Object::ArrayChunk(ArrayChunk { data })),
        any_array().prop_map(Object::Array),
        entries_of(any_id()).prop_map(|arrays| Object::ArrayRecord(ArrayRecord(arrays))),
        entries_of(any_id()).prop_map(|records| Object::RecordDict(RecordDict(records))),
        entries_of(any_config_value()).prop_map(|values| Object::ConfigRecord(ConfigRecord(values))),
        entries_of(any_metric_value()).prop_map(|values| Object::MetricRecord(MetricRecord(values))),
        any_message().prop_map(Object::Message),
    ]
}

proptest! {
    #[test]
    fn objects_round_trip(object in any_object()) {
        let bytes = object.encode();
        let again = Object::decode(&bytes);
        prop_assert_eq!(again.as_ref(), Ok(&object));
        prop_assert_eq!(again.unwrap().encode(), bytes);
    }

    #[test]
    fn a_damaged_object_does_no_harm(
        object in any_object(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut bytes = object.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(if cut { at } else { bytes.len() });
        if let Ok(other) = Object::decode(&bytes.into()) {
            prop_assert!(Object::decode(&other.encode()).is_ok());
        }
    }
}
