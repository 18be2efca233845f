//! Objects: content-addressed, shared, counted.
//!
//! An object is announced with its tree before its content comes. It is *complete* when its content and all objects
//! below it are here; completeness climbs to the parents, and a message whose root is complete is ready. An object
//! lives as long as a parent or a message refers to it.

use std::collections::HashSet;

use bytes::Bytes;

use crate::id::{MessageId, ObjectId};
use crate::message;
use crate::port::{Topic, Tx};
use crate::refusal::{Kind, Refusal};

/// Message, RecordDict, ArrayRecord, Array, ArrayChunk: five levels, and some room.
const MAX_DEPTH: usize = 8;
/// Objects in the tree of one message. 5 MiB chunks: several TB.
const MAX_TREE_OBJECTS: usize = 1_000_000;

/// An object and what is below it, as announced or as handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub id: ObjectId,
    pub children: Vec<Tree>,
}

/// Where the bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Small: kept with the row.
    Inline(Bytes),
    /// Large: a file of the store, under a name that is never used twice.
    File { name: String, bytes: u64 },
}

impl Content {
    pub fn len_bytes(&self) -> u64 {
        match self {
            Content::Inline(bytes) => bytes.len() as u64,
            Content::File { bytes, .. } => *bytes,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    ContentArrives,
    ChildCompletes,
}

/// An object as it is kept, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    pub id: ObjectId,
    /// Parents and messages that refer to it.
    pub references: u32,
    /// Children that are not complete.
    pub waiting: u32,
    /// Its content is here.
    pub here: bool,
}

impl Object {
    pub fn is_complete(&self) -> bool {
        self.here && self.waiting == 0
    }

    /// Steps the machine; says whether the object became complete by it.
    pub fn apply(&mut self, event: Event) -> bool {
        let before = self.is_complete();
        match event {
            Event::ContentArrives => self.here = true,
            Event::ChildCompletes => self.waiting = self.waiting.saturating_sub(1),
        }
        !before && self.is_complete()
    }
}

/// Announces trees and collects the ids whose content is missing. One for many messages that share objects.
#[derive(Default)]
pub struct Announcement {
    seen: HashSet<ObjectId>,
    /// Missing objects, children before parents.
    pub missing: Vec<ObjectId>,
}

impl Announcement {
    /// Makes sure that everything in `tree` is known. The caller then holds the root.
    pub fn announce(&mut self, tx: &mut dyn Tx, tree: &Tree) -> Result<Object, Refusal> {
        self.visit(tx, tree, 1)
    }

    fn visit(&mut self, tx: &mut dyn Tx, tree: &Tree, depth: usize) -> Result<Object, Refusal> {
        if depth > MAX_DEPTH || self.seen.len() > MAX_TREE_OBJECTS {
            return Err(Refusal::new(Kind::Invalid, "object tree is too deep or too large"));
        }
        let known = tx.object(tree.id)?;
        if let Some(object) = known
            && (object.is_complete() || self.seen.contains(&tree.id))
        {
            return Ok(object);
        }
        let mut children = Vec::with_capacity(tree.children.len());
        let mut unique = HashSet::with_capacity(tree.children.len());
        for child in &tree.children {
            let object = self.visit(tx, child, depth + 1)?;
            if unique.insert(object.id) {
                children.push(object);
            }
        }
        self.seen.insert(tree.id);
        match known {
            Some(object) => {
                if !object.here {
                    self.missing.push(tree.id);
                }
                Ok(object)
            }
            None => {
                self.missing.push(tree.id);
                insert(tx, tree.id, children)
            }
        }
    }
}

fn insert(tx: &mut dyn Tx, id: ObjectId, children: Vec<Object>) -> Result<Object, Refusal> {
    let waiting = children.iter().filter(|child| !child.is_complete()).count() as u32;
    let ids: Vec<ObjectId> = children.iter().map(|child| child.id).collect();
    let object = Object { id, references: 0, waiting, here: false };
    tx.insert_object(&object, &ids)?;
    for mut child in children {
        child.references += 1;
        tx.update_object(&child)?;
    }
    Ok(object)
}

/// What became of content that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Stored,
    /// It was here before; the new copy is not needed.
    Known,
    /// Nobody announced it.
    Unannounced,
}

