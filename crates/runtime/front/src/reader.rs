//! Reads the message of a call in pieces: an object may be larger than memory.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;
use trellis_core::refusal::{Kind, Refusal};
use trellis_wire::footprint::{Shaped, footprint};

/// A request without new bytes for this long is refused: it holds a permit that other calls need.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A message must be complete after `IDLE_TIMEOUT` plus one second per this many bytes: the slowest node links have 256
/// kbit/s.
const MIN_BYTES_PER_S: u64 = 32 << 10;

/// Messages up to this size are decoded without a footprint check.
const UNCHECKED_BYTES: usize = 4 << 10;
/// The decoded form of a larger message may take `MAX_DECODED_RATIO` times its bytes plus `DECODED_BYTES`.
const MAX_DECODED_RATIO: u64 = 3;
const DECODED_BYTES: u64 = 4 << 20;

/// A gRPC message starts with a flag byte and four bytes of length.
const GRPC_PREFIX_BYTES: u64 = 5;

pub fn malformed(what: &'static str) -> Refusal {
    Refusal::new(Kind::Invalid, what)
}

/// Decodes a message. Refuses a message whose decoded form would take far more memory than its bytes.
pub fn decode<M: prost::Message + Default + Shaped>(message: Bytes) -> Result<M, Refusal> {
    let unreadable = || malformed("the message cannot be read");
    if message.len() > UNCHECKED_BYTES {
        let limit = message.len() as u64 * MAX_DECODED_RATIO + DECODED_BYTES;
        if footprint::<M>(&message, limit).map_err(|_| unreadable())? > limit {
            let text = format!("a message of {} bytes has too many parts for its size", message.len());
            return Err(Refusal::new(Kind::TooLarge, text));
        }
    }
    M::decode(message).map_err(|_| unreadable())
}

/// An incoming message.
pub struct MessageReader {
    body: Source,
    current: Bytes,
    /// Bytes of the message that were not returned yet.
    left: u64,
    deadline: Instant,
}

enum Source {
    Body(Incoming),
    Pieces(VecDeque<Bytes>),
}

impl Source {
    /// Returns the next chunk, possibly empty, or `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        match self {
            Source::Body(body) => Some(body.frame().await?.map(|frame| frame.into_data().unwrap_or_default())),
            Source::Pieces(pieces) => pieces.pop_front().map(Ok),
        }
    }
}

fn deadline(message_bytes: u64) -> Instant {
    Instant::now() + IDLE_TIMEOUT + Duration::from_secs(message_bytes / MIN_BYTES_PER_S)
}

impl MessageReader {
    /// Reads the message of a gRPC call.
    pub async fn grpc(body: Incoming) -> Result<MessageReader, Refusal> {
        MessageReader::prefixed(Source::Body(body)).await
    }

    /// Reads the message of a gRPC call from chunks that are already in memory.
    pub async fn grpc_pieces(pieces: impl IntoIterator<Item = Bytes>) -> Result<MessageReader, Refusal> {
        MessageReader::prefixed(Source::Pieces(pieces.into_iter().collect())).await
    }

    async fn prefixed(body: Source) -> Result<MessageReader, Refusal> {
        let mut reader = MessageReader { body, current: Bytes::new(), left: GRPC_PREFIX_BYTES, deadline: deadline(0) };
        let prefix = reader.bytes(GRPC_PREFIX_BYTES).await?;
        if prefix[0] != 0 {
            return Err(Refusal::new(Kind::Unimplemented, "compressed messages are not supported"));
        }
        reader.left = u64::from(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]));
        reader.deadline = deadline(reader.left);
        Ok(reader)
    }

    /// Reads the message of an HTTP call: its whole body. The length must be known before the body is read.
    pub fn http(body: Incoming) -> Result<MessageReader, Refusal> {
        let left = body.size_hint().exact().ok_or_else(|| malformed("the request needs a content-length"))?;
        Ok(MessageReader { body: Source::Body(body), current: Bytes::new(), left, deadline: deadline(left) })
    }

    /// Sets a deadline for the whole message, regardless of its size.
    pub fn within(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    /// Bytes of the message that were not read yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the next piece: at least one and at most `limit` bytes.
    pub async fn piece(&mut self, limit: u64) -> Result<Bytes, Refusal> {
        while self.current.is_empty() {
            let until = self.deadline.min(Instant::now() + IDLE_TIMEOUT);
            let next = tokio::time::timeout_at(until, self.body.next()).await;
            match next.map_err(|_| malformed("the message came too slowly"))? {
                Some(Ok(bytes)) => self.current = bytes,
                Some(Err(_)) => return Err(Refusal::new(Kind::Transient, "the peer disconnected")),
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

    pub async fn bytes(&mut self, wanted: u64) -> Result<Bytes, Refusal> {
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let first = self.piece(wanted).await?;
        if first.len() as u64 == wanted {
            return Ok(first);
        }
        let mut bytes = BytesMut::with_capacity(wanted as usize);
        bytes.extend_from_slice(&first);
        while (bytes.len() as u64) < wanted {
            let piece = self.piece(wanted - bytes.len() as u64).await?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// Reads the rest of the message.
    pub async fn whole(&mut self) -> Result<Bytes, Refusal> {
        self.bytes(self.left).await
    }

    /// Reads the rest of the message and decodes it.
    pub async fn message<M: prost::Message + Default + Shaped>(&mut self) -> Result<M, Refusal> {
        decode(self.whole().await?)
    }

    pub async fn varint(&mut self) -> Result<u64, Refusal> {
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
}
