//! The census as SQL. Every query uses an index, so that frequent metrics are cheap.

use rusqlite::Row;
use trellis_core::Seconds;
use trellis_core::census::Census;
use trellis_core::port::Read;
use trellis_core::refusal::Refusal;

use crate::read::View;

const ONLINE: &str = "SELECT client, count(*) FROM node WHERE state = 1 AND online_until > ?1 GROUP BY client";
const TIMED_OUT: &str = "SELECT count(*) FROM node WHERE state = 1 AND online_until <= ?1";
const INACTIVE: &str = "SELECT state, count(*) FROM node WHERE state IN (0, 2) GROUP BY state";
const UNFINISHED: &str = "SELECT state, count(*) FROM run WHERE state < 3 GROUP BY state";
const FINISHED: &str = "SELECT outcome, count(*) FROM run WHERE state = 3 GROUP BY outcome";
const INSTRUCTIONS: &str = "SELECT count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1), \
     count(*) FILTER (WHERE state IN (2, 3, 4)), count(*) FILTER (WHERE state = 5) FROM instruction";
const REPLIES: &str = "SELECT count(*) FROM reply WHERE ready = 1";
const OBJECT_BYTES: &str = "SELECT coalesce(sum(bytes), 0) FROM object_content";

pub(crate) fn take(view: &View<'_>, now: Seconds) -> Result<Census, Refusal> {
    let one = |sql| view.one(sql, [], |row| number(row, 0)).map(Option::unwrap_or_default);
    let groups = |sql| view.all(sql, [], |row| Ok((row.get(0)?, number(row, 1)?)));
    let online = view.all(ONLINE, [now], |row| Ok((row.get(0)?, number(row, 1)?)))?;
    let timed_out = view.one(TIMED_OUT, [now], |row| number(row, 0))?.unwrap_or_default();
    let (inactive, unfinished, finished) = (groups(INACTIVE)?, groups(UNFINISHED)?, groups(FINISHED)?);
    let instructions =
        view.one(INSTRUCTIONS, [], |row| Ok([number(row, 0)?, number(row, 1)?, number(row, 2)?, number(row, 3)?]))?;
    let [incomplete, waiting, out, answered] = instructions.unwrap_or_default();
    Ok(Census {
        nodes_registered: of(&inactive, 0),
        nodes_offline: of(&inactive, 2) + timed_out,
        nodes_online_by_client: online.into_iter().collect(),
        runs_pending: of(&unfinished, 0),
        runs_starting: of(&unfinished, 1),
        runs_running: of(&unfinished, 2),
        runs_completed: of(&finished, 0),
        runs_failed: of(&finished, 1),
        runs_stopped: of(&finished, 2),
        instructions_incomplete: incomplete,
        instructions_waiting: waiting,
        instructions_out: out,
        instructions_answered: answered,
        replies_ready: one(REPLIES)?,
        objects: view.object_count()?,
        object_bytes: one(OBJECT_BYTES)?,
        audit_entries: view.audit_count()?,
    })
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| number as u64)
}

/// Returns the count of one group.
fn of(groups: &[(i64, u64)], group: i64) -> u64 {
    groups.iter().find(|(key, _)| *key == group).map_or(0, |(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::plan;

    #[test]
    fn every_count_uses_an_index() {
        let queries = [
            (ONLINE, "COVERING INDEX node_online"),
            (TIMED_OUT, "COVERING INDEX node_online"),
            (INACTIVE, "COVERING INDEX node_at_rest"),
            (UNFINISHED, "INDEX run_unfinished"),
            (FINISHED, "COVERING INDEX run_finished"),
            (INSTRUCTIONS, "COVERING INDEX instruction_of_node"),
            (REPLIES, "COVERING INDEX reply_of_run"),
            (OBJECT_BYTES, "COVERING INDEX object_size"),
        ];
        for (sql, expected) in queries {
            assert!(plan(sql).contains(expected), "{sql}: {}", plan(sql));
        }
    }
}
