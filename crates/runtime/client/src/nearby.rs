//! Queries a SuperNode of ours on this machine through the socket in its state directory: plain HTTP, one request per
//! connection. Parses only the fields in use, so that nodes of other versions work, too.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use trellis_files::socket::SocketPath;

const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// How a node is.
#[derive(Debug, Clone, PartialEq)]
pub struct NearbyNode {
    pub connected: bool,
    /// Since when the link is as it is, in seconds since 1970.
    pub since: Option<f64>,
    /// It works on something, or has a reply that was not delivered yet, which its round misses.
    pub busy: bool,
    pub draining: bool,
    pub version: Option<String>,
    /// Its id at the SuperLink.
    pub node_id: Option<String>,
}

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
    #[serde(default)]
    asking: bool,
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

impl NearbyNode {
    /// An error if it has none.
    pub async fn ask(socket: &Path) -> io::Result<NearbyNode> {
        let body = exchange(socket, "GET", "/status", "").await?;
        let status: Status = serde_json::from_slice(&body).map_err(io::Error::other)?;
        let waiting = status.replies.map_or(0, |replies| replies.waiting);
        Ok(NearbyNode {
            connected: status.link.state == "connected",
            since: status.link.since,
            // A draining node may still get instructions that it requested before.
            busy: status.instructions_under_way > 0 || waiting > 0 || (status.draining && status.asking),
            draining: status.draining,
            version: status.version,
            node_id: status.node_id,
        })
    }

    /// Drains the node, or resumes.
    pub async fn drain(socket: &Path, drain: bool) -> io::Result<()> {
        exchange(socket, "POST", "/drain", &format!("{{\"drain\": {drain}}}")).await.map(drop)
    }
}

/// The last id of an official node, from its log. An incomplete line is ignored.
pub fn announced_node(log: &str) -> Option<String> {
    const ANNOUNCEMENT: &str = "SuperNode ID: ";
    let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let id = |line: &str| {
        let after = line.split_once(ANNOUNCEMENT)?.1;
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        (end > 0).then(|| after[..end].to_owned())
    };
    whole.filter_map(id).next_back()
}

async fn exchange(socket: &Path, method: &str, path: &str, body: &str) -> io::Result<Vec<u8>> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: supernode\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let question = head + body;
    let exchange = async {
        let address = SocketPath::of(socket)?;
        let mut stream = UnixStream::connect(address.get()).await?;
        stream.write_all(question.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
        body_of(answer)
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the node does not answer");
    tokio::time::timeout(TIMEOUT, exchange).await.map_err(late)?
}

/// The body of a successful response, whose length the node states.
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
    fn an_announcement_is_a_whole_line() {
        for (log, expected) in [
            ("", None),
            ("INFO :      Starting Flower SuperNode\n", None),
            ("\u{1b}[92mINFO \u{1b}[0m:      SuperNode ID: 1234\n", Some("1234")),
            ("INFO : SuperNode ID: 12", None),
            ("INFO : SuperNode ID: 12\u{1b}[0m\nmore\n", Some("12")),
            ("SuperNode ID: 1\nSuperNode ID: 2\n", Some("2")),
            ("SuperNode ID: none\n", None),
        ] {
            assert_eq!(announced_node(log).as_deref(), expected, "{log:?}");
        }
    }

    #[test]
    fn answers() {
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec();
        assert_eq!(body_of(good).unwrap(), b"{}");
        for bad in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 404 Not Found\r\n\r\nno"] {
            assert!(body_of(bad.as_bytes().to_vec()).is_err(), "{bad}");
        }
    }
}
