//! Messages that the official package made, with everything below them: read, written again, answered.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;
use trellis_core::id::ObjectId;
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::object::{self, ConfigValue, Entries, MetricRecord, MetricValue, object_id};
use trellis_wire::proto;
use trellis_wire::records::{
    Array, Arrays, FetchError, InflateError, Record, Records, Tensor, Values, deflate, error_reply, inflate, message,
    reply,
};

use crate::unhex;

const MESSAGES: &str = include_str!("../data/messages.jsonl");

struct Recorded {
    case: String,
    metadata: proto::Metadata,
    /// Without bytes where they are many.
    objects: Vec<(ObjectId, Option<Bytes>)>,
    tree: proto::ObjectTree,
    reply: proto::Metadata,
    reply_id: String,
    error_id: String,
}

fn recorded() -> Vec<Recorded> {
    MESSAGES.lines().map(|line| read_row(&serde_json::from_str(line).expect("a row of JSON"))).collect()
}

fn read_row(row: &Value) -> Recorded {
    let text = |key: &str| row[key].as_str().unwrap().to_owned();
    let object = |pair: &Value| {
        let bytes = pair[1].as_str().map(|hex| unhex(hex).into());
        (pair[0].as_str().unwrap().parse().unwrap(), bytes)
    };
    Recorded {
        case: text("case"),
        metadata: metadata(&row["metadata"]),
        objects: row["objects"].as_array().unwrap().iter().map(object).collect(),
        tree: tree(&row["tree"]),
        reply: metadata(&row["reply"]),
        reply_id: text("reply_id"),
        error_id: text("error_id"),
    }
}

fn metadata(value: &Value) -> proto::Metadata {
    let text = |key: &str| value[key].as_str().unwrap().to_owned();
    let number = |key: &str| value[key].as_u64().unwrap();
    proto::Metadata {
        run_id: number("run_id"),
        message_id: text("message_id"),
        src_node_id: number("src_node_id"),
        dst_node_id: number("dst_node_id"),
        reply_to_message_id: text("reply_to_message_id"),
        group_id: text("group_id"),
        ttl: f64::from_bits(number("ttl")),
        message_type: text("message_type"),
        created_at: f64::from_bits(number("created_at")),
        src_task_id: None,
        dst_task_id: None,
    }
}

fn tree(value: &Value) -> proto::ObjectTree {
    let children = value[1].as_array().unwrap().iter().map(tree).collect();
    proto::ObjectTree { object_id: value[0].as_str().unwrap().to_owned(), children }
}

/// The records that were recorded with their bytes.
fn content(recorded: &Recorded) -> Records {
    let objects: HashMap<ObjectId, Bytes> =
        recorded.objects.iter().map(|(id, bytes)| (*id, bytes.clone().expect("recorded"))).collect();
    inflate_from(&objects, recorded.metadata.message_id.parse().unwrap()).unwrap()
}

fn inflate_from(objects: &HashMap<ObjectId, Bytes>, root: ObjectId) -> Result<Records, InflateError> {
    inflate(root, &mut |id| objects.get(&id).cloned().ok_or_else(|| FetchError::from("not here")))
}

/// Long data is not recorded: zeros and a one at the end.
fn long_content() -> Records {
    let mut values = vec![0.0f32; (16 << 20) / 4 - 32];
    *values.last_mut().unwrap() = 1.0;
    let tensor = Tensor::new(vec![values.len()], values).unwrap();
    Records::default().with("arrays", Arrays::default().with("long", tensor))
}

#[test]
fn messages_are_written_as_python_writes_them() {
    for recorded in recorded() {
        let records = if recorded.case == "chunks" { long_content() } else { content(&recorded) };
        let written = message(proto::Metadata { message_id: "any".into(), ..recorded.metadata.clone() }, &records);
        assert_eq!(written.message.metadata, Some(recorded.metadata), "{}", recorded.case);
        assert_eq!(written.message.content, Some(proto::RecordDict::default()));
        assert_eq!(written.tree, recorded.tree, "{}", recorded.case);
        let ids: Vec<ObjectId> = written.objects.iter().map(|(id, _)| *id).collect();
        let expected: Vec<ObjectId> = recorded.objects.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, expected, "{}: the same objects in the same order", recorded.case);
        for ((id, bytes), (_, expected)) in written.objects.iter().zip(&recorded.objects) {
            assert_eq!(object_id(bytes), *id);
            assert!(expected.as_ref().is_none_or(|expected| expected == bytes), "{}", recorded.case);
        }
    }
}

#[test]
fn replies_are_those_that_python_gives() {
    for recorded in recorded() {
        let records = if recorded.case == "chunks" { long_content() } else { content(&recorded) };
        let given = reply(&recorded.metadata, 1763221301.25, &records).message.metadata.unwrap();
        assert_eq!(given.message_id, recorded.reply_id, "{}", recorded.case);
        assert_eq!(proto::Metadata { message_id: String::new(), ..given }, recorded.reply);
        let failed = error_reply(&recorded.metadata, 1763221301.25, ErrorCode::ClientAppRaisedException, "ä");
        assert_eq!(failed.message.metadata.unwrap().message_id, recorded.error_id);
        assert_eq!(failed.tree.object_id, recorded.error_id);
        assert_eq!(failed.message.content, None);
    }
}

