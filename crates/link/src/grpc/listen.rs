//! Ports: accepting, TLS, and one kind of connection for both.

use std::fs::File;
use std::future::Future;
use std::io::{self, BufReader};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::config::TlsFiles;

/// A TLS handshake that takes longer is given up.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// TLS handshakes under way at once; more wait in the kernel's queue.
const HANDSHAKES: usize = 256;
/// After an accept that failed (no descriptors left) wait this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections accepted and not yet served.
const BACKLOG: usize = 64;

/// What is wrong with the certificate files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} from {path}")]
    Read { what: &'static str, path: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("certificate and key cannot be used together")]
    Unusable(#[from] rustls::Error),
}

/// Certificate and key, ready to serve.
#[derive(Clone)]
pub struct TlsSettings(TlsAcceptor);

impl TlsSettings {
    pub fn load(files: &TlsFiles) -> Result<TlsSettings, TlsError> {
        let failed = |what, path: &Path| {
            let path = path.display().to_string();
            move |source: Box<dyn std::error::Error + Send + Sync>| TlsError::Read { what, path, source }
        };
        let read = |path: &Path| File::open(path).map(BufReader::new);
        let certificates = read(&files.certificate)
            .map_err(Into::into)
            .and_then(|file| {
                let all: Vec<_> = CertificateDer::pem_reader_iter(file).collect::<Result<_, _>>()?;
                if all.is_empty() { Err("the file holds no PEM certificate".into()) } else { Ok(all) }
            })
            .map_err(failed("the certificate", &files.certificate))?;
        let key = read(&files.key)
            .map_err(Into::into)
            .and_then(|file| PrivateKeyDer::from_pem_reader(file).map_err(Into::into))
            .map_err(failed("the private key", &files.key))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsSettings(TlsAcceptor::from(Arc::new(config))))
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

    pub fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.socket.local_addr()
    }

    /// Connections, as they become ready. Ends when the receiver is dropped.
    pub fn connections(self) -> ReceiverStream<io::Result<Connection>> {
        let (send, receive) = mpsc::channel(BACKLOG);
        tokio::spawn(self.accept(send));
        ReceiverStream::new(receive)
    }

    async fn accept(self, send: mpsc::Sender<io::Result<Connection>>) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = send.closed() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let Some(tls) = self.tls.clone() else {
                if send.send(Ok(Connection::new(Stream::Plain(stream)))).await.is_err() {
                    return;
                }
                continue;
            };
            let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
            let send = send.clone();
            tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_LIMIT, tls.0.accept(stream)).await {
                    Ok(Ok(stream)) => drop(send.send(Ok(Connection::new(Stream::Tls(Box::new(stream))))).await),
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                }
                drop(permit);
            });
        }
    }
}

/// A connection, and the line that its calls know it by.
pub struct Connection {
    stream: Stream,
    line: Line,
}

/// Secure or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    fn new(stream: Stream) -> Connection {
        Connection { stream, line: Line(Arc::new(watch::Sender::new(()))) }
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
}

impl Connected for Connection {
    type ConnectInfo = Line;

    fn connect_info(&self) -> Line {
        self.line.clone()
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
