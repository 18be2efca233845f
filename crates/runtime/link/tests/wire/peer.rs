//! A SuperLink in this process and its peers over real sockets.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use trellis_core::port::Store;
use trellis_link::config::{Config, Isolation, Limits, SandboxSettings};
use trellis_link::{Addresses, Directory, ServeError, State, SuperLink};
use trellis_store_memory::MemoryStore;
use trellis_store_sqlite::{OpenError, SqliteStore, StateDirectory};
use trellis_wire::object::{ObjectKind, encode, object_id};
use trellis_wire::proto::control_client::ControlClient;
use trellis_wire::proto::fleet_client::FleetClient;
use trellis_wire::proto::server_app_io_client::ServerAppIoClient;
use trellis_wire::proto::*;

/// A SuperLink on free ports, without TLS and without apps.
pub struct TestLink {
    pub addresses: Addresses,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
}

pub fn config(limits: Limits) -> Config {
    let any = "127.0.0.1:0".to_owned();
    Config {
        control_address: any.clone(),
        fleet_address: any.clone(),
        serverappio_address: any.clone(),
        http_address: any.clone(),
        health_address: Some(any),
        isolation: Isolation::Process,
        sandbox: SandboxSettings::off(),
        limits,
        ..Config::default()
    }
}

/// A child process of another test may hold the lock of a state until its exec.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Whether these tests run as `wire_in_memory.rs`.
const IN_MEMORY: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"wire_in_memory");

/// A new state in the store of this suite.
fn new_state(directory: Directory) -> State {
    if IN_MEMORY {
        let open = Box::new(|on_commit| Ok(Box::new(MemoryStore::open(u64::MAX, on_commit)?) as Box<dyn Store>));
        return State { directory, database: None, open };
    }
    let claimed = Arc::new(StateDirectory::open((*directory).as_ref(), None).unwrap());
    let open = Box::new(|on_commit| Ok(Box::new(SqliteStore::open(claimed, on_commit)?) as Box<dyn Store>));
    State { directory, database: None, open }
}

/// A state that an earlier SuperLink may have left.
pub fn state_on_disk(path: &Path) -> Result<State, OpenError> {
    let directory = Arc::new(StateDirectory::open(path, None)?);
    let claimed = Arc::clone(&directory);
    let open = Box::new(|on_commit| Ok(Box::new(SqliteStore::open(claimed, on_commit)?) as Box<dyn Store>));
    Ok(State { directory, database: None, open })
}

impl TestLink {
    pub async fn start(config: Config) -> TestLink {
        TestLink::serve(SuperLink::start(config, new_state(Arc::new(tempfile::tempdir().unwrap()))).await)
    }

    /// Starts with this directory for the files of the process.
    pub async fn start_in(config: Config, directory: &Path) -> TestLink {
        std::fs::create_dir_all(directory).unwrap();
        TestLink::serve(SuperLink::start(config, new_state(Arc::new(directory.to_owned()))).await)
    }

    /// Starts on SQLite in every suite, for tests with several SuperLinks on one state.
    pub async fn start_on_disk(config: Config, directory: &Path) -> TestLink {
        TestLink::serve(TestLink::try_start_on_disk(config, directory).await)
    }

    fn serve(started: Result<SuperLink, ServeError>) -> TestLink {
        let superlink = started.expect("the SuperLink starts");
        let addresses = superlink.addresses();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(superlink.run_until(async {
            let _ = stopped.await;
        }));
        TestLink { addresses, stop, served }
    }

    pub async fn try_start_on_disk(config: Config, directory: &Path) -> Result<SuperLink, ServeError> {
        for _ in 0..LOCK_TRIES {
            match state_on_disk(directory) {
                Err(OpenError::InUse { .. }) => tokio::time::sleep(LOCK_PAUSE).await,
                state => return SuperLink::start(config, state.unwrap()).await,
            }
        }
        panic!("the state in {} stays in use", directory.display());
    }

    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.served.await.expect("no panic").expect("a clean stop");
    }

    pub async fn control(&self) -> ControlClient<Channel> {
        ControlClient::new(channel(self.addresses.control).await)
    }

    pub async fn app(&self) -> ServerAppIoClient<Channel> {
        ServerAppIoClient::new(channel(self.addresses.serverappio).await)
    }

    /// Returns a running run and the client of its ServerApp.
    pub async fn running_run(&self) -> (u64, ServerAppIoClient<Channel>) {
        let (run_id, app, _) = self.running_run_with_token().await;
        (run_id, app)
    }

    pub async fn running_run_with_token(&self) -> (u64, ServerAppIoClient<Channel>, String) {
        let run_id = self.start_run().await;
        let mut app = self.app().await;
        let token = app.request_token(RequestTokenRequest { run_id }).await.unwrap().into_inner().token;
        app.pull_app_inputs(PullAppInputsRequest { token: token.clone() }).await.unwrap();
        (run_id, app, token)
    }

    pub async fn start_run(&self) -> u64 {
        self.start_run_of(fab()).await
    }

    pub async fn start_run_of(&self, content: Bytes) -> u64 {
        let fab = Fab { content, ..Default::default() };
        let request = StartRunRequest { fab: Some(fab), federation: "default".into(), ..Default::default() };
        self.control().await.start_run(request).await.unwrap().into_inner().run_id.unwrap()
    }

    pub async fn node(&self) -> TestNode {
        TestNode::join(self.addresses.fleet).await
    }
}

