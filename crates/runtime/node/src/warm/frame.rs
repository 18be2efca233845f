//! Frames between a node and its workers: a header in JSON with its length before it, then the parts that it announces.
//! What is in the parts is not known here.

use std::io;

use bytes::{BufMut, Bytes};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A header holds names, numbers and reasons.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// No object, context or message can be larger: protobuf has the same limit.
const MAX_PART_BYTES: u64 = 1 << 31;
const MAX_PARTS: usize = 8;

/// What a node says.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Said<'a> {
    /// Parts: context, object tree. As many objects follow, children before parents.
    Instruction { directory: &'a str, client_app: &'a str, objects: usize },
    /// Part: its bytes.
    Object { id: String },
}

/// What a worker says.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Heard {
    Ready {
        python: String,
        flwr: String,
    },
    Unusable {
        reason: String,
    },
    /// Part: its bytes.
    Object {
        id: String,
    },
    /// Parts: message, object tree, context.
    Reply {
        /// The app is loaded now.
        loaded: bool,
        runtime_s: f64,
    },
    /// There is a reply, but it cannot be sent.
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
    said: Said<'a>,
    parts: Vec<usize>,
}

#[derive(Deserialize)]
struct Received {
    #[serde(flatten)]
    heard: Heard,
    parts: Vec<u64>,
}

pub async fn write(to: &mut (impl AsyncWrite + Unpin), said: Said<'_>, parts: &[&[u8]]) -> io::Result<()> {
    let sent = Sent { said, parts: parts.iter().map(|part| part.len()).collect() };
    let header = serde_json::to_vec(&sent)?;
    to.write_u32(header.len() as u32).await?;
    to.write_all(&header).await?;
    for part in parts {
        to.write_all(part).await?;
    }
    Ok(())
}

/// The next frame. An error of kind `InvalidData` means that this is no worker, or no more; any other that it is gone.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(Heard, Vec<Bytes>)> {
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
    Ok((received.heard, parts))
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
    async fn a_frame_is_taken_apart_or_refused() {
        let good = frame(r#"{"kind":"object","parts":[3,0],"id":"x"}"#, b"abc");
        let (heard, parts) = read(&mut good.as_slice()).await.unwrap();
        assert!(matches!(heard, Heard::Object { id } if id == "x"));
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
    async fn a_frame_is_written_with_its_lengths() {
        let mut written = Vec::new();
        let said = Said::Instruction { directory: "/apps/a", client_app: "a.client:app", objects: 2 };
        write(&mut written, said, &[b"ab", b""]).await.unwrap();
        let header =
            r#"{"kind":"instruction","directory":"/apps/a","client_app":"a.client:app","objects":2,"parts":[2,0]}"#;
        assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&frame(header, b"ab")));
    }
}
