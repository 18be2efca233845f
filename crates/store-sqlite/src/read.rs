//! Questions, as SQL. A [`View`] is a connection at one moment.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use trellis_core::Seconds;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{Instruction, MAX_DELIVERIES, Reply};
use trellis_core::node::Node;
use trellis_core::object::{Content, Object};
use trellis_core::port::{Fab, LogText, Read, Traffic};
use trellis_core::refusal::Refusal;
use trellis_core::run::Run;
use trellis_core::token::Token;

use crate::error::OrTransient;
use crate::rows::{self, ENVELOPE_COLUMNS, NODE_COLUMNS, RUN_COLUMNS, TOKEN_COLUMNS, signed};

/// Asked every second.
const EXPIRED: &str = "SELECT message_id FROM instruction WHERE created_at + ttl <= ?1 AND state <> 5 \
     ORDER BY created_at + ttl LIMIT ?2";

const ONLINE: &str = "SELECT node_id FROM node WHERE state = 1 AND online_until > ?1";

pub(crate) struct View<'a>(pub(crate) &'a Connection);

impl View<'_> {
    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Refusal> {
        let mut statement = self.0.prepare_cached(sql).or_transient()?;
        statement.query_row(params, read).optional().or_transient()
    }

    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Refusal> {
        let mut statement = self.0.prepare_cached(sql).or_transient()?;
        let rows = statement.query_map(params, read).or_transient()?;
        rows.collect::<rusqlite::Result<_>>().or_transient()
    }
}

/// Statements are put together once per process: the text is the key of the statement cache.
macro_rules! sql {
    ($($part:expr),+ $(,)?) => {{
        static SQL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| [$($part),+].concat());
        SQL.as_str()
    }};
}

