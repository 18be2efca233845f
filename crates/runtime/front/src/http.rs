//! Framing of Flower's HTTP API: protobuf bodies, streams of frames with a length prefix, errors as JSON with a number.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use serde_json::json;
use tokio::sync::mpsc;
use trellis_core::refusal::Refusal;

use crate::answer::{Answer, BodyRest, Payload, STREAM_BACKLOG};
use crate::refusal::http_status;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/protobuf");
const PROTOBUF_STREAM: HeaderValue = HeaderValue::from_static("application/flower-protobuf-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Flower's error number for a body that is not protobuf.
const UNSUPPORTED_CONTENT_TYPE: u16 = 1002;

/// For responses shown in a browser over TLS: the browser must use TLS for this host from then on.
pub const HSTS: (HeaderName, HeaderValue) =
    (header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=2592000"));

/// Checks that the content type of a request is protobuf.
pub fn is_protobuf(headers: &HeaderMap) -> bool {
    has_type(headers, "application/protobuf")
}

/// Checks that the content type of a request is `wanted`.
pub fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let kind = headers.get("content-type").map_or(&b""[..], HeaderValue::as_bytes);
    kind.split(|byte| *byte == b';')
        .next()
        .is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
}

/// Frames an answer. `code` returns the number of an error in Flower's list, or 0.
pub fn respond(answer: Result<Answer, Refusal>, code: impl FnOnce(&Refusal) -> u16) -> Response<Payload> {
    match answer {
        Ok(Answer::Message { head, rest }) => {
            with_type(PROTOBUF, Payload { head: Some(head), rest: rest.into(), trailers: None })
        }
        Ok(Answer::Json(bytes)) => with_type(JSON, Payload::whole(bytes)),
        Ok(Answer::Stream(messages)) => {
            with_type(PROTOBUF_STREAM, Payload { rest: BodyRest::Frames(framed(messages)), ..Default::default() })
        }
        Err(refusal) => error(http_status(refusal.kind), code(&refusal), &refusal.text),
    }
}

pub fn wrong_type() -> Response<Payload> {
    error(StatusCode::UNSUPPORTED_MEDIA_TYPE, UNSUPPORTED_CONTENT_TYPE, "Unsupported Content-Type.")
}

pub fn error(status: StatusCode, code: u16, detail: &str) -> Response<Payload> {
    let body = match code {
        0 => json!({ "detail": detail }),
        code => json!({ "code": code, "detail": detail }),
    };
    let mut response = with_type(JSON, Payload::whole(body.to_string().into()));
    *response.status_mut() = status;
    response
}

pub fn with_type(kind: HeaderValue, payload: Payload) -> Response<Payload> {
    let mut response = Response::new(payload);
    response.headers_mut().insert("content-type", kind);
    response
}

/// Converts the name of a call to the form in its path: `PullMessages` to `pull-messages`.
pub fn kebab(name: &str) -> String {
    let mut path = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !path.is_empty() {
            path.push('-');
        }
        path.push(letter.to_ascii_lowercase());
    }
    path
}

/// Cuts the stream off at the first error: the length prefix of the last frame shows the client that bytes are missing,
/// and the client retries.
fn framed(mut messages: mpsc::Receiver<Result<Bytes, Refusal>>) -> mpsc::Receiver<Frame<Bytes>> {
    let (send, receive) = mpsc::channel(STREAM_BACKLOG);
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.recv().await {
            let mut frame = BytesMut::with_capacity(4 + message.len());
            frame.put_u32(message.len() as u32);
            frame.extend_from_slice(&message);
            if send.send(Frame::data(frame.freeze())).await.is_err() {
                return; // The reader disconnected.
            }
        }
    });
    receive
}
