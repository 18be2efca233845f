//! Removal of a node: its held call ends, and later calls are refused.

use std::time::Duration;

use super::peer::{TestLink, TestNode, config};
use tonic::{Code, Status};
use trellis_link::config::Limits;
use trellis_wire::proto::*;

/// Shorter than a hold and than the poll interval of a held call.
const SOON: Duration = Duration::from_secs(15);

async fn pull(node: &TestNode) -> Result<PullMessagesResponse, Status> {
    let request = node.signed(PullMessagesRequest { node: node.reference(), message_ids: vec![] });
    node.client.clone().pull_messages(request).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pull_ends_when_its_node_is_removed() {
    let limits = Limits { hold_node_pull: SOON * 4, ..Limits::default() };
    let link = TestLink::start(config(limits)).await;
    let (taken, left) = (link.node().await, link.node().await);
    let id = taken.id;
    let (reported, other) =
        (tokio::spawn(async move { pull(&taken).await }), tokio::spawn(async move { pull(&left).await }));
    link.control().await.unregister_node(UnregisterNodeRequest { node_id: id }).await.unwrap();
    let refused = tokio::time::timeout(SOON, reported).await.expect("an answer at once").unwrap().unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, "Invalid node ID"));
    assert!(!other.is_finished(), "the other node is still held");
    link.stop().await;
    assert_eq!(other.await.unwrap().unwrap(), PullMessagesResponse::default());
}
