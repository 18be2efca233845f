//! Models and messages as objects of official components: valid trees, encoded before the measurement.

use bytes::Bytes;
use trellis_clock::now_s;
use trellis_core::id::{NodeId, ObjectId};
use trellis_wire::object::{
    self, Array, ArrayRecord, ConfigRecord, ConfigValue, Entries, MetricRecord, MetricValue, Payload, object_id,
};
use trellis_wire::proto::{self, Metadata, ObjectTree};

use crate::pacing::Jitter;

const MESSAGE_TTL_S: f64 = 43_200.0;

/// An encoded object and its id.
#[derive(Clone)]
pub struct Object {
    pub id: String,
    pub bytes: Bytes,
}

/// The content of a message: a RecordDict with one array and one record of settings or metrics.
pub struct Model {
    root: ObjectId,
    tree: ObjectTree,
    pub objects: Vec<Object>,
}

/// The record next to the array.
#[derive(Clone, Copy)]
pub enum Beside {
    /// To a node: settings of the round.
    Config,
    /// From a node: its metrics.
    Metrics,
}

impl Model {
    /// Generates an array of `bytes` bytes of float32. A different seed changes every chunk, and so every object.
    pub fn generate(bytes: usize, seed: u64, beside: Beside) -> Self {
        let mut builder = Builder::default();
        let elements = bytes / 4;
        let (array, chunks) = Array::from_data("float32", &[elements as u64], "numpy.ndarray", &npy(elements, seed));
        let chunks = chunks.into_iter().map(|(id, bytes)| builder.named(id, bytes, Vec::new())).collect();
        let (array, array_tree) = builder.add(array.encode(), chunks);
        let (arrays, arrays_tree) = builder.add(ArrayRecord(entries([("0", array)])).encode(), vec![array_tree]);
        let (name, record) = match beside {
            Beside::Config => ("config", ConfigRecord(entries([("server-round", ConfigValue::Sint64(1))])).encode()),
            Beside::Metrics => {
                let loss = MetricValue::Double(1.0 / (seed + 1) as f64);
                ("metrics", MetricRecord(entries([("loss", loss)])).encode())
            }
        };
        let (record, record_tree) = builder.add(record, Vec::new());
        let dict = object::RecordDict(entries([("arrays", arrays), (name, record)]));
        let (root, tree) = builder.add(dict.encode(), vec![arrays_tree, record_tree]);
        Self { root, tree, objects: builder.objects }
    }

    /// Returns the total size of all objects.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes.len() as u64).sum()
    }
}

fn entries<V, const N: usize>(pairs: [(&str, V); N]) -> Entries<V> {
    let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Entries::new(pairs).expect("every name is given once")
}

/// Collects encoded objects and builds their tree.
#[derive(Default)]
struct Builder {
    objects: Vec<Object>,
}

impl Builder {
    fn add(&mut self, bytes: Bytes, children: Vec<ObjectTree>) -> (ObjectId, ObjectTree) {
        let id = object_id(&bytes);
        (id, self.named(id, bytes, children))
    }

    fn named(&mut self, id: ObjectId, bytes: Bytes, children: Vec<ObjectTree>) -> ObjectTree {
        self.objects.push(Object { id: id.to_string(), bytes });
        ObjectTree { object_id: id.to_string(), children }
    }
}

/// Encodes a vector of pseudo-random float32 values as `.npy`.
fn npy(elements: usize, seed: u64) -> Vec<u8> {
    const HEADER_BYTES: usize = 128;
    const PREAMBLE: &[u8] = b"\x93NUMPY\x01\x00";
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({elements},), }}");
    let width = HEADER_BYTES - PREAMBLE.len() - 2;
    let mut data = Vec::with_capacity(HEADER_BYTES + elements * 4 + 8);
    data.extend_from_slice(PREAMBLE);
    data.extend_from_slice(&(width as u16).to_le_bytes());
    data.extend_from_slice(format!("{dict:<pad$}\n", pad = width - 1).as_bytes());
    let mut random = Jitter::new(seed);
    while data.len() < HEADER_BYTES + elements * 4 {
        data.extend_from_slice(&random.next().to_le_bytes());
    }
    data.truncate(HEADER_BYTES + elements * 4);
    data
}

/// A message to push: the request of the call, and the Message object that is pushed after it.
#[derive(Clone)]
pub struct Envelope {
    pub message: proto::Message,
    pub tree: ObjectTree,
    pub object: Object,
}

