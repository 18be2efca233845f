//! The one message that a call brings, read piece by piece: an object may be larger than memory.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use trellis_core::refusal::{Kind, Refusal};

/// A peer that sends nothing for this long in the middle of a message is given up: it holds a place that others need.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gRPC message starts with a flag byte and four bytes of length.
const GRPC_PREFIX_BYTES: u64 = 5;

pub fn malformed(what: &'static str) -> Refusal {
    Refusal::new(Kind::Invalid, what)
}

/// A message on its way in.
pub struct MessageReader {
    body: Incoming,
    current: Bytes,
    /// Bytes of the message that were not handed out yet.
    left: u64,
}

impl MessageReader {
    /// The message of a gRPC call.
    pub async fn grpc(body: Incoming) -> Result<MessageReader, Refusal> {
        let mut reader = MessageReader { body, current: Bytes::new(), left: GRPC_PREFIX_BYTES };
        let prefix = reader.bytes(GRPC_PREFIX_BYTES).await?;
        if prefix[0] != 0 {
            return Err(Refusal::new(Kind::Unimplemented, "compressed messages are not supported"));
        }
        reader.left = u64::from(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]));
        Ok(reader)
    }

    /// The message of an HTTP call: its whole body. Its length must be known before it is read.
    pub fn http(body: Incoming) -> Result<MessageReader, Refusal> {
        let left = body.size_hint().exact().ok_or_else(|| malformed("the request needs a content-length"))?;
        Ok(MessageReader { body, current: Bytes::new(), left })
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next piece, at most `limit` bytes; never empty.
    pub async fn piece(&mut self, limit: u64) -> Result<Bytes, Refusal> {
        while self.current.is_empty() {
            let next = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            match next.map_err(|_| malformed("the message stopped half-way"))? {
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

    pub async fn bytes(&mut self, wanted: u64) -> Result<Bytes, Refusal> {
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let first = self.piece(wanted).await?;
        if first.len() as u64 == wanted {
            return Ok(first);
        }
        let mut bytes = BytesMut::from(first);
        while (bytes.len() as u64) < wanted {
            let piece = self.piece(wanted - bytes.len() as u64).await?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// All of it.
    pub async fn whole(&mut self) -> Result<Bytes, Refusal> {
        self.bytes(self.left).await
    }

    /// All of it, as the message that it is.
    pub async fn message<M: prost::Message + Default>(&mut self) -> Result<M, Refusal> {
        M::decode(self.whole().await?).map_err(|_| malformed("the message cannot be read"))
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
