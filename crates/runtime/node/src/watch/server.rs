//! Serves the status on a Unix socket in the state directory, to users with access to the directory, and metrics on an address,
//! to everybody. The socket also sets the drain state. Plain HTTP/1.1, one request per connection.

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
use trellis_files::socket::SocketPath;

use super::ask::connect;
use super::{DrainRequest, Draining, Watch, metrics};
use crate::drain::Drain;

/// More concurrent connections than people and scrapers need.
const MAX_CONNECTIONS: usize = 16;
const BACKLOG: u32 = 16;
/// The limit of a request body.
const MAX_REQUEST_BYTES: usize = 4096;
/// For one request and its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The delay before accepting again after a failure, for example without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "a SuperNode is running already with the state directory {}: give each node on a machine a directory of its own \
         with --state-dir",
        directory(path)
    )]
    InUse { path: PathBuf },
    #[error("{path} is not a socket: move it away, or use another --state-dir")]
    NotASocket { path: PathBuf },
    #[error("the socket {path} cannot be created")]
    Socket { path: PathBuf, source: io::Error },
    #[error("cannot listen on the metrics address {address}")]
    Metrics { address: SocketAddr, source: io::Error },
}

fn directory(socket: &Path) -> std::path::Display<'_> {
    socket.parent().unwrap_or(socket).display()
}

/// The listener that a request came in on; the socket accepts more requests.
#[derive(Debug, Clone)]
enum Listener {
    Socket(Drain),
    Network,
}

/// Listens before the node starts, so that errors are known early.
pub struct StatusServer {
    socket: UnixListener,
    metrics: Option<TcpListener>,
    /// Dropped last: the socket file must not exist without a listener.
    _file: SocketFile,
}

/// The socket file; dropping this removes it.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl StatusServer {
    /// Listens on a socket that only its owner can use, replacing that of a dead node, and on an address.
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

    /// The address of the metrics, with the actual port.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `shutdown`.
    pub async fn serve(self, watch: Watch, drain: Drain, shutdown: impl Future<Output = ()>) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            // Further connections wait in the backlog.
            let slot = tokio::select! {
                () = &mut shutdown => return,
                slot = Arc::clone(&slots).acquire_owned() => slot.expect("the semaphore is never closed"),
            };
            let accepted = tokio::select! {
                () = &mut shutdown => return,
                accepted = self.socket.accept() => accepted.map(|(stream, _)| {
                    if is_from_app(&stream) {
                        tracing::warn!("an app tried to use the socket of the node and was refused");
                        return;
                    }
                    connections.spawn(serve_connection(TokioIo::new(stream), Listener::Socket(drain.clone()), watch.clone(), slot));
                }),
                accepted = accept(self.metrics.as_ref()) => accepted.map(|stream| {
                    connections.spawn(serve_connection(TokioIo::new(stream), Listener::Network, watch.clone(), slot));
                }),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a request for status or metrics cannot be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
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
    // The permissions are set before the socket has a name.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(SocketPath::of(path)?.get())?;
    socket.listen(BACKLOG)
}

/// Removes the socket file of a dead node. A socket that answers is in use.
async fn remove_stale(path: &Path) -> Result<(), ListenError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.file_type().is_socket() => return Err(ListenError::NotASocket { path: path.to_owned() }),
        _ => {}
    }
    match connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => return Err(ListenError::InUse { path: path.to_owned() }),
    }
    .map_err(|source| ListenError::Socket { path: path.to_owned(), source })
}

async fn serve_connection<S>(stream: TokioIo<S>, listener: Listener, watch: Watch, _slot: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request: Request<Incoming>| async {
        Ok::<_, Infallible>(match (&listener, request.method(), request.uri().path()) {
            (Listener::Socket(drain), &Method::POST, "/drain") => set_drain(request, drain, &watch).await,
            _ => answer(&request, &listener, &watch),
        })
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(TIMEOUT);
    // A client that disconnects early is not an error.
    let _ = tokio::time::timeout(TIMEOUT, builder.serve_connection(stream, service)).await;
}

/// Handles `{"drain": true}`.
async fn set_drain(request: Request<Incoming>, drain: &Drain, watch: &Watch) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect().await.map(Collected::to_bytes);
    let wish = body.map_err(|error| error.to_string());
    match wish.and_then(|body| serde_json::from_slice(&body).map_err(|error| error.to_string())) {
        Ok(DrainRequest { drain: draining }) => {
            if drain.is_on() != draining {
                tracing::info!(draining, "the drain state was set");
            }
            drain.set(draining);
            watch.draining(draining);
            let answer = serde_json::to_vec(&Draining { draining }).expect("plain data");
            page(StatusCode::OK, "application/json", answer)
        }
        Err(error) => {
            page(StatusCode::BAD_REQUEST, "text/plain", format!("{{\"drain\": true}} or false is required: {error}\n"))
        }
    }
}

fn answer(request: &Request<Incoming>, listener: &Listener, watch: &Watch) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return page(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
    }
    match (request.uri().path(), listener) {
        ("/status", Listener::Socket(_)) => {
            let status = serde_json::to_vec(&watch.status()).expect("a status is plain data");
            page(StatusCode::OK, "application/json", status)
        }
        ("/metrics", _) => page(StatusCode::OK, metrics::CONTENT_TYPE, watch.metrics()),
        ("/health", Listener::Network) => match watch.is_connected() {
            true => page(StatusCode::OK, "text/plain", "connected\n"),
            false => page(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "not connected to the SuperLink\n"),
        },
        (_, Listener::Socket(_)) => {
            page(StatusCode::NOT_FOUND, "text/plain", "the paths are /status, /metrics and /drain\n")
        }
        (_, Listener::Network) => page(StatusCode::NOT_FOUND, "text/plain", "the paths are /metrics and /health\n"),
    }
}

fn page(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
