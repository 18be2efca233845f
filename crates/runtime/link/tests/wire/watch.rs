//! Watching from outside: what a held call is told, and when.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use trellis_link::config::Limits;
use trellis_wire::proto::*;

use super::http::{header, send};
use super::peer::{TestLink, config};

/// Shorter than the hold, longer than anything here takes.
const SOON: Duration = Duration::from_secs(15);
const HOLD_S: u64 = 60;

async fn watch(http: SocketAddr, after: Option<String>, wait_s: u64) -> (u16, Value) {
    let asked = json!({"after": after, "wait_s": wait_s}).to_string();
    let kind = [header("content-type", "application/json")];
    let answer = send(http, "POST", "/v1/trellis/watch", &kind, asked.as_bytes()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// A call that the SuperLink holds by now.
async fn held(link: &TestLink, after: Option<String>) -> JoinHandle<(u16, Value)> {
    let http = link.addresses.http;
    let call = tokio::spawn(watch(http, after, HOLD_S));
    while !send(http, "GET", "/metrics", &[], b"").await.text().contains("trellis_calls_held{api=\"trellis\"} 1") {
        assert!(!call.is_finished(), "{:?}", call.await);
    }
    call
}

/// Follows a SuperLink: what changed since it was last asked.
struct Watcher {
    at: Option<String>,
}

impl Watcher {
    async fn next(&mut self, link: &TestLink) -> (Vec<u64>, bool) {
        let (status, told) =
            tokio::time::timeout(SOON, watch(link.addresses.http, self.at.clone(), HOLD_S)).await.expect("soon");
        assert_eq!(status, 200, "{told}");
        self.at = Some(told["at"].as_str().unwrap().to_owned());
        let runs = told["runs"].as_array().unwrap().iter().map(|run| run.as_str().unwrap().parse().unwrap());
        (runs.collect(), told["nodes"].as_bool().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_nodes_are_told_when_they_change() {
    let link = TestLink::start(config(Limits::default())).await;
    let mut watcher = Watcher { at: None };
    assert_eq!(watcher.next(&link).await, (vec![], true), "at first everything is news");

    let run = link.start_run().await;
    assert_eq!(watcher.next(&link).await, (vec![run], false), "submitted");
    let mut app = link.app().await;
    let token = app.request_token(RequestTokenRequest { run_id: run }).await.unwrap().into_inner().token;
    assert_eq!(watcher.next(&link).await, (vec![run], false), "starting");
    app.pull_app_inputs(PullAppInputsRequest { token }).await.unwrap();
    assert_eq!(watcher.next(&link).await, (vec![run], false), "running");

    let node = link.node().await;
    while watcher.next(&link).await != (vec![], true) {}
    // Held meanwhile: neither heartbeats nor logs are changes.
    let held = held(&link, watcher.at.clone()).await;
    let beat = node.signed(SendNodeHeartbeatRequest { node: node.reference(), heartbeat_interval: 30.0 });
    node.client.clone().send_node_heartbeat(beat).await.unwrap();
    app.push_logs(PushLogsRequest { run_id: run, logs: vec!["line\n".into()], ..Default::default() }).await.unwrap();
    assert!(!held.is_finished());
    link.control().await.stop_run(StopRunRequest { run_id: run }).await.unwrap();
    let (_, told) = tokio::time::timeout(SOON, held).await.expect("told at once").unwrap();
    assert_eq!((&told["runs"], &told["nodes"]), (&json!([run.to_string()]), &json!(false)), "stopped");
    link.stop().await;
}

/// In two runtimes, as in two processes: the tasks of the first are gone before the second begins.
#[test]
fn who_knows_nothing_or_too_little_is_told_of_everything() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut watcher = Watcher { at: None };
    let (running, finished) = runtime().block_on(async {
        let link = TestLink::start_on_disk(config(Limits::default()), &state).await;
        let (finished, _) = link.running_run().await;
        link.control().await.stop_run(StopRunRequest { run_id: finished }).await.unwrap();
        let (running, _) = link.running_run().await;
        assert_eq!(watcher.next(&link).await, (vec![running, finished], true), "those at work first");
        link.stop().await;
        (running, finished)
    });
    runtime().block_on(async {
        let link = TestLink::start_on_disk(config(Limits::default()), &state).await;
        let everything = watcher.next(&link).await;
        assert_eq!(everything, (vec![running, finished], true), "another process knows nothing of that moment");
        for at in ["", "nonsense", "0.0"] {
            let (status, told) = watch(link.addresses.http, Some(at.to_owned()), HOLD_S).await;
            assert_eq!((status, &told["nodes"]), (200, &json!(true)), "{at:?}");
        }
        link.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_ends_with_its_time_and_with_the_superlink() {
    let link = TestLink::start(config(Limits::default())).await;
    let mut watcher = Watcher { at: None };
    watcher.next(&link).await;
    let asked = Instant::now();
    let (status, told) = watch(link.addresses.http, watcher.at.clone(), 1).await;
    assert_eq!((status, &told), (200, &json!({"at": watcher.at, "runs": [], "nodes": false})));
    assert!((1..SOON.as_secs()).contains(&asked.elapsed().as_secs()));
    let (status, _) = watch(link.addresses.http, watcher.at.clone(), 0).await;
    assert_eq!(status, 200, "a look without waiting");

    let held = held(&link, watcher.at).await;
    link.stop().await;
    let (status, _) = tokio::time::timeout(SOON, held).await.expect("it ends").unwrap();
    assert_eq!(status, 503, "who hears this asks again later");
}
