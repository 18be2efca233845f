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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::server::TlsStream;

use crate::sources::{Allowance, Share, Source};
use crate::tls::TlsSettings;

/// A TLS handshake that takes longer is given up.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent TLS handshakes; further connections are closed. A handshake begins with the first byte,
/// so a silent client takes only a descriptor and little memory.
const MAX_HANDSHAKES: usize = 16_384;
/// Maximum number of open connections from one address. Loopback connections are not counted: proxies and the nodes of
/// tests use them.
pub const CONNECTIONS_PER_ADDRESS: usize = 4096;
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
    connections_per_address: usize,
}

impl Listener {
    pub async fn bind(address: &str, tls: Option<TlsSettings>) -> io::Result<Listener> {
        let socket = TcpListener::bind(address).await?;
        Ok(Listener { socket, tls, connections_per_address: CONNECTIONS_PER_ADDRESS })
    }

    pub fn with_connections_per_address(self, connections_per_address: usize) -> Listener {
        Listener { connections_per_address, ..self }
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
        let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
        let open = Allowance::new(self.connections_per_address);
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
            let Some(place) = Place::take(&open, remote) else {
                tracing::debug!(%remote, "too many connections from this address: this one is closed");
                continue;
            };
            prepare(&stream, keepalive);
            let Some(tls) = self.tls.clone() else {
                serve(Connection::new(Stream::Plain(stream), remote, place));
                continue;
            };
            let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() else {
                tracing::debug!(%remote, "too many TLS handshakes at once: this one is closed");
                continue;
            };
            let serve = serve.clone();
            tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(&tls, stream)).await {
                    Ok(Ok(stream)) => serve(Connection::new(Stream::Tls(Box::new(stream)), remote, place)),
                    Ok(Err(error)) => tracing::debug!(%remote, %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!(%remote, "TLS handshake took too long"),
                }
                drop(permit);
            });
        }
    }
}

async fn handshake(tls: &TlsSettings, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    stream.readable().await?;
    tls.acceptor.accept(stream).await
}

/// Holds the permit of an open connection.
struct Place {
    _permit: OwnedSemaphorePermit,
    // Must be dropped after the permit: the last share removes the entry of the source.
    _share: Share<Source>,
}

impl Place {
    /// Returns `Some(None)` for connections that are not counted.
    fn take(open: &Arc<Allowance<Source>>, remote: SocketAddr) -> Option<Option<Place>> {
        if remote.ip().to_canonical().is_loopback() {
            return Some(None);
        }
        let share = open.share(Source::from(remote.ip()));
        let permit = Arc::clone(&share.permits).try_acquire_owned().ok()?;
        Some(Some(Place { _permit: permit, _share: share }))
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
    _place: Option<Place>,
    pub remote: SocketAddr,
    pub line: Line,
}

/// Secure or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    fn new(stream: Stream, remote: SocketAddr, place: Option<Place>) -> Connection {
        Connection { stream, _place: place, remote, line: Line(Arc::new(watch::Sender::new(()))) }
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

    /// A key for data about this connection. Does not keep the connection open.
    pub fn key(&self) -> LineKey {
        LineKey(Arc::downgrade(&self.0))
    }
}

/// Identifies one connection, also after it is closed. While the key exists, no other connection has an equal key.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_address_and_loopback_is_not() {
        let open = Allowance::new(2);
        let take = |address: &str| Place::take(&open, address.parse().unwrap());
        let (first, second) = (take("192.0.2.1:1"), take("192.0.2.1:2"));
        assert!(first.is_some() && second.is_some() && take("192.0.2.1:3").is_none());
        assert!(take("192.0.2.2:1").is_some(), "another address");
        drop(first);
        assert!(take("192.0.2.1:3").is_some(), "one was closed");
        let local: Vec<_> = (1..100).map(|port| take(&format!("127.0.0.1:{port}"))).collect();
        assert!(local.iter().all(Option::is_some));
    }
}
