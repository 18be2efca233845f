//! HTTP/1.1 client with one persistent connection. Independent of the contents.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::{Endpoint, Trust};

/// oned closes connections after 15 s of inactivity, so older ones are not used.
const MAX_IDLE: Duration = Duration::from_secs(8);

/// A connection that is not idle within this time after a response is not kept.
const RELEASE: Duration = Duration::from_millis(100);

/// Timeouts and limits of a client.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    pub connect: Duration,
    /// From the first byte of the request to the last byte of the response.
    pub answer: Duration,
    pub max_response_bytes: usize,
}

impl HttpLimits {
    /// For OneGate: responses are small, and the agent retries soon.
    pub fn for_gate() -> HttpLimits {
        HttpLimits { connect: Duration::from_secs(5), answer: Duration::from_secs(20), max_response_bytes: 16 << 20 }
    }

    /// For oned and OneFlow: a pool of thousands of VMs takes a while.
    pub fn for_front_end() -> HttpLimits {
        HttpLimits { connect: Duration::from_secs(10), answer: Duration::from_secs(60), max_response_bytes: 256 << 20 }
    }
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("{host} has no address")]
    Lookup { host: String, source: io::Error },
    #[error("{endpoint} cannot be reached")]
    Connect { endpoint: String, source: io::Error },
    #[error("the TLS handshake with {endpoint} failed")]
    Tls { endpoint: String, source: io::Error },
    #[error("the connection to {endpoint} broke")]
    Broken { endpoint: String, source: hyper::Error },
    #[error("{endpoint} did not {step} within {} s", limit.as_secs())]
    TooSlow { endpoint: String, step: &'static str, limit: Duration },
    #[error("the response of {endpoint} has more than {limit_bytes} bytes")]
    TooLong { endpoint: String, limit_bytes: usize },
}

impl TransportError {
    /// The server may have processed the request.
    pub fn may_have_happened(&self) -> bool {
        match self {
            TransportError::Lookup { .. } | TransportError::Connect { .. } | TransportError::Tls { .. } => false,
            TransportError::TooSlow { step, .. } => *step != ACCEPT,
            TransportError::Broken { .. } | TransportError::TooLong { .. } => true,
        }
    }
}

const ACCEPT: &str = "accept a connection";
const ANSWER: &str = "answer";

pub(crate) struct Answer {
    pub status: u16,
    pub body: Bytes,
}

impl Answer {
    /// Plain text of the response; some servers return HTML.
    pub fn text(&self) -> String {
        const MAX_TEXT_CHARS: usize = 2000;
        let text = String::from_utf8_lossy(&self.body);
        text.trim().chars().take(MAX_TEXT_CHARS).collect()
    }
}

type Sender = SendRequest<Full<Bytes>>;
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Client of one server. Concurrent calls use separate connections; one connection is kept.
#[derive(Debug)]
pub(crate) struct Caller {
    endpoint: Endpoint,
    trust: Trust,
    limits: HttpLimits,
    /// Headers of every request. Secrets are marked as sensitive.
    headers: HeaderMap,
    idle: Mutex<Option<(Sender, Instant)>>,
    /// Date header of the last response.
    date: Mutex<Option<String>>,
}

