//! Objects: content-addressed, reference-counted, announced by one sender in one run.
//!
//! An object is announced with its tree before its content arrives. It is *complete* when its content and all objects
//! below it are stored. Completeness propagates to the parents, and a message with a complete root is ready. An object
//! exists as long as a parent or a message refers to it.
//!
//! An announcement is valid only in its [`Scope`]: a false announcement cannot change an announcement of another sender
//! or run for the same id. The content is stored once for all scopes, because its id is its hash.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::id::{MessageId, NodeId, ObjectId, RunId};
use crate::message::{self, Envelope};
use crate::port::{Read, Topic, Tx};
use crate::refusal::{Kind, Refusal};

/// Flower uses five levels: Message, RecordDict, ArrayRecord, Array, ArrayChunk.
pub const MAX_HEIGHT: u32 = 8;
/// Maximum number of objects in the tree of one message. Flower splits arrays into chunks of 5 MiB, so this suffices
/// for a model of 150 GB.
pub const MAX_TREE_OBJECTS: u64 = 32_768;
/// Maximum number of objects in the incomplete replies of one node, over all its runs.
pub const MAX_OUTSTANDING_OBJECTS: u64 = 4 * MAX_TREE_OBJECTS;

/// The scope of an announcement: one sender in one run. The ServerApp sends as [`NodeId::SUPERLINK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    pub run: RunId,
    pub sender: NodeId,
}

impl Scope {
    pub fn of_message(envelope: &Envelope) -> Scope {
        Scope { run: envelope.run, sender: envelope.src }
    }

    /// The scope of the run's ServerApp.
    pub fn of_app(run: RunId) -> Scope {
        Scope { run, sender: NodeId::SUPERLINK }
    }

    fn is_app(self) -> bool {
        self.sender == NodeId::SUPERLINK
    }
}

/// An object and the objects below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub id: ObjectId,
    pub children: Vec<Tree>,
}

impl Tree {
    /// Checks that the tree is small enough to be announced. Does not need the store: call it before opening a
    /// transaction.
    pub fn check(&self) -> Result<(), Refusal> {
        let mut objects = 0;
        let mut level = vec![self];
        let mut height = 0;
        while !level.is_empty() {
            height += 1;
            objects += level.len() as u64;
            if height > MAX_HEIGHT || objects > MAX_TREE_OBJECTS {
                return Err(too_large(self.id));
            }
            level = level.into_iter().flat_map(|tree| &tree.children).collect();
        }
        Ok(())
    }

    /// Adds the ids of the tree to `seen` and returns the number of new ids. Does not descend below an id that `seen`
    /// contains.
    pub fn add_to(&self, seen: &mut HashSet<ObjectId>) -> usize {
        if !seen.insert(self.id) {
            return 0;
        }
        1 + self.children.iter().map(|child| child.add_to(seen)).sum::<usize>()
    }
}

/// Maximum number of objects announced in one transaction, so that it holds the store for well below a second. A
/// message is not split.
pub const MAX_TRANSACTION_OBJECTS: usize = 4096;

/// Splits messages into batches of one transaction each, by the size of their trees. Shared objects count once.
pub fn transactions<T>(messages: Vec<T>, tree: impl Fn(&T) -> &Tree) -> Vec<Vec<T>> {
    let mut seen = HashSet::new();
    let mut transactions: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for message in messages {
        let objects = tree(&message).add_to(&mut seen);
        match transactions.last_mut() {
            Some(open) if objects <= room => {
                open.push(message);
                room -= objects;
            }
            _ => {
                transactions.push(vec![message]);
                room = MAX_TRANSACTION_OBJECTS.saturating_sub(objects);
            }
        }
    }
    transactions
}

/// The location of an object's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Small content, stored in the row.
    Inline(Bytes),
    /// Large content, stored outside of the rows under a name that is never reused.
    Large { name: String, bytes: u64 },
}

impl Content {
    pub fn len_bytes(&self) -> u64 {
        match self {
            Content::Inline(bytes) => bytes.len() as u64,
            Content::Large { bytes, .. } => *bytes,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    ContentArrives,
    ChildCompletes,
}

/// A stored object without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    pub id: ObjectId,
    pub scope: Scope,
    /// Number of parents and messages in the scope that refer to the object.
    pub references: u32,
    /// Children that are not complete.
    pub waiting: u32,
    /// The content is stored.
    pub has_content: bool,
    /// Levels of its tree, including itself.
    pub height: u32,
    /// Number of objects in its tree; shared objects count once per parent.
    pub tree_objects: u64,
}

impl Object {
    /// An object without children or references.
    pub fn new(scope: Scope, id: ObjectId) -> Object {
        Object { id, scope, references: 0, waiting: 0, has_content: false, height: 1, tree_objects: 1 }
    }

