//! Streams of events: how they begin, and everything that ends them.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use http::{Method, StatusCode};
use trellis_api::Role;
use trellis_clock::now_ms;

use super::desk::{Desk, ask};
use crate::http::Limits;

/// A stream that did not end by then never will.
const END_LIMIT: Duration = Duration::from_secs(10);

async fn open(desk: &Desk, token: &str) -> BodyDataStream {
    open_at(desk, "/events", token).await
}

async fn open_at(desk: &Desk, path: &str, token: &str) -> BodyDataStream {
    let response = desk.send(ask(Method::GET, path, token).body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first, "retry: 2000\nevent: resync\ndata: {\"kind\":\"resync\"}\n\n");
    stream
}

async fn end(mut stream: BodyDataStream) {
    let ended = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(END_LIMIT, ended).await.expect("the stream ends");
}

#[tokio::test]
async fn a_stream_ends_with_the_server() {
    let desk = Desk::new().await;
    let stream = open(&desk, "viewer").await;
    desk.stop.cancel();
    end(stream).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_no_other() {
    let desk = Desk::new().await;
    let id = desk.issue("guest", Role::Viewer, None).await;
    let other = desk.issue("other", Role::Viewer, None).await;
    let (guest, mut viewer) = (open(&desk, "guest").await, open(&desk, "viewer").await);
    desk.api.access.revoke(&other).await.unwrap();
    desk.api.access.revoke(&id).await.unwrap();
    end(guest).await;
    let more = tokio::time::timeout(Duration::from_millis(200), viewer.next()).await;
    assert!(!matches!(more, Ok(None)), "it goes on");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let desk = Desk::new().await;
    desk.issue("brief", Role::Viewer, Some(now_ms() + 1500)).await;
    end(open(&desk, "brief").await).await;
}

#[tokio::test]
async fn only_what_was_asked_for_is_told() {
    let desk = Desk::new().await;
    let mut stream = open_at(&desk, "/events?federation=b", "viewer").await;
    for name in ["a", "b"] {
        let document =
            format!("apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: {name}}}\nspec: {{nodes: 1}}\n");
        desk.put(Method::PUT, &format!("/federations/{name}"), "application/yaml", document).await;
    }
    let next = tokio::time::timeout(END_LIMIT, stream.next()).await.expect("an event").unwrap().unwrap();
    let next = String::from_utf8(next.to_vec()).unwrap();
    let (kind, data) = next.strip_prefix("event: ").and_then(|rest| rest.split_once("\ndata: ")).expect("an event");
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!((kind, data["federation"]["name"].as_str()), ("federation", Some("b")));
}

#[tokio::test]
async fn there_are_so_many_streams_and_no_more() {
    let desk = Desk::with(Limits { event_streams: 1, ..Limits::default() }).await;
    let first = open(&desk, "viewer").await;
    assert_eq!(desk.get("/events").await.word(), "busy");
    drop(first);
    drop(open(&desk, "viewer").await);
}
