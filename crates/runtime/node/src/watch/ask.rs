//! The client of a node's status socket: reads the status and sets the drain state.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::http::request::Builder;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use trellis_files::socket::SocketPath;

use super::{DrainRequest, Draining, Status};

/// A running node answers in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no SuperNode runs with the state directory {}", .path.parent().unwrap_or(path).display())]
    NotRunning { path: PathBuf },
    #[error("the SuperNode's socket {path} cannot be used")]
    Closed { path: PathBuf, source: io::Error },
    #[error("the SuperNode on {path} does not answer")]
    Silent { path: PathBuf },
    #[error("the SuperNode on {path} did not answer as expected: is it of another version?")]
    Strange { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Reads the status of the node that listens on `socket`.
pub async fn ask(socket: &Path) -> Result<Status, AskError> {
    exchange(socket, Request::get("/status"), Bytes::new()).await
}

/// Sets the drain state of the node that listens on `socket`; returns the new state.
pub async fn drain(socket: &Path, drain: bool) -> Result<bool, AskError> {
    let request = serde_json::to_vec(&DrainRequest { drain }).expect("plain data");
    let answer: Draining = exchange(socket, Request::post("/drain"), request.into()).await?;
    Ok(answer.draining)
}

pub(super) async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let address = SocketPath::of(socket)?;
    UnixStream::connect(address.get()).await
}

async fn exchange<A: DeserializeOwned>(socket: &Path, request: Builder, body: Bytes) -> Result<A, AskError> {
    let path = || socket.to_owned();
    let stream = match connect(socket).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(AskError::NotRunning { path: path() });
        }
        Err(source) => return Err(AskError::Closed { path: path(), source }),
    };
    match tokio::time::timeout(TIMEOUT, over(stream, request, body)).await {
        Err(_) => Err(AskError::Silent { path: path() }),
        Ok(answer) => answer.map_err(|source| AskError::Strange { path: path(), source }),
    }
}

async fn over<A: DeserializeOwned>(
    stream: UnixStream,
    request: Builder,
    body: Bytes,
) -> Result<A, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = request.header("host", "supernode").body(Full::new(body))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            return Err(format!("it answered {}", response.status()).into());
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // A closed connection also fails on the other side, which then has the whole answer or an error.
        _ = connection => answer.await,
    }
}
