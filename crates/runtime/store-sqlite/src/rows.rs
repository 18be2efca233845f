//! Conversion between rows and the core's values. States are numbered only here.

use rusqlite::types::Type;
use rusqlite::{Error, Row};
use trellis_core::account::{self, Account, Role};
use trellis_core::audit;
use trellis_core::id::{MessageId, NodeId, ObjectId, RunId};
use trellis_core::message::{self, Envelope, Instruction, MessageError, Reply};
use trellis_core::node::{self, Node};
use trellis_core::object::{Object, Scope};
use trellis_core::report::TrainingReport;
use trellis_core::run::{self, Outcome, Run, ServerApp};
use trellis_core::secret::{self, Purpose, Secret};
use trellis_core::token::{self, Token};

/// Converts an id to SQLite's signed integer; ids use all 64 bits.
pub(crate) fn signed(id: u64) -> i64 {
    id as i64
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|id| id as u64)
}

fn optional(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    row.get::<_, Option<i64>>(column).map(|id| id.map(|id| id as u64))
}

pub(crate) fn run_id(row: &Row<'_>, column: usize) -> rusqlite::Result<RunId> {
    unsigned(row, column).map(RunId)
}

pub(crate) fn node_id(row: &Row<'_>, column: usize) -> rusqlite::Result<NodeId> {
    unsigned(row, column).map(NodeId)
}

pub(crate) fn object_id(row: &Row<'_>, column: usize) -> rusqlite::Result<ObjectId> {
    ObjectId::try_from(row.get_ref(column)?.as_blob()?).map_err(|error| damaged(column, error))
}

fn damaged(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::FromSqlConversionFailure(column, Type::Blob, Box::new(error))
}

fn unknown(column: usize, number: i64) -> Error {
    Error::IntegralValueOutOfRange(column, number)
}

pub(crate) const NODE_COLUMNS: &str = "node_id, public_key, owner_aid, owner_name, registered_at, last_activated_at, \
     last_deactivated_at, unregistered_at, heartbeat_interval, online_until, state, name, location, client";

pub(crate) fn node(row: &Row<'_>) -> rusqlite::Result<Node> {
    let online_until: Option<f64> = row.get(9)?;
    let state = match row.get(10)? {
        0 => node::State::Registered,
        1 => node::State::Online { until: online_until.unwrap_or(0.0) },
        2 => node::State::Offline,
        3 => node::State::Unregistered,
        other => return Err(unknown(10, other)),
    };
    let owner_aid: String = row.get(2)?;
    let owner_name: String = row.get(3)?;
    let mut node = Node::register(
        node_id(row, 0)?,
        (&owner_aid, &owner_name),
        row.get_ref(1)?.as_blob()?,
        row.get(8)?,
        row.get(4)?,
    );
    node.last_activated_at = row.get(5)?;
    node.last_deactivated_at = row.get(6)?;
    node.unregistered_at = row.get(7)?;
    node.online_until = online_until;
    node.name = row.get(11)?;
    node.location = row.get(12)?;
    node.client = row.get(13)?;
    Ok(node.restore(state))
}

pub(crate) fn node_state(state: node::State) -> i64 {
    match state {
        node::State::Registered => 0,
        node::State::Online { .. } => 1,
        node::State::Offline => 2,
        node::State::Unregistered => 3,
    }
}

pub(crate) const RUN_COLUMNS: &str = "run_id, fab_id, fab_version, fab_hash, override_config, federation_options, \
     federation, account, pending_at, starting_at, running_at, finished_at, launches, clientapp_runtime, state, \
     outcome, details, client, server_app";

pub(crate) fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let state = match row.get(14)? {
        0 => run::State::Pending,
        1 => run::State::Starting,
        2 => run::State::Running,
        3 => run::State::Finished { outcome: outcome(row.get(15)?)?, details: row.get(16)? },
        other => return Err(unknown(14, other)),
    };
    let new = run::NewRun {
        fab_id: row.get(1)?,
        fab_version: row.get(2)?,
        fab_hash: row.get(3)?,
        override_config: row.get(4)?,
        federation_options: row.get(5)?,
        federation: row.get(6)?,
        account: row.get(7)?,
        server_app: server_app(row, 18)?,
    };
    let mut run = Run::new(run_id(row, 0)?, new, row.get(8)?);
    run.starting_at = row.get(9)?;
    run.running_at = row.get(10)?;
    run.finished_at = row.get(11)?;
    run.launches = row.get(12)?;
    run.clientapp_runtime_s = row.get(13)?;
    run.client = row.get(17)?;
    Ok(run.restore(state))
}

