//! Runs: Flower's own calls with protobuf, and logs in pieces.

use std::collections::HashMap;

use prost::Message;
use trellis_client::{Error, LogPart};
use trellis_wire::proto;

use crate::server::Server;
use crate::superlink;

/// A response with these headers and this body, as bytes.
async fn answering(head: &str, body: &[u8]) -> Server {
    let bytes = [format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat();
    Server::blurting(Box::leak(bytes.into_boxed_slice())).await
}

async fn whole(status: &str, body: &[u8]) -> Server {
    answering(&format!("{status}\r\ncontent-length: {}", body.len()), body).await
}

/// Frames of a log, cut into chunks of `size` bytes wherever that falls.
fn chunked(parts: &[(&str, f64)], size: usize) -> Vec<u8> {
    let mut frames = Vec::new();
    for (text, latest) in parts {
        let part = proto::StreamLogsResponse { log_output: (*text).to_owned(), latest_timestamp: *latest };
        frames.extend((part.encoded_len() as u32).to_be_bytes());
        frames.extend(part.encode_to_vec());
    }
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    frames.chunks(size).flat_map(chunk).collect()
}

#[tokio::test]
async fn a_run_is_started_and_has_an_id() {
    let body = proto::StartRunResponse { run_id: Some(7), ..Default::default() }.encode_to_vec();
    let server = whole("200 OK", &body).await;
    let started = superlink(server.port, Some("s3cret")).start_run(proto::Fab::default(), HashMap::new()).await;
    assert_eq!(started.expect("an id"), 7);

    let none = whole("200 OK", b"").await;
    let refused = superlink(none.port, None).start_run(proto::Fab::default(), HashMap::new()).await;
    assert!(
        matches!(&refused, Err(Error::Refused { detail, .. }) if detail.contains("its log says why")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_refusal_says_why() {
    let server = whole("403 No", br#"{"code": 9, "detail": "this needs the role runner"}"#).await;
    let link = superlink(server.port, None);
    let stopped = link.stop_run(7).await;
    assert!(
        matches!(&stopped, Err(Error::Refused { status: 403, detail, .. }) if detail.contains("runner")),
        "{stopped:?}"
    );
    let logs = link.stream_logs(7, 0.0).await.map(drop);
    assert!(matches!(&logs, Err(Error::Refused { status: 403, detail, .. }) if detail.contains("runner")), "{logs:?}");
}

#[tokio::test]
async fn a_log_is_read_however_it_is_cut() {
    let parts = [("one\n", 1.5), ("", 1.5), ("two\nthree\n", 2.5)];
    for size in [1, 3, 7, 1000] {
        let body = [chunked(&parts, size).as_slice(), b"0\r\n\r\n"].concat();
        let server = answering("200 OK\r\ntransfer-encoding: chunked", &body).await;
        let mut log = superlink(server.port, None).stream_logs(7, 0.0).await.expect("a log");
        let mut read = Vec::new();
        while let Some(part) = log.next().await.expect("a part") {
            read.push(part);
        }
        assert_eq!(read, parts.map(|(text, latest)| LogPart { text: text.to_owned(), latest }));
    }
}

#[tokio::test]
async fn a_log_that_breaks_off_is_no_end() {
    let whole = chunked(&[("one\n", 1.5)], 1000);
    let frame_cut = [chunked(&[("one\n", 1.5)], 5)[..10].to_vec(), b"0\r\n\r\n".to_vec()].concat();
    for (body, expected) in [(whole, "broke"), (frame_cut, "it ends in the middle")] {
        let server = answering("200 OK\r\ntransfer-encoding: chunked", &body).await;
        let mut log = superlink(server.port, None).stream_logs(7, 0.0).await.expect("a log");
        let error = loop {
            match log.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it broke off, and was taken for whole"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains(expected), "{error}");
    }
}
