//! Instructions as objects: the model, shared by all nodes and phases that receive it, and for each node a message that refers
//! to it. Chunks of the model are sliced when they are pushed, so it is in memory once.
//!
//! This module knows nothing of recipients and replies.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use trellis_core::id::{NodeId, ObjectId};
use trellis_strategy::Model;
use trellis_wire::object::{
    self, ArrayRecord, ConfigRecord, Entries, MAX_CHUNK_BYTES, Message, ObjectKind, Payload, RecordDict, object_id,
};
use trellis_wire::proto;
use trellis_wire::records::{NUMPY, npy_header};

/// A model as objects. Creating it hashes the whole model.
pub struct ModelObjects {
    model: Arc<Model>,
    /// The object id and tree of its ArrayRecord.
    record: Child,
    sources: HashMap<ObjectId, Source>,
}

/// The content of instructions: objects and their tree.
pub struct Content {
    id: ObjectId,
    tree: proto::ObjectTree,
    model: Option<Arc<ModelObjects>>,
    others: HashMap<ObjectId, Bytes>,
}

/// The bytes of an object.
enum Source {
    Small(Bytes),
    /// A part of the `.npy` file of an array.
    Chunk {
        array: usize,
        bytes: Range<usize>,
    },
}

/// An instruction for one node.
pub struct Instruction {
    pub node: NodeId,
    pub id: ObjectId,
    pub message: proto::Message,
    pub tree: proto::ObjectTree,
    pub object: Bytes,
}

/// The common fields of a phase's instructions.
#[derive(Debug, Clone)]
pub struct Address<'a> {
    pub run_id: u64,
    pub task_id: u64,
    pub message_type: &'a str,
    pub group_id: String,
    pub created_at_s: f64,
    pub ttl_s: f64,
}

impl Content {
    /// A model and a configuration, in records with these names.
    pub fn new(model: Arc<ModelObjects>, arrays_name: &str, config_name: &str, config: &ConfigRecord) -> Content {
        let arrays = (arrays_name.to_owned(), model.record.clone());
        Content::of(Some(model), Some(arrays), config_name, config)
    }

    /// A configuration only, for queries.
    pub fn question(config_name: &str, config: &ConfigRecord) -> Content {
        Content::of(None, None, config_name, config)
    }

    fn of(
        model: Option<Arc<ModelObjects>>,
        arrays: Option<(String, Child)>,
        config_name: &str,
        config: &ConfigRecord,
    ) -> Content {
        let mut others = HashMap::new();
        let mut keep = |bytes: Bytes| {
            let id = object_id(&bytes);
            others.insert(id, bytes);
            id
        };
        let config = keep(config.encode());
        let named = arrays.into_iter().chain([(config_name.to_owned(), (config, tree(config, Vec::new())))]);
        let (id, tree) = parent(named.collect(), |names| keep(RecordDict(names).encode()));
        Content { id, tree, model, others }
    }

    /// The instruction for a node.
    pub fn to(&self, node: NodeId, address: &Address<'_>) -> Instruction {
        let metadata = proto::Metadata {
            run_id: address.run_id,
            message_id: String::new(),
            src_node_id: NodeId::SUPERLINK.0,
            dst_node_id: node.0,
            reply_to_message_id: String::new(),
            group_id: address.group_id.clone(),
            ttl: address.ttl_s,
            message_type: address.message_type.to_owned(),
            created_at: address.created_at_s,
            src_task_id: Some(address.task_id),
            dst_task_id: None,
        };
        let message = Message { metadata, payload: Payload::Content(self.id) };
        let object = message.encode();
        let id = object_id(&object);
        let metadata = proto::Metadata { message_id: id.to_string(), ..message.metadata };
        let message = proto::Message { metadata: Some(metadata), content: Some(Default::default()), error: None };
        let tree = proto::ObjectTree { object_id: id.to_string(), children: vec![self.tree.clone()] };
        Instruction { node, id, message, tree, object }
    }

    /// The bytes of an object; `None` if it is not part of the content.
    pub fn object(&self, id: ObjectId) -> Option<Bytes> {
        if let Some(bytes) = self.others.get(&id) {
            return Some(bytes.clone());
        }
        let objects = self.model.as_ref()?;
        match objects.sources.get(&id)? {
            Source::Small(bytes) => Some(bytes.clone()),
            Source::Chunk { array, bytes } => Some(chunk(&objects.model, *array, bytes.clone())),
        }
    }

    /// The number of nodes in the object tree.
    pub fn tree_size(&self) -> usize {
        fn count(tree: &proto::ObjectTree) -> usize {
            1 + tree.children.iter().map(count).sum::<usize>()
        }
        count(&self.tree)
    }
}

/// A part of an array's `.npy` file as an object.
fn chunk(model: &Model, array: usize, bytes: Range<usize>) -> Bytes {
    let slot = &model.layout.0[array];
    let head = npy_header(slot.dtype, &slot.shape);
    let data = &model.arrays[array];
    let mut piece = Vec::with_capacity(bytes.len());
    piece.extend_from_slice(&head[bytes.start.min(head.len())..bytes.end.min(head.len())]);
    piece.extend_from_slice(&data[bytes.start.saturating_sub(head.len())..bytes.end.saturating_sub(head.len())]);
    object::encode(ObjectKind::ArrayChunk, &[], &piece)
}

type Child = (ObjectId, proto::ObjectTree);

