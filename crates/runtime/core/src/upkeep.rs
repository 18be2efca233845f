//! Time-driven transactions: fail silent apps, expire instructions, delete old secrets; and recovery after downtime of
//! the SuperLink.

use crate::Seconds;
use crate::access::RETENTION_S;
use crate::app::{finish, process_exited};
use crate::fleet::drop_instruction;
use crate::node;
use crate::port::{Read, Topic, Tx};
use crate::refusal::Refusal;
use crate::run::{Outcome, State};
use crate::token;

/// The details of a run without heartbeats.
pub const NO_HEARTBEAT: &str = "No heartbeat received from the run.";
const NEVER_STARTED: &str = "The ServerApp was started several times and never asked for its inputs.";
/// Maximum number of instructions, or secrets, per transaction; the next tick continues.
const EXPIRE_BATCH: usize = 256;

/// Returns whether a tick at `now` would change anything.
pub fn is_due(read: &(impl Read + ?Sized), now: Seconds) -> Result<bool, Refusal> {
    for token in read.tokens_until(now)? {
        let state = read.run(token.run)?.map(|run| run.state().clone());
        if !matches!((token.state, state), (token::State::Issued { .. }, Some(State::Pending))) {
            return Ok(true);
        }
    }
    Ok(!read.expired_instructions(now, 1)?.is_empty() || !read.ended_secrets(now - RETENTION_S, 1)?.is_empty())
}

/// Applies everything that is due.
pub fn tick(tx: &mut dyn Tx, now: Seconds) -> Result<(), Refusal> {
    for token in tx.tokens_until(now)? {
        match token.state {
            token::State::Issued { .. } => process_exited(tx, token.run, NEVER_STARTED, now)?,
            token::State::Active { .. } => finish(tx, token.run, Outcome::Failed, NO_HEARTBEAT, now)?,
            token::State::Spent { .. } => finish(tx, token.run, Outcome::Completed, "", now)?,
        }
    }
    for id in tx.expired_instructions(now, EXPIRE_BATCH)? {
        if let Some(instruction) = tx.instruction(id)? {
            drop_instruction(tx, &instruction)?;
            tx.wake(Topic::Replies(instruction.envelope.run));
        }
    }
    for secret in tx.ended_secrets(now - RETENTION_S, EXPIRE_BATCH)? {
        tx.delete_secret(&secret.hash)?;
    }
    Ok(())
}

/// Extends the deadlines of nodes and apps that were alive before the downtime of the SuperLink.
pub fn recover(tx: &mut dyn Tx, now: Seconds) -> Result<(), Refusal> {
    let Some(alive_at) = tx.alive_at()? else { return tx.set_alive_at(now) };
    for mut node in tx.nodes()? {
        let node::State::Online { until } = node.state() else { continue };
        let extension = node::Event::Extend { interval_s: node.heartbeat_interval_s };
        if until > alive_at && node.apply(extension, now).is_ok() {
            tx.put_node(&node)?;
        }
    }
    for run in tx.unfinished_runs()? {
        let Some(mut token) = tx.token(run.id)? else { continue };
        if token.state.until() > alive_at
            && let Ok(state) = token::next(token.state, token::Event::Extend, now)
        {
            token.state = state;
            tx.put_token(&token)?;
        }
    }
    tx.set_alive_at(now)
}
