//! One round over the wire: held polls, redelivery, streamed objects of all sizes, one reply per instruction.

use std::time::Duration;

use super::http::{header, post};
use super::peer::{TestLink, TestNode, config, instruction, now};
use bytes::Bytes;
use prost::Message as _;
use tonic::transport::Channel;
use trellis_link::config::Limits;
use trellis_wire::object::{ObjectKind, encode, object_id};
use trellis_wire::proto::server_app_io_client::ServerAppIoClient;
use trellis_wire::proto::*;

/// Longer than any step of the tests, shorter than any hold.
const SOON: Duration = Duration::from_secs(15);

struct Round {
    link: TestLink,
    run_id: u64,
    app: ServerAppIoClient<Channel>,
    token: String,
    node: TestNode,
}

impl Round {
    async fn start() -> Round {
        let limits = Limits { hold_node_pull: SOON * 4, hold_app_pull: SOON * 4, ..Limits::default() };
        let link = TestLink::start(config(limits)).await;
        let node = link.node().await;
        let (run_id, app, token) = link.running_run_with_token().await;
        Round { link, run_id, app, token, node }
    }

    async fn push(&mut self, messages: Vec<(Message, ObjectTree)>) -> PushAppMessagesResponse {
        let (messages_list, message_object_trees) = messages.into_iter().unzip();
        let request =
            PushAppMessagesRequest { run_id: self.run_id, messages_list, message_object_trees, ..Default::default() };
        self.app.push_messages(request).await.unwrap().into_inner()
    }

    async fn push_object(&mut self, id: &str, content: Bytes) {
        let node = Some(Node { node_id: 1 });
        let request = PushObjectRequest {
            node,
            run_id: self.run_id,
            object_id: id.into(),
            object_content: content,
            ..Default::default()
        };
        assert!(self.app.push_object(request).await.unwrap().into_inner().stored);
    }

    /// A pull that is held until there is an instruction.
    fn pull(&self) -> tokio::task::JoinHandle<PullMessagesResponse> {
        let request = self.node.signed(PullMessagesRequest { node: self.node.reference(), message_ids: vec![] });
        let mut client = self.node.client.clone();
        tokio::spawn(async move { client.pull_messages(request).await.unwrap().into_inner() })
    }

    /// Pulls the next instruction and answers it.
    async fn work(&self, text: &str) {
        let pulled = soon(self.pull()).await.unwrap();
        let asked = pulled.messages_list[0].metadata.clone().unwrap();
        self.confirm(&asked.message_id).await;
        let (_, missing, objects) = self.reply(&asked, text).await;
        for (id, content) in objects.into_iter().filter(|(id, _)| missing.contains(id)) {
            self.push_reply_object(&id, content).await;
        }
    }

    /// Pushes an instruction that the node does not pull.
    async fn push_unanswered(&mut self) -> Vec<String> {
        let (message, tree, _) = instruction(self.run_id, self.node.id, now() - 0.01, 60.0);
        self.push(vec![(message, tree)]).await.message_ids
    }

    /// Held pulls of replies, in the dialect of ServerApps up to 1.29 and in the later one.
    fn pull_replies(&self, ids: &[String], enough: u32) -> [tokio::task::JoinHandle<usize>; 2] {
        let (mut app, run_id, message_ids) = (self.app.clone(), self.run_id, ids.to_vec());
        let first = PullAppMessagesRequest { run_id, message_ids, enough, ..Default::default() };
        let (http, token) = (self.link.addresses.http, [header("flwr-task-token", &self.token)]);
        let later = PullTaskMessagesRequest { message_ids: ids.to_vec(), enough };
        [
            tokio::spawn(async move { app.pull_messages(first).await.unwrap().into_inner().messages_list.len() }),
            tokio::spawn(async move {
                let answer = post(http, "/v1/runtime/pull-messages", &token, &later).await;
                PullAppMessagesResponse::decode(answer.body.as_slice()).unwrap().messages_list.len()
            }),
        ]
    }

    async fn confirm(&self, message_object_id: &str) {
        let request = ConfirmMessageReceivedRequest {
            node: self.node.reference(),
            run_id: self.run_id,
            message_object_id: message_object_id.into(),
        };
        self.node.client.clone().confirm_message_received(self.node.signed(request)).await.unwrap();
    }

