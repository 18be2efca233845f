//! Calls of people over gRPC, as SuperLinks before 1.37 have them.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use trellis_client::fleet::Transport;
use trellis_client::{Error, LogPart, Security, SuperLink as Called, Target, Timeouts};
use trellis_wire::proto;
use trellis_wire::token::Token;

use crate::superlink::{Act, Speaks, SuperLink};

fn called(port: u16) -> Called {
    let token = Some(Token::parse("s3cret").expect("a token"));
    let target = Target { host: "127.0.0.1".to_owned(), port, security: Security::Plaintext, token };
    let timeouts = Timeouts { retries: vec![Duration::ZERO], ..Timeouts::default() };
    Called::new(target).over(Transport::Grpc).with_timeouts(timeouts)
}

#[tokio::test]
async fn calls_are_made_as_grpc_and_prove_who_calls() {
    let superlink = SuperLink::start(Speaks::Grpc).await;
    let run = proto::Run { run_id: 7, ..Default::default() };
    let runs = proto::ListRunsResponse { run_dict: [(7, run.clone())].into(), ..Default::default() };
    superlink.on("list-runs", [Act::Status(14, "not now"), Act::Answer(runs.encode_to_vec())]);
    assert_eq!(called(superlink.port).list_runs(None).await.expect("the call is repeated"), [run]);
    let asked = &superlink.asked()[1];
    assert_eq!(asked.path, "/flwr.proto.Control/ListRuns");
    assert_eq!(asked.headers["authorization"], "Bearer s3cret");
}

#[tokio::test]
async fn only_the_oldest_are_told_a_federation() {
    for (name, expected) in [("default", "default"), ("@none/default", "")] {
        let superlink = SuperLink::start(Speaks::Grpc).await;
        let federations = vec![proto::Federation { name: name.to_owned(), ..Default::default() }];
        let federations = proto::ListFederationsResponse { federations };
        superlink.on("list-federations", [Act::Answer(federations.encode_to_vec())]);
        let started = proto::StartRunResponse { run_id: Some(9), ..Default::default() };
        superlink.on("start-run", [Act::Answer(started.encode_to_vec())]);
        let run = called(superlink.port).start_run(proto::Fab::default(), HashMap::new()).await;
        assert_eq!(run.expect("a run"), 9);
        let asked = proto::StartRunRequest::decode(superlink.asked()[1].message.clone()).expect("a request");
        assert_eq!(asked.federation, expected);
    }
}

#[tokio::test]
async fn a_refusal_has_the_status_that_http_would_have() {
    let superlink = SuperLink::start(Speaks::Grpc).await;
    let flower = r#"{"code": 16, "public_message": "Run not found.", "public_details": null}"#;
    for (code, text, expected, detail) in [
        (5, "Run ID not found", 404, "Run ID not found"),
        (5, flower, 404, "Run not found."),
        (16, "who are you", 401, "who are you"),
        (7, "no", 403, "no"),
        (14, "not now", 503, "not now"),
        (2, "Exception", 500, "Exception"),
    ] {
        superlink.on("stop-run", [Act::Status(code, text)]);
        superlink.on("stream-logs", [Act::Status(code, text)]);
        let stopped = called(superlink.port).stop_run(7).await.expect_err("no");
        let told = |error: &Error| matches!(error, Error::Refused { status, detail: said, .. } if *status == expected && said == detail);
        assert!(told(&stopped), "{stopped:?}");
        let mut log = called(superlink.port).stream_logs(7, 0.0).await.expect("it begins");
        let refused = log.next().await.expect_err("no");
        assert!(told(&refused), "{refused:?}");
    }
}

#[tokio::test]
async fn a_log_is_read_to_its_end_and_not_beyond_a_break() {
    let superlink = SuperLink::start(Speaks::Grpc).await;
    let part = proto::StreamLogsResponse { log_output: "one\n".to_owned(), latest_timestamp: 1.5 };
    superlink.on("stream-logs", [Act::Answer(part.encode_to_vec()), Act::CutOff]);
    let mut log = called(superlink.port).stream_logs(7, 0.0).await.expect("a log");
    let expected = LogPart { text: "one\n".to_owned(), latest: 1.5 };
    assert_eq!(log.next().await.expect("a part"), Some(expected));
    assert_eq!(log.next().await.expect("the end"), None);
    let cut = async { called(superlink.port).stream_logs(7, 0.0).await?.next().await };
    assert!(cut.await.is_err(), "it was cut off");
}

#[tokio::test]
async fn who_speaks_no_grpc_is_told_so() {
    let superlink = SuperLink::start(Speaks::Grpc).await;
    superlink.on("list-nodes", [Act::Page(502, "<html>")]);
    let error = called(superlink.port).list_nodes().await.expect_err("a page");
    assert!(matches!(&error, Error::Unexpected { status: 502, .. }), "{error:?}");
    let http = SuperLink::start(Speaks::Http).await;
    assert!(called(http.port).list_nodes().await.is_err());
}
