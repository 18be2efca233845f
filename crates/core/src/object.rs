//! Objects: content-addressed, shared, counted.
//!
//! An object is announced with its tree before its content comes. It is *complete* when its content and all objects
//! below it are here; completeness climbs to the parents, and a message whose root is complete is ready. An object
//! lives as long as a parent or a message refers to it.

use std::collections::HashSet;

use bytes::Bytes;

use crate::id::{MessageId, ObjectId};
use crate::message;
use crate::port::{Read, Topic, Tx};
use crate::refusal::{Kind, Refusal};

/// Message, RecordDict, ArrayRecord, Array, ArrayChunk: five levels, and some room.
const MAX_HEIGHT: u32 = 8;
/// Objects in the tree of one message. 5 MiB chunks: several TB.
const MAX_TREE_OBJECTS: u64 = 1_000_000;

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
    /// Levels of its tree, itself included.
    pub height: u32,
    /// Objects in its tree, counted as often as they are handed out.
    pub tree_objects: u64,
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
    /// Objects above the one that is looked at.
    above: Vec<ObjectId>,
    /// Missing objects, children before parents.
    pub missing: Vec<ObjectId>,
}

impl Announcement {
    /// Makes sure that everything in `tree` is known. The caller then holds the root.
    pub fn announce(&mut self, tx: &mut dyn Tx, tree: &Tree) -> Result<Object, Refusal> {
        let known = tx.object(tree.id)?;
        if let Some(object) = known
            && (object.is_complete() || self.seen.contains(&tree.id))
        {
            return Ok(object);
        }
        if self.above.contains(&tree.id) {
            return Err(Refusal::new(Kind::Invalid, "an object tree contains itself"));
        }
        if self.above.len() >= MAX_HEIGHT as usize {
            return Err(too_large());
        }
        let children = self.announce_children(tx, tree)?;
        self.seen.insert(tree.id);
        match known {
            Some(object) if tx.children(tree.id)? != children => {
                Err(Refusal::new(Kind::Invalid, format!("object {} was announced with other children", object.id)))
            }
            Some(object) => {
                if !object.here {
                    self.missing.push(tree.id);
                }
                Ok(object)
            }
            None => {
                self.missing.push(tree.id);
                insert(tx, tree.id, &children)
            }
        }
    }

    /// The distinct children, in order.
    fn announce_children(&mut self, tx: &mut dyn Tx, tree: &Tree) -> Result<Vec<ObjectId>, Refusal> {
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
}

fn too_large() -> Refusal {
    Refusal::new(Kind::Invalid, "object tree is too deep or too large")
}

fn insert(tx: &mut dyn Tx, id: ObjectId, children: &[ObjectId]) -> Result<Object, Refusal> {
    let mut object = Object { id, references: 0, waiting: 0, here: false, height: 1, tree_objects: 1 };
    for child in children {
        // Read now and not when it was announced: what stood between may have changed it.
        let mut child = tx.object(*child)?.ok_or_else(too_large)?;
        child.references += 1;
        tx.update_object(&child)?;
        object.waiting += u32::from(!child.is_complete());
        object.height = object.height.max(child.height + 1);
        object.tree_objects = object.tree_objects.saturating_add(child.tree_objects);
    }
    if object.height > MAX_HEIGHT || object.tree_objects > MAX_TREE_OBJECTS {
        return Err(too_large());
    }
    tx.insert_object(&object, children)?;
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
        climb(tx, object)?;
    }
    Ok(Arrival::Stored)
}

/// Tells the parents of a complete object, and theirs; messages at the top become ready.
fn climb(tx: &mut dyn Tx, object: Object) -> Result<(), Refusal> {
    let mut complete = vec![object];
    while let Some(object) = complete.pop() {
        let parents = tx.parents(object.id)?;
        if object.references as usize > parents.len() {
            complete_message(tx, object.id)?;
        }
        for parent in parents {
            let Some(mut parent) = tx.object(parent)? else { continue };
            let became_complete = parent.apply(Event::ChildCompletes);
            tx.update_object(&parent)?;
            if became_complete {
                complete.push(parent);
            }
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

/// The instruction has its reply. It keeps its objects: its sender may not know yet that they have arrived.
pub(crate) fn answer(tx: &mut dyn Tx, instruction: MessageId) -> Result<(), Refusal> {
    let Some(mut instruction) = tx.instruction(instruction)? else { return Ok(()) };
    if instruction.apply(message::Event::Answer).is_ok() {
        tx.put_instruction(&instruction)?;
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

/// The tree below `root`, as it was announced. Its size was checked then.
pub fn tree(read: &(impl Read + ?Sized), root: ObjectId) -> Result<Tree, Refusal> {
    let children = read.children(root)?;
    let children = children.into_iter().map(|child| tree(read, child)).collect::<Result<_, _>>()?;
    Ok(Tree { id: root, children })
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
            let id = ObjectId::new([0; 32]);
            let mut object = Object { id, references: 1, waiting, here, height: 1, tree_objects: 1 };
            let became = object.apply(event);
            assert_eq!((object.here, object.waiting, became), want, "{here} {waiting} + {event:?}");
        }
    }
}
