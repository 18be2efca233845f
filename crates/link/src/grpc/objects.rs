//! PushObject and PullObject, streamed. To gRPC an object is one message, and a gRPC library would hold all of it; here
//! the message is taken apart while it comes, and put together while it goes.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use prost::Message as _;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use trellis_core::id::{NodeId, ObjectId, RunId};
use trellis_core::refusal::{Kind, Refusal};
use trellis_wire::proto::{Node, PullObjectRequest, PullObjectResponse, PushObjectResponse};

use crate::api::app;
use crate::api::fleet::Caller;
use crate::convert;
use crate::link::Link;
use crate::objects::{self, Admission, Outgoing};

/// A gRPC message starts with a flag byte and four bytes of length.
pub(super) const PREFIX_BYTES: usize = 5;
/// The fields of PushObject apart from its content, each.
const MAX_FIELD_BYTES: u64 = 4096;

/// Which of the two APIs an object call came to.
pub(super) enum Peer {
    Node(Caller),
    App,
}

impl Peer {
    fn check(&self, link: &Link, node: NodeId) -> Result<(), Refusal> {
        match self {
            Peer::Node(caller) => caller.is_node(link, node).map(drop),
            Peer::App => app::check_sender(node),
        }
    }

    fn note_traffic(&self, link: &Link, run: RunId, sent: u64, received: u64) {
        if matches!(self, Peer::Node(_)) {
            link.note_traffic(run, sent, received);
        }
    }
}

fn malformed(what: &'static str) -> Refusal {
    Refusal::new(Kind::Invalid, what)
}

/// The body of a call that carries one message, read piece by piece.
struct Incoming {
    body: Body,
    current: Bytes,
    /// Bytes of the message that were not handed out yet.
    left: u64,
}

impl Incoming {
    async fn open(body: Body) -> Result<Incoming, Refusal> {
        let mut incoming = Incoming { body, current: Bytes::new(), left: PREFIX_BYTES as u64 };
        let prefix = incoming.bytes(PREFIX_BYTES as u64).await?;
        if prefix[0] != 0 {
            return Err(Refusal::new(Kind::Unimplemented, "compressed messages are not supported"));
        }
        incoming.left = u64::from(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]));
        Ok(incoming)
    }

    /// The next piece, at most `limit` bytes; never empty.
    async fn piece(&mut self, limit: u64) -> Result<Bytes, Refusal> {
        while self.current.is_empty() {
            match self.body.frame().await {
                Some(Ok(frame)) => self.current = frame.into_data().unwrap_or_default(),
                Some(Err(_)) => return Err(Refusal::new(Kind::Transient, "the peer went away")),
                None => return Err(malformed("the message is shorter than announced")),
            }
        }
        let limit = limit.min(self.left).min(self.current.len() as u64);
        if limit == 0 {
            return Err(malformed("the message is longer than announced"));
        }
        self.left -= limit;
        Ok(self.current.split_to(limit as usize))
    }

    async fn bytes(&mut self, wanted: u64) -> Result<Bytes, Refusal> {
        let mut bytes = BytesMut::new();
        while (bytes.len() as u64) < wanted {
            let piece = self.piece(wanted - bytes.len() as u64).await?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    async fn varint(&mut self) -> Result<u64, Refusal> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.piece(1).await?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number is too long"))
    }

    async fn short_field(&mut self) -> Result<Bytes, Refusal> {
        let length = self.varint().await?;
        if length > MAX_FIELD_BYTES {
            return Err(malformed("a field is too long"));
        }
        self.bytes(length).await
    }
}

/// What stands before the content: who sends what for which run.
#[derive(Default)]
struct PushHead {
    node: NodeIdField,
    run: u64,
    object: Option<ObjectId>,
}

type NodeIdField = u64;

