//! Queries as SQL. A [`View`] is a connection inside a transaction.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use trellis_core::Seconds;
use trellis_core::account::Account;
use trellis_core::audit;
use trellis_core::census::Census;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{Instruction, MAX_DELIVERIES, Reply};
use trellis_core::node::Node;
use trellis_core::object::{Content, Object, Scope};
use trellis_core::port::{Fab, LogText, Read, Traffic};
use trellis_core::refusal::Refusal;
use trellis_core::report::TrainingReport;
use trellis_core::run::{Run, ServerApp};
use trellis_core::secret::{Hash, Secret, SecretId};
use trellis_core::token::Token;

use crate::census;
use crate::error::OrTransient;
use crate::rows::{
    self, ACCOUNT_COLUMNS, AUDIT_COLUMNS, ENVELOPE_COLUMNS, NODE_COLUMNS, OBJECT_COLUMNS, REPORT_COLUMNS, RUN_COLUMNS,
    SECRET_COLUMNS, TOKEN_COLUMNS, scoped, signed,
};
use crate::writer::AfterCommit;

/// Runs every second.
const EXPIRED: &str = "SELECT message_id FROM instruction WHERE created_at + ttl <= ?1 AND state <> 5 \
     ORDER BY created_at + ttl LIMIT ?2";

/// Runs for every reply.
const ANSWERED: &str = "SELECT reply_to FROM reply WHERE run_id = ?1 AND ready = 1";
const ENDED: &str = " FROM secret WHERE coalesce(changed_at, expires_at) <= ?1 LIMIT ?2";
const ONLINE: &str = "SELECT node_id FROM node WHERE state = 1 AND online_until > ?1";

/// A connection inside a transaction, and the effects of changes through it.
pub(crate) struct View<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) after_commit: AfterCommit,
}

impl<'a> View<'a> {
    pub(crate) fn new(connection: &'a Connection) -> View<'a> {
        View { connection, after_commit: AfterCommit::default() }
    }
}

impl View<'_> {
    pub(crate) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Refusal> {
        let mut statement = self.connection.prepare_cached(sql).or_transient()?;
        statement.query_row(params, read).optional().or_transient()
    }

    pub(crate) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Refusal> {
        let mut statement = self.connection.prepare_cached(sql).or_transient()?;
        let rows = statement.query_map(params, read).or_transient()?;
        rows.collect::<rusqlite::Result<_>>().or_transient()
    }
}

/// Concatenates a statement once per process: the text is the key of the statement cache.
macro_rules! sql {
    ($($part:expr),+ $(,)?) => {{
        static SQL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| [$($part),+].concat());
        SQL.as_str()
    }};
}