pub(crate) fn server_app(row: &Row<'_>, column: usize) -> rusqlite::Result<ServerApp> {
    match row.get(column)? {
        0 => Ok(ServerApp::Flower),
        1 => Ok(ServerApp::Native),
        other => Err(unknown(column, other)),
    }
}

pub(crate) fn server_app_number(server_app: ServerApp) -> i64 {
    match server_app {
        ServerApp::Flower => 0,
        ServerApp::Native => 1,
    }
}

pub(crate) const REPORT_COLUMNS: &str = "run_id, round, kind, body";

pub(crate) fn report(row: &Row<'_>) -> rusqlite::Result<TrainingReport> {
    Ok(TrainingReport { run: run_id(row, 0)?, round: unsigned(row, 1)?, kind: row.get(2)?, body: row.get(3)? })
}

fn outcome(number: i64) -> rusqlite::Result<Outcome> {
    match number {
        0 => Ok(Outcome::Completed),
        1 => Ok(Outcome::Failed),
        2 => Ok(Outcome::Stopped),
        other => Err(unknown(15, other)),
    }
}

/// Returns the columns state, outcome and details.
pub(crate) fn run_state(state: &run::State) -> (i64, Option<i64>, &str) {
    match state {
        run::State::Pending => (0, None, ""),
        run::State::Starting => (1, None, ""),
        run::State::Running => (2, None, ""),
        run::State::Finished { outcome, details } => {
            let number = match outcome {
                Outcome::Completed => 0,
                Outcome::Failed => 1,
                Outcome::Stopped => 2,
            };
            (3, Some(number), details)
        }
    }
}

pub(crate) const TOKEN_COLUMNS: &str = "run_id, hash, state, until";

pub(crate) fn token(row: &Row<'_>) -> rusqlite::Result<Token> {
    let until = row.get(3)?;
    let state = match row.get(2)? {
        0 => token::State::Issued { until },
        1 => token::State::Active { until },
        2 => token::State::Spent { until },
        other => return Err(unknown(2, other)),
    };
    let hash = row.get_ref(1)?.as_blob()?.try_into().map_err(|error| damaged(1, error))?;
    Ok(Token { run: run_id(row, 0)?, hash, state })
}

pub(crate) fn token_state(state: token::State) -> i64 {
    match state {
        token::State::Issued { .. } => 0,
        token::State::Active { .. } => 1,
        token::State::Spent { .. } => 2,
    }
}

pub(crate) const ENVELOPE_COLUMNS: &str = "message_id, run_id, src, dst, group_id, ttl, message_type, created_at, error_code, error_reason, src_task, dst_task";

fn envelope(row: &Row<'_>) -> rusqlite::Result<Envelope> {
    let error = match row.get::<_, Option<i64>>(8)? {
        Some(code) => Some(MessageError { code, reason: row.get::<_, Option<String>>(9)?.unwrap_or_default() }),
        None => None,
    };
    Ok(Envelope {
        id: object_id(row, 0)?,
        run: run_id(row, 1)?,
        src: node_id(row, 2)?,
        dst: node_id(row, 3)?,
        group_id: row.get(4)?,
        ttl_s: row.get(5)?,
        message_type: row.get(6)?,
        created_at: row.get(7)?,
        src_task: optional(row, 10)?,
        dst_task: optional(row, 11)?,
        error,
    })
}

/// Reads an envelope, then deliveries and state.
pub(crate) fn instruction(row: &Row<'_>) -> rusqlite::Result<Instruction> {
    let number: i64 = row.get(13)?;
    let state = message::State::ALL.into_iter().find(|state| message_state(*state) == number);
    Ok(Instruction::restore(envelope(row)?, row.get(12)?, state.ok_or(unknown(13, number))?))
}

pub(crate) const fn message_state(state: message::State) -> i64 {
    match state {
        message::State::Incomplete => 0,
        message::State::Ready => 1,
        message::State::Delivered => 2,
        message::State::Confirmed => 3,
        message::State::Answering => 4,
        message::State::Answered => 5,
    }
}

/// Reads an envelope, then reply_to and ready.
pub(crate) fn reply(row: &Row<'_>) -> rusqlite::Result<Reply> {
    Ok(Reply { envelope: envelope(row)?, reply_to: object_id(row, 12)?, ready: row.get(13)? })
}

