//! Changes as SQL, inside the writer's transaction.

use rusqlite::{CachedStatement, Params, params};
use trellis_core::Seconds;
use trellis_core::account::Account;
use trellis_core::audit;
use trellis_core::id::{MessageId, ObjectId, RunId};
use trellis_core::message::{Instruction, Reply};
use trellis_core::node::Node;
use trellis_core::object::{Content, Object, Scope};
use trellis_core::port::{Fab, LOG_STEP_S, Topic, Traffic, Tx};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::report::TrainingReport;
use trellis_core::run::Run;
use trellis_core::secret::{Hash, Secret};
use trellis_core::token::Token;

use crate::error::{CANNOT, OrTransient};
use crate::read::View;
use crate::rows::{self, scoped, signed};

impl View<'_> {
    fn execute(&self, sql: &str, params: impl Params) -> Result<(), Refusal> {
        let mut statement = self.prepare(sql)?;
        statement.execute(params).map(drop).or_transient()
    }

    /// Prepares a statement that writes. SQLite may roll back a whole transaction by itself (disk full). Later
    /// statements would then be committed without the earlier ones, so they fail.
    fn prepare(&self, sql: &str) -> Result<CachedStatement<'_>, Refusal> {
        if self.connection.is_autocommit() {
            return Err(Refusal::new(Kind::Transient, CANNOT));
        }
        self.connection.prepare_cached(sql).or_transient()
    }
}

/// The columns that instructions and replies share, as parameters ?1 to ?12.
macro_rules! envelope_params {
    ($envelope:expr, $($more:expr),+) => {
        params![
            $envelope.id.as_bytes(),
            signed($envelope.run.0),
            signed($envelope.src.0),
            signed($envelope.dst.0),
            $envelope.group_id,
            $envelope.ttl_s,
            $envelope.message_type,
            $envelope.created_at,
            $envelope.error.as_ref().map(|error| error.code),
            $envelope.error.as_ref().map(|error| &error.reason),
            $envelope.src_task.map(signed),
            $envelope.dst_task.map(signed),
            $($more),+
        ]
    };
}

