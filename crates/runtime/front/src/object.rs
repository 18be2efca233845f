//! PushObject and PullObject, streamed. To both transports an object is one message, and a library would hold all of it;
//! here the message is taken apart while it comes, and put together while it goes.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use trellis_core::id::ObjectId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_wire::proto::{Node, PullObjectRequest, PullObjectResponse};

use crate::answer::{Answer, Rest};
use crate::reader::{MessageReader, malformed};

/// The fields of PushObject apart from its content, each; and all of PullObject.
const MAX_FIELD_BYTES: u64 = 4096;

/// An object that is being pushed: who sends what for which run, then its content.
pub struct PushedObject {
    pub node: u64,
    pub run: u64,
    /// The id as it came, to be parsed once the sender is known; empty if there is none before the content.
    pub id: String,
    /// Length of the content.
    pub bytes: u64,
    message: MessageReader,
    left: u64,
}

impl PushedObject {
    /// Reads what stands before the content. The content must follow the fields that say what it is, as all known clients
    /// send it.
    pub async fn read(mut message: MessageReader) -> Result<PushedObject, Refusal> {
        let (mut node, mut run, mut id, mut bytes) = (0, 0, String::new(), 0);
        while message.left() > 0 {
            match message.varint().await? {
                0x0a => {
                    let field = short_field(&mut message).await?;
                    node = Node::decode(field).map_err(|_| malformed("`node` cannot be read"))?.node_id;
                }
                0x10 => run = message.varint().await?,
                0x1a => {
                    let field = short_field(&mut message).await?;
                    let text = str::from_utf8(&field).map_err(|_| malformed("`object_id` is not text"))?;
                    text.clone_into(&mut id);
                }
                0x22 => {
                    bytes = message.varint().await?;
                    break;
                }
                key => skip(&mut message, key).await?,
            }
        }
        if bytes > message.left() {
            return Err(malformed("`object_content` is longer than its message"));
        }
        Ok(PushedObject { node, run, id, bytes, message, left: bytes })
    }

    /// The next piece of the content. After the last one the rest of the message is read: a message that breaks off did
    /// not come.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Refusal> {
        if self.left > 0 {
            let piece = self.message.piece(self.left).await?;
            self.left -= piece.len() as u64;
            return Ok(Some(piece));
        }
        while self.message.left() > 0 {
            let key = self.message.varint().await?;
            skip(&mut self.message, key).await?;
        }
        Ok(None)
    }
}

async fn short_field(message: &mut MessageReader) -> Result<Bytes, Refusal> {
    let length = message.varint().await?;
    if length > MAX_FIELD_BYTES {
        return Err(malformed("a field is too long"));
    }
    message.bytes(length).await
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

/// The id of an object or a message, as it comes in a field.
pub fn object_id(text: &str) -> Result<ObjectId, Refusal> {
    text.parse().map_err(|_| Refusal::new(Kind::Invalid, format!("Invalid object ID format: {text:.80}")))
}

/// Reads the question for an object.
pub async fn read_pull(mut message: MessageReader) -> Result<PullObjectRequest, Refusal> {
    if message.left() > MAX_FIELD_BYTES {
        return Err(malformed("the message is too long"));
    }
    message.message().await
}

/// Answers with the content of an object.
pub fn pulled(content: Rest) -> Answer {
    Answer::Message { head: pull_head(content.len_bytes()), rest: content }
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