    pub fn is_complete(&self) -> bool {
        self.has_content && self.waiting == 0
    }

    /// Applies an event. Returns whether the object became complete.
    pub fn apply(&mut self, event: Event) -> bool {
        let before = self.is_complete();
        match event {
            Event::ContentArrives => self.has_content = true,
            Event::ChildCompletes => self.waiting = self.waiting.saturating_sub(1),
        }
        !before && self.is_complete()
    }
}

/// Finds an object that the sender of `scope` may read. A ServerApp may read all objects of its run. A node may read
/// objects sent by its run's ServerApp or by itself. Objects whose content is stored are preferred.
pub fn visible(read: &(impl Read + ?Sized), scope: Scope, id: ObjectId) -> Result<Option<Object>, Refusal> {
    let elsewhere = if scope.is_app() {
        read.object_with_content(scope.run, id)?
    } else {
        read.object(Scope::of_app(scope.run), id)?
    };
    match elsewhere {
        Some(object) if object.has_content => Ok(Some(object)),
        pending => Ok(read.object(scope, id)?.or(pending)),
    }
}

/// Announces the trees of one sender and collects the ids of missing content. Messages that share objects use one
/// announcement. Only [`Announcement::write`] writes to the store.
pub struct Announcement {
    scope: Scope,
    /// Objects of this announcement, with the counters that will be written.
    objects: HashMap<ObjectId, Announced>,
    /// Ids of the objects to write, children before parents.
    order: Vec<ObjectId>,
    /// Ancestors of the current object.
    above: Vec<ObjectId>,
    /// Missing objects, children before parents.
    missing: Vec<ObjectId>,
}

struct Announced {
    object: Object,
    /// Children of an object to insert; `None` if its row exists.
    children: Option<Vec<ObjectId>>,
    is_changed: bool,
}

impl Announcement {
    pub fn new(scope: Scope) -> Announcement {
        let (objects, order) = (HashMap::new(), Vec::new());
        Announcement { scope, objects, order, above: Vec::new(), missing: Vec::new() }
    }

    /// Announces the tree of a message and adds the message's reference to the root.
    pub fn hold(&mut self, tx: &dyn Tx, tree: &Tree) -> Result<Object, Refusal> {
        self.announce(tx, tree)?;
        self.refer_to(tree.id)
    }

    /// Announces a tree. A message or a parent must refer to its root.
    pub fn announce(&mut self, tx: &dyn Tx, tree: &Tree) -> Result<(), Refusal> {
        if self.objects.contains_key(&tree.id) {
            return Ok(());
        }
        if self.above.contains(&tree.id) {
            return Err(Refusal::new(Kind::Invalid, format!("the tree of object {} contains itself", tree.id)));
        }
        if self.above.len() >= MAX_HEIGHT as usize {
            return Err(too_large(tree.id));
        }
        let known = tx.object(self.scope, tree.id)?;
        if let Some(object) = known.filter(Object::is_complete) {
            self.keep(object, None);
            return Ok(());
        }
        let children = self.announce_children(tx, tree)?;
        let object = match known {
            Some(_) if tx.children(self.scope, tree.id)? != children => return Err(other_children(tree.id)),
            Some(object) => {
                self.keep(object, None);
                object
            }
            None => self.insert(tx, tree.id, children)?,
        };
        if !object.has_content {
            self.missing.push(tree.id);
        }
        Ok(())
    }

    /// Announces the children and returns their distinct ids in order.
    fn announce_children(&mut self, tx: &dyn Tx, tree: &Tree) -> Result<Vec<ObjectId>, Refusal> {
        let mut distinct = HashSet::with_capacity(tree.children.len());
        let mut children = Vec::with_capacity(tree.children.len());
        self.above.push(tree.id);
        for child in &tree.children {
            self.announce(tx, child)?;
            if distinct.insert(child.id) {
                children.push(child.id);
            }
        }
        self.above.pop();
        Ok(children)
    }

    fn insert(&mut self, tx: &dyn Tx, id: ObjectId, children: Vec<ObjectId>) -> Result<Object, Refusal> {
        let mut object = Object::new(self.scope, id);
        for child in &children {
            let child = self.refer_to(*child)?;
            object.waiting += u32::from(!child.is_complete());
            object.height = object.height.max(child.height + 1);
            object.tree_objects = object.tree_objects.saturating_add(child.tree_objects);
        }
        if object.height > MAX_HEIGHT || object.tree_objects > MAX_TREE_OBJECTS {
            return Err(too_large(id));
        }
        if let Some(other) = visible(tx, self.scope, id)?.filter(|other| other.has_content) {
            // The content is stored, so the announced children must equal the children in the content.
            if !same_ids(&tx.children(other.scope, id)?, &children) {
                return Err(other_children(id));
            }
            object.has_content = true;
        }
        self.keep(object, Some(children));
        Ok(object)
    }

