//! PushObject and PullObject, streamed. Both transports carry an object as one message, which a library would buffer
//! whole; this module decodes and encodes the message in pieces.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use trellis_core::id::ObjectId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_wire::proto::{Node, PullObjectRequest, PullObjectResponse};

use crate::answer::{Answer, Rest};
use crate::reader::{MessageReader, malformed};

/// Maximum size of each field of PushObject apart from its content, and of a whole PullObject.
const MAX_FIELD_BYTES: u64 = 4096;

/// A PushObject request: its fields, then its content.
pub struct PushedObject {
    pub node: u64,
    pub run: u64,
    /// The id as sent. The caller parses it after it has identified the sender. Empty if no id precedes the content.
    pub id: String,
    /// Length of the content.
    pub bytes: u64,
    message: MessageReader,
    left: u64,
}

impl PushedObject {
    /// Reads the fields before the content. All known clients send the content last.
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

    /// Returns the next piece of the content. After the last piece, reads the rest of the message, so that a truncated
    /// message is an error.
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

/// Parses the id of an object or a message.
pub fn object_id(text: &str) -> Result<ObjectId, Refusal> {
    text.parse().map_err(|_| Refusal::new(Kind::Invalid, format!("Invalid object ID format: {text:.80}")))
}

/// Reads a PullObject request.
pub async fn read_pull(mut message: MessageReader) -> Result<PullObjectRequest, Refusal> {
    if message.left() > MAX_FIELD_BYTES {
        return Err(malformed("the message is too long"));
    }
    message.message().await
}

/// Answers a PullObject request with the content of the object.
pub fn pulled(content: Rest) -> Answer {
    Answer::Message { head: pull_head(content.len_bytes()), rest: content }
}

/// The bytes of a PullObjectResponse before the content: found, available, the content's key and length.
fn pull_head(content_bytes: u64) -> Bytes {
    let mut fields = BytesMut::with_capacity(24);
    PullObjectResponse { object_found: true, object_available: true, ..Default::default() }
        .encode(&mut fields)
        .expect("the buffer grows");
    fields.put_u8(0x1a);
    prost::encoding::encode_varint(content_bytes, &mut fields);
    fields.freeze()
}