/// Returns the key of an object as parameters ?1 to ?3.
pub(crate) fn scoped(scope: Scope, id: ObjectId) -> ([u8; 32], i64, i64) {
    (*id.as_bytes(), signed(scope.run.0), signed(scope.sender.0))
}

pub(crate) const OBJECT_COLUMNS: &str = "object_id, run_id, sender, refs, waiting, here, height, tree_objects";

pub(crate) fn object(row: &Row<'_>) -> rusqlite::Result<Object> {
    Ok(Object {
        id: object_id(row, 0)?,
        scope: Scope { run: run_id(row, 1)?, sender: node_id(row, 2)? },
        references: row.get(3)?,
        waiting: row.get(4)?,
        has_content: row.get(5)?,
        height: row.get(6)?,
        tree_objects: unsigned(row, 7)?,
    })
}

pub(crate) const ACCOUNT_COLUMNS: &str = "account_id, name, created_at, role, state";

pub(crate) fn account(row: &Row<'_>) -> rusqlite::Result<Account> {
    let (role, state): (i64, i64) = (row.get(3)?, row.get(4)?);
    let role = Role::ALL.into_iter().find(|known| role_number(*known) == role).ok_or(unknown(3, role))?;
    let state = match state {
        0 => account::State::Active,
        1 => account::State::Disabled,
        other => return Err(unknown(4, other)),
    };
    let (id, name) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
    Ok(Account::new(id, name, role, row.get(2)?).restore(state))
}

pub(crate) fn role_number(role: Role) -> i64 {
    match role {
        Role::Viewer => 0,
        Role::Runner => 1,
        Role::Admin => 2,
    }
}

pub(crate) fn account_state(state: account::State) -> i64 {
    match state {
        account::State::Active => 0,
        account::State::Disabled => 1,
    }
}

pub(crate) const SECRET_COLUMNS: &str =
    "hash, purpose, account_id, label, created_at, expires_at, state, changed_at, node_id";

pub(crate) fn secret(row: &Row<'_>) -> rusqlite::Result<Secret> {
    let number: i64 = row.get(1)?;
    let purpose = Purpose::ALL.into_iter().find(|known| purpose_number(*known) == number);
    let at = row.get::<_, Option<f64>>(7)?.unwrap_or(0.0);
    let state = match row.get(6)? {
        0 => secret::State::Fresh,
        1 => secret::State::Used { at, node: optional(row, 8)?.map(NodeId) },
        2 => secret::State::Revoked { at },
        other => return Err(unknown(6, other)),
    };
    let hash = row.get_ref(0)?.as_blob()?.try_into().map_err(|error| damaged(0, error))?;
    let (account, label) = (row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_str()?);
    let mut secret = Secret::new(hash, purpose.ok_or(unknown(1, number))?, account, label, None, row.get(4)?);
    secret.expires_at = row.get(5)?;
    Ok(secret.restore(state))
}

pub(crate) fn purpose_number(purpose: Purpose) -> i64 {
    match purpose {
        Purpose::Access => 0,
        Purpose::Refresh => 1,
        Purpose::Join => 2,
    }
}

/// Returns the columns state, changed_at and node_id.
pub(crate) fn secret_state(state: secret::State) -> (i64, Option<f64>, Option<i64>) {
    match state {
        secret::State::Fresh => (0, None, None),
        secret::State::Used { at, node } => (1, Some(at), node.map(|node| signed(node.0))),
        secret::State::Revoked { at } => (2, Some(at), None),
    }
}

pub(crate) const AUDIT_COLUMNS: &str = "seq, at, event, actor, subject, detail";

pub(crate) fn audit_entry(row: &Row<'_>) -> rusqlite::Result<audit::Entry> {
    let name = row.get_ref(2)?.as_str()?;
    let event = audit::Event::from_name(name)
        .ok_or_else(|| Error::FromSqlConversionFailure(2, Type::Text, format!("'{name}' is no audit event").into()))?;
    Ok(audit::Entry {
        seq: unsigned(row, 0)?,
        at: row.get(1)?,
        event,
        actor: row.get(3)?,
        subject: row.get(4)?,
        detail: row.get(5)?,
    })
}

pub(crate) fn message_id(row: &Row<'_>) -> rusqlite::Result<MessageId> {
    object_id(row, 0)
}