/// Converts a limit for SQLite, where a negative limit means none.
fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
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

    fn pending_runs(&self) -> Result<Vec<(RunId, ServerApp)>, Refusal> {
        let sql = "SELECT run_id, server_app FROM run WHERE state = 0 ORDER BY pending_at";
        self.all(sql, [], |row| Ok((rows::run_id(row, 0)?, rows::server_app(row, 1)?)))
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
        let mut statement = self.connection.prepare_cached(sql).or_transient()?;
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

    fn report(&self, run: RunId, round: u64, kind: &str) -> Result<Option<TrainingReport>, Refusal> {
        let sql =
            sql!("SELECT ", REPORT_COLUMNS, " FROM training_report WHERE run_id = ?1 AND round = ?2 AND kind = ?3");
        self.one(sql, (signed(run.0), signed(round), kind), rows::report)
    }

    fn reports_after(
        &self,
        run: RunId,
        after: Option<u64>,
        limit_bytes: usize,
    ) -> Result<Vec<TrainingReport>, Refusal> {
        let sql = sql!(
            "SELECT ",
            REPORT_COLUMNS,
            " FROM training_report WHERE run_id = ?1 AND round > ?2 ORDER BY round, kind",
        );
        // Rounds start at 0.
        let after = after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let mut statement = self.connection.prepare_cached(sql).or_transient()?;
        let mut rows = statement.query((signed(run.0), after)).or_transient()?;
        let (mut reports, mut bytes) = (Vec::<TrainingReport>::new(), 0);
        while let Some(row) = rows.next().or_transient()? {
            let report = rows::report(row).or_transient()?;
            if bytes >= limit_bytes && reports.last().is_some_and(|last| last.round != report.round) {
                break;
            }
            bytes += report.body.len();
            reports.push(report);
        }
        Ok(reports)
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
        self.all(EXPIRED, (now, count(limit)), rows::message_id)
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

    fn answered_instructions(&self, run: RunId) -> Result<Vec<MessageId>, Refusal> {
        self.all(ANSWERED, [signed(run.0)], rows::message_id)
    }

    fn object(&self, scope: Scope, id: ObjectId) -> Result<Option<Object>, Refusal> {
        let sql = sql!("SELECT ", OBJECT_COLUMNS, " FROM object WHERE object_id = ?1 AND run_id = ?2 AND sender = ?3");
        self.one(sql, scoped(scope, id), rows::object)
    }

    fn object_with_content(&self, run: RunId, id: ObjectId) -> Result<Option<Object>, Refusal> {
        let sql =
            sql!("SELECT ", OBJECT_COLUMNS, " FROM object WHERE object_id = ?1 AND run_id = ?2 AND here = 1 LIMIT 1");
        self.one(sql, (*id.as_bytes(), signed(run.0)), rows::object)
    }

    fn children(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal> {
        let sql = "SELECT child FROM object_child WHERE parent = ?1 AND run_id = ?2 AND sender = ?3 ORDER BY position";
        self.all(sql, scoped(scope, id), |row| rows::object_id(row, 0))
    }

    fn parents(&self, scope: Scope, id: ObjectId) -> Result<Vec<ObjectId>, Refusal> {
        let sql = "SELECT parent FROM object_child WHERE child = ?1 AND run_id = ?2 AND sender = ?3";
        self.all(sql, scoped(scope, id), |row| rows::object_id(row, 0))
    }

    fn has_content(&self, id: ObjectId) -> Result<bool, Refusal> {
        let sql = "SELECT 1 FROM object_content WHERE object_id = ?1";
        Ok(self.one(sql, [id.as_bytes()], |_| Ok(()))?.is_some())
    }

    fn content(&self, id: ObjectId) -> Result<Option<Content>, Refusal> {
        let sql = "SELECT inline, file, bytes FROM object_content WHERE object_id = ?1";
        self.one(sql, [id.as_bytes()], |row| {
            Ok(match row.get::<_, Option<String>>(1)? {
                Some(name) => Content::Large { name, bytes: row.get::<_, i64>(2)? as u64 },
                None => Content::Inline(Bytes::from(row.get::<_, Vec<u8>>(0)?)),
            })
        })
    }

    fn object_count(&self) -> Result<u64, Refusal> {
        let count = self.one("SELECT count(*) FROM object", [], |row| row.get::<_, i64>(0))?;
        Ok(count.unwrap_or(0) as u64)
    }

    fn account(&self, id: &str) -> Result<Option<Account>, Refusal> {
        self.one(sql!("SELECT ", ACCOUNT_COLUMNS, " FROM account WHERE account_id = ?1"), [id], rows::account)
    }

    fn account_by_name(&self, name: &str) -> Result<Option<Account>, Refusal> {
        self.one(sql!("SELECT ", ACCOUNT_COLUMNS, " FROM account WHERE name = ?1"), [name], rows::account)
    }

    fn accounts(&self) -> Result<Vec<Account>, Refusal> {
        self.all(sql!("SELECT ", ACCOUNT_COLUMNS, " FROM account ORDER BY name"), [], rows::account)
    }

    fn secret(&self, hash: &Hash) -> Result<Option<Secret>, Refusal> {
        self.one(sql!("SELECT ", SECRET_COLUMNS, " FROM secret WHERE hash = ?1"), [hash.as_slice()], rows::secret)
    }

    fn secret_by_id(&self, id: SecretId) -> Result<Option<Secret>, Refusal> {
        let (first, last) = id.hash_range();
        let sql = sql!("SELECT ", SECRET_COLUMNS, " FROM secret WHERE hash BETWEEN ?1 AND ?2");
        self.one(sql, (first.as_slice(), last.as_slice()), rows::secret)
    }

    fn secrets(&self) -> Result<Vec<Secret>, Refusal> {
        self.all(sql!("SELECT ", SECRET_COLUMNS, " FROM secret ORDER BY created_at"), [], rows::secret)
    }

    fn secrets_of(&self, account: &str) -> Result<Vec<Secret>, Refusal> {
        let sql = sql!("SELECT ", SECRET_COLUMNS, " FROM secret WHERE account_id = ?1 ORDER BY created_at");
        self.all(sql, [account], rows::secret)
    }

    fn ended_secrets(&self, until: Seconds, limit: usize) -> Result<Vec<Secret>, Refusal> {
        self.all(sql!("SELECT ", SECRET_COLUMNS, ENDED), (until, count(limit)), rows::secret)
    }

    fn audit_after(&self, after: u64, limit: usize) -> Result<Vec<audit::Entry>, Refusal> {
        let sql = sql!("SELECT ", AUDIT_COLUMNS, " FROM audit WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        self.all(sql, (i64::try_from(after).unwrap_or(i64::MAX), count(limit)), rows::audit_entry)
    }

    fn audit_newest(&self, limit: usize) -> Result<Vec<audit::Entry>, Refusal> {
        let sql = sql!("SELECT ", AUDIT_COLUMNS, " FROM audit ORDER BY seq DESC LIMIT ?1");
        let mut entries = self.all(sql, [count(limit)], rows::audit_entry)?;
        entries.reverse();
        Ok(entries)
    }

    fn audit_count(&self) -> Result<u64, Refusal> {
        // Runs every few seconds: the sequence numbers give the count without a scan.
        let sql = "SELECT coalesce((SELECT max(seq) FROM audit) - (SELECT min(seq) FROM audit) + 1, 0)";
        let count = self.one(sql, [], |row| row.get::<_, i64>(0))?;
        Ok(count.unwrap_or(0) as u64)
    }

    fn census(&self, now: Seconds) -> Result<Census, Refusal> {
        census::take(self, now)
    }

    fn alive_at(&self) -> Result<Option<Seconds>, Refusal> {
        self.one("SELECT alive_at FROM heart", [], |row| row.get(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    /// A frequent query must not scan a table: a run with ten thousand nodes has as many rows.
    #[test]
    fn frequent_queries_use_an_index() {
        let ended = ["SELECT hash", ENDED].concat();
        let queries = [
            (EXPIRED, "SEARCH instruction USING INDEX instruction_expiry"),
            (ANSWERED, "SEARCH reply USING COVERING INDEX reply_of_run"),
            (ONLINE, "SEARCH node USING COVERING INDEX node_online"),
            (&ended, "SEARCH secret USING COVERING INDEX secret_end"),
        ];
        for (sql, expected) in queries {
            assert!(schema::plan(sql).starts_with(expected), "{sql}: {}", schema::plan(sql));
        }
    }
}
