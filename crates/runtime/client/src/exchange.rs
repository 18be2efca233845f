//! One request and its response, over a separate connection. Does not interpret them.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use crate::connect::{HTTP_1, Stream, connect};
use crate::error::Error;
use crate::{Target, Timeouts};

/// A fleet of 100,000 nodes is listed in less.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A request.
pub(crate) struct Inquiry<'a> {
    pub method: Method,
    pub path: &'a str,
    /// The media type of the body.
    pub kind: &'static str,
    /// That of the answer.
    pub accept: &'static str,
    pub body: Bytes,
    /// The headers that authenticate the caller.
    pub proof: &'a HeaderMap,
}

impl<'a> Inquiry<'a> {
    /// Question and answer are of the same kind.
    pub fn post(path: &'a str, kind: &'static str, body: Bytes, proof: &'a HeaderMap) -> Inquiry<'a> {
        Inquiry { method: Method::POST, path, kind, accept: kind, body, proof }
    }
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/protobuf";

/// A response.
pub(crate) struct Answer {
    pub status: u16,
    /// `None` if it was larger than the limit.
    pub body: Option<Bytes>,
}

/// An answer that is still coming. Its connection ends with it.
pub(crate) struct Coming {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Incoming,
    connection: JoinHandle<Result<(), hyper::Error>>,
}

impl Coming {
    pub fn new(response: Response<Incoming>, connection: JoinHandle<Result<(), hyper::Error>>) -> Coming {
        let (head, body) = response.into_parts();
        Coming { status: head.status.as_u16(), headers: head.headers, body, connection }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Connects, sends the request, reads the response.
pub(crate) async fn exchange(target: &Target, timeouts: &Timeouts, inquiry: Inquiry<'_>) -> Result<Answer, Error> {
    let limit = timeouts.answer;
    let stream = reach(target, timeouts, HTTP_1).await?;
    let answering = async {
        let mut coming = ask(target, stream, request(target, inquiry)).await?;
        let body = read(&mut coming.body).await.map_err(|error| failed(target, error))?;
        Ok(Answer { status: coming.status, body })
    };
    let too_slow = |_| Error::TooSlow { endpoint: target.endpoint(), step: "answer", limit };
    tokio::time::timeout(limit, answering).await.map_err(too_slow)?
}

/// The head of a streamed response.
pub(crate) enum Begun {
    Well(Coming),
    Otherwise(Answer),
}

/// Like `exchange` for a streamed response: the timeout applies to its head only.
pub(crate) async fn begin(target: &Target, timeouts: &Timeouts, inquiry: Inquiry<'_>) -> Result<Begun, Error> {
    let limit = timeouts.answer;
    let stream = reach(target, timeouts, HTTP_1).await?;
    let answering = async {
        let mut coming = ask(target, stream, request(target, inquiry)).await?;
        if coming.status == 200 {
            return Ok(Begun::Well(coming));
        }
        let body = read(&mut coming.body).await.map_err(|error| failed(target, error))?;
        Ok(Begun::Otherwise(Answer { status: coming.status, body }))
    };
    let too_slow = |_| Error::TooSlow { endpoint: target.endpoint(), step: "answer", limit };
    tokio::time::timeout(limit, answering).await.map_err(too_slow)?
}

/// A connection on which this protocol will be spoken.
pub(crate) async fn reach(target: &Target, timeouts: &Timeouts, protocol: &[u8]) -> Result<Box<dyn Stream>, Error> {
    let limit = timeouts.connect;
    let too_slow = |_| Error::TooSlow { endpoint: target.endpoint(), step: "accept a connection", limit };
    let connected = tokio::time::timeout(limit, connect(target, &[protocol])).await.map_err(too_slow)??;
    Ok(connected.stream)
}

fn request(target: &Target, inquiry: Inquiry<'_>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(inquiry.body));
    *request.method_mut() = inquiry.method;
    *request.uri_mut() = inquiry.path.parse().expect("paths of calls are paths");
    let headers = request.headers_mut();
    let host = HeaderValue::try_from(target.endpoint());
    headers.insert(header::HOST, host.unwrap_or(HeaderValue::from_static("superlink")));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(inquiry.kind));
    headers.insert(header::ACCEPT, HeaderValue::from_static(inquiry.accept));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("trellis/", env!("CARGO_PKG_VERSION"))));
    prove(headers, inquiry.proof);
    request
}

/// Adds the headers that authenticate the caller, marked as secrets for header compression.
pub(crate) fn prove(headers: &mut HeaderMap, proof: &HeaderMap) {
    for (name, value) in proof {
        let mut value = value.clone();
        value.set_sensitive(true);
        headers.insert(name.clone(), value);
    }
}

async fn ask(target: &Target, stream: Box<dyn Stream>, request: Request<Full<Bytes>>) -> Result<Coming, Error> {
    let opened = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(|error| failed(target, error))?;
    let connection = tokio::spawn(connection);
    match sender.send_request(request).await {
        Ok(response) => Ok(Coming::new(response, connection)),
        Err(error) => {
            connection.abort();
            Err(failed(target, error))
        }
    }
}

/// Classifies the error of a connection.
pub(crate) fn failed(target: &Target, source: hyper::Error) -> Error {
    match source.is_parse() {
        true => Error::NotHttp { endpoint: target.endpoint(), source },
        false => Error::Broken { endpoint: target.endpoint(), source },
    }
}

async fn read(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if read.len() + data.len() > MAX_ANSWER_BYTES {
            return Ok(None);
        }
        read.extend_from_slice(&data);
    }
    Ok(Some(read.freeze()))
}
