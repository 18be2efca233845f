//! Watches of external observers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use trellis_link::config::Limits;
use trellis_wire::proto::*;

use super::http::{header, send};
use super::peer::{TestLink, config};

/// Shorter than the hold, longer than any step of the tests.
const SOON: Duration = Duration::from_secs(15);
const HOLD_S: u64 = 60;

async fn watch(http: SocketAddr, after: Option<String>, wait_s: u64) -> (u16, Value) {
    let asked = json!({"after": after, "wait_s": wait_s}).to_string();
    let kind = [header("content-type", "application/json")];
    let answer = send(http, "POST", "/v1/trellis/watch", &kind, asked.as_bytes()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// A call that the SuperLink holds.
async fn held(link: &TestLink, after: Option<String>) -> JoinHandle<(u16, Value)> {
    let http = link.addresses.http;
    let call = tokio::spawn(watch(http, after, HOLD_S));
    while !send(http, "GET", "/metrics", &[], b"").await.text().contains("trellis_calls_held{api=\"trellis\"} 1") {
        assert!(!call.is_finished(), "{:?}", call.await);
    }
    call
}

/// Follows the changes of a SuperLink.
struct Watcher {
    at: Option<String>,
}

impl Watcher {
    async fn next(&mut self, link: &TestLink) -> (Vec<u64>, bool) {
        let (status, reported) =
            tokio::time::timeout(SOON, watch(link.addresses.http, self.at.clone(), HOLD_S)).await.expect("soon");
        assert_eq!(status, 200, "{reported}");
        self.at = Some(reported["at"].as_str().unwrap().to_owned());
        let runs = reported["runs"].as_array().unwrap().iter().map(|run| run.as_str().unwrap().parse().unwrap());
        (runs.collect(), reported["nodes"].as_bool().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_runs_and_nodes_are_reported() {
    let link = TestLink::start(config(Limits::default())).await;
    let mut watcher = Watcher { at: None };
    assert_eq!(watcher.next(&link).await, (vec![], true), "the initial state");

    let run = link.start_run().await;
    assert_eq!(watcher.next(&link).await, (vec![run], false), "submitted");
    let mut app = link.app().await;
    let token = app.request_token(RequestTokenRequest { run_id: run }).await.unwrap().into_inner().token;
    assert_eq!(watcher.next(&link).await, (vec![run], false), "starting");
    app.pull_app_inputs(PullAppInputsRequest { token }).await.unwrap();
    assert_eq!(watcher.next(&link).await, (vec![run], false), "running");

    let node = link.node().await;
    let beat = || node.signed(SendNodeHeartbeatRequest { node: node.reference(), heartbeat_interval: 30.0 });
    // Changes are announced after the answer, and before the next commit: that of the heartbeat.
    node.client.clone().send_node_heartbeat(beat()).await.unwrap();
    assert_eq!(watcher.next(&link).await, (vec![], true), "joined");
    // Held: neither heartbeats nor logs are changes.
    let held = held(&link, watcher.at.clone()).await;
    node.client.clone().send_node_heartbeat(beat()).await.unwrap();
    app.push_logs(PushLogsRequest { run_id: run, logs: vec!["line\n".into()], ..Default::default() }).await.unwrap();
    assert!(!held.is_finished());
    link.control().await.stop_run(StopRunRequest { run_id: run }).await.unwrap();
    let (_, reported) = tokio::time::timeout(SOON, held).await.expect("an answer at once").unwrap();
    assert_eq!((&reported["runs"], &reported["nodes"]), (&json!([run.to_string()]), &json!(false)), "stopped");
    link.stop().await;
}

/// In two runtimes, like two processes: the tasks of the first end before the second starts.
#[test]
fn an_observer_without_a_valid_position_gets_the_whole_state() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut watcher = Watcher { at: None };
    let (running, finished) = runtime().block_on(async {
        let link = TestLink::start_on_disk(config(Limits::default()), &state).await;
        let (finished, _) = link.running_run().await;
        link.control().await.stop_run(StopRunRequest { run_id: finished }).await.unwrap();
        let (running, _) = link.running_run().await;
        assert_eq!(watcher.next(&link).await, (vec![running, finished], true), "unfinished runs first");
        link.stop().await;
        (running, finished)
    });
    runtime().block_on(async {
        let link = TestLink::start_on_disk(config(Limits::default()), &state).await;
        let everything = watcher.next(&link).await;
        assert_eq!(everything, (vec![running, finished], true), "a position of another process");
        for at in ["", "nonsense", "0.0"] {
            let (status, reported) = watch(link.addresses.http, Some(at.to_owned()), HOLD_S).await;
            assert_eq!((status, &reported["nodes"]), (200, &json!(true)), "{at:?}");
        }
        link.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_ends_after_its_time_and_with_the_superlink() {
    let link = TestLink::start(config(Limits::default())).await;
    let mut watcher = Watcher { at: None };
    watcher.next(&link).await;
    let asked = Instant::now();
    let (status, reported) = watch(link.addresses.http, watcher.at.clone(), 1).await;
    assert_eq!((status, &reported), (200, &json!({"at": watcher.at, "runs": [], "nodes": false})));
    assert!((1..SOON.as_secs()).contains(&asked.elapsed().as_secs()));
    let (status, _) = watch(link.addresses.http, watcher.at.clone(), 0).await;
    assert_eq!(status, 200, "without waiting");

    let held = held(&link, watcher.at).await;
    link.stop().await;
    let (status, _) = tokio::time::timeout(SOON, held).await.expect("an answer").unwrap();
    assert_eq!(status, 503, "the observer retries later");
}
