//! Outgoing messages: objects, id and wire format. The time is an argument.

use bytes::Bytes;
use trellis_core::id::ObjectId;

use super::Records;
use super::deflate::{Deflated, deflate, tree};
use crate::error_reply::{ErrorCode, error_message};
use crate::object::{Message, Payload, object_id};
use crate::proto;

/// A message with all its objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// The wire message: with its id, and with empty content.
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    /// Distinct objects, children before parents; the last one is the message itself.
    pub objects: Vec<(ObjectId, Bytes)>,
}

/// Makes a message with content. Ignores the id in `metadata`.
pub fn message(metadata: proto::Metadata, records: &Records) -> Outgoing {
    let Deflated { id: content, tree: content_tree, mut objects } = deflate(records);
    let message = Message { metadata, payload: Payload::Content(content) };
    let object = message.encode();
    let id = object_id(&object);
    objects.push((id, object));
    let metadata = proto::Metadata { message_id: id.to_string(), ..message.metadata };
    let message = proto::Message { metadata: Some(metadata), content: Some(proto::RecordDict::default()), error: None };
    Outgoing { message, tree: tree(id, vec![content_tree]), objects }
}

pub fn reply(instruction: &proto::Metadata, created_at_s: f64, records: &Records) -> Outgoing {
    message(reply_metadata(instruction, created_at_s), records)
}

pub fn error_reply(instruction: &proto::Metadata, created_at_s: f64, code: ErrorCode, reason: &str) -> Outgoing {
    let (id, object, message) = error_message(reply_metadata(instruction, created_at_s), code, reason);
    Outgoing { message, tree: tree(id, Vec::new()), objects: vec![(id, object)] }
}

/// Makes the metadata of a reply: it goes back to the sender and expires with the instruction. An official SuperLink
/// silently drops a reply that expires later.
pub fn reply_metadata(instruction: &proto::Metadata, created_at_s: f64) -> proto::Metadata {
    proto::Metadata {
        run_id: instruction.run_id,
        message_id: String::new(),
        src_node_id: instruction.dst_node_id,
        dst_node_id: instruction.src_node_id,
        reply_to_message_id: instruction.message_id.clone(),
        group_id: instruction.group_id.clone(),
        ttl: instruction.created_at + instruction.ttl - created_at_s,
        message_type: instruction.message_type.clone(),
        created_at: created_at_s,
        src_task_id: instruction.dst_task_id,
        dst_task_id: instruction.src_task_id,
    }
}
