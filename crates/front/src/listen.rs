//! Ports: accepting, and one kind of connection with and without TLS.

use std::future::Future;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::server::TlsStream;

use crate::tls::TlsSettings;

/// A TLS handshake that takes longer is given up.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// TLS handshakes under way at once; more wait in the kernel's queue.
const HANDSHAKES: usize = 256;
/// After an accept that failed (no descriptors left) wait this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How connections are kept alive, and how dead ones are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// A silent connection is pinged this often: HTTP/2 pings, and TCP keepalive for all.
    pub interval: Duration,
    /// A ping that is not answered in this time ends the connection.
    pub timeout: Duration,
    /// A connection without a call for this long is closed. HTTP/1.1 only: there a client opens another one at no cost.
    pub idle: Duration,
}

impl Default for Keepalive {
    /// Firewalls forget connections after 60 s of silence, the strict ones.
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(20), idle: Duration::from_secs(120) }
    }
}

/// A bound port.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsSettings>,
}

impl Listener {
    pub async fn bind(address: &str, tls: Option<TlsSettings>) -> io::Result<Listener> {
        Ok(Listener { socket: TcpListener::bind(address).await?, tls })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Plain connections, for a server of another make.
    pub fn into_incoming(self) -> tokio_stream::wrappers::TcpListenerStream {
        tokio_stream::wrappers::TcpListenerStream::new(self.socket)
    }

    /// Hands every connection to `serve` as it becomes ready, until `stop` is.
    pub async fn accept(
        self,
        keepalive: Keepalive,
        serve: impl Fn(Connection) + Clone + Send + 'static,
        stop: impl Future<Output = ()>,
    ) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = &mut stop => return,
            };
            let (stream, remote) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            prepare(&stream, keepalive);
            let Some(tls) = self.tls.clone() else {
                serve(Connection::new(Stream::Plain(stream), remote));
                continue;
            };
            let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
            let serve = serve.clone();
            tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_LIMIT, tls.acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serve(Connection::new(Stream::Tls(Box::new(stream)), remote)),
                    Ok(Err(error)) => tracing::debug!(%remote, %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!(%remote, "TLS handshake took too long"),
                }
                drop(permit);
            });
        }
    }
}

/// The address at which processes on this machine reach a port.
pub fn local(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Small answers leave at once; a peer that vanished, or a firewall that forgot the connection, is found out.
fn prepare(stream: &TcpStream, keepalive: Keepalive) {
    let _ = stream.set_nodelay(true);
    let probes = socket2::TcpKeepalive::new().with_time(keepalive.interval).with_interval(keepalive.timeout / 2);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&probes);
}

/// A connection, and the line that its calls know it by.
pub struct Connection {
    stream: Stream,
    pub remote: SocketAddr,
    pub line: Line,
}

/// Secure or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    fn new(stream: Stream, remote: SocketAddr) -> Connection {
        Connection { stream, remote, line: Line(Arc::new(watch::Sender::new(()))) }
    }
}

/// What the calls of one connection have in common.
#[derive(Clone)]
pub struct Line(Arc<watch::Sender<()>>);

impl Line {
    /// Waits for the end of the connection and of all its calls.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.0.subscribe();
        async move { while end.changed().await.is_ok() {} }
    }

    /// A key to remember something about this connection by. It does not keep the connection open.
    pub fn key(&self) -> LineKey {
        LineKey(Arc::downgrade(&self.0))
    }
}

/// Names one connection, also when it is over: no other connection ever has an equal key while this one exists.
#[derive(Debug, Clone)]
pub struct LineKey(Weak<watch::Sender<()>>);

impl LineKey {
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for LineKey {
    fn eq(&self, other: &LineKey) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for LineKey {}

impl Hash for LineKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match &mut $self.get_mut().stream {
            Stream::Plain($stream) => $call,
            Stream::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
