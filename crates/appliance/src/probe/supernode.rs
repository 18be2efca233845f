//! Asks a SuperNode of ours through the socket in its state directory: plain HTTP, one question for each connection. Reads
//! only what is told further, so that nodes of other versions are understood too.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::readiness::Seen;

const PATIENCE: Duration = Duration::from_secs(3);
const MAX_ANSWER_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
struct Status {
    node_id: Option<String>,
    link: Link,
    #[serde(default)]
    instructions_under_way: u64,
    replies: Option<Replies>,
    #[serde(default)]
    draining: bool,
}

#[derive(Deserialize)]
struct Link {
    state: String,
}

#[derive(Deserialize)]
struct Replies {
    waiting: u64,
}

pub async fn ask(socket: &Path) -> io::Result<Seen> {
    let body = exchange(socket, "GET", "/status", "").await?;
    let status: Status = serde_json::from_slice(&body).map_err(io::Error::other)?;
    let waiting = status.replies.map_or(0, |replies| replies.waiting);
    Ok(Seen {
        serving: status.link.state == "connected",
        // A reply that was not delivered yet is missed by its round.
        busy: Some(status.instructions_under_way > 0 || waiting > 0),
        draining: status.draining,
        node_id: status.node_id,
        ..Seen::default()
    })
}

/// Tells the node to take no new work, or to take work again.
pub async fn drain(socket: &Path, drain: bool) -> io::Result<()> {
    exchange(socket, "POST", "/drain", &format!("{{\"drain\": {drain}}}")).await.map(drop)
}

async fn exchange(socket: &Path, method: &str, path: &str, body: &str) -> io::Result<Vec<u8>> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: supernode\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let question = head + body;
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(question.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
        body_of(answer)
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the node does not answer");
    tokio::time::timeout(PATIENCE, exchange).await.map_err(late)?
}

/// The body of a good answer: the node closes the connection after it.
fn body_of(mut answer: Vec<u8>) -> io::Result<Vec<u8>> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "the node answers strangely");
    let end = answer.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD).ok_or_else(strange)?;
    let body = answer.split_off(end + END_OF_HEAD.len());
    let status = answer.split(|byte| *byte == b' ').nth(1).ok_or_else(strange)?;
    if status.starts_with(b"2") { Ok(body) } else { Err(strange()) }
}
