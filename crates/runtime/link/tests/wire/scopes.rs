//! Objects belong to the run and the sender that announced them. A false announcement of a node affects no other
//! sender, and a node reads only objects sent to it or by it.

use bytes::Bytes;
use tonic::Code;
use tonic::transport::Channel;
use trellis_core::object::MAX_TREE_OBJECTS;
use trellis_link::config::Limits;
use trellis_wire::object::{ObjectKind, encode, object_id};
use trellis_wire::proto::server_app_io_client::ServerAppIoClient;
use trellis_wire::proto::*;

use super::peer::{TestLink, TestNode, config, instruction, now};

const TTL_S: f64 = 600.0;

/// A run with its ServerApp.
struct Run {
    id: u64,
    app: ServerAppIoClient<Channel>,
}

impl Run {
    async fn start(link: &TestLink) -> Run {
        let (id, app) = link.running_run().await;
        Run { id, app }
    }

    async fn announce(&mut self, message: Message, tree: ObjectTree) -> Result<Vec<String>, tonic::Status> {
        let request = PushAppMessagesRequest {
            run_id: self.id,
            messages_list: vec![message],
            message_object_trees: vec![tree],
            ..Default::default()
        };
        Ok(self.app.push_messages(request).await?.into_inner().objects_to_push)
    }

    async fn push_object(&mut self, object_id: &str, content: &Bytes) -> bool {
        let request = PushObjectRequest {
            node: Some(Node { node_id: 1 }),
            run_id: self.id,
            object_id: object_id.into(),
            object_content: content.clone(),
            ..Default::default()
        };
        self.app.push_object(request).await.unwrap().into_inner().stored
    }

    /// Sends an instruction to the node, which pulls it.
    async fn instruct(&mut self, node: &mut TestNode) -> Message {
        let (message, tree, objects) = instruction(self.id, node.id, now(), TTL_S);
        self.announce(message, tree).await.unwrap();
        for (id, content) in &objects {
            assert!(self.push_object(id, content).await);
        }
        let pull = node.signed(PullMessagesRequest { node: node.reference(), message_ids: vec![] });
        node.client.pull_messages(pull).await.unwrap().into_inner().messages_list.remove(0)
    }
}

/// A reply with the tree `below`, and the object of its root.
fn reply(node: &TestNode, asked: &Message, below: Vec<ObjectTree>) -> (PushMessagesRequest, String, Bytes) {
    let asked = asked.metadata.clone().unwrap();
    let metadata = Metadata {
        src_node_id: node.id,
        dst_node_id: 1,
        reply_to_message_id: asked.message_id.clone(),
        message_id: String::new(),
        created_at: now(),
        ttl: TTL_S / 2.0,
        ..asked
    };
    let children: Vec<_> = below.iter().map(|tree| tree.object_id.parse().unwrap()).collect();
    let object = encode(ObjectKind::Message, &children, &prost::Message::encode_to_vec(&metadata));
    let id = object_id(&object).to_string();
    let metadata = Metadata { message_id: id.clone(), ..metadata };
    let message = Message { metadata: Some(metadata), content: Some(RecordDict::default()), error: None };
    let request = PushMessagesRequest {
        node: node.reference(),
        messages_list: vec![message],
        message_object_trees: vec![ObjectTree { object_id: id.clone(), children: below }],
        ..Default::default()
    };
    (request, id, object)
}

async fn pull_object(node: &mut TestNode, run_id: u64, object_id: &str) -> PullObjectResponse {
    let request = PullObjectRequest { node: node.reference(), run_id, object_id: object_id.into() };
    let request = node.signed(request);
    node.client.pull_object(request).await.unwrap().into_inner()
}

