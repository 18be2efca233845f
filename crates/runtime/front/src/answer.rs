//! The answer of a call before the transport frames it, and the HTTP body that carries it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use trellis_core::port::objects::Blocks;
use trellis_core::refusal::Refusal;

/// Frames that may wait for a slow reader.
pub(crate) const STREAM_BACKLOG: usize = 2;

/// The answer to a call.
pub enum Answer {
    /// One message: an encoded head, then bytes in memory or blocks from disk.
    Message { head: Bytes, rest: Rest },
    /// One JSON message of Trellis' own API.
    Json(Bytes),
    /// Messages, sent as they arrive.
    Stream(mpsc::Receiver<Result<Bytes, Refusal>>),
}

/// The bytes after the head of a message.
pub enum Rest {
    Nothing,
    Whole(Bytes),
    Blocks { bytes: u64, blocks: Box<dyn Blocks> },
}

impl Rest {
    pub fn len_bytes(&self) -> u64 {
        match self {
            Rest::Nothing => 0,
            Rest::Whole(bytes) => bytes.len() as u64,
            Rest::Blocks { bytes, .. } => *bytes,
        }
    }
}

impl Answer {
    pub fn message(message: &impl prost::Message) -> Answer {
        Answer::Message { head: message.encode_to_vec().into(), rest: Rest::Nothing }
    }
}

/// A response body: frames of one message or of a stream of messages, then trailers if the transport has them.
#[derive(Default)]
pub struct Payload {
    pub head: Option<Bytes>,
    pub rest: BodyRest,
    pub trailers: Option<HeaderMap>,
}

#[derive(Default)]
pub enum BodyRest {
    #[default]
    Nothing,
    Whole(Bytes),
    Blocks {
        left: u64,
        blocks: Box<dyn Blocks>,
    },
    /// Frames of the transport, including trailers.
    Frames(mpsc::Receiver<Frame<Bytes>>),
}

impl From<Rest> for BodyRest {
    fn from(rest: Rest) -> BodyRest {
        match rest {
            Rest::Nothing => BodyRest::Nothing,
            Rest::Whole(bytes) => BodyRest::Whole(bytes),
            Rest::Blocks { bytes, blocks } => BodyRest::Blocks { left: bytes, blocks },
        }
    }
}

impl Payload {
    pub fn whole(bytes: Bytes) -> Payload {
        Payload { head: Some(bytes), ..Default::default() }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(head) = self.head.take().filter(|head| !head.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        let next = match &mut self.rest {
            BodyRest::Nothing => None,
            BodyRest::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.rest = BodyRest::Nothing;
                Some(bytes).filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes)))
            }
            BodyRest::Blocks { left, blocks } => match std::task::ready!(blocks.poll_next(cx)) {
                Some(Ok(block)) => {
                    *left = left.saturating_sub(block.len() as u64);
                    Some(Ok(Frame::data(block)))
                }
                Some(Err(refusal)) => Some(Err(io::Error::other(refusal))),
                None if *left > 0 => Some(Err(io::Error::other("the object ended early"))),
                None => None,
            },
            BodyRest::Frames(frames) => std::task::ready!(frames.poll_recv(cx)).map(Ok),
        };
        if next.is_some() {
            return Poll::Ready(next);
        }
        self.rest = BodyRest::Nothing;
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_none() && matches!(self.rest, BodyRest::Nothing) && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let head = self.head.as_ref().map_or(0, Bytes::len) as u64;
        match &self.rest {
            BodyRest::Nothing => SizeHint::with_exact(head),
            BodyRest::Whole(bytes) => SizeHint::with_exact(head + bytes.len() as u64),
            BodyRest::Blocks { left, .. } => SizeHint::with_exact(head + left),
            BodyRest::Frames(_) => SizeHint::default(),
        }
    }
}
