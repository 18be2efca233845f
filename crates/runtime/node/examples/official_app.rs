//! Executes instructions with an official app, without a SuperLink, for tests with real processes.
//!
//! Reads its settings as JSON from the first argument; writes its address and each outcome as a line of JSON.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trellis_core::id::ObjectId;
use trellis_node::app::{InstalledApp, Job, Outcome, Reply};
use trellis_node::app_log::AppLog;
use trellis_node::objects::Objects;
use trellis_node::official::{Interpreter, Launch, OfficialApps, Scratches, Settings};
use trellis_node::resources::Confinement;
use trellis_sandbox::Sandbox;
use trellis_wire::object::{
    Array, ArrayRecord, ConfigRecord, ConfigValue, Entries, Message, MetricRecord, Object, Payload, RecordDict,
    object_id,
};
use trellis_wire::proto;

const RUN: u64 = (1 << 63) + 5;
const NODE: u64 = (1 << 63) + 9;

#[derive(Deserialize)]
struct Arguments {
    /// An empty directory.
    directory: PathBuf,
    bundle: PathBuf,
    /// The interpreter for apps; `None`: SuperExecs start them.
    python: Option<PathBuf>,
    secret: Option<PathBuf>,
    /// The action of the app in each instruction.
    actions: Vec<String>,
}

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Arguments = serde_json::from_str(&std::env::args().nth(1).ok_or("settings are missing")?)?;
    let objects = Objects::open(&arguments.directory.join("objects"))?;
    let launch = match arguments.python {
        None => Launch::BySuperExec,
        Some(python) => Launch::PerMessage(Interpreter {
            sandbox: Arc::new(Sandbox::off(python.clone())),
            scratches: Scratches::default(),
            python,
            flwr_home: arguments.directory.join("home"),
            allow_dependency_installation: false,
            confinement: Arc::new(Confinement::none()),
        }),
    };
    let (address, log) = ("127.0.0.1:0".parse()?, AppLog::default());
    let settings = Settings { address, launch, superexec_secret: arguments.secret, log };
    let apps = OfficialApps::start(settings, objects.clone(), &CancellationToken::new()).await?;
    println!("{}", json!({ "address": apps.address().to_string() }));

    let app = installed(arguments.bundle)?;
    let mut context = proto::Context { run_id: RUN, node_id: NODE, series_id: RUN, ..Default::default() };
    for action in &arguments.actions {
        let (instruction, tree) = instruction(&objects, action)?;
        let run = proto::Run {
            run_id: RUN,
            fab_id: app.id.clone(),
            fab_version: app.version.clone(),
            fab_hash: app.hash.clone(),
            series_id: RUN,
            ..Default::default()
        };
        let job = Job { run, instruction, tree, context: context.clone(), app: Some(app.clone()) };
        println!(
            "{}",
            match apps.execute(job).await {
                Outcome::Replied(reply) => {
                    let summary = summary_of(&objects, &reply)?;
                    context = reply.context;
                    summary
                }
                Outcome::Failed { code, reason } => json!({ "failed": code.number(), "reason": reason }),
                Outcome::Postponed { reason } => json!({ "postponed": reason }),
            }
        );
    }
    Ok(())
}

fn installed(bundle: PathBuf) -> Result<InstalledApp, Failure> {
    Ok(InstalledApp {
        hash: object_id(&std::fs::read(&bundle)?).to_string(),
        id: "trellis/behaving".to_owned(),
        version: "1.0.0".to_owned(),
        directory: PathBuf::new(),
        bundle,
        client_app: "behaving.client:app".to_owned(),
    })
}

fn put(objects: &Objects, object: Bytes, children: Vec<proto::ObjectTree>) -> Result<proto::ObjectTree, Failure> {
    let id = object_id(&object);
    objects.put(id, &object)?;
    Ok(proto::ObjectTree { object_id: id.to_string(), children })
}

fn entries<V>(entries: Vec<(&str, V)>) -> Result<Entries<V>, Failure> {
    Ok(Entries::new(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())?)
}

/// An instruction with one array and an action.
fn instruction(objects: &Objects, action: &str) -> Result<(proto::Message, proto::ObjectTree), Failure> {
    let id = |tree: &proto::ObjectTree| tree.object_id.parse::<ObjectId>();
    let (array, chunks) = Array::from_data("float32", &[2], "numpy.ndarray", &numpy_file());
    let chunks = chunks.into_iter().map(|(_, chunk)| put(objects, chunk, Vec::new())).collect::<Result<_, _>>()?;
    let array = put(objects, array.encode(), chunks)?;
    let arrays = put(objects, ArrayRecord(entries(vec![("0", id(&array)?)])?).encode(), vec![array])?;
    let config = ConfigRecord(entries(vec![("do", ConfigValue::String(action.to_owned()))])?);
    let config = put(objects, config.encode(), Vec::new())?;
    let content = RecordDict(entries(vec![("arrays", id(&arrays)?), ("config", id(&config)?)])?);
    let content = put(objects, content.encode(), vec![arrays, config])?;
    let metadata = proto::Metadata {
        run_id: RUN,
        src_node_id: 1,
        dst_node_id: NODE,
        ttl: 3600.0,
        message_type: "train".to_owned(),
        created_at: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64(),
        ..Default::default()
    };
    let message = Message { metadata, payload: Payload::Content(id(&content)?) };
    let tree = put(objects, message.encode(), vec![content])?;
    let metadata = proto::Metadata { message_id: tree.object_id.clone(), ..message.metadata };
    Ok((proto::Message { metadata: Some(metadata), content: Some(Default::default()), error: None }, tree))
}

/// Two numbers in numpy's file format.
fn numpy_file() -> Vec<u8> {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    file.extend([1.5f32, -2.0].iter().flat_map(|number| number.to_le_bytes()));
    file
}

/// The parts of a reply that tests compare.
fn summary_of(objects: &Objects, reply: &Reply) -> Result<Value, Failure> {
    if let Some(error) = &reply.message.error {
        return Ok(json!({ "error": error.code, "reason": error.reason }));
    }
    let read = |id: &ObjectId| objects.read(*id)?.ok_or_else(|| Failure::from("an object of the reply is missing"));
    let content = &reply.tree.children[0].object_id;
    let Object::RecordDict(records) = Object::decode(&read(&content.parse()?)?)? else {
        return Err("no records".into());
    };
    let metrics = records.0.get("metrics").ok_or("no metrics")?;
    let MetricRecord(metrics) = MetricRecord::decode(&read(metrics)?)?;
    let metrics: Vec<String> = metrics.iter().map(|(name, value)| format!("{name} {value:?}")).collect();
    Ok(json!({ "content": content, "metrics": metrics, "runtime": reply.runtime_s }))
}