impl Tx for View<'_> {
    fn wake(&mut self, topic: Topic) {
        self.after_commit.topics.push(topic);
    }

    fn put_node(&mut self, node: &Node) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO node VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
             ON CONFLICT (node_id) DO UPDATE SET last_activated_at = ?6, last_deactivated_at = ?7,
             unregistered_at = ?8, heartbeat_interval = ?9, online_until = ?10, state = ?11, name = ?12, client = ?14",
            params![
                signed(node.id.0),
                node.public_key,
                node.owner_aid,
                node.owner_name,
                node.registered_at,
                node.last_activated_at,
                node.last_deactivated_at,
                node.unregistered_at,
                node.heartbeat_interval_s,
                node.online_until,
                rows::node_state(node.state()),
                node.name,
                node.location,
                node.client,
            ],
        )
    }

    fn put_run(&mut self, run: &Run) -> Result<(), Refusal> {
        let (state, outcome, details) = rows::run_state(run.state());
        self.execute(
            "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
             ?18, ?19)
             ON CONFLICT (run_id) DO UPDATE SET starting_at = ?10, running_at = ?11, finished_at = ?12,
             launches = ?13, clientapp_runtime = ?14, state = ?15, outcome = ?16, details = ?17,
             client = ?18",
            params![
                signed(run.id.0),
                run.fab_id,
                run.fab_version,
                run.fab_hash,
                run.override_config,
                run.federation_options,
                run.federation,
                run.account,
                run.pending_at,
                run.starting_at,
                run.running_at,
                run.finished_at,
                run.launches,
                run.clientapp_runtime_s,
                state,
                outcome,
                details,
                run.client,
                rows::server_app_number(run.server_app),
            ],
        )
    }

    fn add_traffic(&mut self, run: RunId, more: Traffic) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO traffic VALUES (?1, ?2, ?3) ON CONFLICT (run_id) DO UPDATE SET
             bytes_sent = bytes_sent + ?2, bytes_received = bytes_received + ?3",
            params![signed(run.0), more.bytes_sent as i64, more.bytes_received as i64],
        )
    }

    fn put_fab(&mut self, fab: &Fab) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO fab VALUES (?1, ?2, ?3) ON CONFLICT (hash) DO UPDATE
             SET verifications = excluded.verifications WHERE length(excluded.verifications) > 0",
            params![fab.hash, fab.content.as_ref(), fab.verifications],
        )
    }

    fn put_context(&mut self, run: RunId, context: &[u8]) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO context VALUES (?1, ?2) ON CONFLICT (run_id) DO UPDATE SET content = ?2",
            params![signed(run.0), context],
        )
    }

    fn append_log(&mut self, run: RunId, now: Seconds, text: &str) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO run_log VALUES
             (?1, max(?2, coalesce((SELECT max(at) FROM run_log WHERE run_id = ?1), 0) + ?4), ?3)",
            params![signed(run.0), now, text, LOG_STEP_S],
        )
    }

    fn put_report(&mut self, report: &TrainingReport) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO training_report VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (run_id, round, kind) DO UPDATE SET body = ?4",
            params![signed(report.run.0), signed(report.round), report.kind, report.body],
        )
    }

    fn put_token(&mut self, token: &Token) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO token VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (run_id) DO UPDATE SET hash = ?2, state = ?3, until = ?4",
            params![signed(token.run.0), token.hash.as_slice(), rows::token_state(token.state), token.state.until()],
        )
    }

    fn delete_token(&mut self, run: RunId) -> Result<(), Refusal> {
        self.execute("DELETE FROM token WHERE run_id = ?1", [signed(run.0)])
    }

    fn put_instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO instruction (message_id, run_id, src, dst, group_id, ttl, message_type, created_at,
             error_code, error_reason, src_task, dst_task, deliveries, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
             ON CONFLICT (message_id) DO UPDATE SET deliveries = ?13, state = ?14",
            envelope_params![instruction.envelope, instruction.deliveries, rows::message_state(instruction.state())],
        )
    }

    fn delete_instruction(&mut self, id: MessageId) -> Result<(), Refusal> {
        self.execute("DELETE FROM instruction WHERE message_id = ?1", [id.as_bytes()])
    }

    fn put_reply(&mut self, reply: &Reply) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO reply (message_id, run_id, src, dst, group_id, ttl, message_type, created_at,
             error_code, error_reason, src_task, dst_task, reply_to, ready)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
             ON CONFLICT (message_id) DO UPDATE SET ready = ?14",
            envelope_params![reply.envelope, reply.reply_to.as_bytes(), reply.ready],
        )
    }

    fn delete_reply(&mut self, id: MessageId) -> Result<(), Refusal> {
        self.execute("DELETE FROM reply WHERE message_id = ?1", [id.as_bytes()])
    }

    fn insert_object(&mut self, object: &Object, children: &[ObjectId]) -> Result<(), Refusal> {
        let (id, run, sender) = scoped(object.scope, object.id);
        self.execute(
            "INSERT INTO object VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                id,
                run,
                sender,
                object.references,
                object.waiting,
                object.has_content,
                object.height,
                object.tree_objects as i64
            ],
        )?;
        for (position, child) in children.iter().enumerate() {
            self.execute(
                "INSERT INTO object_child VALUES (?1, ?2, ?3, ?4, ?5)",
                params![id, run, sender, position as i64, child.as_bytes()],
            )?;
        }
        Ok(())
    }

    fn update_object(&mut self, object: &Object) -> Result<(), Refusal> {
        let (id, run, sender) = scoped(object.scope, object.id);
        self.execute(
            "UPDATE object SET refs = ?4, waiting = ?5, here = ?6 WHERE object_id = ?1 AND run_id = ?2 AND sender = ?3",
            params![id, run, sender, object.references, object.waiting, object.has_content],
        )
    }

    fn put_content(&mut self, id: ObjectId, content: &Content) -> Result<(), Refusal> {
        let (inline, file) = match content {
            Content::Inline(bytes) => (Some(bytes.as_ref()), None),
            Content::Large { name, .. } => (None, Some(name)),
        };
        self.after_commit.names_files |= file.is_some();
        self.execute(
            "INSERT INTO object_content VALUES (?1, ?2, ?3, ?4)",
            params![id.as_bytes(), inline, file, content.len_bytes() as i64],
        )
    }

    fn discard(&mut self, content: &Content) {
        if let Content::Large { name, .. } = content {
            self.after_commit.unlink.push(name.clone());
        }
    }

    fn delete_object(&mut self, scope: Scope, id: ObjectId) -> Result<(), Refusal> {
        let key = scoped(scope, id);
        self.execute("DELETE FROM object_child WHERE parent = ?1 AND run_id = ?2 AND sender = ?3", key)?;
        self.execute("DELETE FROM object WHERE object_id = ?1 AND run_id = ?2 AND sender = ?3", key)?;
        let mut files = Vec::new();
        {
            let mut statement = self.prepare(
                "DELETE FROM object_content WHERE object_id = ?1
                 AND NOT EXISTS (SELECT 1 FROM object WHERE object_id = ?1) RETURNING file",
            )?;
            let mut rows = statement.query([id.as_bytes()]).or_transient()?;
            while let Some(row) = rows.next().or_transient()? {
                files.extend(row.get::<_, Option<String>>(0).or_transient()?);
            }
        }
        self.after_commit.unlink.append(&mut files);
        Ok(())
    }

    fn put_account(&mut self, account: &Account) -> Result<(), Refusal> {
        self.execute(
            "INSERT INTO account VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (account_id) DO UPDATE SET role = ?4, state = ?5",
            params![
                account.id,
                account.name,
                account.created_at,
                rows::role_number(account.role()),
                rows::account_state(account.state()),
            ],
        )
    }

    fn put_secret(&mut self, secret: &Secret) -> Result<(), Refusal> {
        let (state, changed_at, node) = rows::secret_state(secret.state());
        self.execute(
            "INSERT INTO secret VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (hash) DO UPDATE SET state = ?7, changed_at = ?8, node_id = ?9",
            params![
                secret.hash.as_slice(),
                rows::purpose_number(secret.purpose),
                secret.account,
                secret.label,
                secret.created_at,
                secret.expires_at,
                state,
                changed_at,
                node,
            ],
        )
    }

    fn delete_secret(&mut self, hash: &Hash) -> Result<(), Refusal> {
        self.execute("DELETE FROM secret WHERE hash = ?1", [hash.as_slice()])
    }

    fn append_audit(
        &mut self,
        at: Seconds,
        event: audit::Event,
        actor: &str,
        subject: &str,
        detail: &str,
    ) -> Result<u64, Refusal> {
        let mut statement =
            self.prepare("INSERT INTO audit (at, event, actor, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let seq = statement.insert(params![at, event.name(), actor, subject, detail]).or_transient()?;
        Ok(seq as u64)
    }

    fn trim_audit(&mut self, refused: bool, keep: u64) -> Result<(), Refusal> {
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        self.execute(
            "DELETE FROM audit WHERE (event = ?1) = ?2 AND seq <= (
                SELECT seq FROM audit WHERE (event = ?1) = ?2 ORDER BY seq DESC LIMIT 1 OFFSET ?3
            )",
            params![audit::Event::CallRefused.name(), refused, keep],
        )
    }

    fn set_alive_at(&mut self, now: Seconds) -> Result<(), Refusal> {
        self.execute("INSERT INTO heart VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET alive_at = ?1", [now])
    }
}
