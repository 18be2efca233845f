//! Transactions of users: start and stop runs, register and unregister nodes.

use std::fmt;

use crate::Seconds;
use crate::app;
use crate::audit;
use crate::fleet::{self, KEY_IN_USE};
use crate::id::{NodeId, RunId};
use crate::node::Node;
use crate::port::{Fab, Topic, Tx};
use crate::refusal::{Kind, Refusal};
use crate::run::{NewRun, Outcome, Run};

/// Heartbeat interval of a node before its first activation.
const DEFAULT_HEARTBEAT_INTERVAL_S: f64 = 30.0;

/// Creates a pending run.
pub fn start_run(
    tx: &mut dyn Tx,
    id: RunId,
    new: NewRun,
    fab: &Fab,
    context: &[u8],
    now: Seconds,
) -> Result<(), Refusal> {
    if tx.run(id)?.is_some() {
        return Err(Refusal::new(Kind::Transient, "run ID taken, try again"));
    }
    tx.put_fab(fab)?;
    tx.put_run(&Run::new(id, new, now))?;
    tx.put_context(id, context)?;
    tx.wake(Topic::Launch);
    tx.wake(Topic::Run(id));
    Ok(())
}

pub fn stop_run(tx: &mut dyn Tx, id: RunId, now: Seconds) -> Result<(), Refusal> {
    let Some(run) = tx.run(id)? else { return Err(Refusal::new(Kind::NotFound, "Run ID not found")) };
    if run.state().is_finished() {
        return Err(Refusal::new(Kind::Precondition, format!("Run ID {id} is already finished")));
    }
    app::finish(tx, id, Outcome::Stopped, "", now)
}

/// A node as its owner describes it. Name and location may be empty.
#[derive(Debug, Clone, Default)]
pub struct NewNode {
    pub key: Vec<u8>,
    pub name: String,
    pub location: String,
}

impl fmt::Display for NewNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.location.as_str()) {
            ("", "") => Ok(()),
            (name, "") => f.write_str(name),
            ("", location) => write!(f, "at {location}"),
            (name, location) => write!(f, "{name} at {location}"),
        }
    }
}

/// Registers a key for its owner.
pub fn register_node(
    tx: &mut dyn Tx,
    id: NodeId,
    owner: (&str, &str),
    new: &NewNode,
    now: Seconds,
) -> Result<NodeId, Refusal> {
    if tx.node_by_key(&new.key)?.is_some() {
        return Err(Refusal::new(Kind::Precondition, KEY_IN_USE));
    }
    insert_node(tx, id, owner, new, now)?;
    audit::record(tx, audit::Event::NodeRegisteredByUser, owner.1, &audit::node(id), &new.to_string(), now)?;
    Ok(id)
}

/// Stores a node whose key is new.
pub(crate) fn insert_node(
    tx: &mut dyn Tx,
    id: NodeId,
    owner: (&str, &str),
    new: &NewNode,
    now: Seconds,
) -> Result<(), Refusal> {
    if tx.node(id)?.is_some() {
        return Err(Refusal::new(Kind::Transient, "node ID taken, try again"));
    }
    let mut node = Node::register(id, owner, &new.key, DEFAULT_HEARTBEAT_INTERVAL_S, now);
    node.name.clone_from(&new.name);
    node.location.clone_from(&new.location);
    tx.wake(Topic::Nodes);
    tx.put_node(&node)
}

/// Which nodes a user may unregister.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Own,
    All,
}

/// Unregisters a node: ends its held calls, and wakes the runs that wait for it.
pub fn unregister_node(
    tx: &mut dyn Tx,
    id: NodeId,
    by: (&str, &str),
    reach: Reach,
    now: Seconds,
) -> Result<(), Refusal> {
    let not_found = || Refusal::new(Kind::NotFound, "Node ID not found for account");
    let node = tx.node(id)?.filter(|node| reach == Reach::All || node.owner_aid == by.0).ok_or_else(not_found)?;
    let event = audit::Event::NodeRevoked;
    if fleet::end(tx, node, event, by.1, now)? { Ok(()) } else { Err(not_found()) }
}
