//! Asks a SuperNode of ours through the socket in its state directory: plain HTTP, one question for each connection. Reads
//! only what the driver tells, so that nodes of other versions are understood too.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use trellis_plan::Millis;

use super::Report;

const PATIENCE: Duration = Duration::from_secs(2);
const MAX_ANSWER_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
struct Status {
    version: Option<String>,
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
    since: Option<f64>,
}

#[derive(Deserialize)]
struct Replies {
    waiting: u64,
}

/// How the node is; an error where it does not say.
pub async fn ask(socket: &Path) -> io::Result<Report> {
    let body = exchange(socket, "GET", "/status", "").await?;
    let status: Status = serde_json::from_slice(&body).map_err(io::Error::other)?;
    let waiting = status.replies.map_or(0, |replies| replies.waiting);
    Ok(Report {
        is_ready: status.link.state == "connected",
        // A reply that was not delivered yet is missed by its round.
        busy: Some(status.instructions_under_way > 0 || waiting > 0),
        draining: status.draining,
        version: status.version,
        runs: None,
        node_id: status.node_id,
        since_ms: status.link.since.map(millis),
    })
}

/// Tells the node to take no new work.
pub async fn drain(socket: &Path) -> io::Result<()> {
    exchange(socket, "POST", "/drain", "{\"drain\": true}").await.map(drop)
}

fn millis(seconds: f64) -> Millis {
    (seconds.max(0.0) * 1000.0) as Millis
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

/// The body of a good answer. The node says how long it is, and closes the connection after it.
fn body_of(mut answer: Vec<u8>) -> io::Result<Vec<u8>> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let strange = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the node answers {what:?}"));
    let end = answer.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD);
    let Some(end) = end else { return Err(strange("with no head")) };
    let body = answer.split_off(end + END_OF_HEAD.len());
    let head = String::from_utf8_lossy(&answer);
    let first = head.lines().next().unwrap_or_default();
    match first.split_whitespace().nth(1) {
        Some(status) if status.starts_with('2') => Ok(body),
        _ => Err(strange(first)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec();
        assert_eq!(body_of(good).unwrap(), b"{}");
        for bad in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 404 Not Found\r\n\r\nno"] {
            assert!(body_of(bad.as_bytes().to_vec()).is_err(), "{bad}");
        }
    }
}
