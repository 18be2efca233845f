//! A table: rows by key, with an undo log of the current job and the keys that changed since the last publication.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

use bytes::Bytes;
use trellis_core::Seconds;
use trellis_core::account::Account;
use trellis_core::audit;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{Instruction, Reply};
use trellis_core::node::Node;
use trellis_core::object::{Content, Object};
use trellis_core::port::{Fab, Topic, Traffic};
use trellis_core::run::Run;
use trellis_core::secret::{Hash, Secret};
use trellis_core::token::Token;

#[derive(Clone)]
pub(crate) struct Table<K, V> {
    rows: BTreeMap<K, V>,
    /// The previous rows of keys that the current job changed, oldest first.
    undo_log: Vec<(K, Option<V>)>,
    /// Keys changed by committed jobs and not yet published.
    changed: Vec<K>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { rows: BTreeMap::new(), undo_log: Vec::new(), changed: Vec::new() }
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.rows.values()
    }

    pub(crate) fn range(&self, keys: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(keys)
    }

    pub(crate) fn put(&mut self, key: K, row: V) {
        let before = self.rows.insert(key.clone(), row);
        self.undo_log.push((key, before));
    }

    pub(crate) fn delete(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        self.undo_log.push((key.clone(), Some(row.clone())));
        Some(row)
    }

    fn commit(&mut self) {
        self.changed.extend(self.undo_log.drain(..).map(|(key, _)| key));
    }

    fn rollback(&mut self) {
        while let Some((key, before)) = self.undo_log.pop() {
            match before {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
    }

    fn publish(&mut self, to: &mut Table<K, V>) {
        for key in self.changed.drain(..) {
            match self.rows.get(&key) {
                Some(row) => to.rows.insert(key, row.clone()),
                None => to.rows.remove(&key),
            };
        }
    }
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $key:ty => $row:ty,)+) => {
        /// All rows, and the side effects of changes after their commit.
        #[derive(Default, Clone)]
        pub(crate) struct Tables {
            $($(#[$doc])* pub(crate) $name: Table<$key, $row>,)+
            /// The last number given to an instruction or an audit entry.
            pub(crate) last_number: u64,
            pub(crate) topics: Vec<Topic>,
            /// Names of large content without references.
            pub(crate) removed: Vec<String>,
        }

        impl Tables {
            /// Commits the changes of the current job.
            pub(crate) fn commit(&mut self) {
                $(self.$name.commit();)+
            }

            /// Undoes the changes of the current job. Numbers stay used.
            pub(crate) fn rollback(&mut self) {
                $(self.$name.rollback();)+
            }

            /// Copies the changed rows to `to`.
            pub(crate) fn publish(&mut self, to: &mut Tables) {
                $(self.$name.publish(&mut to.$name);)+
            }
        }
    };
}

/// The key of an object: the id comes first, so that all scopes of an id are adjacent.
pub(crate) type ObjectKey = (ObjectId, RunId, NodeId);

tables! {
    nodes: NodeId => Node,
    node_of_key: Vec<u8> => NodeId,
    runs: RunId => Run,
    traffic: RunId => Traffic,
    fabs: String => Fab,
    contexts: RunId => Bytes,
    /// By run and the bits of the time: bits of non-negative times have the order of the times.
    logs: (RunId, u64) => String,
    reports: (RunId, u64, String) => String,
    tokens: RunId => Token,
    run_of_token: [u8; 32] => RunId,
    /// With the sequence number that orders the instructions of a node.
    instructions: MessageId => (u64, Instruction),
    instructions_of_node: (NodeId, u64) => MessageId,
    instructions_of_run: (RunId, MessageId) => (),
    replies: MessageId => Reply,
    reply_to: MessageId => MessageId,
    replies_of_run: (RunId, MessageId) => (),
    objects: ObjectKey => (Object, Vec<ObjectId>),
    /// Parents by the key of the child.
    parents: (ObjectKey, ObjectId) => (),
    contents: ObjectId => Content,
    accounts: String => Account,
    secrets: Hash => Secret,
    audit: u64 => audit::Entry,
    alive_at: () => Seconds,
}
