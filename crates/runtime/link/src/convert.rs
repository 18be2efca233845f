//! Conversions between Flower's messages and the core's values. Makes no decisions.

use std::collections::BTreeMap;

use prost::Message as _;
use trellis_core::Seconds;
use trellis_core::id::{MessageId, NodeId, RunId};
use trellis_core::message::{Envelope, MessageError};
use trellis_core::node::Node;
use trellis_core::object::Tree;
use trellis_core::port::{Fab, Traffic};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::run::{Run, ServerApp, State};
pub use trellis_front::object::object_id;
use trellis_wire::fab::VALID_LICENSE;
use trellis_wire::proto;

use crate::dialect::app::SERVER_APP;

fn invalid(text: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Kind::Invalid, text)
}

pub fn node_id(node: Option<&proto::Node>) -> NodeId {
    NodeId(node.map_or(0, |node| node.node_id))
}

/// Converts a tree and checks its size.
pub fn tree(tree: &proto::ObjectTree) -> Result<Tree, Refusal> {
    let tree = tree_in(tree)?;
    tree.check()?;
    Ok(tree)
}

fn tree_in(tree: &proto::ObjectTree) -> Result<Tree, Refusal> {
    let children = tree.children.iter().map(tree_in).collect::<Result<_, _>>()?;
    Ok(Tree { id: object_id(&tree.object_id)?, children })
}

pub fn tree_out(tree: &Tree) -> proto::ObjectTree {
    proto::ObjectTree { object_id: tree.id.to_string(), children: tree.children.iter().map(tree_out).collect() }
}

/// Converts a message without its content. Also returns the id of the message that it answers.
pub fn envelope(message: &proto::Message) -> Result<(Envelope, Option<MessageId>), Refusal> {
    let Some(metadata) = &message.metadata else { return Err(invalid("a message has no metadata")) };
    if message.content.is_some() == message.error.is_some() {
        return Err(invalid("Either message `content` or `error` MUST be set (but not both)"));
    }
    let reply_to = match metadata.reply_to_message_id.as_str() {
        "" => None,
        id => Some(object_id(id)?),
    };
    let error = message.error.as_ref().map(|error| MessageError { code: error.code, reason: error.reason.clone() });
    let envelope = Envelope {
        id: object_id(&metadata.message_id)?,
        run: RunId(metadata.run_id),
        src: NodeId(metadata.src_node_id),
        dst: NodeId(metadata.dst_node_id),
        group_id: metadata.group_id.clone(),
        ttl_s: metadata.ttl,
        message_type: metadata.message_type.clone(),
        created_at: metadata.created_at,
        src_task: metadata.src_task_id,
        dst_task: metadata.dst_task_id,
        error,
    };
    Ok((envelope, reply_to))
}

/// Converts the messages of a PushMessages call with their object trees.
pub fn pushed_messages(
    messages: &[proto::Message],
    trees: &[proto::ObjectTree],
) -> Result<Vec<(Envelope, Option<MessageId>, Tree)>, Refusal> {
    if messages.is_empty() {
        return Err(malformed_push("`messages_list` must not be empty"));
    }
    if messages.len() != trees.len() {
        return Err(malformed_push("each message needs one object tree"));
    }
    let convert = |(message, of_message)| {
        let (envelope, reply_to) = envelope(message)?;
        Ok((envelope, reply_to, tree(of_message)?))
    };
    messages.iter().zip(trees).map(convert).collect()
}

pub fn malformed_push(what: &str) -> Refusal {
    invalid(format!("Malformed PushMessages: {what}"))
}

pub fn metadata_out(envelope: &Envelope, reply_to: Option<MessageId>) -> proto::Metadata {
    proto::Metadata {
        run_id: envelope.run.0,
        message_id: envelope.id.to_string(),
        src_node_id: envelope.src.0,
        dst_node_id: envelope.dst.0,
        reply_to_message_id: reply_to.map(|id| id.to_string()).unwrap_or_default(),
        group_id: envelope.group_id.clone(),
        ttl: envelope.ttl_s,
        message_type: envelope.message_type.clone(),
        created_at: envelope.created_at,
        src_task_id: envelope.src_task,
        dst_task_id: envelope.dst_task,
    }
}

/// Converts to a message with empty but present content: clients check its presence and fetch it as objects.
pub fn message_out(envelope: &Envelope, reply_to: Option<MessageId>) -> proto::Message {
    let error = envelope.error.as_ref().map(|error| proto::Error { code: error.code, reason: error.reason.clone() });
    let content = error.is_none().then(proto::RecordDict::default);
    proto::Message { metadata: Some(metadata_out(envelope, reply_to)), content, error }
}

/// Formats a time in ISO 8601 as Python does.
pub fn iso_time(time: Seconds) -> String {
    let microseconds = (time * 1e6).round() as i64;
    match jiff::Timestamp::from_microsecond(microseconds) {
        Ok(time) if microseconds % 1_000_000 == 0 => time.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string(),
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string(),
        Err(_) => String::new(),
    }
}

