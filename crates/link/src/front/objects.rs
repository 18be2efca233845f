//! PushObject and PullObject, streamed. To both transports an object is one message, and a library would hold all of it;
//! here the message is taken apart while it comes, and put together while it goes.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use trellis_core::id::{NodeId, ObjectId, RunId};
use trellis_core::refusal::Refusal;
use trellis_wire::proto::{Node, PullObjectRequest, PullObjectResponse, PushObjectResponse};

use super::answer::{Answer, Rest};
use super::reader::{MessageReader, malformed};
use crate::api::app;
use crate::api::fleet::Caller;
use crate::convert;
use crate::dialect::app::Caller as AppCaller;
use crate::link::Link;
use crate::objects::{self, Admission, Outgoing};

/// The fields of PushObject apart from its content, each.
const MAX_FIELD_BYTES: u64 = 4096;

/// Which of the two APIs an object call came to.
pub(super) enum Peer {
    Node(Caller),
    App(AppCaller),
}

impl Peer {
    fn check(&self, link: &Link, node: NodeId) -> Result<(), Refusal> {
        match self {
            Peer::Node(caller) => caller.is_node(link, node).map(drop),
            Peer::App(_) => app::check_sender(node),
        }
    }

    fn run(&self, named: u64) -> RunId {
        match self {
            Peer::Node(_) => RunId(named),
            Peer::App(app) => app.run(named),
        }
    }

    fn note_traffic(&self, link: &Link, run: RunId, sent: u64, received: u64) {
        if matches!(self, Peer::Node(_)) {
            link.note_traffic(run, sent, received);
        }
    }
}

async fn short_field(message: &mut MessageReader) -> Result<Bytes, Refusal> {
    let length = message.varint().await?;
    if length > MAX_FIELD_BYTES {
        return Err(malformed("a field is too long"));
    }
    message.bytes(length).await
}

/// What stands before the content: who sends what for which run.
#[derive(Default)]
struct PushHead {
    node: u64,
    run: u64,
    object: Option<ObjectId>,
}

/// Reads fields up to the content; the content's length, or `None` when the message has none.
async fn read_head(message: &mut MessageReader, head: &mut PushHead) -> Result<Option<u64>, Refusal> {
    while message.left() > 0 {
        match message.varint().await? {
            0x0a => {
                let field = short_field(message).await?;
                head.node = Node::decode(field).map_err(|_| malformed("`node` cannot be read"))?.node_id;
            }
            0x10 => head.run = message.varint().await?,
            0x1a => {
                let field = short_field(message).await?;
                let text = str::from_utf8(&field).map_err(|_| malformed("`object_id` is not text"))?;
                head.object = Some(convert::object_id(text)?);
            }
            0x22 => return message.varint().await.map(Some),
            key => skip(message, key).await?,
        }
    }
    Ok(None)
}

async fn skip(message: &mut MessageReader, key: u64) -> Result<(), Refusal> {
    match key & 7 {
        0 => message.varint().await.map(drop),
        1 => message.bytes(8).await.map(drop),
        2 => short_field(message).await.map(drop),
        5 => message.bytes(4).await.map(drop),
        _ => Err(malformed("the message cannot be read")),
    }
}

/// Takes an object. The content must follow the fields that say what it is, as all known clients send it.
pub(super) async fn push(link: &Link, peer: Peer, mut message: MessageReader) -> Result<Answer, Refusal> {
    let mut head = PushHead::default();
    let length = read_head(&mut message, &mut head).await?.unwrap_or(0);
    if length > message.left() {
        return Err(malformed("`object_content` is longer than its message"));
    }
    peer.check(link, NodeId(head.node))?;
    let run = peer.run(head.run);
    let id = head.object.ok_or_else(|| malformed("`object_id` must come before `object_content`"))?;

    let mut admission = objects::admit(link, run, id)?;
    let mut left = length;
    while left > 0 {
        let piece = message.piece(left).await?;
        left -= piece.len() as u64;
        if let Admission::Wanted(incoming) = &mut admission {
            incoming.take(link, &piece).await?;
        }
    }
    while message.left() > 0 {
        let key = message.varint().await?;
        skip(&mut message, key).await?;
    }
    let stored = match admission {
        Admission::Wanted(incoming) => incoming.finish(link, run).await?,
        Admission::Known => true,
        Admission::Unannounced => false,
    };
    if stored {
        peer.note_traffic(link, run, 0, length);
    } else {
        tracing::warn!(run = run.0, object = %id, "object not stored: unannounced, or its content has another hash");
    }
    Ok(Answer::message(&PushObjectResponse { stored }))
}

/// Hands out an object.
pub(super) async fn pull(link: &Link, peer: Peer, mut message: MessageReader) -> Result<Answer, Refusal> {
    if message.left() > MAX_FIELD_BYTES {
        return Err(malformed("the message is too long"));
    }
    let request =
        PullObjectRequest::decode(message.whole().await?).map_err(|_| malformed("the message cannot be read"))?;
    peer.check(link, convert::node_id(request.node.as_ref()))?;
    let run = peer.run(request.run_id);
    let outgoing = objects::fetch(link, run, convert::object_id(&request.object_id)?).await?;
    peer.note_traffic(link, run, outgoing.len_bytes(), 0);
    Ok(match outgoing {
        Outgoing::NotFound => Answer::message(&PullObjectResponse::default()),
        Outgoing::NotHere => Answer::message(&PullObjectResponse { object_found: true, ..Default::default() }),
        Outgoing::Whole(bytes) => Answer::Message { head: pull_head(bytes.len() as u64), rest: Rest::Whole(bytes) },
        Outgoing::Blocks { bytes, blocks } => {
            Answer::Message { head: pull_head(bytes), rest: Rest::Blocks { bytes, blocks } }
        }
    })
}

/// Everything of a PullObjectResponse before the content: found, available, the content's key and length.
fn pull_head(content_bytes: u64) -> Bytes {
    let mut fields = BytesMut::with_capacity(24);
    PullObjectResponse { object_found: true, object_available: true, ..Default::default() }
        .encode(&mut fields)
        .expect("the buffer grows");
    fields.put_u8(0x1a);
    prost::encoding::encode_varint(content_bytes, &mut fields);
    fields.freeze()
}
