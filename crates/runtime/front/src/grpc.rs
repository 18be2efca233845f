//! gRPC framing of answers: a prefix before each message, and the status in the trailers.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use tokio::sync::mpsc;
use trellis_core::refusal::{Kind, Refusal};

use crate::answer::{Answer, BodyRest, Payload, STREAM_BACKLOG};
use crate::refusal::grpc_code;

pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

pub fn respond(answer: Result<Answer, Refusal>) -> Response<Payload> {
    let payload = match answer {
        Ok(Answer::Message { head, rest }) => match prefixed(&head, rest.len_bytes()) {
            Ok(head) => Payload { head: Some(head), rest: rest.into(), trailers: Some(ok()) },
            Err(refusal) => return refused(&refusal),
        },
        Ok(Answer::Stream(messages)) => Payload { rest: BodyRest::Frames(framed(messages)), ..Default::default() },
        Ok(Answer::Json(_)) => {
            return refused(&Refusal::new(Kind::Unimplemented, "this call is served over HTTP only"));
        }
        Err(refusal) => return refused(&refusal),
    };
    let mut response = Response::new(payload);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

/// A response without a body: the status is in the headers.
fn refused(refusal: &Refusal) -> Response<Payload> {
    let mut response = Response::new(Payload::default());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    status(headers, refusal);
    response
}

fn prefixed(head: &Bytes, rest_bytes: u64) -> Result<Bytes, Refusal> {
    let length = u32::try_from(head.len() as u64 + rest_bytes)
        .map_err(|_| Refusal::new(Kind::TooLarge, "the object is larger than a gRPC message can be"))?;
    let mut bytes = BytesMut::with_capacity(5 + head.len());
    bytes.put_u8(0);
    bytes.put_u32(length);
    bytes.extend_from_slice(head);
    Ok(bytes.freeze())
}

fn framed(mut messages: mpsc::Receiver<Result<Bytes, Refusal>>) -> mpsc::Receiver<Frame<Bytes>> {
    let (send, receive) = mpsc::channel(STREAM_BACKLOG);
    tokio::spawn(async move {
        let mut trailers = ok();
        while let Some(message) = messages.recv().await {
            let frame = match message.and_then(|message| prefixed(&message, 0)) {
                Ok(bytes) => Frame::data(bytes),
                Err(refusal) => {
                    trailers.clear();
                    status(&mut trailers, &refusal);
                    break;
                }
            };
            if send.send(frame).await.is_err() {
                return; // The reader disconnected.
            }
        }
        let _ = send.send(Frame::trailers(trailers)).await;
    });
    receive
}

fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

fn status(headers: &mut HeaderMap, refusal: &Refusal) {
    headers.insert("grpc-status", HeaderValue::from(grpc_code(refusal.kind) as u16));
    if let Ok(text) = HeaderValue::from_str(&percent_encoded(&refusal.text)) {
        headers.insert("grpc-message", text);
    }
}

/// Percent-encodes a text for the header `grpc-message`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => encoded.push_str("%25"),
            0x20..=0x7e => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_headers() {
        assert_eq!(percent_encoded("100 % of 'ä'\n"), "100 %25 of '%C3%A4'%0A");
    }

    #[test]
    fn a_message_above_the_maximum_length_is_refused() {
        assert_eq!(prefixed(&Bytes::from_static(b"ab"), 1).unwrap().as_ref(), b"\0\0\0\0\x03ab");
        assert_eq!(prefixed(&Bytes::new(), 1 << 32).unwrap_err().kind, Kind::TooLarge);
    }
}