fn leaf(object_id: &str) -> ObjectTree {
    ObjectTree { object_id: object_id.into(), children: vec![] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_cannot_affect_objects_of_another_run() {
    let link = TestLink::start(config(Limits::default())).await;
    let mut attacker = link.node().await;
    let mut victim = link.node().await;
    let mut own = Run::start(&link).await;
    let mut other = Run::start(&link).await;

    // The attacker knows the next objects of the other run.
    let (message, tree, objects) = instruction(other.id, victim.id, now(), TTL_S);
    let asked = own.instruct(&mut attacker).await;
    let bogus = |id: &str| ObjectTree { object_id: id.into(), children: vec![leaf(&"ab".repeat(32))] };
    let (request, ..) = reply(&attacker, &asked, vec![bogus(&tree.object_id)]);
    let request = attacker.signed(request);
    attacker.client.push_messages(request).await.unwrap();
    let (request, ..) = reply(&attacker, &asked, vec![bogus(&tree.children[0].object_id)]);
    let request = attacker.signed(request);
    let refused = attacker.client.push_messages(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "the content in its own run differs");

    let missing = other.announce(message, tree.clone()).await.expect("an independent announcement");
    assert_eq!(missing, [tree.children[0].object_id.clone(), tree.object_id.clone()]);
    for (id, content) in &objects {
        assert!(other.push_object(id, content).await, "the content matches");
    }
    let pull = victim.signed(PullMessagesRequest { node: victim.reference(), message_ids: vec![] });
    let pulled = victim.client.pull_messages(pull).await.unwrap().into_inner();
    assert_eq!(pulled.message_object_trees, [tree]);
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reads_only_objects_sent_to_it_or_by_it() {
    let link = TestLink::start(config(Limits::default())).await;
    let (mut sender, mut reader) = (link.node().await, link.node().await);
    let mut run = Run::start(&link).await;
    let elsewhere = Run::start(&link).await;
    let asked = run.instruct(&mut sender).await;
    let (request, id, content) = reply(&sender, &asked, vec![]);
    let request = sender.signed(request);
    sender.client.push_messages(request).await.unwrap();
    let push = PushObjectRequest {
        node: sender.reference(),
        run_id: run.id,
        object_id: id.clone(),
        object_content: content.clone(),
        ..Default::default()
    };
    let stranger = PushObjectRequest { node: reader.reference(), ..push.clone() };
    let stranger = reader.signed(stranger);
    assert!(!reader.client.push_object(stranger).await.unwrap().into_inner().stored, "not announced by this node");
    let push = sender.signed(push);
    assert!(sender.client.push_object(push).await.unwrap().into_inner().stored);

    let instruction = asked.metadata.unwrap().message_id;
    assert!(pull_object(&mut reader, run.id, &instruction).await.object_available, "sent by the ServerApp");
    assert_eq!(pull_object(&mut sender, run.id, &id).await.object_content, content, "its own");
    assert!(!pull_object(&mut reader, run.id, &id).await.object_found, "not another node's");
    assert!(!pull_object(&mut sender, elsewhere.id, &id).await.object_found, "in another run");
    let pull = PullObjectRequest { node: Some(Node { node_id: 1 }), run_id: run.id, object_id: id.clone() };
    assert_eq!(run.app.pull_object(pull).await.unwrap().into_inner().object_content, content, "the ServerApp reads it");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_too_large_is_refused_and_the_next_one_is_accepted() {
    let link = TestLink::start(config(Limits::default())).await;
    let mut node = link.node().await;
    let mut run = Run::start(&link).await;
    let asked = run.instruct(&mut node).await;
    let many = |objects: u64| (1..objects).map(|n| leaf(&format!("{n:064x}"))).collect::<Vec<_>>();
    let (request, ..) = reply(&node, &asked, many(MAX_TREE_OBJECTS + 1));
    let request = node.signed(request);
    let refused = node.client.push_messages(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("too deep or too large"), "{}", refused.message());
    let (request, ..) = reply(&node, &asked, many(MAX_TREE_OBJECTS));
    let request = node.signed(request);
    let taken = node.client.push_messages(request).await.unwrap().into_inner();
    assert_eq!(taken.objects_to_push.len() as u64, MAX_TREE_OBJECTS);
    link.stop().await;
}