    async fn reply(&self, asked: &Metadata, text: &str) -> (String, Vec<String>, Vec<(String, Bytes)>) {
        let (message, tree, objects) = reply_to(asked, text);
        let id = message.metadata.as_ref().unwrap().message_id.clone();
        let request = PushMessagesRequest {
            node: self.node.reference(),
            messages_list: vec![message],
            message_object_trees: vec![tree],
            clientapp_runtime_list: vec![1.5],
        };
        let pushed = self.node.client.clone().push_messages(self.node.signed(request)).await.unwrap().into_inner();
        assert_eq!(pushed.results.get(&id), Some(&0));
        (id, pushed.objects_to_push, objects)
    }

    async fn push_reply_object(&self, id: &str, content: Bytes) {
        let request = PushObjectRequest {
            node: self.node.reference(),
            run_id: self.run_id,
            object_id: id.into(),
            object_content: content,
            ..Default::default()
        };
        assert!(self.node.client.clone().push_object(self.node.signed(request)).await.unwrap().into_inner().stored);
    }
}

fn reply_to(asked: &Metadata, text: &str) -> (Message, ObjectTree, Vec<(String, Bytes)>) {
    let record = encode(ObjectKind::RecordDict, &[], text.as_bytes());
    let record_id = object_id(&record);
    let metadata = Metadata {
        run_id: asked.run_id,
        message_id: String::new(),
        src_node_id: asked.dst_node_id,
        dst_node_id: 1,
        reply_to_message_id: asked.message_id.clone(),
        group_id: asked.group_id.clone(),
        ttl: 10.0,
        message_type: asked.message_type.clone(),
        created_at: now(),
        ..Default::default()
    };
    let body = prost::Message::encode_to_vec(&Message { metadata: Some(metadata.clone()), ..Default::default() });
    let object = encode(ObjectKind::Message, &[record_id], &body);
    let id = object_id(&object).to_string();
    let message = Message {
        metadata: Some(Metadata { message_id: id.clone(), ..metadata }),
        content: Some(RecordDict::default()),
        error: None,
    };
    let leaf = ObjectTree { object_id: record_id.to_string(), children: vec![] };
    let tree = ObjectTree { object_id: id.clone(), children: vec![leaf] };
    (message, tree, vec![(record_id.to_string(), record), (id, object)])
}

async fn soon<T>(task: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, task).await.expect("a held call is answered when data is ready")
}

