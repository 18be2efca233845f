//! Output of ClientApps: a node adds to the log of runs that it takes part in, and to no other.

use serde_json::{Value, json};
use trellis_link::config::Limits;
use trellis_wire::call::MAX_APP_LOG_BYTES;
use trellis_wire::proto::*;

use super::peer::{TestLink, TestNode, config, instruction, now};
use super::shards::tell;

async fn push(link: &TestLink, signer: Option<&TestNode>, node: &TestNode, run: u64, text: &str) -> (u16, Value) {
    let lines = json!({"node_id": node.id.to_string(), "run_id": run.to_string(), "text": text});
    tell(link, "push-app-log", signer, lines).await
}

async fn read(link: &TestLink, node: &TestNode, run: u64) -> String {
    let asked = json!({"node_id": node.id.to_string(), "run_id": run.to_string()});
    let (status, part) = tell(link, "read-app-log", None, asked).await;
    assert_eq!(status, 200, "{part}");
    part["text"].as_str().unwrap().to_owned()
}

/// Sends an instruction and lets the node pull it.
async fn give_work(link: &TestLink, run_id: u64, node: &TestNode) {
    let (message, tree, objects) = instruction(run_id, node.id, now(), 60.0);
    let mut app = link.app().await;
    let (messages_list, message_object_trees) = (vec![message], vec![tree]);
    let request = PushAppMessagesRequest { run_id, messages_list, message_object_trees, ..Default::default() };
    app.push_messages(request).await.unwrap();
    for (object_id, object_content) in objects {
        let node = Some(Node { node_id: 1 });
        let object = PushObjectRequest { node, run_id, object_id, object_content, ..Default::default() };
        assert!(app.push_object(object).await.unwrap().into_inner().stored);
    }
    let request = node.signed(PullMessagesRequest { node: node.reference(), message_ids: vec![] });
    let pulled = node.client.clone().pull_messages(request).await.unwrap().into_inner();
    assert_eq!(pulled.messages_list.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_adds_to_the_log_of_its_runs_only() {
    let link = TestLink::start(config(Limits::default())).await;
    let (node, other) = (link.node().await, link.node().await);
    let (run, _app) = link.running_run().await;
    assert_eq!(push(&link, Some(&node), &node, run, "early\n").await.0, 403, "it does not take part yet");
    give_work(&link, run, &node).await;

    assert_eq!(push(&link, Some(&node), &node, run, "one\n").await, (200, json!({})));
    for (signer, named, run, status) in [
        (Some(&other), &other, run, 403),
        (Some(&other), &node, run, 401),
        (None, &node, run, 401),
        (Some(&node), &node, run ^ 1, 403),
    ] {
        let (refused, why) = push(&link, signer, named, run, "forged\n").await;
        assert_eq!(refused, status, "{why}");
    }
    assert_eq!((read(&link, &node, run).await.as_str(), read(&link, &other, run).await.as_str()), ("one\n", ""));

    link.control().await.stop_run(StopRunRequest { run_id: run }).await.unwrap();
    assert_eq!(push(&link, Some(&node), &node, run, "last words").await.0, 200, "they come after the end of the run");
    assert_eq!(read(&link, &node, run).await, "one\nlast words\n");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_has_limits() {
    let link = TestLink::start(config(Limits::default())).await;
    let node = link.node().await;
    let (run, _app) = link.running_run().await;
    give_work(&link, run, &node).await;
    // The most that a message can need: every character is escaped.
    assert_eq!(push(&link, Some(&node), &node, run, &"\n".repeat(MAX_APP_LOG_BYTES)).await.0, 200);
    for bytes in [MAX_APP_LOG_BYTES + 1, 1 << 20] {
        assert_eq!(push(&link, Some(&node), &node, run, &"x".repeat(bytes)).await.0, 413);
    }
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(push(&link, Some(&node), &node, run, "flood\n").await.0);
    }
    assert!(statuses.starts_with(&[200; 10]) && statuses.ends_with(&[503]), "{statuses:?}");
    link.stop().await;
}
