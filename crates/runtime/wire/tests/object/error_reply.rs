//! Error replies, against those that the official package made.

use serde_json::Value;
use trellis_wire::error_reply::{ErrorCode, error_message};
use trellis_wire::object::{Message, Payload, verify};
use trellis_wire::proto;

use crate::vectors::unhex;

const ERRORS: &str = include_str!("../data/errors.jsonl");

fn metadata(given: &Value) -> proto::Metadata {
    let text = |key: &str| given[key].as_str().unwrap().to_owned();
    let number = |key: &str| given[key].as_u64().unwrap();
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
        ..Default::default()
    }
}

#[test]
fn error_replies_are_made_bit_for_bit_as_the_official_ones() {
    let mut codes = Vec::new();
    for line in ERRORS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let given = metadata(&row["metadata"]);
        let reason = row["reason"].as_str().unwrap();
        let code =
            *ErrorCode::ALL.iter().find(|code| Some(code.number()) == row["code"].as_i64()).expect("a known code");
        codes.push(code);

        let (id, object, message) = error_message(given.clone(), code, reason);
        assert_eq!(object, unhex(row["hex"].as_str().unwrap()), "{line}");
        assert_eq!(id.to_string(), row["id"].as_str().unwrap(), "{line}");
        assert!(verify(id, &object).is_ok());

        let error = proto::Error { code: code.number(), reason: reason.to_owned() };
        let on_the_wire = proto::Metadata { message_id: id.to_string(), ..given.clone() };
        assert_eq!(message, proto::Message { metadata: Some(on_the_wire), content: None, error: Some(error.clone()) });
        let stored = proto::Metadata { message_id: String::new(), ..given };
        assert_eq!(Message::decode(&object), Ok(Message { metadata: stored, payload: Payload::Error(error) }));
    }
    assert!(ErrorCode::ALL.iter().all(|code| codes.contains(code)), "every code is recorded");
}
