//! Converts records to objects.

use std::collections::HashSet;

use bytes::Bytes;
use trellis_core::id::ObjectId;

use super::{Array, Record, Records};
use crate::object::{self, Entries, object_id};
use crate::proto::ObjectTree;

/// Objects and their tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Deflated {
    pub id: ObjectId,
    pub tree: ObjectTree,
    /// Distinct objects, children before parents.
    pub objects: Vec<(ObjectId, Bytes)>,
}

/// Encodes records as the content of a message; the root is their RecordDict.
pub fn deflate(records: &Records) -> Deflated {
    let mut deflation = Deflation::default();
    let children = records.iter().map(|(name, record)| (name, deflation.record(record))).collect();
    let (id, tree) = deflation.parent(children, |names| object::RecordDict(names).encode());
    Deflated { id, tree, objects: deflation.objects }
}

#[derive(Default)]
struct Deflation {
    objects: Vec<(ObjectId, Bytes)>,
    seen: HashSet<ObjectId>,
}

type Child = (ObjectId, ObjectTree);

impl Deflation {
    fn record(&mut self, record: &Record) -> Child {
        match record {
            Record::Metrics(metrics) => self.leaf(metrics.encode()),
            Record::Config(config) => self.leaf(config.encode()),
            Record::Arrays(arrays) => {
                let children = arrays.iter().map(|(name, array)| (name, self.array(array))).collect();
                self.parent(children, |names| object::ArrayRecord(names).encode())
            }
        }
    }

    fn array(&mut self, array: &Array) -> Child {
        let Array { dtype, shape, stype, data } = array;
        let (described, chunks) = object::Array::from_data(dtype, shape, stype, data);
        let children = chunks.iter().map(|(id, _)| tree(*id, Vec::new())).collect();
        for (id, chunk) in chunks {
            self.keep(id, chunk);
        }
        let bytes = described.encode();
        let id = object_id(&bytes);
        self.keep(id, bytes);
        (id, tree(id, children))
    }

    fn leaf(&mut self, bytes: Bytes) -> Child {
        let id = object_id(&bytes);
        self.keep(id, bytes);
        (id, tree(id, Vec::new()))
    }

    /// Encodes a record with named children. The tree has each child once, like the header.
    fn parent(&mut self, named: Vec<(&String, Child)>, encode: impl FnOnce(Entries<ObjectId>) -> Bytes) -> Child {
        let mut seen = HashSet::with_capacity(named.len());
        let mut names = Vec::with_capacity(named.len());
        let mut children = Vec::with_capacity(named.len());
        for (name, (id, tree)) in named {
            names.push((name.clone(), id));
            if seen.insert(id) {
                children.push(tree);
            }
        }
        let bytes = encode(Entries::new(names).expect("the names come from entries"));
        let id = object_id(&bytes);
        self.keep(id, bytes);
        (id, tree(id, children))
    }

    fn keep(&mut self, id: ObjectId, bytes: Bytes) {
        if self.seen.insert(id) {
            self.objects.push((id, bytes));
        }
    }
}

pub(super) fn tree(id: ObjectId, children: Vec<ObjectTree>) -> ObjectTree {
    ObjectTree { object_id: id.to_string(), children }
}
