//! Assignments of a control plane: which nodes a run selects, and the shard of a node.

use serde_json::{Value, json};
use tonic::transport::Channel;
use trellis_link::config::Limits;
use trellis_wire::proto::server_app_io_client::ServerAppIoClient;
use trellis_wire::proto::*;

use super::http::{header, send};
use super::peer::{TestLink, TestNode, config, timestamp};

pub async fn tell(link: &TestLink, call: &str, signed_by: Option<&TestNode>, body: Value) -> (u16, Value) {
    let mut headers = signed_by.map(|node| node.signature(&timestamp(0))).unwrap_or_default();
    headers.push(header("content-type", "application/json"));
    let path = format!("/v1/trellis/{call}");
    let answer = send(link.addresses.http, "POST", &path, &headers, body.to_string().as_bytes()).await;
    (answer.status, serde_json::from_str(&answer.text()).unwrap_or_default())
}

async fn selected(app: &mut ServerAppIoClient<Channel>, run_id: u64) -> Vec<u64> {
    let nodes = app.get_nodes(GetNodesRequest { run_id }).await.unwrap().into_inner().nodes;
    let mut ids: Vec<u64> = nodes.into_iter().map(|node| node.node_id).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_selects_the_nodes_of_its_assignment_and_nodes_get_their_shards() {
    let link = TestLink::start(config(Limits::default())).await;
    let (made, asking) = (link.node().await, link.node().await);
    let (run, mut app) = link.running_run().await;
    let ask = |run: Option<u64>| {
        let body = match run {
            Some(run) => json!({"node_id": asking.id.to_string(), "run_id": run.to_string()}),
            None => json!({"node_id": asking.id.to_string()}),
        };
        tell(&link, "node-shard", Some(&asking), body)
    };
    let assign = |body: Value| tell(&link, "assign-shards", None, body);
    let mut all = [made.id, asking.id];
    all.sort_unstable();
    let id = asking.id.to_string();

    assert_eq!(ask(None).await, (200, json!({"pending": false})), "without a control plane");
    assert_eq!(selected(&mut app, run).await, all);

    assert_eq!(assign(json!({"total": 2, "shards": {}, "left_out": []})).await.0, 200);
    assert_eq!(ask(None).await.1, json!({"pending": true}));
    assert_eq!(selected(&mut app, run).await, [made.id], "a node without a shard is not selected");

    assert_eq!(assign(json!({"total": 2, "shards": {&id: 1}, "left_out": []})).await.0, 200);
    assert_eq!(selected(&mut app, run).await, all);
    let left_out = json!({"total": 3, "shards": {&id: 1}, "left_out": [made.id.to_string()]});
    assert_eq!(assign(left_out).await.0, 200);
    assert_eq!(ask(Some(run)).await.1, json!({"shard": 1, "total": 2, "pending": false}), "of the selection");
    assert_eq!(selected(&mut app, run).await, [asking.id]);
    assert_eq!(ask(Some(run)).await.1, json!({"shard": 1, "total": 3, "pending": false}));

    assert_eq!(
        assign(json!({"total": 3, "shards": {&id: 1}, "left_out": [], "only": [made.id.to_string()]})).await.0,
        200
    );
    assert_eq!(selected(&mut app, run).await, [made.id]);
    for bad in
        [json!({"total": 1, "shards": {&id: 1}, "left_out": []}), json!({"total": 1, "shards": {}, "left_out": ["x"]})]
    {
        assert_eq!(assign(bad).await.0, 400);
    }
    link.stop().await;
}
