//! One request and its answer over HTTP/1.1, on a connection that is kept for the next. What they say is not known here.

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

/// oned closes a connection that was quiet for 15 s; one that is near that age is not used again.
const LONGEST_IDLE: Duration = Duration::from_secs(8);

/// A connection that is not free so long after its answer is not kept.
const RELEASE: Duration = Duration::from_millis(100);

/// How long a caller waits, and how much it takes.
#[derive(Debug, Clone)]
pub struct Patience {
    pub connect: Duration,
    /// From the first byte of the request to the last of the answer.
    pub answer: Duration,
    pub longest_answer_bytes: usize,
}

impl Patience {
    /// For OneGate: answers are small, and asked for again soon.
    pub fn for_gate() -> Patience {
        Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(20), longest_answer_bytes: 16 << 20 }
    }

    /// For oned and OneFlow: a pool of thousands of VMs takes a while.
    pub fn for_front_end() -> Patience {
        Patience { connect: Duration::from_secs(10), answer: Duration::from_secs(60), longest_answer_bytes: 256 << 20 }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("{host} has no address")]
    Lookup { host: String, source: io::Error },
    #[error("{endpoint} cannot be reached")]
    Connect { endpoint: String, source: io::Error },
    #[error("there is no secure connection to {endpoint}")]
    Tls { endpoint: String, source: io::Error },
    #[error("the connection to {endpoint} broke")]
    Broken { endpoint: String, source: hyper::Error },
    #[error("{endpoint} did not {step} within {} s", limit.as_secs())]
    TooSlow { endpoint: String, step: &'static str, limit: Duration },
    #[error("the answer of {endpoint} has more than {limit_bytes} bytes")]
    TooLong { endpoint: String, limit_bytes: usize },
}

impl TransportError {
    /// The request may have been carried out all the same.
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
    /// What a person may read of it: some servers answer with a page.
    pub fn text(&self) -> String {
        const LONGEST_TEXT_CHARS: usize = 2000;
        let text = String::from_utf8_lossy(&self.body);
        text.trim().chars().take(LONGEST_TEXT_CHARS).collect()
    }
}

type Sender = SendRequest<Full<Bytes>>;
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Calls one server. Calls at the same time each have a connection; one of them is kept.
#[derive(Debug)]
pub(crate) struct Caller {
    endpoint: Endpoint,
    trust: Trust,
    patience: Patience,
    /// Go with every request; secrets among them are marked as such.
    headers: HeaderMap,
    idle: Mutex<Option<(Sender, Instant)>>,
    /// What the server's clock showed when it last answered.
    date: Mutex<Option<String>>,
}

impl Caller {
    pub fn new(endpoint: Endpoint, trust: Trust, patience: Patience) -> Caller {
        let mut headers = HeaderMap::new();
        let host = HeaderValue::try_from(endpoint.authority()).unwrap_or(HeaderValue::from_static("opennebula"));
        headers.insert(header::HOST, host);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("trellis/", env!("CARGO_PKG_VERSION"))));
        Caller { endpoint, trust, patience, headers, idle: Mutex::new(None), date: Mutex::new(None) }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The `Date` of its last answer, as it was sent.
    pub fn date(&self) -> Option<String> {
        self.date.lock().expect("nobody panics while holding it").clone()
    }

    /// A header that goes with every request and is not to be logged.
    pub fn prove(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.headers.insert(name, value);
    }

    /// `path` is appended to that of the endpoint. The media type is that of the body, and there is none without one.
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
        *request.uri_mut() = target.parse().expect("paths of calls are made of names and numbers");
        *request.headers_mut() = self.headers.clone();
        if !body.is_empty() {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        let limit = self.patience.answer;
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
        *self.date.lock().expect("nobody panics while holding it") = date;
        let body = tokio::time::timeout(limit, self.read(response.into_body())).await.map_err(too_slow)??;
        if let Ok(Ok(())) = tokio::time::timeout(RELEASE, sender.ready()).await {
            *self.idle.lock().expect("nobody panics while holding it") = Some((sender, Instant::now()));
        }
        Ok(Answer { status, body })
    }

    /// Uses the kept connection, where there is one. A request that never left comes back, and goes over a new one.
    async fn try_idle(&self, request: Request<Full<Bytes>>) -> Kept {
        let kept = self.idle.lock().expect("nobody panics while holding it").take();
        let Some((mut sender, since)) = kept else { return Kept::NotSent(request) };
        if since.elapsed() > LONGEST_IDLE || sender.is_closed() {
            return Kept::NotSent(request);
        }
        let limit = self.patience.answer;
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
        let limit = self.patience.connect;
        let too_slow = |_| TransportError::TooSlow { endpoint: self.endpoint.to_string(), step: ACCEPT, limit };
        let stream = tokio::time::timeout(limit, self.open()).await.map_err(too_slow)??;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|source| self.broken(source))?;
        // It ends by itself when the sender is dropped.
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

    /// A connection to the first address that takes one.
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
        let limit_bytes = self.patience.longest_answer_bytes;
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

/// What became of a request on the kept connection.
enum Kept {
    NotSent(Request<Full<Bytes>>),
    Answered(Result<(Sender, Response<Incoming>), TransportError>),
}
