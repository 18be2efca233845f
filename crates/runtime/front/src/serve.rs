//! Serves connections: passes each request to a service and sends its answers.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;

use crate::answer::Payload;
use crate::listen::{Connection, ConnectionHandle, Keepalive, Listener};

/// Bytes that a peer may send before the service reads them, per call and per connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Maximum total size of the headers of a request.
const HEADER_BYTES: u32 = 64 << 10;

/// Answers requests.
pub trait Service: Clone + Send + Sync + 'static {
    /// Exists as long as the connection is open.
    type Presence: Send;

    fn opened(&self) -> Self::Presence;

    fn answer(&self, peer: Peer, request: Request<Incoming>) -> impl Future<Output = Response<Payload>> + Send;

    /// Completes when the service takes no more requests.
    fn stopped(&self) -> impl Future<Output = ()> + Send;
}

/// The origin of a request.
#[derive(Clone)]
pub struct Peer {
    pub remote: SocketAddr,
    pub connection: ConnectionHandle,
}

/// Serves a port until the service stops, and open connections until their calls are answered.
pub async fn serve<S: Service>(service: S, listener: Listener, keepalive: Keepalive, requests_per_connection: u32) {
    let tasks = tokio_util::task::TaskTracker::new();
    let (serving, tracker) = (service.clone(), tasks.clone());
    let serve = move |connection| {
        let service = serving.clone();
        tracker.spawn(serve_connection(service, connection, keepalive, requests_per_connection));
    };
    listener.accept(keepalive, serve, service.stopped()).await;
    tasks.close();
    tasks.wait().await;
}

async fn serve_connection<S: Service>(
    service: S,
    connection: Connection,
    keepalive: Keepalive,
    requests_per_connection: u32,
) {
    let _present = service.opened();
    let peer = Peer { remote: connection.remote, connection: connection.handle.clone() };
    let remote = peer.remote;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(keepalive.idle)
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(requests_per_connection)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(keepalive.interval)
        .keep_alive_timeout(keepalive.timeout);
    let answering = service.clone();
    let answer = service_fn(move |request| {
        let (service, peer) = (answering.clone(), peer.clone());
        async move { Ok::<_, Infallible>(service.answer(peer, request).await) }
    });
    let serving = builder.serve_connection(TokioIo::new(connection), answer);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = service.stopped() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%remote, %error, "connection ended");
    }
}
