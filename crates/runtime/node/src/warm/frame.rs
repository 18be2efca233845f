//! Frames between a node and its workers: a length-prefixed JSON header, then the parts that it announces. The content of the
//! parts is not interpreted here.

use std::io;

use bytes::{BufMut, Bytes};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A header contains names, numbers and reasons.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// The size limit of protobuf, which objects, contexts and messages share.
const MAX_PART_BYTES: u64 = 1 << 31;
const MAX_PARTS: usize = 8;

/// A frame from the node.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Request<'a> {
    /// Parts: context, object tree. `objects` objects follow, children before parents.
    Instruction { directory: &'a str, client_app: &'a str, objects: usize },
    /// Part: the content.
    Object { id: String },
}

/// A frame from a worker.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Response {
    Ready {
        python: String,
        flwr: String,
    },
    Unusable {
        reason: String,
    },
    /// Part: the content.
    Object {
        id: String,
    },
    /// Parts: message, object tree, context.
    Reply {
        /// Whether this instruction loaded the app.
        loaded: bool,
        runtime_s: f64,
    },
    /// The reply exists, but cannot be sent.
    Failed {
        reason: String,
    },
    /// The app ends its process.
    Exit {
        reason: String,
    },
}

#[derive(Serialize)]
struct Sent<'a> {
    #[serde(flatten)]
    request: Request<'a>,
    parts: Vec<usize>,
}

#[derive(Deserialize)]
struct Received {
    #[serde(flatten)]
    response: Response,
    parts: Vec<u64>,
}

pub async fn write(to: &mut (impl AsyncWrite + Unpin), request: Request<'_>, parts: &[&[u8]]) -> io::Result<()> {
    let sent = Sent { request, parts: parts.iter().map(|part| part.len()).collect() };
    let header = serde_json::to_vec(&sent)?;
    to.write_u32(header.len() as u32).await?;
    to.write_all(&header).await?;
    for part in parts {
        to.write_all(part).await?;
    }
    Ok(())
}

/// Reads the next frame. An error of kind `InvalidData` means that the worker violates the protocol, any other that it has
/// exited.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(Response, Vec<Bytes>)> {
    let length = from.read_u32().await?;
    if length > MAX_HEADER_BYTES {
        return Err(invalid(format!("a header of {length} bytes")));
    }
    let header = read_part(from, length.into()).await?;
    let received: Received = serde_json::from_slice(&header).map_err(|error| invalid(error.to_string()))?;
    if received.parts.len() > MAX_PARTS || received.parts.iter().any(|part| *part > MAX_PART_BYTES) {
        return Err(invalid("parts that are too many or too large".to_owned()));
    }
    let mut parts = Vec::with_capacity(received.parts.len());
    for length in received.parts {
        parts.push(read_part(from, length).await?);
    }
    Ok((received.response, parts))
}

async fn read_part(from: &mut (impl AsyncRead + Unpin), length: u64) -> io::Result<Bytes> {
    let length = usize::try_from(length).map_err(|_| invalid("a part that is too large".to_owned()))?;
    let mut part = Vec::with_capacity(length);
    while part.len() < length {
        let missing = length - part.len();
        if from.read_buf(&mut (&mut part).limit(missing)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(part.into())
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(header: &str, rest: &[u8]) -> Vec<u8> {
        [&(header.len() as u32).to_be_bytes(), header.as_bytes(), rest].concat()
    }

    #[tokio::test]
    async fn a_frame_is_parsed_or_refused() {
        let good = frame(r#"{"kind":"object","parts":[3,0],"id":"x"}"#, b"abc");
        let (response, parts) = read(&mut good.as_slice()).await.unwrap();
        assert!(matches!(response, Response::Object { id } if id == "x"));
        assert_eq!(parts, [Bytes::from("abc"), Bytes::new()]);

        let cases = [
            ("cut off", frame(r#"{"kind":"object","parts":[3],"id":"x"}"#, b"ab"), io::ErrorKind::UnexpectedEof),
            ("nothing", Vec::new(), io::ErrorKind::UnexpectedEof),
            ("print instead of a frame", b"Epoch 1/10, loss 0.3".to_vec(), io::ErrorKind::InvalidData),
            ("unknown kind", frame(r#"{"kind":"dance","parts":[]}"#, b""), io::ErrorKind::InvalidData),
            ("too large", frame(r#"{"kind":"object","parts":[2147483649],"id":"x"}"#, b""), io::ErrorKind::InvalidData),
        ];
        for (name, bytes, want) in cases {
            assert_eq!(read(&mut bytes.as_slice()).await.unwrap_err().kind(), want, "{name}");
        }
    }

    #[tokio::test]
    async fn a_frame_is_written_with_the_lengths_of_its_parts() {
        let mut written = Vec::new();
        let request = Request::Instruction { directory: "/apps/a", client_app: "a.client:app", objects: 2 };
        write(&mut written, request, &[b"ab", b""]).await.unwrap();
        let header =
            r#"{"kind":"instruction","directory":"/apps/a","client_app":"a.client:app","objects":2,"parts":[2,0]}"#;
        assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&frame(header, b"ab")));
    }
}
