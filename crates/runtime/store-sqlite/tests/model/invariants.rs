//! Invariants of the tables.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trellis_core::id::{MessageId, ObjectId};
use trellis_core::message::{Envelope, Instruction, Reply, State};
use trellis_core::object::{Object, Scope};
use trellis_core::port::Read;
use trellis_core::refusal::Refusal;

use crate::world::{NODE_IDS, RUN_IDS, Sent, World};

type Checked = Result<(), TestCaseError>;

/// A snapshot of all tables.
struct Tables {
    objects: BTreeMap<(Scope, ObjectId), Row>,
    /// Ids of the universe whose content is stored.
    contents: Vec<ObjectId>,
    count: u64,
    instructions: Vec<Instruction>,
    replies: Vec<Reply>,
}

struct Row {
    object: Object,
    children: Vec<ObjectId>,
    parents: Vec<ObjectId>,
    has_content: bool,
}

fn tables(world: &World, read: &dyn Read) -> Result<Tables, Refusal> {
    let (mut objects, mut contents) = (BTreeMap::new(), Vec::new());
    for id in world.universe.keys() {
        let has_content = read.has_content(*id)?;
        contents.extend(has_content.then_some(*id));
        for scope in World::scopes() {
            let Some(object) = read.object(scope, *id)? else { continue };
            let (children, parents) = (read.children(scope, *id)?, read.parents(scope, *id)?);
            objects.insert((scope, *id), Row { object, children, parents, has_content });
        }
    }
    let find = |sent: &Sent| read.instruction(sent.envelope.id).transpose();
    let instructions = world.sent.iter().filter_map(find).collect::<Result<_, _>>()?;
    let replies = world.replies().filter_map(|id| read.reply(*id).transpose()).collect::<Result<_, _>>()?;
    Ok(Tables { objects, contents, count: read.object_count()?, instructions, replies })
}

pub(crate) fn check(world: &World) -> Checked {
    let tables = world.ask(|read| tables(world, read));
    prop_assert_eq!(tables.count, tables.objects.len() as u64, "an unannounced object");
    for ((_, id), row) in &tables.objects {
        check_object(world, &tables, *id, row)?;
    }
    for id in &tables.contents {
        prop_assert!(tables.objects.keys().any(|(_, kept)| kept == id), "content of {} without objects", id);
    }
    for instruction in &tables.instructions {
        check_instruction(&tables, instruction)?;
    }
    for reply in &tables.replies {
        check_reply(&tables, reply)?;
    }
    check_census(world, &tables)?;
    check_lists(world, &tables)
}

/// Compares the census with counts of the rows.
fn check_census(world: &World, tables: &Tables) -> Checked {
    let census = world.ask(|read| read.census(0.0));
    let count = |states: &[State]| tables.instructions.iter().filter(|i| states.contains(&i.state())).count() as u64;
    let out = count(&[State::Delivered, State::Confirmed, State::Answering]);
    let (incomplete, waiting) = (count(&[State::Incomplete]), count(&[State::Ready]));
    prop_assert_eq!((census.instructions_incomplete, census.instructions_waiting), (incomplete, waiting));
    prop_assert_eq!((census.instructions_out, census.instructions_answered), (out, count(&[State::Answered])));
    prop_assert_eq!(census.replies_ready, tables.replies.iter().filter(|reply| reply.ready).count() as u64);
    prop_assert_eq!(census.objects, tables.count);
    Ok(())
}

impl Tables {
    /// Computes completeness from the rows instead of the counters.
    fn is_whole(&self, scope: Scope, id: ObjectId) -> bool {
        let Some(row) = self.objects.get(&(scope, id)) else { return false };
        row.object.has_content && row.has_content && row.children.iter().all(|child| self.is_whole(scope, *child))
    }

    fn is_message_whole(&self, envelope: &Envelope) -> bool {
        self.is_whole(Scope::of_message(envelope), envelope.id)
    }

    /// Counts the messages that refer to the object.
    fn holders(&self, scope: Scope, id: ObjectId) -> usize {
        let instructions = self.instructions.iter().map(|instruction| &instruction.envelope);
        let envelopes = instructions.chain(self.replies.iter().map(|reply| &reply.envelope));
        envelopes.filter(|envelope| envelope.id == id && Scope::of_message(envelope) == scope).count()
    }

    fn reply_to(&self, instruction: MessageId) -> Option<&Reply> {
        self.replies.iter().find(|reply| reply.reply_to == instruction)
    }
}

