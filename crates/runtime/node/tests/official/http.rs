//! A minimal HTTP/1.1 client.

use std::net::SocketAddr;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a call; returns status and body.
pub async fn send(address: SocketAddr, path: &str, token: Option<&str>, body: &[u8]) -> (u16, Vec<u8>) {
    let token = token.map(|token| format!("flwr-task-token: {token}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /v1/runtime/{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/protobuf\r\n{token}content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = str::from_utf8(&answer[..end]).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer[end..].to_vec())
}

/// A call that must succeed.
pub async fn call<R: Message + Default>(address: SocketAddr, path: &str, token: &str, request: &impl Message) -> R {
    let (status, body) = send(address, path, Some(token), &request.encode_to_vec()).await;
    assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
    R::decode(body.as_slice()).unwrap()
}