/// Takes verified content. `children` are those named in the content itself.
pub fn arrive(tx: &mut dyn Tx, id: ObjectId, content: &Content, children: &[ObjectId]) -> Result<Arrival, Refusal> {
    let Some(mut object) = tx.object(id)? else { return Ok(Arrival::Unannounced) };
    if object.here {
        return Ok(Arrival::Known);
    }
    let announced: HashSet<ObjectId> = tx.children(id)?.into_iter().collect();
    if announced != children.iter().copied().collect() {
        return Err(Refusal::new(Kind::Precondition, format!("object {id} has other children than announced")));
    }
    tx.put_content(id, content)?;
    let complete = object.apply(Event::ContentArrives);
    tx.update_object(&object)?;
    if complete {
        climb(tx, id)?;
    }
    Ok(Arrival::Stored)
}

/// Tells the parents of a complete object, and theirs; messages at the top become ready.
fn climb(tx: &mut dyn Tx, id: ObjectId) -> Result<(), Refusal> {
    let mut complete = vec![id];
    while let Some(id) = complete.pop() {
        let parents = tx.parents(id)?;
        if parents.is_empty() {
            complete_message(tx, id)?;
        }
        for parent in parents {
            let Some(mut object) = tx.object(parent)? else { continue };
            if object.apply(Event::ChildCompletes) {
                complete.push(parent);
            }
            tx.update_object(&object)?;
        }
    }
    Ok(())
}

/// The root of a message is complete: the instruction may go out, or the reply counts.
pub(crate) fn complete_message(tx: &mut dyn Tx, id: MessageId) -> Result<(), Refusal> {
    if let Some(mut instruction) = tx.instruction(id)? {
        if instruction.apply(message::Event::Complete).is_ok() {
            tx.put_instruction(&instruction)?;
            tx.wake(Topic::Node(instruction.envelope.dst));
        }
    } else if let Some(mut reply) = tx.reply(id)? {
        reply.ready = true;
        tx.put_reply(&reply)?;
        answer(tx, reply.reply_to)?;
        tx.wake(Topic::Replies(reply.envelope.run));
    }
    Ok(())
}

/// The instruction has its reply: its own objects are not needed any more.
pub(crate) fn answer(tx: &mut dyn Tx, instruction: MessageId) -> Result<(), Refusal> {
    let Some(mut instruction) = tx.instruction(instruction)? else { return Ok(()) };
    if instruction.apply(message::Event::Answer).is_ok() {
        tx.put_instruction(&instruction)?;
        release(tx, instruction.envelope.id)?;
    }
    Ok(())
}

/// A message refers to its root.
pub(crate) fn hold(tx: &mut dyn Tx, root: ObjectId) -> Result<Object, Refusal> {
    let Some(mut object) = tx.object(root)? else {
        return Err(Refusal::new(Kind::Precondition, format!("object {root} was not announced")));
    };
    object.references += 1;
    tx.update_object(&object)?;
    Ok(object)
}

/// One reference less; what nobody refers to goes, and so on below it.
pub(crate) fn release(tx: &mut dyn Tx, root: ObjectId) -> Result<(), Refusal> {
    let mut released = vec![root];
    while let Some(id) = released.pop() {
        let Some(mut object) = tx.object(id)? else { continue };
        object.references = object.references.saturating_sub(1);
        if object.references > 0 {
            tx.update_object(&object)?;
            continue;
        }
        released.extend(tx.children(id)?);
        tx.delete_object(id)?;
    }
    Ok(())
}

/// The tree below `root`, as it was announced.
pub fn tree(read: &(impl crate::port::Read + ?Sized), root: ObjectId) -> Result<Tree, Refusal> {
    fn grow(
        read: &(impl crate::port::Read + ?Sized),
        id: ObjectId,
        depth: usize,
        left: &mut usize,
    ) -> Result<Tree, Refusal> {
        *left = left
            .checked_sub(1)
            .filter(|_| depth <= MAX_DEPTH)
            .ok_or_else(|| Refusal::new(Kind::Invalid, "object tree is too deep or too large"))?;
        let children = read.children(id)?;
        let children =
            children.into_iter().map(|child| grow(read, child, depth + 1, left)).collect::<Result<_, _>>()?;
        Ok(Tree { id, children })
    }
    grow(read, root, 1, &mut { MAX_TREE_OBJECTS })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every state, every event: (here, waiting) -> event -> (here, waiting, became complete).
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
        for ((here, waiting), event, want) in rows {
            let mut object = Object { id: ObjectId::new([0; 32]), references: 1, waiting, here };
            let became = object.apply(event);
            assert_eq!((object.here, object.waiting, became), want, "{here} {waiting} + {event:?}");
        }
    }
}
