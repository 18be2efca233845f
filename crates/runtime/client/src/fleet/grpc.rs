//! Calls over gRPC, as Flower 1.25 to 1.39 have it: all over one HTTP/2 connection, a prefix before each message, and the
//! outcome in the trailers.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, HeaderValue, TE};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::oneshot;

use super::body::{Intake, Outgoing};
use super::detect::{Detected, Inspected};
use super::error::Failure;
use super::refusal::{Refusal, percent_decoded};
use super::{FleetOptions, Question, Reply};
use crate::connect::Stream;
use crate::{Security, Target};

/// Whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A connection that all calls share.
pub(super) struct Line {
    sender: http2::SendRequest<Outgoing>,
    scheme: Scheme,
    authority: Authority,
}

impl Line {
    /// Starts HTTP/2. The receiver gets the protocol that the peer uses.
    pub async fn open(
        target: &Target,
        options: &FleetOptions,
        stream: Box<dyn Stream>,
    ) -> Result<(Line, oneshot::Receiver<Detected>), Failure> {
        let (stream, detected) = Inspected::new(stream);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(options.keepalive_interval)
            .keep_alive_timeout(options.keepalive_timeout)
            .keep_alive_while_idle(true);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        // Ends when the last sender is dropped, or with an error that the calls get, too.
        tokio::spawn(connection);
        let scheme = match target.security {
            Security::Plaintext => Scheme::HTTP,
            Security::Tls(_) => Scheme::HTTPS,
        };
        let authority = target.endpoint().parse().unwrap_or(Authority::from_static("superlink"));
        Ok((Line { sender, scheme, authority }, detected))
    }

    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Makes a call.
    pub async fn ask(&self, question: &Question<'_>, proof: HeaderMap) -> Result<Reply, Failure> {
        let request = self.request(question, proof)?;
        let mut sender = self.sender.clone();
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        read(response, &question.intake()).await
    }

    fn request(&self, question: &Question<'_>, mut headers: HeaderMap) -> Result<Request<Outgoing>, Failure> {
        let head = prefixed(&question.head, question.content.len())?;
        let mut request = Request::new(question.outgoing(head));
        *request.method_mut() = Method::POST;
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::from_static(question.rpc.grpc));
        *request.uri_mut() = uri.build().expect("its parts are checked");
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        *request.headers_mut() = headers;
        Ok(request)
    }
}

fn prefixed(head: &[u8], content_bytes: usize) -> Result<Bytes, Failure> {
    let length = u32::try_from(head.len() + content_bytes)
        .map_err(|_| Failure::TooLong("it is longer than a gRPC message can be".to_owned()))?;
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + head.len());
    bytes.put_u8(0);
    bytes.put_u32(length);
    bytes.extend_from_slice(head);
    Ok(bytes.freeze())
}

/// How long a message with its prefix is.
fn announced(bytes: &[u8]) -> Option<usize> {
    let [_, length @ ..] = bytes.first_chunk::<PREFIX_BYTES>()?;
    usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_add(PREFIX_BYTES)
}

async fn read(response: Response<hyper::body::Incoming>, intake: &Intake<'_>) -> Result<Reply, Failure> {
    let (head, body) = response.into_parts();
    let is_grpc = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        // Not the SuperLink itself, but something between.
        let (body, _) = intake.read(body, |_| None).await?;
        return Ok(Reply::Refused(Refusal::http(head.status.as_u16(), &body)));
    }
    if let Some(refusal) = refused(&head.headers) {
        return Ok(Reply::Refused(refusal));
    }
    let (bytes, trailers) = intake.read(body, announced).await?;
    let trailers = trailers.unwrap_or_default();
    if let Some(refusal) = refused(&trailers) {
        return Ok(Reply::Refused(refusal));
    }
    if !trailers.contains_key("grpc-status") && !head.headers.contains_key("grpc-status") {
        return Err(Failure::Disconnected("the answer was cut off".to_owned()));
    }
    unprefixed(bytes).map(Reply::Message)
}

/// The error of the status, unless it is OK or missing.
fn refused(headers: &HeaderMap) -> Option<Refusal> {
    let status = headers.get("grpc-status")?;
    let code = status.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(u16::MAX);
    let message = headers.get("grpc-message").map(|text| percent_decoded(text.as_bytes())).unwrap_or_default();
    (code != 0).then(|| Refusal::grpc(code, &message))
}

/// The one message in the bytes.
fn unprefixed(mut bytes: Bytes) -> Result<Bytes, Failure> {
    let strange = |what: &str| Err(Failure::Strange(format!("an answer came that {what}")));
    match announced(&bytes) {
        None => strange("has no message"),
        Some(_) if bytes[0] != 0 => strange("is compressed"),
        Some(length) if length != bytes.len() => strange("is not one message"),
        Some(_) => {
            bytes.advance(PREFIX_BYTES);
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing() {
        assert_eq!(prefixed(b"ab", 3).unwrap().as_ref(), b"\0\0\0\0\x05ab");
        assert!(matches!(prefixed(b"a", u32::MAX as usize), Err(Failure::TooLong(_))));
        for (bytes, expected) in [
            (&b"\0\0\0\0\x02ab"[..], Ok(&b"ab"[..])),
            (b"\0\0\0\0\0", Ok(b"")),
            (b"", Err("an answer came that has no message")),
            (b"\0\0\0\0", Err("an answer came that has no message")),
            (b"\x01\0\0\0\x02ab", Err("an answer came that is compressed")),
            (b"\0\0\0\0\x03ab", Err("an answer came that is not one message")),
            (b"\0\0\0\0\x01ab", Err("an answer came that is not one message")),
        ] {
            let read = match unprefixed(Bytes::from_static(bytes)) {
                Err(Failure::Strange(what)) => Err(what),
                other => Ok(other.unwrap()),
            };
            assert_eq!(read.as_deref().map_err(String::as_str), expected);
        }
    }

    #[test]
    fn statuses() {
        let headers =
            |status: &'static str| HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
        assert_eq!(refused(&HeaderMap::new()), None);
        assert_eq!(refused(&headers("0")), None);
        assert_eq!(refused(&headers("14")), Some(Refusal::grpc(14, "")));
        assert_eq!(refused(&headers("what")), Some(Refusal::grpc(u16::MAX, "")));
    }
}