    fn keep(&mut self, object: Object, children: Option<Vec<ObjectId>>) {
        self.order.push(object.id);
        let is_changed = children.is_some();
        self.objects.insert(object.id, Announced { object, children, is_changed });
    }

    /// Adds a reference to an object of this announcement.
    fn refer_to(&mut self, id: ObjectId) -> Result<Object, Refusal> {
        let announced = self.objects.get_mut(&id).ok_or_else(|| not_announced(id))?;
        announced.object.references += 1;
        announced.is_changed = true;
        Ok(announced.object)
    }

    /// Writes the announced objects. Returns the missing objects, children before parents.
    pub fn write(self, tx: &mut dyn Tx) -> Result<Vec<ObjectId>, Refusal> {
        for id in &self.order {
            let Announced { object, children, is_changed } = &self.objects[id];
            match children {
                Some(children) => tx.insert_object(object, children)?,
                None if *is_changed => tx.update_object(object)?,
                None => {}
            }
        }
        Ok(self.missing)
    }
}

fn too_large(id: ObjectId) -> Refusal {
    let text = format!(
        "the tree of object {id} is too deep or too large: a message has at most {MAX_HEIGHT} levels and \
         {MAX_TREE_OBJECTS} objects"
    );
    Refusal::new(Kind::Invalid, text)
}

fn other_children(id: ObjectId) -> Refusal {
    Refusal::new(Kind::Invalid, format!("object {id} was announced with other children"))
}

fn not_announced(id: ObjectId) -> Refusal {
    Refusal::new(Kind::Precondition, format!("object {id} was not announced"))
}

/// Compares ids as sets: order and duplicates do not matter.
fn same_ids(some: &[ObjectId], others: &[ObjectId]) -> bool {
    let set = |ids: &[ObjectId]| ids.iter().copied().collect::<HashSet<_>>();
    set(some) == set(others)
}

/// The result of arriving content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Stored,
    /// The content was already stored.
    Known,
    /// The sender did not announce the object.
    Unannounced,
}

/// Accepts verified content from the sender of `scope`. `children` are the children named in the content.
pub fn arrive(
    tx: &mut dyn Tx,
    scope: Scope,
    id: ObjectId,
    content: &Content,
    children: &[ObjectId],
) -> Result<Arrival, Refusal> {
    let Some(mut object) = tx.object(scope, id)? else { return Ok(Arrival::Unannounced) };
    if object.has_content {
        return Ok(Arrival::Known);
    }
    if !same_ids(&tx.children(scope, id)?, children) {
        return Err(Refusal::new(Kind::Precondition, format!("object {id} has other children than announced")));
    }
    let arrival = if tx.has_content(id)? { Arrival::Known } else { Arrival::Stored };
    if arrival == Arrival::Stored {
        tx.put_content(id, content)?;
    }
    let complete = object.apply(Event::ContentArrives);
    tx.update_object(&object)?;
    if complete {
        propagate_completion(tx, object)?;
    }
    Ok(arrival)
}

/// Propagates the completeness of an object to its ancestors; messages with a complete root become ready.
fn propagate_completion(tx: &mut dyn Tx, object: Object) -> Result<(), Refusal> {
    let scope = object.scope;
    let mut complete = vec![object];
    while let Some(object) = complete.pop() {
        let parents = tx.parents(scope, object.id)?;
        if object.references as usize > parents.len() {
            complete_message(tx, scope, object.id)?;
        }
        for parent in parents {
            let Some(mut parent) = tx.object(scope, parent)? else { continue };
            let became_complete = parent.apply(Event::ChildCompletes);
            tx.update_object(&parent)?;
            if became_complete {
                complete.push(parent);
            }
        }
    }
    Ok(())
}

/// Marks the message as ready after its root is complete.
pub(crate) fn complete_message(tx: &mut dyn Tx, scope: Scope, id: MessageId) -> Result<(), Refusal> {
    let is_ours = |envelope: &Envelope| Scope::of_message(envelope) == scope;
    if scope.is_app() {
        let instruction = tx.instruction(id)?.filter(|instruction| is_ours(&instruction.envelope));
        if let Some(mut instruction) = instruction
            && instruction.apply(message::Event::Complete).is_ok()
        {
            tx.put_instruction(&instruction)?;
            tx.wake(Topic::Node(instruction.envelope.dst));
        }
    } else if let Some(mut reply) = tx.reply(id)?.filter(|reply| is_ours(&reply.envelope)) {
        reply.ready = true;
        tx.put_reply(&reply)?;
        answer(tx, reply.reply_to)?;
        tx.wake(Topic::Replies(reply.envelope.run));
    }
    Ok(())
}