fn check_object(world: &World, tables: &Tables, id: ObjectId, row: &Row) -> Checked {
    let Row { object, children, parents, has_content } = row;
    let scope = object.scope;
    prop_assert_eq!(children, &world.universe[&id], "children of {}", id);
    for child in children {
        prop_assert!(tables.objects.contains_key(&(scope, *child)), "{} lacks its child {}", id, child);
    }
    let mut listed = parents.clone();
    listed.sort_unstable();
    let in_scope = tables.objects.iter().filter(|((other, _), _)| *other == scope);
    let found: Vec<ObjectId> =
        in_scope.filter(|(_, row)| row.children.contains(&id)).map(|((_, parent), _)| *parent).collect();
    prop_assert_eq!(&listed, &found, "parents of {}", id);

    let holders = tables.holders(scope, id);
    prop_assert_eq!(object.references as usize, found.len() + holders, "references of {}", id);
    prop_assert!(object.references > 0, "no references to {}", id);
    let waiting = children.iter().filter(|child| !tables.is_whole(scope, **child)).count();
    prop_assert_eq!(object.waiting as usize, waiting, "incomplete children of {}", id);
    prop_assert!(!object.has_content || *has_content, "content of {}", id);
    let below = || children.iter().map(|child| tables.objects[&(scope, *child)].object);
    prop_assert_eq!(object.height, 1 + below().map(|child| child.height).max().unwrap_or(0), "height of {}", id);
    let in_trees = below().map(|child| child.tree_objects).sum::<u64>();
    prop_assert_eq!(object.tree_objects, 1 + in_trees, "objects in the tree of {}", id);
    prop_assert_eq!(object.is_complete(), tables.is_whole(scope, id), "completeness of {}", id);
    Ok(())
}

fn check_instruction(tables: &Tables, instruction: &Instruction) -> Checked {
    let id = instruction.envelope.id;
    let whole = tables.is_message_whole(&instruction.envelope);
    let reply = tables.reply_to(id).map(|reply| reply.ready);
    let (want_whole, want_reply) = match instruction.state() {
        State::Incomplete => (Some(false), None),
        State::Ready | State::Delivered | State::Confirmed => (Some(true), None),
        State::Answering => (Some(true), Some(false)),
        State::Answered => (None, Some(true)),
    };
    prop_assert!(
        want_whole.is_none_or(|expected| whole == expected),
        "{} is {:?}, whole: {}",
        id,
        instruction.state(),
        whole
    );
    prop_assert_eq!(reply, want_reply, "{} is {:?}: whether its reply is ready", id, instruction.state());
    Ok(())
}

fn check_reply(tables: &Tables, reply: &Reply) -> Checked {
    let id = reply.envelope.id;
    prop_assert_eq!(reply.ready, tables.is_message_whole(&reply.envelope), "reply {} is ready if it is complete", id);
    let same = tables.replies.iter().filter(|other| other.reply_to == reply.reply_to).count();
    prop_assert_eq!(same, 1, "one reply for {}", reply.reply_to);
    Ok(())
}

fn check_lists(world: &World, tables: &Tables) -> Checked {
    for run in RUN_IDS {
        let mut instructions = world.ask(|read| read.instructions_of_run(run));
        let mut replies = world.ask(|read| read.replies_of_run(run));
        let mut want_instructions: Vec<MessageId> =
            tables.instructions.iter().map(|i| &i.envelope).filter(|e| e.run == run).map(|e| e.id).collect();
        let mut want_replies: Vec<MessageId> =
            tables.replies.iter().map(|r| &r.envelope).filter(|e| e.run == run).map(|e| e.id).collect();
        for list in [&mut instructions, &mut replies, &mut want_instructions, &mut want_replies] {
            list.sort_unstable();
        }
        prop_assert_eq!(&instructions, &want_instructions, "instructions of run {}", run);
        prop_assert_eq!(&replies, &want_replies, "replies of run {}", run);
        if world.is_finished(run) {
            prop_assert!(instructions.is_empty() && replies.is_empty(), "messages of the finished run {}", run);
            prop_assert_eq!(world.ask(|read| read.token(run)), None, "a token of the finished run {}", run);
        }
    }
    for node in NODE_IDS {
        if let Some(next) = world.ask(|read| read.deliverable(node)) {
            prop_assert!(matches!(next.state(), State::Ready | State::Delivered), "{:?} is next", next.state());
            prop_assert!(tables.is_message_whole(&next.envelope), "{} is deliverable and incomplete", next.envelope.id);
            prop_assert!(!next.is_undeliverable() && next.envelope.dst == node);
        }
    }
    Ok(())
}