/// Reads fields up to the content; the content's length, or `None` when the message has none.
async fn read_head(message: &mut Incoming, head: &mut PushHead) -> Result<Option<u64>, Refusal> {
    while message.left > 0 {
        match message.varint().await? {
            0x0a => {
                let field = message.short_field().await?;
                head.node = Node::decode(field).map_err(|_| malformed("`node` cannot be read"))?.node_id;
            }
            0x10 => head.run = message.varint().await?,
            0x1a => {
                let field = message.short_field().await?;
                let text = str::from_utf8(&field).map_err(|_| malformed("`object_id` is not text"))?;
                head.object = Some(convert::object_id(text)?);
            }
            0x22 => return message.varint().await.map(Some),
            key => skip(message, key).await?,
        }
    }
    Ok(None)
}

async fn skip(message: &mut Incoming, key: u64) -> Result<(), Refusal> {
    match key & 7 {
        0 => message.varint().await.map(drop),
        1 => message.bytes(8).await.map(drop),
        2 => message.short_field().await.map(drop),
        5 => message.bytes(4).await.map(drop),
        _ => Err(malformed("the message cannot be read")),
    }
}

/// Takes an object. The content must follow the fields that say what it is, as all known clients send it.
pub(super) async fn push(link: &Link, peer: Peer, body: Body) -> Result<Response<Body>, Refusal> {
    let mut message = Incoming::open(body).await?;
    let mut head = PushHead::default();
    let length = read_head(&mut message, &mut head).await?.unwrap_or(0);
    if length > message.left {
        return Err(malformed("`object_content` is longer than its message"));
    }
    peer.check(link, NodeId(head.node))?;
    let run = RunId(head.run);
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
    while message.left > 0 {
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
    Ok(unary(&PushObjectResponse { stored }))
}

/// Hands out an object.
pub(super) async fn pull(link: &Link, peer: Peer, body: Body) -> Result<Response<Body>, Refusal> {
    let mut message = Incoming::open(body).await?;
    if message.left > MAX_FIELD_BYTES {
        return Err(malformed("the message is too long"));
    }
    let bytes = message.bytes(message.left).await?;
    let request = PullObjectRequest::decode(bytes).map_err(|_| malformed("the message cannot be read"))?;
    peer.check(link, convert::node_id(request.node.as_ref()))?;
    let run = RunId(request.run_id);
    let outgoing = objects::fetch(link, run, convert::object_id(&request.object_id)?).await?;
    peer.note_traffic(link, run, outgoing.len_bytes(), 0);
    Ok(match outgoing {
        Outgoing::NotFound => unary(&PullObjectResponse::default()),
        Outgoing::NotHere => unary(&PullObjectResponse { object_found: true, ..Default::default() }),
        Outgoing::Whole(bytes) => {
            let head = pull_head(bytes.len() as u64)?;
            respond(tokio_stream::iter([Ok(head), Ok(bytes)]))
        }
        Outgoing::Blocks { bytes, blocks } => {
            let head = pull_head(bytes)?;
            respond(tokio_stream::once(Ok(head)).chain(ReceiverStream::new(blocks)))
        }
    })
}

/// Everything of a PullObjectResponse before the content: prefix, found, available, the content's key and length.
fn pull_head(content_bytes: u64) -> Result<Bytes, Refusal> {
    let mut fields = BytesMut::with_capacity(24);
    PullObjectResponse { object_found: true, object_available: true, ..Default::default() }
        .encode(&mut fields)
        .expect("the buffer grows");
    fields.put_u8(0x1a);
    prost::encoding::encode_varint(content_bytes, &mut fields);
    let length = u32::try_from(fields.len() as u64 + content_bytes)
        .map_err(|_| Refusal::new(Kind::TooLarge, "the object is larger than a gRPC message can be"))?;
    let mut head = BytesMut::with_capacity(PREFIX_BYTES + fields.len());
    head.put_u8(0);
    head.put_u32(length);
    head.put(fields.chunk());
    Ok(head.freeze())
}

fn unary(message: &impl prost::Message) -> Response<Body> {
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode(&mut bytes).expect("the buffer grows");
    respond(tokio_stream::once(Ok(bytes.freeze())))
}

/// A good answer: the data, then the status.
fn respond(data: impl tokio_stream::Stream<Item = std::io::Result<Bytes>> + Send + 'static) -> Response<Body> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = data.map(|bytes| bytes.map(Frame::data)).chain(tokio_stream::once(Ok(Frame::trailers(trailers))));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
