//! Delivers instructions to the SuperLink: announces them, and pushes the objects that it lacks. The model is pushed once for
//! all nodes.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::task::JoinSet;
use trellis_client::app::{App, AppError};
use trellis_core::id::{NodeId, ObjectId};

use crate::content::{Address, Content, Instruction};

/// Concurrent pushes.
const OBJECTS_AT_ONCE: usize = 4;
/// Each announcement lists all objects of its message; this limits the names per call.
const NAMES_IN_A_CALL: usize = 20_000;

/// The delivered instructions.
#[derive(Debug, Default)]
pub struct Delivered {
    /// The node of each instruction.
    pub instructions: HashMap<ObjectId, NodeId>,
    /// Nodes that the SuperLink no longer knows.
    pub unreachable: Vec<NodeId>,
}

pub async fn deliver(
    app: &App,
    content: &Content,
    nodes: &[NodeId],
    address: &Address<'_>,
) -> Result<Delivered, AppError> {
    let mut delivered = Delivered::default();
    let nodes_in_a_call = (NAMES_IN_A_CALL / content.tree_size()).max(1);
    for nodes in nodes.chunks(nodes_in_a_call) {
        let instructions: Vec<Instruction> = nodes.iter().map(|node| content.to(*node, address)).collect();
        let messages = instructions.iter().map(|instruction| instruction.message.clone()).collect();
        let trees = instructions.iter().map(|instruction| instruction.tree.clone()).collect();
        let announced = app.push_messages(messages, trees).await?;
        let mut own: HashMap<ObjectId, Bytes> = HashMap::with_capacity(instructions.len());
        for (position, instruction) in instructions.into_iter().enumerate() {
            match announced.ids.get(position) {
                Some(Some(_)) => {
                    delivered.instructions.insert(instruction.id, instruction.node);
                    own.insert(instruction.id, instruction.object);
                }
                _ => delivered.unreachable.push(instruction.node),
            }
        }
        push(app, content, own, announced.missing, &announced.session).await?;
    }
    Ok(delivered)
}

/// Ignores refused objects: their instructions have ended, which the replies will show.
async fn push(
    app: &App,
    content: &Content,
    mut own: HashMap<ObjectId, Bytes>,
    missing: Vec<ObjectId>,
    session: &str,
) -> Result<(), AppError> {
    let mut pushing: JoinSet<Result<bool, AppError>> = JoinSet::new();
    for id in missing {
        if pushing.len() >= OBJECTS_AT_ONCE {
            finished(&mut pushing).await?;
        }
        let Some(object) = own.remove(&id).or_else(|| content.object(id)) else { continue };
        let (app, session) = (app.clone(), session.to_owned());
        pushing.spawn(async move { app.push_object(id, object, &session).await });
    }
    while !pushing.is_empty() {
        finished(&mut pushing).await?;
    }
    Ok(())
}

async fn finished(pushing: &mut JoinSet<Result<bool, AppError>>) -> Result<(), AppError> {
    match pushing.join_next().await {
        Some(Ok(pushed)) => pushed.map(drop),
        Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        None => Ok(()),
    }
}