#[test]
fn a_reply_goes_back_to_the_task_that_asked() {
    let instruction = proto::Metadata { src_task_id: Some(4), dst_task_id: None, ..recorded()[0].metadata.clone() };
    let metadata = reply(&instruction, 0.0, &Records::default()).message.metadata.unwrap();
    assert_eq!((metadata.src_task_id, metadata.dst_task_id), (None, Some(4)));
}

#[test]
fn values_are_what_python_put_in() {
    let records = content(recorded().iter().find(|recorded| recorded.case == "model").unwrap());
    assert_eq!(records.names().collect::<Vec<_>>(), ["arrays", "config", "metrics"]);
    let arrays = records.arrays("arrays").unwrap();
    let weight = arrays.get("hidden.weight").unwrap().tensor().unwrap();
    assert_eq!(weight, Tensor::new(vec![2, 2], vec![0.5f32, -1.0, 2.0, 3.0]).unwrap());
    assert_eq!(arrays.get("again"), arrays.get("hidden.weight"));
    assert_eq!(arrays.get("count").unwrap().tensor().unwrap().values(), &Values::I64(vec![7]));
    assert_eq!(arrays.get("none").unwrap().tensor().unwrap().shape(), [0, 3]);
    assert_eq!(records.config("config").unwrap().0.get("server-round"), Some(&ConfigValue::Sint64(3)));
    assert_eq!(records.metrics("metrics").unwrap().0.get("num-examples"), Some(&MetricValue::Sint64(17)));
    assert!(records.arrays("config").is_none() && records.config("nobody").is_none());
}

#[test]
fn long_data_comes_back_from_its_chunks() {
    let records = long_content();
    let deflated = deflate(&records);
    assert_eq!(deflated.objects.len(), 3 + 3);
    assert_eq!(inflate_from(&deflated.objects.iter().cloned().collect(), deflated.id).unwrap(), records);
}

#[test]
fn broken_content_is_refused_with_the_object_at_fault() {
    let records =
        Records::default().with("arrays", Arrays::default().with("x", Tensor::new(vec![1], vec![1u8]).unwrap()));
    let deflated = deflate(&records);
    for (missing, _) in &deflated.objects {
        let objects = deflated.objects.iter().filter(|(id, _)| id != missing).cloned().collect();
        let error = inflate_from(&objects, deflated.id).unwrap_err();
        assert!(matches!(&error, InflateError::Fetch { id, .. } if id == missing), "{error}");
        let mut objects = deflated.objects.iter().cloned().collect::<HashMap<_, _>>();
        objects.insert(*missing, Bytes::from_static(b"ArrayRecord  1\0{"));
        let error = inflate_from(&objects, deflated.id).unwrap_err();
        assert!(matches!(&error, InflateError::Object { id, .. } if id == missing), "{error}");
        objects.insert(
            *missing,
            object::Message {
                metadata: proto::Metadata::default(),
                payload: object::Payload::Error(proto::Error::default()),
            }
            .encode(),
        );
        let error = inflate_from(&objects, deflated.id).unwrap_err();
        assert!(matches!(&error, InflateError::Kind { id, .. } if id == missing), "{error}");
    }
}

#[test]
fn few_objects_cannot_ask_for_endless_memory() {
    let chunk = object::ArrayChunk { data: vec![0; 5 << 20].into() }.encode();
    let id = object_id(&chunk);
    let array = object::Array { dtype: "x".into(), shape: vec![], stype: "y".into(), chunks: vec![id; 1 << 20] };
    let described = array.encode();
    let names = |name: &str, id| Entries::default().with(name, id);
    let arrays = object::ArrayRecord(names("a", object_id(&described))).encode();
    let dict = object::RecordDict(names("arrays", object_id(&arrays))).encode();
    let root = object_id(&dict);
    let objects: HashMap<_, _> = [chunk, described, arrays, dict].map(|bytes| (object_id(&bytes), bytes)).into();
    let mut fetched = 0u64;
    let fetch = &mut |id| {
        fetched += 1;
        objects.get(&id).cloned().ok_or_else(|| FetchError::from("not here"))
    };
    assert!(matches!(inflate(root, fetch), Err(InflateError::TooLarge)));
    assert!(fetched < 10, "refused before {fetched} objects were read");
}

#[test]
fn entries_behave_like_a_dict() {
    let mut metrics = MetricRecord::default().0.with("a", 1i64).with("b", 2i64).with("a", 3i64);
    assert_eq!(metrics.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(metrics.remove("a"), Some(MetricValue::Sint64(3)));
    assert_eq!(metrics.remove("a"), None);
    metrics.insert("a", 4i64);
    assert_eq!(metrics.names().collect::<Vec<_>>(), ["b", "a"]);
    let raw = Array { dtype: "q".into(), shape: vec![3], stype: "z".into(), data: Bytes::from_static(b"1") };
    assert_eq!(
        Record::from(Arrays::default().with("r", raw.clone())),
        Record::Arrays(Entries::new(vec![("r".into(), raw)]).unwrap())
    );
}