impl Caller {
    pub fn new(endpoint: Endpoint, trust: Trust, limits: HttpLimits) -> Caller {
        let mut headers = HeaderMap::new();
        let host = HeaderValue::try_from(endpoint.authority()).unwrap_or(HeaderValue::from_static("opennebula"));
        headers.insert(header::HOST, host);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("trellis/", env!("CARGO_PKG_VERSION"))));
        Caller { endpoint, trust, limits, headers, idle: Mutex::new(None), date: Mutex::new(None) }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Date header of the last response.
    pub fn date(&self) -> Option<String> {
        self.date.lock().expect("no holder of the lock panics").clone()
    }

    /// Adds a sensitive header to every request.
    pub fn add_header(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.headers.insert(name, value);
    }

    /// Sends a request. `path` is appended to that of the endpoint. The content type is only sent with a body.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        media_type: &'static str,
        body: Bytes,
    ) -> Result<Answer, TransportError> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method;
        let target = format!("{}{path}", self.endpoint.path);
        let target = if target.is_empty() { "/".to_owned() } else { target };
        *request.uri_mut() = target.parse().expect("paths of calls consist of names and numbers");
        *request.headers_mut() = self.headers.clone();
        if !body.is_empty() {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        let limit = self.limits.answer;
        let too_slow = |_| TransportError::TooSlow { endpoint: self.endpoint.to_string(), step: ANSWER, limit };
        let (mut sender, response) = match self.try_idle(request).await {
            Kept::Answered(sent) => sent?,
            Kept::NotSent(request) => {
                let mut sender = self.connect().await?;
                let sending = tokio::time::timeout(limit, sender.send_request(request)).await.map_err(too_slow)?;
                (sender, sending.map_err(|source| self.broken(source))?)
            }
        };
        let status = response.status().as_u16();
        let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok()).map(str::to_owned);
        *self.date.lock().expect("no holder of the lock panics") = date;
        let body = tokio::time::timeout(limit, self.read(response.into_body())).await.map_err(too_slow)??;
        if let Ok(Ok(())) = tokio::time::timeout(RELEASE, sender.ready()).await {
            *self.idle.lock().expect("no holder of the lock panics") = Some((sender, Instant::now()));
        }
        Ok(Answer { status, body })
    }

    /// Uses the idle connection, if there is one. A request that was not sent is returned, for another connection.
    async fn try_idle(&self, request: Request<Full<Bytes>>) -> Kept {
        let kept = self.idle.lock().expect("no holder of the lock panics").take();
        let Some((mut sender, since)) = kept else { return Kept::NotSent(request) };
        if since.elapsed() > MAX_IDLE || sender.is_closed() {
            return Kept::NotSent(request);
        }
        let limit = self.limits.answer;
        match tokio::time::timeout(limit, sender.try_send_request(request)).await {
            Ok(Ok(response)) => Kept::Answered(Ok((sender, response))),
            Ok(Err(mut error)) => match error.take_message() {
                Some(request) => Kept::NotSent(request),
                None => Kept::Answered(Err(self.broken(error.into_error()))),
            },
            Err(_) => {
                let endpoint = self.endpoint.to_string();
                Kept::Answered(Err(TransportError::TooSlow { endpoint, step: ANSWER, limit }))
            }
        }
    }

    async fn connect(&self) -> Result<Sender, TransportError> {
        let limit = self.limits.connect;
        let too_slow = |_| TransportError::TooSlow { endpoint: self.endpoint.to_string(), step: ACCEPT, limit };
        let stream = tokio::time::timeout(limit, self.open()).await.map_err(too_slow)??;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|source| self.broken(source))?;
        // The task ends when the sender is dropped.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn open(&self) -> Result<Box<dyn Stream>, TransportError> {
        let stream = self.reach().await?;
        let _ = stream.set_nodelay(true);
        if !self.endpoint.tls {
            return Ok(Box::new(stream));
        }
        let tls = |source| TransportError::Tls { endpoint: self.endpoint.to_string(), source };
        let name = ServerName::try_from(self.endpoint.host.clone()).map_err(|why| tls(io::Error::other(why)))?;
        Ok(Box::new(TlsConnector::from(self.trust.config()).connect(name, stream).await.map_err(tls)?))
    }

    /// Connects to the first address that accepts.
    async fn reach(&self) -> Result<TcpStream, TransportError> {
        let lookup = |source| TransportError::Lookup { host: self.endpoint.host.clone(), source };
        let mut last = None;
        for address in lookup_host((self.endpoint.host.as_str(), self.endpoint.port)).await.map_err(lookup)? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(source) => Err(TransportError::Connect { endpoint: self.endpoint.to_string(), source }),
            None => Err(lookup(io::Error::other("the name has no address"))),
        }
    }

    async fn read(&self, mut body: Incoming) -> Result<Bytes, TransportError> {
        let limit_bytes = self.limits.max_response_bytes;
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|source| self.broken(source))?.into_data() else { continue };
            if read.len() + data.len() > limit_bytes {
                return Err(TransportError::TooLong { endpoint: self.endpoint.to_string(), limit_bytes });
            }
            read.extend_from_slice(&data);
        }
        Ok(read.freeze())
    }

    fn broken(&self, source: hyper::Error) -> TransportError {
        TransportError::Broken { endpoint: self.endpoint.to_string(), source }
    }
}

/// Result of a request on the idle connection.
enum Kept {
    NotSent(Request<Full<Bytes>>),
    Answered(Result<(Sender, Response<Incoming>), TransportError>),
}