impl Envelope {
    /// Makes an instruction of the ServerApp to a node; from 1.30 on an app names its task.
    pub fn instruction(run_id: u64, task_id: Option<u64>, node_id: u64, group_id: &str, model: &Model) -> Self {
        let metadata = Metadata {
            run_id,
            src_task_id: task_id,
            src_node_id: NodeId::SUPERLINK.0,
            dst_node_id: node_id,
            group_id: group_id.to_owned(),
            ttl: MESSAGE_TTL_S,
            message_type: "train".to_owned(),
            created_at: now_s(),
            ..Metadata::default()
        };
        Self::seal(metadata, model)
    }

    /// Makes a node's reply to an instruction; it expires with the instruction.
    pub fn reply(to: &Metadata, model: &Model) -> Self {
        let created_at = now_s();
        let metadata = Metadata {
            run_id: to.run_id,
            message_id: String::new(),
            src_node_id: to.dst_node_id,
            dst_node_id: to.src_node_id,
            reply_to_message_id: to.message_id.clone(),
            group_id: to.group_id.clone(),
            ttl: to.created_at + to.ttl - created_at,
            message_type: to.message_type.clone(),
            created_at,
            src_task_id: to.dst_task_id,
            dst_task_id: to.src_task_id,
        };
        Self::seal(metadata, model)
    }

    fn seal(metadata: Metadata, model: &Model) -> Self {
        let sealed = object::Message { metadata, payload: Payload::Content(model.root) };
        let bytes = sealed.encode();
        let id = object_id(&bytes).to_string();
        let metadata = Metadata { message_id: id.clone(), ..sealed.metadata };
        // The content is sent as objects; in the message it is empty but present.
        let content = Some(proto::RecordDict::default());
        Self {
            message: proto::Message { metadata: Some(metadata), content, error: None },
            tree: ObjectTree { object_id: id.clone(), children: vec![model.tree.clone()] },
            object: Object { id, bytes },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn ids(tree: &ObjectTree) -> Vec<String> {
        let mut all: Vec<String> = tree.children.iter().flat_map(ids).collect();
        all.push(tree.object_id.clone());
        all
    }

    #[test]
    fn a_small_message_is_six_objects_in_one_tree() {
        let model = Model::generate(1024, 7, Beside::Config);
        let envelope = Envelope::instruction(5, Some(3), 9, "1", &model);
        let pushed: HashSet<String> =
            model.objects.iter().map(|object| object.id.clone()).chain([envelope.object.id.clone()]).collect();
        assert_eq!(pushed.len(), 6);
        assert_eq!(ids(&envelope.tree).into_iter().collect::<HashSet<_>>(), pushed);
        assert_eq!(envelope.message.metadata.unwrap().message_id, envelope.object.id);
        assert!(envelope.object.bytes.starts_with(format!("Message {} ", model.tree.object_id).as_bytes()));
    }

    #[test]
    fn large_arrays_are_chunked_and_differ_by_seed() {
        let one = Model::generate(11 * 1024 * 1024, 1, Beside::Metrics);
        let two = Model::generate(11 * 1024 * 1024, 2, Beside::Metrics);
        let chunks = one.objects.iter().filter(|object| object.bytes.starts_with(b"ArrayChunk  ")).count();
        assert_eq!(chunks, 3);
        let shared = one.objects.iter().filter(|a| two.objects.iter().any(|b| a.id == b.id)).count();
        assert_eq!(shared, 0);
    }

    #[test]
    fn npy_header_is_padded_to_128_bytes() {
        let data = npy(3, 1);
        assert_eq!(data.len(), 128 + 12);
        assert_eq!(&data[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(data[127], b'\n');
    }

    #[test]
    fn a_reply_expires_with_its_instruction() {
        let model = Model::generate(64, 1, Beside::Config);
        let asked = Envelope::instruction(5, Some(3), 9, "1", &model).message.metadata.unwrap();
        let reply = Envelope::reply(&asked, &model).message.metadata.unwrap();
        assert_eq!((reply.src_node_id, reply.dst_node_id, reply.run_id), (9, 1, 5));
        assert_eq!(reply.reply_to_message_id, asked.message_id);
        assert_eq!((reply.src_task_id, reply.dst_task_id), (None, Some(3)));
        assert!((reply.created_at + reply.ttl - asked.created_at - asked.ttl).abs() < 1e-3);
    }
}
