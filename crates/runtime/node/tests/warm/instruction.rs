//! Instructions as a ServerApp makes them, and decoded replies.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use trellis_core::id::ObjectId;
use trellis_node::app::{InstalledApp, Job, Reply};
use trellis_node::objects::Objects;
use trellis_wire::object::{
    Array, ArrayRecord, ConfigRecord, ConfigValue, Entries, Message, MetricRecord, MetricValue, Object, Payload,
    RecordDict, object_id,
};
use trellis_wire::proto;

pub const NODE: u64 = 77;
/// The task of the ServerApp, which replies must name.
pub const TASK: u64 = 5;

/// An instruction, with the action of the app.
pub struct Instruction {
    pub run: u64,
    config: Vec<(String, ConfigValue)>,
    arrays: Vec<Vec<f64>>,
    pub context: proto::Context,
}

/// A stored object and its tree.
type Stored = (ObjectId, proto::ObjectTree);

impl Instruction {
    pub fn new(run: u64, what: &str) -> Instruction {
        let context =
            proto::Context { run_id: run, node_id: NODE, state: Some(Default::default()), ..Default::default() };
        let config = vec![("do".to_owned(), ConfigValue::String(what.to_owned()))];
        Instruction { run, config, arrays: Vec::new(), context }
    }

    pub fn with(mut self, name: &str, value: &str) -> Instruction {
        self.config.push((name.to_owned(), ConfigValue::String(value.to_owned())));
        self
    }

    pub fn arrays(mut self, arrays: Vec<Vec<f64>>) -> Instruction {
        self.arrays = arrays;
        self
    }

    pub fn context(mut self, context: proto::Context) -> Instruction {
        self.context = context;
        self
    }

    /// Stores its objects.
    pub fn job(self, objects: &Objects, app: InstalledApp) -> Job {
        let keep = |object: Bytes, children: Vec<Stored>| -> Stored {
            let id = object_id(&object);
            objects.put(id, &object).unwrap();
            let children = children.into_iter().map(|(_, tree)| tree).collect();
            (id, proto::ObjectTree { object_id: id.to_string(), children })
        };
        let arrays = self.arrays.iter().enumerate().map(|(number, array)| {
            let (array, chunks) = Array::from_data("float64", &[array.len() as u64], "numpy.ndarray", &npy(array));
            let chunks = chunks.into_iter().map(|(_, chunk)| keep(chunk, Vec::new())).collect();
            (number.to_string(), keep(array.encode(), chunks))
        });
        let arrays: Vec<(String, Stored)> = arrays.collect();
        let named = |kept: &[(String, Stored)]| {
            Entries::new(kept.iter().map(|(name, (id, _))| (name.clone(), *id)).collect()).unwrap()
        };
        let below = |kept: Vec<(String, Stored)>| kept.into_iter().map(|(_, kept)| kept).collect();
        let record = ArrayRecord(named(&arrays)).encode();
        let config = ConfigRecord(Entries::new(self.config).unwrap()).encode();
        let records =
            vec![("arrays".to_owned(), keep(record, below(arrays))), ("config".to_owned(), keep(config, Vec::new()))];
        let content = keep(RecordDict(named(&records)).encode(), below(records));
        let metadata = proto::Metadata {
            run_id: self.run,
            src_node_id: 1,
            dst_node_id: NODE,
            group_id: "4".to_owned(),
            ttl: 3600.0,
            message_type: "train".to_owned(),
            created_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64(),
            src_task_id: Some(TASK),
            ..Default::default()
        };
        let message = Message { metadata: metadata.clone(), payload: Payload::Content(content.0) };
        let (id, tree) = keep(message.encode(), vec![content]);
        let metadata = proto::Metadata { message_id: id.to_string(), ..metadata };
        let instruction = proto::Message { metadata: Some(metadata), content: Some(Default::default()), error: None };
        let run = proto::Run { run_id: self.run, ..Default::default() };
        Job { run, instruction, tree, context: self.context, app: Some(app) }
    }
}

/// Numbers in numpy's format.
fn npy(numbers: &[f64]) -> Vec<u8> {
    let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}", numbers.len());
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let length = (header.len() as u16).to_le_bytes();
    let mut bytes = [b"\x93NUMPY\x01\x00", length.as_slice(), header.as_bytes()].concat();
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

/// The records of a reply.
pub struct Content {
    pub metrics: HashMap<String, HashMap<String, MetricValue>>,
    pub config: HashMap<String, HashMap<String, ConfigValue>>,
}

impl Content {
    pub fn of(reply: &Reply, objects: &Objects) -> Content {
        let read = |id: ObjectId| Object::decode(&objects.read(id).unwrap().expect("it was kept")).unwrap();
        let mut content = Content { metrics: HashMap::new(), config: HashMap::new() };
        let Object::Message(message) = read(reply.tree.object_id.parse().unwrap()) else { panic!("no message") };
        let Payload::Content(id) = message.payload else { panic!("an error: {:?}", message.payload) };
        let Object::RecordDict(RecordDict(records)) = read(id) else { panic!("no content") };
        for (name, id) in records {
            match read(id) {
                Object::MetricRecord(MetricRecord(entries)) => {
                    content.metrics.insert(name, entries.into_iter().collect());
                }
                Object::ConfigRecord(ConfigRecord(entries)) => {
                    content.config.insert(name, entries.into_iter().collect());
                }
                _ => {}
            }
        }
        content
    }

    pub fn number(&self, name: &str) -> i64 {
        match self.metrics["metrics"][name] {
            MetricValue::Sint64(number) => number,
            ref other => panic!("{name} is {other:?}"),
        }
    }
}

/// All ids of a tree except its root.
pub fn below(tree: &proto::ObjectTree) -> Vec<String> {
    fn gather(tree: &proto::ObjectTree, ids: &mut Vec<String>) {
        for child in &tree.children {
            ids.push(child.object_id.clone());
            gather(child, ids);
        }
    }
    let mut ids = Vec::new();
    gather(tree, &mut ids);
    ids.sort();
    ids.dedup();
    ids
}
