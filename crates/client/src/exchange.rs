//! One request and its answer, over a connection of its own. What they say is not known here.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;

use crate::connect::{HTTP_1, Stream, connect};
use crate::error::Error;
use crate::{Patience, Target};

/// A fleet of 100,000 nodes is listed in less.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// What came back.
pub(crate) struct Answer {
    pub status: u16,
    /// `None`: more than anybody asked for.
    pub body: Option<Bytes>,
}

/// Connects, asks, reads the answer. `proof` are the headers that prove who asks.
pub(crate) async fn exchange(
    target: &Target,
    patience: &Patience,
    path: &str,
    body: Bytes,
    proof: &HeaderMap,
) -> Result<Answer, Error> {
    let too_slow = |step, limit| Error::TooSlow { endpoint: target.endpoint(), step, limit };
    let connecting = tokio::time::timeout(patience.connect, connect(target, &[HTTP_1]));
    let connected = connecting.await.map_err(|_| too_slow("accept a connection", patience.connect))??;
    let request = request(target, path, body, proof);
    let asking = tokio::time::timeout(patience.answer, ask(target, connected.stream, request));
    asking.await.map_err(|_| too_slow("answer", patience.answer))?
}

fn request(target: &Target, path: &str, body: Bytes, proof: &HeaderMap) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = hyper::Method::POST;
    *request.uri_mut() = path.parse().expect("paths of calls are paths");
    let headers = request.headers_mut();
    let host = HeaderValue::try_from(target.endpoint());
    headers.insert(header::HOST, host.unwrap_or(HeaderValue::from_static("superlink")));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("trellis/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in proof {
        let mut value = value.clone();
        value.set_sensitive(true);
        headers.insert(name.clone(), value);
    }
    request
}

async fn ask(target: &Target, stream: Box<dyn Stream>, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
    let failed = |source: hyper::Error| match source.is_parse() {
        true => Error::NotHttp { endpoint: target.endpoint(), source },
        false => Error::Broken { endpoint: target.endpoint(), source },
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        Ok(Answer { status, body: read(response).await? })
    };
    let answer = answer.await.map_err(failed);
    connection.abort();
    answer
}

async fn read(response: Response<Incoming>) -> Result<Option<Bytes>, hyper::Error> {
    let mut body = response.into_body();
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
