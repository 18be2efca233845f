//! A response in length-prefixed pieces: logs over HTTP, and everything over gRPC. Does not interpret them.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;

use crate::exchange::Coming;
use crate::grpc;

/// Far more than a SuperLink puts into one piece.
const MAX_PIECE_BYTES: usize = 64 << 20;

/// The prefix of each piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Its length.
    Length,
    /// Compression flag and length; the status follows at the end, or at once if there is no piece.
    Grpc,
}

/// Why there is no next piece.
#[derive(Debug)]
pub(crate) enum Broken {
    Connection(hyper::Error),
    /// The SuperLink refused. The status is the corresponding one of HTTP.
    Refused {
        status: u16,
        detail: String,
    },
    Strange(String),
}

pub(crate) struct Pieces {
    coming: Coming,
    prefix: Prefix,
    read: BytesMut,
    trailers: HeaderMap,
}

impl Pieces {
    pub fn new(coming: Coming, prefix: Prefix) -> Pieces {
        Pieces { coming, prefix, read: BytesMut::new(), trailers: HeaderMap::new() }
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            if let Some(piece) = self.piece()? {
                return Ok(Some(piece));
            }
            match self.coming.body.frame().await {
                None => return self.ended().map(|()| None),
                Some(Err(error)) => return Err(Broken::Connection(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.read.extend_from_slice(&data),
                    Err(frame) => self.trailers.extend(frame.into_trailers().unwrap_or_default()),
                },
            }
        }
    }

    /// The one piece of an answer that has no more.
    pub async fn only(&mut self) -> Result<Bytes, Broken> {
        let Some(piece) = self.next().await? else { return Err(Broken::Strange("it is empty".to_owned())) };
        match self.next().await? {
            None => Ok(piece),
            Some(_) => Err(Broken::Strange("it has more than one message".to_owned())),
        }
    }

    /// The next piece, if all of it is here.
    fn piece(&mut self) -> Result<Option<Bytes>, Broken> {
        let prefix = match self.prefix {
            Prefix::Length => self.read.first_chunk::<4>().map(|length| (false, *length, 4)),
            Prefix::Grpc => {
                self.read.first_chunk::<5>().map(|[compressed, length @ ..]| (*compressed != 0, *length, 5))
            }
        };
        let Some((is_compressed, length, prefix_bytes)) = prefix else { return Ok(None) };
        let length = u32::from_be_bytes(length) as usize;
        if is_compressed {
            return Err(Broken::Strange("it is compressed".to_owned()));
        }
        if length > MAX_PIECE_BYTES {
            return Err(Broken::Strange(format!("a piece of {length} bytes")));
        }
        if self.read.len() < prefix_bytes + length {
            return Ok(None);
        }
        self.read.advance(prefix_bytes);
        Ok(Some(self.read.split_to(length).freeze()))
    }

    /// Whether the end is one.
    fn ended(&self) -> Result<(), Broken> {
        if self.prefix == Prefix::Grpc {
            match grpc::outcome(&self.coming.headers).or_else(|| grpc::outcome(&self.trailers)) {
                Some(Ok(())) => {}
                Some(Err((status, detail))) => return Err(Broken::Refused { status, detail }),
                None => return Err(Broken::Strange("it ends without a status".to_owned())),
            }
        }
        match self.read.is_empty() {
            true => Ok(()),
            false => Err(Broken::Strange("it ends in the middle".to_owned())),
        }
    }
}
