//! Jobs and replies for the tests of this module.

use std::path::PathBuf;

use trellis_wire::object::{Message, ObjectKind, Payload, encode, object_id};
use trellis_wire::proto;

use crate::app::{InstalledApp, Job};

pub const RUN: u64 = 5;

/// A minimal message and its tree.
fn message(metadata: proto::Metadata) -> (proto::Message, proto::ObjectTree) {
    let records = object_id(&encode(ObjectKind::RecordDict, &[], b"{}"));
    let message = Message { metadata, payload: Payload::Content(records) };
    let id = object_id(&message.encode()).to_string();
    let children = vec![proto::ObjectTree { object_id: records.to_string(), children: Vec::new() }];
    let metadata = proto::Metadata { message_id: id.clone(), ..message.metadata };
    let message = proto::Message { metadata: Some(metadata), content: Some(Default::default()), error: None };
    (message, proto::ObjectTree { object_id: id, children })
}

pub fn job() -> Job {
    let metadata = proto::Metadata { run_id: RUN, src_node_id: 1, dst_node_id: 9, ..Default::default() };
    let (instruction, tree) = message(metadata);
    Job {
        run: proto::Run { run_id: RUN, ..Default::default() },
        instruction,
        tree,
        context: proto::Context { run_id: RUN, node_id: 9, ..Default::default() },
        app: Some(InstalledApp {
            hash: "f".repeat(64),
            id: "me/app".to_owned(),
            version: "1".to_owned(),
            directory: PathBuf::new(),
            bundle: PathBuf::new(),
            client_app: "app:app".to_owned(),
        }),
    }
}

pub fn reply_to(job: &Job) -> (proto::Message, proto::ObjectTree) {
    let asked = job.metadata();
    message(proto::Metadata {
        run_id: asked.run_id,
        src_node_id: asked.dst_node_id,
        dst_node_id: asked.src_node_id,
        reply_to_message_id: asked.message_id.clone(),
        ..Default::default()
    })
}
