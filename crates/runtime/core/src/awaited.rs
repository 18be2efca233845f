//! The replies that a held call waits for. Every commit of a reply checks them again, so a check must be cheap.

use std::collections::HashSet;

use crate::Seconds;
use crate::app::{ReplyStatus, reply_status};
use crate::fleet::running;
use crate::id::{MessageId, RunId};
use crate::port::Read;
use crate::refusal::Refusal;

/// Minimum time between two searches for replies that will never arrive, if the call waits for some of its replies. The
/// search checks every id. Nodes go offline without an event.
const LOST_INTERVAL_S: f64 = 0.5;

/// The replies that one call waits for.
#[derive(Debug)]
pub struct Awaited {
    run: RunId,
    ids: Vec<MessageId>,
    enough: Condition,
}

#[derive(Debug)]
enum Condition {
    /// All ids before `settled` have a reply or will never get one.
    All {
        settled: usize,
    },
    Some {
        wanted: HashSet<MessageId>,
        number: usize,
        searched_at: Seconds,
    },
}

impl Awaited {
    /// Waits for `enough` of the replies; 0: all.
    pub fn new(run: RunId, ids: Vec<MessageId>, enough: usize, now: Seconds) -> Awaited {
        let enough = if enough == 0 || enough >= ids.len() {
            Condition::All { settled: 0 }
        } else {
            Condition::Some { wanted: ids.iter().copied().collect(), number: enough, searched_at: now }
        };
        Awaited { run, ids, enough }
    }

    pub fn ids(&self) -> &[MessageId] {
        &self.ids
    }

    /// Returns the instructions that have a reply or will never get one, once there are enough.
    pub fn check(&mut self, read: &(impl Read + ?Sized), now: Seconds) -> Result<Option<Vec<MessageId>>, Refusal> {
        let (run, ids) = (self.run, &self.ids);
        running(read, run)?;
        let is_waiting = |id: MessageId| Ok(matches!(reply_status(read, run, id, now)?, ReplyStatus::Waiting));
        match &mut self.enough {
            Condition::All { settled } => {
                while let Some(id) = ids.get(*settled) {
                    if is_waiting(*id)? {
                        return Ok(None);
                    }
                    *settled += 1;
                }
                Ok(Some(ids.clone()))
            }
            Condition::Some { wanted, number, searched_at } => {
                let mut found = read.answered_instructions(run)?;
                found.retain(|id| wanted.contains(id));
                if found.len() < *number && now - *searched_at >= LOST_INTERVAL_S {
                    *searched_at = now;
                    found.clear();
                    for id in ids {
                        if !is_waiting(*id)? {
                            found.push(*id);
                        }
                    }
                }
                Ok((found.len() >= *number).then_some(found))
            }
        }
    }
}
