//! The user's browser: opens pages, and takes up what a page sends back to this machine.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use trellis_terminal::remark;

const PROGRAM: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
/// The head of a request: longer ones are not ours.
const MAX_HEAD_BYTES: usize = 16 << 10;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether there is a screen to show a browser on.
pub fn is_here() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

pub async fn open(page: &str) {
    let mut command = tokio::process::Command::new(PROGRAM);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status().await {
        Ok(status) if status.success() => {}
        _ => remark(&format!("no browser could be started with {PROGRAM}: open the page yourself")),
    }
}

/// Waits for a request of the browser whose query `wanted` understands, and shows it `shown`.
pub async fn returned<T>(listener: &TcpListener, wanted: impl Fn(&str) -> Option<(T, &'static str)>) -> T {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let head = tokio::time::timeout(HEAD_TIMEOUT, head(&mut stream)).await.ok().flatten().unwrap_or_default();
        let query = head.split_once("/?").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default();
        let found = wanted(query);
        let (status, text) = found.as_ref().map_or(("404 Not Found", ""), |(_, shown)| ("200 OK", shown));
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
        let _ = tokio::time::timeout(HEAD_TIMEOUT, stream.write_all(answer.as_bytes())).await;
        if let Some((value, _)) = found {
            return value;
        }
    }
}

/// The head of a GET request.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&piece[..read]);
        if head.len() > MAX_HEAD_BYTES {
            return None;
        }
    }
    String::from_utf8(head).ok().filter(|head| head.starts_with("GET /"))
}
