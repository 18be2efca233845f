//! The API port of a node, an instruction, and what a test needs to play an app.

use std::path::PathBuf;

use bytes::Bytes;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use trellis_core::id::ObjectId;
use trellis_node::app::{InstalledApp, Job};
use trellis_node::app_log::AppLog;
use trellis_node::objects::Objects;
use trellis_node::official::{Launch, OfficialApps, Settings};
use trellis_wire::object::{Message, ObjectKind, Payload, encode, object_id};
use trellis_wire::proto;
use trellis_wire::proto::client_app_io_client::ClientAppIoClient;

pub const RUN: u64 = u64::MAX - 6;
pub const NODE: u64 = 9;
pub const BUNDLE: &[u8] = b"a bundle, as far as this node can tell";

pub struct Scene {
    pub apps: OfficialApps,
    pub objects: Objects,
    pub shutdown: CancellationToken,
    pub directory: TempDir,
}

impl Scene {
    pub async fn new(launch: Launch) -> Scene {
        Scene::with_secret(launch, None).await
    }

    pub async fn with_secret(launch: Launch, secret: Option<&str>) -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::open(&directory.path().join("objects")).unwrap();
        std::fs::write(directory.path().join("app.fab"), BUNDLE).unwrap();
        let superexec_secret = secret.map(|secret| {
            let path = directory.path().join("secret");
            std::fs::write(&path, secret).unwrap();
            path
        });
        let address = "127.0.0.1:0".parse().unwrap();
        let settings = Settings { address, launch, superexec_secret, log: AppLog::default() };
        let shutdown = CancellationToken::new();
        let apps = OfficialApps::start(settings, objects.clone(), &shutdown).await.unwrap();
        Scene { apps, objects, shutdown, directory }
    }

    /// An instruction with stored objects.
    pub fn job(&self) -> Job {
        let metadata = proto::Metadata { run_id: RUN, src_node_id: 1, dst_node_id: NODE, ..Default::default() };
        let instruction = Letter::new(metadata, b"instruction");
        for (id, bytes) in &instruction.objects {
            self.objects.put(*id, bytes).unwrap();
        }
        Job {
            run: proto::Run { run_id: RUN, fab_id: "me/app".to_owned(), ..Default::default() },
            instruction: instruction.message,
            tree: instruction.tree,
            context: proto::Context { run_id: RUN, node_id: NODE, ..Default::default() },
            app: Some(self.app()),
        }
    }

    fn app(&self) -> InstalledApp {
        InstalledApp {
            hash: object_id(BUNDLE).to_string(),
            id: "me/app".to_owned(),
            version: "1".to_owned(),
            directory: PathBuf::from("unpacked"),
            bundle: self.directory.path().join("app.fab"),
            client_app: "app:app".to_owned(),
        }
    }

    pub async fn grpc(&self) -> ClientAppIoClient<Channel> {
        ClientAppIoClient::new(channel(&self.apps).await)
    }
}

pub async fn channel(apps: &OfficialApps) -> Channel {
    Endpoint::from_shared(format!("http://{}", apps.address())).unwrap().connect().await.unwrap()
}

/// A message with its objects, as it is sent: the message, its content, and one array chunk.
pub struct Letter {
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    pub objects: Vec<(ObjectId, Bytes)>,
}

impl Letter {
    pub fn new(metadata: proto::Metadata, data: &[u8]) -> Letter {
        let chunk = encode(ObjectKind::ArrayChunk, &[], data);
        let records = encode(ObjectKind::RecordDict, &[object_id(&chunk)], b"{}");
        let message = Message { metadata, payload: Payload::Content(object_id(&records)) };
        let object = message.encode();
        let ids = [&object, &records, &chunk].map(|object| object_id(object));
        let tree = |id: ObjectId, children| proto::ObjectTree { object_id: id.to_string(), children };
        let tree = tree(ids[0], vec![tree(ids[1], vec![tree(ids[2], Vec::new())])]);
        let metadata = proto::Metadata { message_id: ids[0].to_string(), ..message.metadata };
        let message = proto::Message { metadata: Some(metadata), content: Some(Default::default()), error: None };
        Letter { message, tree, objects: ids.into_iter().zip([object, records, chunk]).collect() }
    }

    pub fn reply(instruction: &proto::Message) -> Letter {
        let asked = instruction.metadata.as_ref().unwrap();
        let metadata = proto::Metadata {
            run_id: asked.run_id,
            src_node_id: NODE,
            dst_node_id: 1,
            reply_to_message_id: asked.message_id.clone(),
            ..Default::default()
        };
        Letter::new(metadata, b"reply")
    }

    pub fn ids(&self) -> Vec<String> {
        self.objects.iter().map(|(id, _)| id.to_string()).collect()
    }
}

/// A context that the app changed.
pub fn changed(context: &proto::Context) -> proto::Context {
    let item = proto::record_dict::Item { key: "seen".to_owned(), value: None };
    proto::Context { state: Some(proto::RecordDict { items: vec![item] }), ..context.clone() }
}

pub fn reference() -> Option<proto::Node> {
    Some(proto::Node { node_id: NODE })
}
