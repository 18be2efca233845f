//! Answers those who ask how the node is: on a Unix socket in the state directory whoever may use the directory, and on
//! an address for monitoring everybody who reaches it. The socket takes one wish, too: to take no new work. Plain HTTP/1.1, one
//! request per connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::Mode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::{DrainWish, Draining, Watch, metrics};
use crate::drain::Drain;

/// Asked by people and a scraper or two; more at once is a mistake of somebody's.
const MAX_CONNECTIONS: usize = 16;
const BACKLOG: u32 = 16;
/// What may be said here fits well into it.
const MAX_WISH_BYTES: usize = 4096;
/// For one request and its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// When no connection can be taken (open files are exhausted), it is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "a SuperNode is running already with the state directory {}: give each node on a machine a directory of its own \
         with --state-dir",
        directory(path)
    )]
    InUse { path: PathBuf },
    #[error("{path} is no socket: move it away, or use another --state-dir")]
    NotASocket { path: PathBuf },
    #[error("the socket {path} cannot be made; its path may have at most 107 bytes")]
    Socket { path: PathBuf, source: io::Error },
    #[error("cannot listen on the metrics address {address}")]
    Metrics { address: SocketAddr, source: io::Error },
}

fn directory(socket: &Path) -> std::path::Display<'_> {
    socket.parent().unwrap_or(socket).display()
}

/// Who asks, by where they came in. Who has the socket may say something, too.
#[derive(Debug, Clone)]
enum Door {
    Socket(Drain),
    Network,
}

/// Listens already, so that what stands in the way is known before the node works.
pub struct StatusServer {
    socket: UnixListener,
    metrics: Option<TcpListener>,
    /// Dropped last, so that nobody finds a socket that nobody listens on.
    _file: SocketFile,
}

/// The socket's name in the file system; dropped, it is gone.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl StatusServer {
    /// Listens on a socket that its owner alone can use, in the place of one that a dead node left, and on an address.
    pub async fn bind(socket: &Path, metrics: Option<SocketAddr>) -> Result<StatusServer, ListenError> {
        let metrics = match metrics {
            None => None,
            Some(address) => {
                let listening = TcpListener::bind(address).await;
                Some(listening.map_err(|source| ListenError::Metrics { address, source })?)
            }
        };
        remove_stale(socket).await?;
        let path = socket.to_owned();
        let listener = listen(socket).map_err(|source| ListenError::Socket { path, source })?;
        Ok(StatusServer { socket: listener, metrics, _file: SocketFile(socket.to_owned()) })
    }

    /// Where metrics are served, with the port that was taken.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Answers until `shutdown`.
    pub async fn serve(self, watch: Watch, drain: Drain, shutdown: impl Future<Output = ()>) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            // Who cannot be served yet waits in the backlog.
            let slot = tokio::select! {
                () = &mut shutdown => return,
                slot = Arc::clone(&slots).acquire_owned() => slot.expect("it is never closed"),
            };
            let accepted = tokio::select! {
                () = &mut shutdown => return,
                accepted = self.socket.accept() => accepted.map(|(stream, _)| {
                    if is_from_app(&stream) {
                        tracing::warn!("an app tried to use the socket of the node: it was refused");
                        return;
                    }
                    connections.spawn(attend(TokioIo::new(stream), Door::Socket(drain.clone()), watch.clone(), slot));
                }),
                accepted = accept(self.metrics.as_ref()) => accepted.map(|stream| {
                    connections.spawn(attend(TokioIo::new(stream), Door::Network, watch.clone(), slot));
                }),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a request for status or metrics could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// Whether the peer is an app. Apps may have the node's user, and must not drain the node.
fn is_from_app(stream: &UnixStream) -> bool {
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    peer.is_some_and(|pid| trellis_sandbox::is_app(pid as u32))
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<tokio::net::TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // Before it has a name, so that it never is open to others.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

/// Removes the socket of a node that is no more. One that answers is somebody's.
async fn remove_stale(path: &Path) -> Result<(), ListenError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.file_type().is_socket() => return Err(ListenError::NotASocket { path: path.to_owned() }),
        _ => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => return Err(ListenError::InUse { path: path.to_owned() }),
    }
    .map_err(|source| ListenError::Socket { path: path.to_owned(), source })
}

async fn attend<S>(stream: TokioIo<S>, door: Door, watch: Watch, _slot: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request: Request<Incoming>| async {
        Ok::<_, Infallible>(match (&door, request.method(), request.uri().path()) {
            (Door::Socket(drain), &Method::POST, "/drain") => switch(request, drain, &watch).await,
            _ => answer(&request, &door, &watch),
        })
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // Who does not stay for the answer is no trouble of ours.
    let _ = tokio::time::timeout(PATIENCE, builder.serve_connection(stream, service)).await;
}

/// `{"drain": true}`: from now on no new work.
async fn switch(request: Request<Incoming>, drain: &Drain, watch: &Watch) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), MAX_WISH_BYTES).collect().await.map(Collected::to_bytes);
    let wish = body.map_err(|error| error.to_string());
    match wish.and_then(|body| serde_json::from_slice(&body).map_err(|error| error.to_string())) {
        Ok(DrainWish { drain: draining }) => {
            if drain.is_on() != draining {
                tracing::info!(draining, "told whether to take new instructions");
            }
            drain.set(draining);
            watch.draining(draining);
            let answer = serde_json::to_vec(&Draining { draining }).expect("plain data");
            page(StatusCode::OK, "application/json", answer)
        }
        Err(why) => {
            page(StatusCode::BAD_REQUEST, "text/plain", format!("{{\"drain\": true}} or false is needed: {why}\n"))
        }
    }
}

fn answer(request: &Request<Incoming>, door: &Door, watch: &Watch) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return page(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
    }
    match (request.uri().path(), door) {
        ("/status", Door::Socket(_)) => {
            let status = serde_json::to_vec(&watch.status()).expect("a status is plain data");
            page(StatusCode::OK, "application/json", status)
        }
        ("/metrics", _) => page(StatusCode::OK, metrics::CONTENT_TYPE, watch.metrics()),
        ("/health", Door::Network) => match watch.is_connected() {
            true => page(StatusCode::OK, "text/plain", "connected\n"),
            false => page(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "not connected to the SuperLink\n"),
        },
        (_, Door::Socket(_)) => page(StatusCode::NOT_FOUND, "text/plain", "there are /status, /metrics and /drain\n"),
        (_, Door::Network) => page(StatusCode::NOT_FOUND, "text/plain", "there are /metrics and /health\n"),
    }
}

fn page(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
