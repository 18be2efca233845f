//! What time does by itself: apps fall silent, instructions expire, what is over is forgotten; and what an absence of
//! the SuperLink excuses.

use crate::Seconds;
use crate::access::REMEMBERED_S;
use crate::app::{finish, process_gone};
use crate::fleet::drop_instruction;
use crate::node;
use crate::port::{Read, Topic, Tx};
use crate::refusal::Refusal;
use crate::run::{Outcome, State};
use crate::token;

/// What users read on a run whose app fell silent.
pub const NO_HEARTBEAT: &str = "No heartbeat received from the run.";
const NEVER_STARTED: &str = "The ServerApp was started several times and never asked for its inputs.";
/// Instructions, or secrets, dropped in one transaction; the rest waits for the next look.
const EXPIRE_BATCH: usize = 256;

/// Whether there is anything to do at `now`.
pub fn is_due(read: &(impl Read + ?Sized), now: Seconds) -> Result<bool, Refusal> {
    for token in read.tokens_until(now)? {
        let state = read.run(token.run)?.map(|run| run.state().clone());
        if !matches!((token.state, state), (token::State::Issued { .. }, Some(State::Pending))) {
            return Ok(true);
        }
    }
    Ok(!read.expired_instructions(now, 1)?.is_empty() || !read.ended_secrets(now - REMEMBERED_S, 1)?.is_empty())
}

/// Does what is due.
pub fn tick(tx: &mut dyn Tx, now: Seconds) -> Result<(), Refusal> {
    for token in tx.tokens_until(now)? {
        match token.state {
            token::State::Issued { .. } => process_gone(tx, token.run, NEVER_STARTED, now)?,
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
    for secret in tx.ended_secrets(now - REMEMBERED_S, EXPIRE_BATCH)? {
        tx.delete_secret(&secret.hash)?;
    }
    Ok(())
}

/// The SuperLink is back. Whoever was alive when it went gets the time to be heard again.
pub fn recover(tx: &mut dyn Tx, now: Seconds) -> Result<(), Refusal> {
    let Some(alive_at) = tx.alive_at()? else { return tx.set_alive_at(now) };
    for mut node in tx.nodes()? {
        let node::State::Online { until } = node.state() else { continue };
        let excuse = node::Event::Excuse { interval_s: node.heartbeat_interval_s };
        if until > alive_at && node.apply(excuse, now).is_ok() {
            tx.put_node(&node)?;
        }
    }
    for run in tx.unfinished_runs()? {
        let Some(mut token) = tx.token(run.id)? else { continue };
        if token.state.until() > alive_at
            && let Ok(state) = token::next(token.state, token::Event::Excuse, now)
        {
            token.state = state;
            tx.put_token(&token)?;
        }
    }
    tx.set_alive_at(now)
}
