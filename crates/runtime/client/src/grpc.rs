//! One gRPC call over a separate connection, as commands call a SuperLink before 1.37. Nodes share a connection:
//! `fleet/grpc`.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, HeaderValue, TE};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::connect::HTTP_2;
use crate::error::Error;
use crate::exchange::{Coming, failed, prove, reach};
use crate::fleet::refusal::{Refusal, percent_decoded};
use crate::{Security, Target, Timeouts};

const PREFIX_BYTES: usize = 5;

/// An answer that is no gRPC: something between, or some other server.
pub(crate) struct Strange {
    pub status: u16,
}

/// Connects, sends the request, and waits for the head of the response.
pub(crate) async fn begin(
    target: &Target,
    timeouts: &Timeouts,
    path: &'static str,
    message: &[u8],
    proof: &HeaderMap,
) -> Result<Result<Coming, Strange>, Error> {
    let limit = timeouts.answer;
    let stream = reach(target, timeouts, HTTP_2).await?;
    let request = request(target, path, message, proof);
    let answering = async {
        let opened = http2::Builder::new(TokioExecutor::new()).timer(TokioTimer::new()).handshake(TokioIo::new(stream));
        let (mut sender, connection) = opened.await.map_err(|error| failed(target, error))?;
        let connection = tokio::spawn(connection);
        match sender.send_request(request).await {
            Ok(response) => Ok(Coming::new(response, connection)),
            Err(error) => {
                connection.abort();
                Err(failed(target, error))
            }
        }
    };
    let too_slow = |_| Error::TooSlow { endpoint: target.endpoint(), step: "answer", limit };
    let coming = tokio::time::timeout(limit, answering).await.map_err(too_slow)??;
    let kind = coming.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    Ok(if kind.starts_with(b"application/grpc") { Ok(coming) } else { Err(Strange { status: coming.status }) })
}

fn request(target: &Target, path: &'static str, message: &[u8], proof: &HeaderMap) -> Request<Full<Bytes>> {
    let mut body = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len()).expect("questions of people are far below 4 GiB"));
    body.extend_from_slice(message);
    let mut request = Request::new(Full::new(body.freeze()));
    let scheme = match target.security {
        Security::Plaintext => Scheme::HTTP,
        Security::Tls(_) => Scheme::HTTPS,
    };
    let authority = target.endpoint().parse().unwrap_or(Authority::from_static("superlink"));
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(PathAndQuery::from_static(path));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.build().expect("its parts are checked");
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    prove(headers, proof);
    request
}

/// The status in the headers: OK, or the corresponding HTTP status with the SuperLink's text. `None` if there is no status.
pub(crate) fn outcome(headers: &HeaderMap) -> Option<Result<(), (u16, String)>> {
    let status = headers.get("grpc-status")?;
    let code = status.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(u16::MAX);
    if code == 0 {
        return Some(Ok(()));
    }
    let message = headers.get("grpc-message").map(|text| percent_decoded(text.as_bytes())).unwrap_or_default();
    Some(Err((http_status(code), Refusal::grpc(code, &message).text)))
}

fn http_status(code: u16) -> u16 {
    match code {
        3 | 11 => 400,
        16 => 401,
        7 => 403,
        5 => 404,
        6 => 409,
        9 => 412,
        12 => 501,
        // Cancelled, too late, too many at once, not reached: all of them may pass.
        1 | 4 | 8 | 10 | 14 => 503,
        _ => 500,
    }
}