fn iso_or_empty(time: Option<Seconds>) -> String {
    time.map(iso_time).unwrap_or_default()
}

pub fn run_status(state: &State) -> proto::RunStatus {
    let (sub_status, details) = match state {
        State::Finished { outcome, details } => (outcome.name(), details.as_str()),
        _ => ("", ""),
    };
    proto::RunStatus { status: state.name().into(), sub_status: sub_status.into(), details: details.into() }
}

pub fn run_out(run: &Run, traffic: Traffic) -> proto::Run {
    proto::Run {
        run_id: run.id.0,
        fab_id: run.fab_id.clone(),
        fab_version: run.fab_version.clone(),
        override_config: override_config_out(&run.override_config),
        fab_hash: run.fab_hash.clone(),
        pending_at: iso_time(run.pending_at),
        starting_at: iso_or_empty(run.starting_at),
        running_at: iso_or_empty(run.running_at),
        finished_at: iso_or_empty(run.finished_at),
        status: Some(run_status(run.state())),
        flwr_aid: run.account.clone(),
        federation: run.federation.clone(),
        bytes_sent: traffic.bytes_sent,
        bytes_recv: traffic.bytes_received,
        clientapp_runtime: run.clientapp_runtime_s,
        primary_task_type: SERVER_APP.to_owned(),
        primary_task_id: Some(run.id.0),
        series_id: run.id.0,
        account_name: run.account.clone(),
        client: run.client.clone(),
        native: run.server_app == ServerApp::Native,
    }
}

type Config = std::collections::BTreeMap<String, proto::Scalar>;

/// Encodes overrides as the `run_config` of an otherwise empty Context, which has the right field and is stable.
pub fn override_config(config: Config) -> Vec<u8> {
    proto::Context { run_config: config, ..Default::default() }.encode_to_vec()
}

pub fn override_config_out(kept: &[u8]) -> Config {
    proto::Context::decode(kept).map(|context| context.run_config).unwrap_or_default()
}

pub fn node_out(node: &Node, now: Seconds) -> proto::NodeInfo {
    proto::NodeInfo {
        node_id: node.id.0,
        owner_aid: node.owner_aid.clone(),
        owner_name: node.owner_name.clone(),
        status: node.state().at(now).name().to_owned(),
        registered_at: iso_time(node.registered_at),
        last_activated_at: node.last_activated_at.map(iso_time),
        last_deactivated_at: node.last_deactivated_at(now).map(iso_time),
        unregistered_at: node.unregistered_at.map(iso_time),
        online_until: node.online_until,
        heartbeat_interval: node.heartbeat_interval_s,
        public_key: node.public_key.clone().into(),
        location: Some(node.location.clone()).filter(|location| !location.is_empty()),
        name: Some(node.name.clone()).filter(|name| !name.is_empty()),
        client: node.client.clone(),
    }
}

/// Encodes verifications for the store.
pub fn verifications_in(verifications: BTreeMap<String, String>) -> Vec<u8> {
    proto::Fab { verifications, ..Default::default() }.encode_to_vec()
}

/// Converts a FAB. `valid_license` is always set: without it, Flower 1.25 runs unsigned apps in spite of
/// `--trusted-entities`.
pub fn fab_out(fab: Fab) -> proto::Fab {
    let stored = proto::Fab::decode(fab.verifications.as_slice()).unwrap_or_default();
    let mut verifications = stored.verifications;
    verifications.insert(VALID_LICENSE.to_owned(), "Valid".to_owned());
    proto::Fab { hash_str: fab.hash, content: fab.content, verifications }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_in_python() {
        assert_eq!(iso_time(1_740_700_800.0), "2025-02-28T00:00:00+00:00");
        assert_eq!(iso_time(1_740_700_800.000_25), "2025-02-28T00:00:00.000250+00:00");
    }

    #[test]
    fn a_message_has_either_content_or_an_error() {
        let metadata = proto::Metadata {
            message_id: "00".repeat(32),
            run_id: 1 << 63,
            src_task_id: Some(0),
            ..Default::default()
        };
        let mut message = proto::Message { metadata: Some(metadata), content: None, error: None };
        assert_eq!(envelope(&message).unwrap_err().kind, Kind::Invalid);
        message.content = Some(proto::RecordDict::default());
        let (sound, reply_to) = envelope(&message).unwrap();
        assert_eq!(reply_to, None);
        let out = message_out(&sound, None);
        assert_eq!(out, message, "empty content stays present");
        assert!(out.encode_to_vec().windows(2).any(|pair| pair == [0x12, 0x00]), "field 2, zero length");
        message.error = Some(proto::Error::default());
        assert_eq!(envelope(&message).unwrap_err().kind, Kind::Invalid);
    }
}