impl Read for View<'_> {
    fn node(&self, id: NodeId) -> Result<Option<Node>, Refusal> {
        self.one(sql!("SELECT ", NODE_COLUMNS, " FROM node WHERE node_id = ?1"), [signed(id.0)], rows::node)
    }

    fn node_by_key(&self, public_key: &[u8]) -> Result<Option<Node>, Refusal> {
        self.one(sql!("SELECT ", NODE_COLUMNS, " FROM node WHERE public_key = ?1"), [public_key], rows::node)
    }

    fn nodes(&self) -> Result<Vec<Node>, Refusal> {
        self.all(sql!("SELECT ", NODE_COLUMNS, " FROM node ORDER BY registered_at"), [], rows::node)
    }

    fn online_nodes(&self, now: Seconds) -> Result<Vec<NodeId>, Refusal> {
        self.all(ONLINE, [now], |row| rows::node_id(row, 0))
    }

    fn run(&self, id: RunId) -> Result<Option<Run>, Refusal> {
        self.one(sql!("SELECT ", RUN_COLUMNS, " FROM run WHERE run_id = ?1"), [signed(id.0)], rows::run)
    }

    fn runs(&self) -> Result<Vec<Run>, Refusal> {
        self.all(sql!("SELECT ", RUN_COLUMNS, " FROM run ORDER BY pending_at"), [], rows::run)
    }

    fn pending_runs(&self) -> Result<Vec<RunId>, Refusal> {
        self.all("SELECT run_id FROM run WHERE state = 0 ORDER BY pending_at", [], |row| rows::run_id(row, 0))
    }

    fn unfinished_runs(&self) -> Result<Vec<Run>, Refusal> {
        self.all(sql!("SELECT ", RUN_COLUMNS, " FROM run WHERE state < 3 ORDER BY pending_at"), [], rows::run)
    }

    fn traffic(&self, run: RunId) -> Result<Traffic, Refusal> {
        let sql = "SELECT bytes_sent, bytes_received FROM traffic WHERE run_id = ?1";
        let read = |row: &Row<'_>| {
            let (sent, received): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(Traffic { bytes_sent: sent as u64, bytes_received: received as u64 })
        };
        self.one(sql, [signed(run.0)], read).map(Option::unwrap_or_default)
    }

    fn fab(&self, hash: &str) -> Result<Option<Fab>, Refusal> {
        self.one("SELECT hash, content, verifications FROM fab WHERE hash = ?1", [hash], |row| {
            Ok(Fab { hash: row.get(0)?, content: Bytes::from(row.get::<_, Vec<u8>>(1)?), verifications: row.get(2)? })
        })
    }

    fn context(&self, run: RunId) -> Result<Option<Bytes>, Refusal> {
        let sql = "SELECT content FROM context WHERE run_id = ?1";
        self.one(sql, [signed(run.0)], |row| row.get::<_, Vec<u8>>(0).map(Bytes::from))
    }

    fn log_after(&self, run: RunId, after: Seconds, limit_bytes: usize) -> Result<Option<LogText>, Refusal> {
        let sql = "SELECT at, text FROM run_log WHERE run_id = ?1 AND at > ?2 ORDER BY at";
        let mut statement = self.0.prepare_cached(sql).or_transient()?;
        let mut rows = statement.query((signed(run.0), after)).or_transient()?;
        let mut log: Option<LogText> = None;
        while let Some(row) = rows.next().or_transient()? {
            let log = log.get_or_insert_with(|| LogText { text: String::new(), latest: 0.0 });
            log.latest = row.get(0).or_transient()?;
            log.text.push_str(row.get_ref(1).or_transient()?.as_str().or_transient()?);
            if log.text.len() >= limit_bytes {
                break;
            }
        }
        Ok(log)
    }

    fn token(&self, run: RunId) -> Result<Option<Token>, Refusal> {
        self.one(sql!("SELECT ", TOKEN_COLUMNS, " FROM token WHERE run_id = ?1"), [signed(run.0)], rows::token)
    }

    fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<Token>, Refusal> {
        self.one(sql!("SELECT ", TOKEN_COLUMNS, " FROM token WHERE hash = ?1"), [hash.as_slice()], rows::token)
    }

    fn tokens_until(&self, until: Seconds) -> Result<Vec<Token>, Refusal> {
        self.all(sql!("SELECT ", TOKEN_COLUMNS, " FROM token WHERE until <= ?1"), [until], rows::token)
    }

    fn instruction(&self, id: MessageId) -> Result<Option<Instruction>, Refusal> {
        let sql = sql!("SELECT ", ENVELOPE_COLUMNS, ", deliveries, state FROM instruction WHERE message_id = ?1");
        self.one(sql, [id.as_bytes()], rows::instruction)
    }

    fn deliverable(&self, node: NodeId) -> Result<Option<Instruction>, Refusal> {
        let sql = sql!(
            "SELECT ",
            ENVELOPE_COLUMNS,
            ", deliveries, state FROM instruction WHERE dst = ?1 AND state IN (1, 2) AND deliveries < ?2 \
             ORDER BY seq LIMIT 1",
        );
        self.one(sql, (signed(node.0), MAX_DELIVERIES), rows::instruction)
    }

    fn in_progress(&self, node: NodeId) -> Result<Vec<Instruction>, Refusal> {
        let sql = sql!(
            "SELECT ",
            ENVELOPE_COLUMNS,
            ", deliveries, state FROM instruction WHERE dst = ?1 AND state IN (3, 4) ORDER BY seq",
        );
        self.all(sql, [signed(node.0)], rows::instruction)
    }

    fn runs_waiting_for(&self, node: NodeId) -> Result<Vec<RunId>, Refusal> {
        let sql = "SELECT DISTINCT run_id FROM instruction WHERE dst = ?1 AND state < 5";
        self.all(sql, [signed(node.0)], |row| rows::run_id(row, 0))
    }

    fn instructions_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal> {
        self.all("SELECT message_id FROM instruction WHERE run_id = ?1", [signed(run.0)], rows::message_id)
    }

    fn expired_instructions(&self, now: Seconds, limit: usize) -> Result<Vec<MessageId>, Refusal> {
        self.all(EXPIRED, (now, limit as i64), rows::message_id)
    }

    fn reply(&self, id: MessageId) -> Result<Option<Reply>, Refusal> {
        let sql = sql!("SELECT ", ENVELOPE_COLUMNS, ", reply_to, ready FROM reply WHERE message_id = ?1");
        self.one(sql, [id.as_bytes()], rows::reply)
    }

    fn reply_to(&self, instruction: MessageId) -> Result<Option<Reply>, Refusal> {
        let sql = sql!("SELECT ", ENVELOPE_COLUMNS, ", reply_to, ready FROM reply WHERE reply_to = ?1");
        self.one(sql, [instruction.as_bytes()], rows::reply)
    }

    fn replies_of_run(&self, run: RunId) -> Result<Vec<MessageId>, Refusal> {
        self.all("SELECT message_id FROM reply WHERE run_id = ?1", [signed(run.0)], rows::message_id)
    }

    fn object(&self, id: ObjectId) -> Result<Option<Object>, Refusal> {
        let sql = "SELECT object_id, refs, waiting, here, height, tree_objects FROM object WHERE object_id = ?1";
        self.one(sql, [id.as_bytes()], rows::object)
    }

    fn children(&self, id: ObjectId) -> Result<Vec<ObjectId>, Refusal> {
        let sql = "SELECT child FROM object_child WHERE parent = ?1 ORDER BY position";
        self.all(sql, [id.as_bytes()], |row| rows::object_id(row, 0))
    }

    fn parents(&self, id: ObjectId) -> Result<Vec<ObjectId>, Refusal> {
        self.all("SELECT parent FROM object_child WHERE child = ?1", [id.as_bytes()], |row| rows::object_id(row, 0))
    }

    fn content(&self, id: ObjectId) -> Result<Option<Content>, Refusal> {
        let sql = "SELECT inline, file, bytes FROM object_content WHERE object_id = ?1";
        self.one(sql, [id.as_bytes()], |row| {
            Ok(match row.get::<_, Option<String>>(1)? {
                Some(name) => Content::File { name, bytes: row.get::<_, i64>(2)? as u64 },
                None => Content::Inline(Bytes::from(row.get::<_, Vec<u8>>(0)?)),
            })
        })
    }

    fn object_count(&self) -> Result<u64, Refusal> {
        let count = self.one("SELECT count(*) FROM object", [], |row| row.get::<_, i64>(0))?;
        Ok(count.unwrap_or(0) as u64)
    }

    fn alive_at(&self) -> Result<Option<Seconds>, Refusal> {
        self.one("SELECT alive_at FROM heart", [], |row| row.get(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{MIGRATIONS, migrate};

    /// What is asked all the time must not read whole tables: a run of ten thousand nodes has as many rows.
    #[test]
    fn frequent_questions_are_answered_by_an_index() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, &path, MIGRATIONS).unwrap();
        for (sql, index) in [(EXPIRED, "instruction_expiry"), (ONLINE, "node_online")] {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan = statement.raw_query().mapped(|row| row.get::<_, String>(3));
            let plan = plan.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        }
    }
}
