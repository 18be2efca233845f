//! Replies that a ServerApp waits for: whether enough of them are here, looked at again whenever something changed. Said
//! of many ids, and with every reply that arrives, so a look must cost little. What becomes of them is not known here.

use std::collections::HashSet;

use crate::Seconds;
use crate::app::{Answer, find_answer};
use crate::fleet::running;
use crate::id::{MessageId, RunId};
use crate::port::Read;
use crate::refusal::Refusal;

/// Where some replies are enough, those that will never come are looked for no sooner than this after the last time: each
/// id must be looked at for that, and nodes go offline without telling.
const LOST_INTERVAL_S: f64 = 0.5;

/// What one call waits for.
#[derive(Debug)]
pub struct Awaited {
    run: RunId,
    ids: Vec<MessageId>,
    enough: Enough,
}

#[derive(Debug)]
enum Enough {
    /// All before this position are settled, and stay so.
    All {
        settled: usize,
    },
    Some {
        wanted: HashSet<MessageId>,
        number: usize,
        lost_since: Seconds,
    },
}

impl Awaited {
    /// `enough` of the replies are waited for; 0: all.
    pub fn new(run: RunId, ids: Vec<MessageId>, enough: usize, now: Seconds) -> Awaited {
        let enough = if enough == 0 || enough >= ids.len() {
            Enough::All { settled: 0 }
        } else {
            Enough::Some { wanted: ids.iter().copied().collect(), number: enough, lost_since: now }
        };
        Awaited { run, ids, enough }
    }

    pub fn ids(&self) -> &[MessageId] {
        &self.ids
    }

    /// The instructions whose replies are here or will never be, once they are enough.
    pub fn look(&mut self, read: &(impl Read + ?Sized), now: Seconds) -> Result<Option<Vec<MessageId>>, Refusal> {
        let (run, ids) = (self.run, &self.ids);
        running(read, run)?;
        let is_waiting = |id: MessageId| Ok(matches!(find_answer(read, run, id, now)?, Answer::Waiting));
        match &mut self.enough {
            Enough::All { settled } => {
                while let Some(id) = ids.get(*settled) {
                    if is_waiting(*id)? {
                        return Ok(None);
                    }
                    *settled += 1;
                }
                Ok(Some(ids.clone()))
            }
            Enough::Some { wanted, number, lost_since } => {
                let mut found = read.answered_instructions(run)?;
                found.retain(|id| wanted.contains(id));
                if found.len() < *number && now - *lost_since >= LOST_INTERVAL_S {
                    *lost_since = now;
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
