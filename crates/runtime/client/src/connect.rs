//! Opens trusted connections to a SuperLink. Knows no protocol above TLS.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::{Distrust, Error, tls_cause};
use crate::{Security, Target, Trust};

/// The protocols that can be agreed upon with TLS.
pub(crate) const HTTP_1: &[u8] = b"http/1.1";
pub(crate) const HTTP_2: &[u8] = b"h2";

/// TCP keepalive on silent connections: the peer may have vanished, or a firewall may drop the connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Limit for unacknowledged bytes. The default of the system is a quarter of an hour, with growing intervals: after an outage
/// of a minute, the connection would hang for another.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Connected {
    pub stream: Box<dyn Stream>,
    /// The protocol negotiated with TLS, if any.
    pub protocol: Option<Vec<u8>>,
}

/// Connects. `protocols` are offered with TLS, the best first.
pub(crate) async fn connect(target: &Target, protocols: &[&[u8]]) -> Result<Connected, Error> {
    let stream = reach(target).await?;
    match &target.security {
        Security::Plaintext => Ok(Connected { stream: Box::new(stream), protocol: None }),
        Security::Tls(trust) => secure(target, trust, protocols, stream).await,
    }
}

/// Opens a connection like a gRPC call of Flower, TLS included, and closes it.
pub async fn handshake(target: &Target) -> Result<(), Error> {
    connect(target, &[HTTP_2]).await.map(drop)
}

/// Connects to the first address of the host that accepts.
pub(crate) async fn reach(target: &Target) -> Result<TcpStream, Error> {
    let lookup = |source| Error::Lookup { host: target.host.clone(), source };
    let mut last = None;
    for address in lookup_host((target.host.as_str(), target.port)).await.map_err(lookup)? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                prepare(&stream);
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(source) => Err(Error::Connect { endpoint: target.endpoint(), source }),
        None => Err(lookup(io::Error::other("it has no address"))),
    }
}

/// Disables Nagle's algorithm. Socket options are best effort.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let probes =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
}

async fn secure(target: &Target, trust: &Trust, protocols: &[&[u8]], stream: TcpStream) -> Result<Connected, Error> {
    let lookup = |_| Error::Lookup { host: target.host.clone(), source: io::Error::other("it is no name of a host") };
    let name = ServerName::try_from(target.host.clone()).map_err(lookup)?;
    match TlsConnector::from(trust.config(protocols)).connect(name, stream).await {
        Ok(stream) => {
            let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            Ok(Connected { stream: Box::new(stream), protocol })
        }
        Err(source) => Err(handshake_error(target, trust, source)),
    }
}

fn handshake_error(target: &Target, trust: &Trust, source: io::Error) -> Error {
    let endpoint = target.endpoint();
    match tls_cause(&source) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            Error::Distrusted { endpoint, why: Distrust::new(why.clone(), &target.host, trust.origin()) }
        }
        Some(rustls::Error::InvalidMessage(_)) => Error::NotTls { endpoint },
        _ => Error::Tls { endpoint, source },
    }
}

/// Whether an endpoint without TLS answered with TLS.
pub(crate) async fn speaks_tls(target: &Target) -> bool {
    let Ok(stream) = reach(target).await else { return false };
    match secure(target, &Trust::nobody(), &[HTTP_2, HTTP_1], stream).await {
        Ok(_) | Err(Error::Distrusted { .. }) => true,
        Err(Error::Tls { source, .. }) => matches!(tls_cause(&source), Some(rustls::Error::AlertReceived(_))),
        Err(_) => false,
    }
}