#[tokio::test(flavor = "multi_thread")]
async fn held_calls_are_answered_when_everything_is_ready() {
    let mut round = Round::start().await;
    let held = round.pull();
    let (message, tree, objects) = instruction(round.run_id, round.node.id, now(), 60.0);
    let pushed = round.push(vec![(message.clone(), tree.clone())]).await;
    for (id, content) in &objects {
        assert!(!held.is_finished(), "an incomplete instruction is not delivered");
        round.push_object(id, content.clone()).await;
    }
    let pulled = soon(held).await.unwrap();
    assert_eq!(pulled.messages_list, [message]);
    assert_eq!(pulled.message_object_trees, [tree]);

    let again = soon(round.pull()).await.unwrap();
    assert_eq!(again, pulled, "an unconfirmed instruction is delivered again");
    let asked = pulled.messages_list[0].metadata.clone().unwrap();
    round.confirm(&asked.message_id).await;

    let mut app = round.app.clone();
    let request =
        PullAppMessagesRequest { run_id: round.run_id, message_ids: pushed.message_ids, ..Default::default() };
    let replies = tokio::spawn({
        let request = request.clone();
        async move { app.pull_messages(request).await.unwrap().into_inner() }
    });
    let (first, missing, objects) = round.reply(&asked, "{}").await;
    assert_eq!(missing.len(), 1, "the record is stored: it belongs to the instruction");
    for (id, content) in objects {
        round.push_reply_object(&id, content).await;
    }
    let (_, missing, _) = round.reply(&asked, r#"{"other": "reply"}"#).await;
    assert!(missing.is_empty(), "a second reply is not needed");

    let replies = soon(replies).await.unwrap();
    assert_eq!(replies.messages_list.len(), 1);
    assert_eq!(replies.messages_list[0].metadata.as_ref().unwrap().message_id, first);
    let repeated = round.app.pull_messages(request.clone()).await.unwrap().into_inner();
    assert_eq!(repeated, replies, "replies are returned until they are confirmed");
    let confirm = ConfirmMessageReceivedRequest { run_id: round.run_id, message_object_id: first, node: None };
    round.app.confirm_message_received(confirm).await.unwrap();
    let over = round.app.pull_messages(request).await.unwrap().into_inner().messages_list;
    assert_eq!(over[0].error.as_ref().map(|error| error.code), Some(3), "the next pull sees the confirmation");
    round.link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_every_size_are_transferred_intact() {
    let mut round = Round::start().await;
    // In the row, as a cached file, and as a file sent in blocks.
    for bytes in [100, 40 << 10, 5 << 20, 20 << 20] {
        let body: Vec<u8> = (0..bytes).map(|i: usize| (i * 7 + i / 251) as u8).collect();
        let content = encode(ObjectKind::ArrayChunk, &[], &body);
        let id = object_id(&content).to_string();
        let (message, mut tree, _) = instruction(round.run_id, round.node.id, now() - bytes as f64 / 1e9, 60.0);
        tree.children.push(ObjectTree { object_id: id.clone(), children: vec![] });
        round.push(vec![(message, tree)]).await;

        let pull = PullObjectRequest { node: round.node.reference(), run_id: round.run_id, object_id: id.clone() };
        let mut client = round.node.client.clone().max_decoding_message_size(usize::MAX);
        let early = client.pull_object(round.node.signed(pull.clone())).await.unwrap().into_inner();
        assert_eq!((early.object_found, early.object_available), (true, false), "announced, without content");
        round.push_object(&id, content.clone()).await;
        for _ in 0..2 {
            let pulled = client.pull_object(round.node.signed(pull.clone())).await.unwrap().into_inner();
            assert!(pulled.object_found && pulled.object_available);
            assert!(pulled.object_content == content, "{bytes} bytes");
        }
    }
    round.link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_gets_its_unanswered_instruction_again() {
    let mut round = Round::start().await;
    let (message, tree, objects) = instruction(round.run_id, round.node.id, now(), 60.0);
    round.push(vec![(message, tree)]).await;
    for (id, content) in objects {
        round.push_object(&id, content).await;
    }
    let pulled = soon(round.pull()).await.unwrap();
    let asked = pulled.messages_list[0].metadata.clone().unwrap();
    round.confirm(&asked.message_id).await;
    round.reply(&asked, r#"{"its": "objects never come"}"#).await;

    round.node.activate().await; // A restart with the same key, before the node counts as offline.
    let again = soon(round.pull()).await.unwrap();
    assert_eq!(again, pulled);
    round.link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_for_some_replies_is_answered_early() {
    let mut round = Round::start().await;
    let mut ids = Vec::new();
    for age in [0.0, 0.001, 0.002] {
        let (message, tree, objects) = instruction(round.run_id, round.node.id, now() - age, 60.0);
        ids.extend(round.push(vec![(message, tree)]).await.message_ids);
        for (id, content) in objects {
            round.push_object(&id, content).await;
        }
    }
    let (one, two, all) = (round.pull_replies(&ids, 1), round.pull_replies(&ids, 2), round.pull_replies(&ids, 0));
    round.work(r#"{"a": "reply"}"#).await;
    for pull in one {
        assert_eq!(soon(pull).await.unwrap(), 1);
    }
    assert!(two.iter().chain(&all).all(|pull| !pull.is_finished()), "the others need more replies");
    round.work(r#"{"a": "second"}"#).await;
    for pull in two {
        assert_eq!(soon(pull).await.unwrap(), 2);
    }
    assert!(all.iter().all(|pull| !pull.is_finished()));
    round.work(r#"{"a": "third"}"#).await;
    for pull in all {
        assert_eq!(soon(pull).await.unwrap(), 3);
    }
    // An instruction that nobody will answer counts too: its error is the reply.
    let never = [vec!["00".repeat(32)], round.push_unanswered().await].concat();
    for pull in round.pull_replies(&never, 1) {
        assert_eq!(soon(pull).await.unwrap(), 1);
    }
    round.link.stop().await;
}
