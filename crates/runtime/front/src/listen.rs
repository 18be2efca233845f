//! Listening ports and their connections, with and without TLS.

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

/// Time limit for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent TLS handshakes; further connections are closed. A handshake begins with the first byte,
/// so a silent client takes only a descriptor and little memory.
const MAX_HANDSHAKES: usize = 16_384;
/// Maximum number of open connections from one address. Loopback connections are not counted: proxies and the nodes of
/// tests use them.
pub const CONNECTIONS_PER_ADDRESS: usize = 4096;
/// Delay after an accept that failed, for example without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How connections are kept alive, and how dead ones are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Interval between pings on a silent connection: HTTP/2 pings, and TCP keepalive for all.
    pub interval: Duration,
    /// The connection is closed if a ping is not answered within this time.
    pub timeout: Duration,
    /// A connection without a call for this long is closed. HTTP/1.1 only: an HTTP/1.1 client reconnects at no cost.
    pub idle: Duration,
}

impl Default for Keepalive {
    /// Strict firewalls drop connections after 60 s of silence.
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

    /// Returns plain connections, for a server of another library.
    pub fn into_incoming(self) -> tokio_stream::wrappers::TcpListenerStream {
        tokio_stream::wrappers::TcpListenerStream::new(self.socket)
    }

    /// Passes each connection to `serve` as soon as it is ready, until `stop` completes.
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
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(permit) = ConnectionPermit::take(&open, remote) else {
                tracing::debug!(%remote, "connection closed: too many connections from this address");
                continue;
            };
            set_options(&stream, keepalive);
            let Some(tls) = self.tls.clone() else {
                serve(Connection::new(Stream::Plain(stream), remote, permit));
                continue;
            };
            let Ok(handshake_permit) = Arc::clone(&handshakes).try_acquire_owned() else {
                tracing::debug!(%remote, "connection closed: too many concurrent TLS handshakes");
                continue;
            };
            let serve = serve.clone();
            tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(&tls, stream)).await {
                    Ok(Ok(stream)) => serve(Connection::new(Stream::Tls(Box::new(stream)), remote, permit)),
                    Ok(Err(error)) => tracing::debug!(%remote, %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!(%remote, "TLS handshake timed out"),
                }
                drop(handshake_permit);
            });
        }
    }
}

async fn handshake(tls: &TlsSettings, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    stream.readable().await?;
    tls.acceptor.accept(stream).await
}

/// Holds the permit of an open connection.
struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    // Must be dropped after the permit: the last share removes the entry of the source.
    _share: Share<Source>,
}

impl ConnectionPermit {
    /// Returns `Some(None)` for connections that are not counted.
    fn take(open: &Arc<Allowance<Source>>, remote: SocketAddr) -> Option<Option<ConnectionPermit>> {
        if remote.ip().to_canonical().is_loopback() {
            return Some(None);
        }
        let share = open.share(Source::from(remote.ip()));
        let permit = Arc::clone(&share.permits).try_acquire_owned().ok()?;
        Some(Some(ConnectionPermit { _permit: permit, _share: share }))
    }
}

/// Returns the address at which processes on this machine reach a port.
pub fn local(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Sends small answers at once, and detects peers that vanished and firewalls that dropped the connection.
fn set_options(stream: &TcpStream, keepalive: Keepalive) {
    let _ = stream.set_nodelay(true);
    let probes = socket2::TcpKeepalive::new().with_time(keepalive.interval).with_interval(keepalive.timeout / 2);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&probes);
}

pub struct Connection {
    stream: Stream,
    _permit: Option<ConnectionPermit>,
    pub remote: SocketAddr,
    pub handle: ConnectionHandle,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    fn new(stream: Stream, remote: SocketAddr, permit: Option<ConnectionPermit>) -> Connection {
        Connection { stream, _permit: permit, remote, handle: ConnectionHandle(Arc::new(watch::Sender::new(()))) }
    }
}

/// Shared by the connection and all its calls.
#[derive(Clone)]
pub struct ConnectionHandle(Arc<watch::Sender<()>>);

impl ConnectionHandle {
    /// Waits until the connection and all its calls have ended.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.0.subscribe();
        async move { while end.changed().await.is_ok() {} }
    }

    /// Returns an id of this connection. The id does not keep the connection open.
    pub fn id(&self) -> ConnectionId {
        ConnectionId(Arc::downgrade(&self.0))
    }
}

/// Identifies one connection, also after it is closed. While the id exists, no other connection has an equal id.
#[derive(Debug, Clone)]
pub struct ConnectionId(Weak<watch::Sender<()>>);

impl ConnectionId {
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for ConnectionId {
    fn eq(&self, other: &ConnectionId) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for ConnectionId {}

impl Hash for ConnectionId {
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
        let take = |address: &str| ConnectionPermit::take(&open, address.parse().unwrap());
        let (first, second) = (take("192.0.2.1:1"), take("192.0.2.1:2"));
        assert!(first.is_some() && second.is_some() && take("192.0.2.1:3").is_none());
        assert!(take("192.0.2.2:1").is_some(), "another address");
        drop(first);
        assert!(take("192.0.2.1:3").is_some(), "one was closed");
        let local: Vec<_> = (1..100).map(|port| take(&format!("127.0.0.1:{port}"))).collect();
        assert!(local.iter().all(Option::is_some));
    }
}