impl ModelObjects {
    pub fn new(model: Arc<Model>) -> ModelObjects {
        let mut sources = Sources { model: &model, sources: HashMap::new() };
        let slots = model.layout.0.iter().enumerate();
        let named = slots.map(|(array, slot)| (slot.name.clone(), sources.array(array))).collect();
        let record = parent(named, |names| sources.keep(ArrayRecord(names).encode()));
        let sources = sources.sources;
        ModelObjects { record, sources, model }
    }
}

struct Sources<'a> {
    model: &'a Model,
    sources: HashMap<ObjectId, Source>,
}

impl Sources<'_> {
    fn array(&mut self, array: usize) -> Child {
        let slot = &self.model.layout.0[array];
        let file_bytes = npy_header(slot.dtype, &slot.shape).len() + slot.bytes();
        let mut chunks = Vec::with_capacity(file_bytes.div_ceil(MAX_CHUNK_BYTES));
        for start in (0..file_bytes).step_by(MAX_CHUNK_BYTES) {
            let bytes = start..file_bytes.min(start + MAX_CHUNK_BYTES);
            let id = object_id(&chunk(self.model, array, bytes.clone()));
            self.sources.entry(id).or_insert(Source::Chunk { array, bytes });
            chunks.push(id);
        }
        let described = object::Array {
            dtype: slot.dtype.name().to_owned(),
            shape: slot.shape.iter().map(|&length| length as u64).collect(),
            stype: NUMPY.to_owned(),
            chunks,
        };
        let mut seen = HashSet::new();
        let children = described.chunks.iter().filter(|id| seen.insert(**id)).map(|id| tree(*id, Vec::new())).collect();
        let id = self.keep(described.encode());
        (id, tree(id, children))
    }

    fn keep(&mut self, bytes: Bytes) -> ObjectId {
        let id = object_id(&bytes);
        self.sources.insert(id, Source::Small(bytes));
        id
    }
}

/// A record with children. The tree lists each child once.
fn parent(named: Vec<(String, Child)>, keep: impl FnOnce(Entries<ObjectId>) -> ObjectId) -> Child {
    let mut seen = HashSet::with_capacity(named.len());
    let (mut names, mut children) = (Vec::with_capacity(named.len()), Vec::with_capacity(named.len()));
    for (name, (id, tree)) in named {
        names.push((name, id));
        if seen.insert(id) {
            children.push(tree);
        }
    }
    let id = keep(Entries::new(names).expect("the names of a layout are different"));
    (id, tree(id, children))
}

fn tree(id: ObjectId, children: Vec<proto::ObjectTree>) -> proto::ObjectTree {
    proto::ObjectTree { object_id: id.to_string(), children }
}

#[cfg(test)]
mod tests {
    use trellis_strategy::{Layout, Slot};
    use trellis_wire::records::{Arrays, Dtype, Records, Tensor, message};

    use super::*;

    fn model() -> Model {
        let slot = |name: &str, dtype, shape: &[usize]| Slot { name: name.to_owned(), dtype, shape: shape.to_vec() };
        let long = 2 * MAX_CHUNK_BYTES / 4 + 7;
        let layout = Layout(vec![
            slot("weights", Dtype::F32, &[long]),
            slot("bias", Dtype::F64, &[2, 2]),
            slot("bias.again", Dtype::F64, &[2, 2]),
            slot("steps", Dtype::I64, &[]),
            slot("none", Dtype::F32, &[0, 3]),
        ]);
        let arrays = layout.0.iter().map(|slot| (0..slot.bytes()).map(|byte| (byte % 61) as u8).collect::<Vec<u8>>());
        let arrays = arrays.map(Bytes::from).collect();
        Model { layout: Arc::new(layout), arrays }
    }

    /// The same model, built with the records of the wire crate.
    fn records(model: &Model, config: &ConfigRecord) -> Records {
        let mut arrays = Arrays::default();
        for (slot, data) in model.layout.0.iter().zip(&model.arrays) {
            let mut file = npy_header(slot.dtype, &slot.shape);
            file.extend_from_slice(data);
            let mut array = trellis_wire::records::Array::from(Tensor::new(vec![0], Vec::<f32>::new()).unwrap());
            array.data = file.into();
            array.dtype = slot.dtype.name().to_owned();
            array.shape = slot.shape.iter().map(|&length| length as u64).collect();
            arrays.insert(slot.name.as_str(), array);
        }
        Records::default().with("arrays", arrays).with("config", config.clone())
    }

    #[test]
    fn instructions_match_those_built_from_records() {
        let model = Arc::new(model());
        let config = ConfigRecord(Entries::default().with("server-round", 3i64));
        let objects = Arc::new(ModelObjects::new(Arc::clone(&model)));
        let content = Content::new(Arc::clone(&objects), "arrays", "config", &config);
        let address = Address {
            run_id: 7,
            task_id: 7,
            message_type: "train",
            group_id: "3".to_owned(),
            created_at_s: 1_800_000_000.5,
            ttl_s: 60.0,
        };
        let instruction = content.to(NodeId(9), &address);
        let metadata = instruction.message.metadata.clone().unwrap();
        let expected = message(metadata, &records(&model, &config));
        assert_eq!((&instruction.message, &instruction.tree), (&expected.message, &expected.tree));
        for (id, bytes) in &expected.objects {
            let ours = if *id == instruction.id { Some(instruction.object.clone()) } else { content.object(*id) };
            assert!(ours.as_ref() == Some(bytes), "object {id}");
        }
        assert_eq!(objects.sources.len() + content.others.len() + 1, expected.objects.len());
        assert_eq!(content.to(NodeId(10), &address).tree.children, instruction.tree.children, "the content is shared");
    }
}