/// Marks an instruction as answered. Its objects are kept: its sender may not know yet that they have arrived.
pub(crate) fn answer(tx: &mut dyn Tx, instruction: MessageId) -> Result<(), Refusal> {
    let Some(mut instruction) = tx.instruction(instruction)? else { return Ok(()) };
    if instruction.apply(message::Event::Answer).is_ok() {
        tx.put_instruction(&instruction)?;
    }
    Ok(())
}

/// Removes one reference and deletes all objects without references.
pub(crate) fn release(tx: &mut dyn Tx, scope: Scope, root: ObjectId) -> Result<(), Refusal> {
    let mut released = vec![root];
    while let Some(id) = released.pop() {
        let Some(mut object) = tx.object(scope, id)? else { continue };
        object.references = object.references.saturating_sub(1);
        if object.references > 0 {
            tx.update_object(&object)?;
            continue;
        }
        released.extend(tx.children(scope, id)?);
        tx.delete_object(scope, id)?;
    }
    Ok(())
}

/// Returns the announced tree below `root`. The announcement checked its size.
pub fn tree(read: &(impl Read + ?Sized), scope: Scope, root: ObjectId) -> Result<Tree, Refusal> {
    let children = read.children(scope, root)?;
    let children = children.into_iter().map(|child| tree(read, scope, child)).collect::<Result<_, _>>()?;
    Ok(Tree { id: root, children })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every state, every event: (has_content, waiting) -> event -> (has_content, waiting, became complete).
    #[test]
    fn table() {
        use Event::*;
        let rows = [
            ((false, 0), ContentArrives, (true, 0, true)),
            ((false, 0), ChildCompletes, (false, 0, false)),
            ((false, 1), ContentArrives, (true, 1, false)),
            ((false, 1), ChildCompletes, (false, 0, false)),
            ((true, 1), ContentArrives, (true, 1, false)),
            ((true, 1), ChildCompletes, (true, 0, true)),
            ((true, 2), ChildCompletes, (true, 1, false)),
            ((true, 0), ContentArrives, (true, 0, false)),
            ((true, 0), ChildCompletes, (true, 0, false)),
        ];
        for ((has_content, waiting), event, expected) in rows {
            let object = Object::new(Scope::of_app(RunId(1)), ObjectId::new([0; 32]));
            let mut object = Object { waiting, has_content, ..object };
            let became = object.apply(event);
            assert_eq!((object.has_content, object.waiting, became), expected, "{has_content} {waiting} + {event:?}");
        }
    }

    fn leaf(number: u64) -> Tree {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_be_bytes());
        Tree { id: ObjectId::new(id), children: Vec::new() }
    }

    #[test]
    fn a_tree_has_both_limits() {
        let wide = |children: u64| Tree { children: (1..=children).map(leaf).collect(), ..leaf(0) };
        assert!(wide(MAX_TREE_OBJECTS - 1).check().is_ok());
        assert!(wide(MAX_TREE_OBJECTS).check().is_err());
        let deep = |height: u64| (1..height).fold(leaf(0), |below, n| Tree { children: vec![below], ..leaf(n) });
        assert!(deep(u64::from(MAX_HEIGHT)).check().is_ok());
        assert!(deep(u64::from(MAX_HEIGHT) + 1).check().is_err());
        // Maximum density under the old limits: each level repeats the level below.
        let dense = (1..5).fold(leaf(0), |below, n| Tree { children: vec![below; 32], ..leaf(n) });
        assert!(dense.check().unwrap_err().text.contains("too large"));
    }

    #[test]
    fn messages_are_split_by_their_new_objects() {
        let shared = Tree { children: (1..2000).map(leaf).collect(), ..leaf(0) };
        let model = |n: u64| Tree { children: vec![shared.clone()], ..leaf(1 << 32 | n) };
        let large = |n: u64| Tree { children: (0..3000).map(|child| leaf(n << 40 | child)).collect(), ..leaf(n << 48) };
        let sizes = |trees: Vec<Tree>| transactions(trees, |tree| tree).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![]), Vec::<usize>::new());
        assert_eq!(sizes((0..1000).map(model).collect()), [1000], "a model for many nodes is announced at once");
        assert_eq!(sizes(vec![large(1), large(2), model(0), model(1), large(3)]), [1, 1, 2, 1]);
    }
}