pub async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

pub fn fab() -> Bytes {
    fab_with("")
}

/// A bundle of a native run.
pub fn native_fab() -> Bytes {
    fab_with("\n[tool.flwr.app.components]\nserverapp='trellis:native'\nclientapp='trellis:echo'")
}

pub fn fab_with(more: &str) -> Bytes {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("pyproject.toml", zip::write::SimpleFileOptions::default()).unwrap();
    let project = "[project]\nname='app'\nversion='1'\n[tool.flwr.app]\npublisher='me'";
    zip.write_all(format!("{project}{more}").as_bytes()).unwrap();
    zip.finish().unwrap().into_inner().into()
}

/// A node that signs its calls.
pub struct TestNode {
    pub client: FleetClient<Channel>,
    key: EcdsaKeyPair,
    pub pem: String,
    pub id: u64,
}

impl TestNode {
    /// A key pair and a connection, not registered.
    pub async fn new(fleet: SocketAddr) -> TestNode {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        TestNode { client: FleetClient::new(channel(fleet).await), pem: pem(&key), key, id: 0 }
    }

    pub async fn join(fleet: SocketAddr) -> TestNode {
        let mut node = TestNode::new(fleet).await;
        let request = node.signed(RegisterNodeFleetRequest { public_key: node.pem.clone().into() });
        node.id = node.client.register_node(request).await.unwrap().into_inner().node_id;
        node.activate().await;
        node
    }

    pub async fn activate(&mut self) {
        let request = ActivateNodeRequest { public_key: self.pem.clone().into(), heartbeat_interval: 30.0 };
        let request = self.signed(request);
        self.client.activate_node(request).await.unwrap();
    }

    pub fn reference(&self) -> Option<Node> {
        Some(Node { node_id: self.id })
    }

    /// The headers that sign a call over either transport.
    pub fn signature(&self, timestamp: &str) -> Vec<(String, String)> {
        let signature = self.key.sign(&SystemRandom::new(), timestamp.as_bytes()).unwrap();
        let (key, signature) = (STANDARD.encode(self.pem.as_bytes()), STANDARD.encode(signature.as_ref()));
        let mut headers = vec![("flwr-timestamp".to_owned(), timestamp.to_owned())];
        for suffix in ["", "-bin"] {
            headers.push((format!("flwr-public-key{suffix}"), key.clone()));
            headers.push((format!("flwr-signature{suffix}"), signature.clone()));
        }
        headers
    }

    pub fn signed<T>(&self, message: T) -> Request<T> {
        self.signed_at(message, &jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string())
    }

    pub fn signed_at<T>(&self, message: T, timestamp: &str) -> Request<T> {
        let mut request = Request::new(message);
        let signature = self.key.sign(&SystemRandom::new(), timestamp.as_bytes()).unwrap();
        let metadata = request.metadata_mut();
        metadata.insert_bin("flwr-public-key-bin", MetadataValue::from_bytes(self.pem.as_bytes()));
        metadata.insert_bin("flwr-signature-bin", MetadataValue::from_bytes(signature.as_ref()));
        metadata.insert("flwr-timestamp", timestamp.parse().unwrap());
        request
    }
}

fn pem(key: &EcdsaKeyPair) -> String {
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    let der: PublicKeyX509Der<'_> = key.public_key().as_der().unwrap();
    let lines: Vec<String> = STANDARD
        .encode(der.as_ref())
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8(line.into()).unwrap())
        .collect();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
}

/// An instruction for `dst` with one record: its message, its tree and its objects, children first.
pub fn instruction(run_id: u64, dst: u64, created_at: f64, ttl: f64) -> (Message, ObjectTree, Vec<(String, Bytes)>) {
    let record = encode(ObjectKind::RecordDict, &[], b"{}");
    let record_id = object_id(&record);
    let metadata = Metadata {
        run_id,
        src_node_id: 1,
        dst_node_id: dst,
        ttl,
        message_type: "train".into(),
        created_at,
        ..Default::default()
    };
    let body = prost::Message::encode_to_vec(&Message { metadata: Some(metadata.clone()), ..Default::default() });
    let object = encode(ObjectKind::Message, &[record_id], &body);
    let id = object_id(&object).to_string();
    let metadata = Metadata { message_id: id.clone(), ..metadata };
    let message = Message { metadata: Some(metadata), content: Some(RecordDict::default()), error: None };
    let leaf = ObjectTree { object_id: record_id.to_string(), children: vec![] };
    let tree = ObjectTree { object_id: id.clone(), children: vec![leaf] };
    (message, tree, vec![(record_id.to_string(), record), (id, object)])
}

/// Returns the time as nodes sign it, with an offset from now.
pub fn timestamp(offset_s: i64) -> String {
    let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(offset_s);
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string()
}

pub fn now() -> f64 {
    jiff::Timestamp::now().as_microsecond() as f64 / 1e6
}
