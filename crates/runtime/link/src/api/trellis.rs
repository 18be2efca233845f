//! Trellis' own calls, as JSON: nodes with their release, join tokens, accounts, the audit log. Ids are strings,
//! because 64 bits do not fit into a JSON number.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use trellis_core::access::{self, NewSecret};
use trellis_core::account::{self, Role};
use trellis_core::audit;
use trellis_core::control::{self, NewNode, Reach};
use trellis_core::fleet::running;
use trellis_core::id::{NodeId, RunId};
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::secret::SecretId;
use trellis_digest::{hex, sha256};
use trellis_wire::call::*;

use super::account::{Approval, CallerAccount, new_token};
use super::{random, random_id};
use crate::identity::parse_key;
use crate::link::Link;
use crate::log_tail;
use crate::shards::Assignment;
use crate::watch::Departure;

/// Audit entries per answer: the maximum, and the default.
const MAX_ENTRIES: usize = 1000;
const DEFAULT_ENTRIES: usize = 100;

fn invalid(text: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Kind::Invalid, text)
}

pub(super) fn node_id(text: &str) -> Result<NodeId, Refusal> {
    text.parse().map(NodeId).map_err(|_| invalid(format!("'{text:.40}' is not the ID of a node")))
}

pub(super) fn run_id(text: &str) -> Result<RunId, Refusal> {
    text.parse().map(RunId).map_err(|_| invalid(format!("'{text:.40}' is not the ID of a run")))
}

fn role(name: &str) -> Result<Role, Refusal> {
    Role::from_name(name).ok_or_else(|| invalid(format!("'{name:.40}' is not a role: viewer, runner or admin")))
}

/// Returns the displayed form of a key.
pub fn fingerprint(key: &[u8]) -> String {
    hex(&sha256(key)[..8])
}

/// Returns the SuperLink's log after a position, or its last lines.
pub async fn read_log(_: &Link, _: &CallerAccount, asked: ReadLog) -> Result<LogText, Refusal> {
    let (text, next) = log_tail::after(asked.after.as_deref().map(position).transpose()?);
    Ok(LogText { text, next: next.to_string() })
}

fn position(text: &str) -> Result<log_tail::Position, Refusal> {
    let misplaced = || invalid(format!("'{text:.40}' is not a log position: use `next` of the previous answer"));
    log_tail::Position::parse(text).ok_or_else(misplaced)
}

/// Returns output of ClientApps of a node in a run. Empty if the node sent none.
pub async fn read_app_log(link: &Link, _: &CallerAccount, asked: ReadAppLog) -> Result<LogText, Refusal> {
    let (run, node) = (run_id(&asked.run_id)?, node_id(&asked.node_id)?);
    let after = asked.after.as_deref().map(position).transpose()?;
    let logs = Arc::clone(&link.app_logs);
    let read = tokio::task::spawn_blocking(move || logs.read(run, node, after)).await;
    let failed = |error| Refusal::transient("The output of an app cannot be read.", error);
    let (text, next) = read.map_err(std::io::Error::other).flatten().map_err(failed)?;
    Ok(LogText { text, next: next.to_string() })
}

pub async fn list_nodes(link: &Link, _: &CallerAccount, _: ListNodes) -> Result<Nodes, Refusal> {
    let now = link.now();
    let nodes = link.read(|view| view.nodes())?.into_iter().map(|node| Node {
        id: node.id.to_string(),
        status: node.state().at(now).name().to_owned(),
        draining: link.draining.has(node.id),
        asks_for_shard: link.shards.asks(node.id),
        registered_at: node.registered_at,
        last_activated_at: node.last_activated_at,
        last_deactivated_at: node.last_deactivated_at(now),
        online_until: node.online_until,
        key_fingerprint: fingerprint(&node.public_key),
        name: node.name,
        location: node.location,
        client: node.client,
        owner: node.owner_name,
    });
    Ok(Nodes { now, nodes: nodes.collect() })
}

pub async fn revoke_node(link: &Link, who: &CallerAccount, request: RevokeNode) -> Result<Done, Refusal> {
    let (node, now, who) = (node_id(&request.id)?, link.now(), who.clone());
    link.write(move |tx| control::unregister_node(tx, node, (&who.id, &who.name), Reach::All, now)).await?;
    link.draining.set(node, false);
    link.shards.forget(node);
    link.watch.node_left(node, Departure::Unregistered);
    Ok(Done {})
}

pub async fn assign_shards(link: &Link, _: &CallerAccount, request: AssignShards) -> Result<Done, Refusal> {
    if let Some(shard) = request.shards.values().flatten().find(|shard| **shard >= request.total) {
        return Err(invalid(format!("shard {shard} of {} does not exist: shards are numbered from 0", request.total)));
    }
    let shards = request.shards.iter().map(|(node, shard)| Ok((node_id(node)?, *shard)));
    let ids = |nodes: BTreeSet<String>| nodes.iter().map(|node| node_id(node)).collect::<Result<_, Refusal>>();
    let assignment = Assignment {
        total: request.total,
        shards: shards.collect::<Result<_, Refusal>>()?,
        left_out: ids(request.left_out)?,
        only: request.only.map(ids).transpose()?,
    };
    link.read(|view| {
        link.shards.assign(assignment, |run| running(view, run).is_err());
        Ok(())
    })?;
    Ok(Done {})
}

pub async fn create_join_token(
    link: &Link,
    who: &CallerAccount,
    request: CreateJoinToken,
) -> Result<NewToken, Refusal> {
    let ((token, hash), now, who) = (new_token(), link.now(), who.clone());
    let new = NewSecret { hash, label: request.label, ttl_s: Some(request.ttl_s) };
    let id = link.write(move |tx| access::issue_join(tx, &who.id, &new, now)).await?;
    Ok(NewToken { id: id.to_string(), token, expires_at: Some(now + request.ttl_s) })
}

/// Registers a node with a join token. `key` signed the call.
pub async fn join(link: &Link, key: &Bytes, request: Join) -> Result<Joined, Refusal> {
    let public_key = request.public_key.into_bytes();
    if parse_key(&public_key).is_none() {
        return Err(invalid("The provided public key is not valid: a PEM key on a NIST curve is required."));
    }
    if *key != public_key {
        return Err(Refusal::new(Kind::Unauthenticated, "The call is not signed with the key that wants to join."));
    }
    let (hash, id, now) = (sha256(request.token.as_bytes()), NodeId(random_id()), link.now());
    let new = NewNode { key: public_key, name: request.name, location: request.location };
    let node = link.write(move |tx| access::enrol(tx, &hash, id, &new, now)).await?;
    tracing::info!(node = node.0, "node joined with a token");
    Ok(Joined { node_id: node.to_string() })
}

/// Creates an account and its first token in one transaction.
pub async fn create_account(link: &Link, who: &CallerAccount, request: CreateAccount) -> Result<NewAccount, Refusal> {
    let (role, (token, hash), id) = (role(&request.role)?, new_token(), hex(&random::<8>()));
    let (by, now) = (who.name.clone(), link.now());
    let account = link
        .write(move |tx| {
            let account = account::create(tx, &id, &request.name, role, &by, now)?;
            let secret = NewSecret { hash, label: "first".to_owned(), ttl_s: None };
            access::issue_access(tx, &account.name, &secret, &by, now)?;
            Ok(account)
        })
        .await?;
    Ok(NewAccount { role: account.role().name().to_owned(), id: account.id, name: account.name, token })
}

pub async fn list_accounts(link: &Link, _: &CallerAccount, _: ListAccounts) -> Result<Accounts, Refusal> {
    let accounts = link.read(|view| view.accounts())?.into_iter().map(|account| Account {
        role: account.role().name().to_owned(),
        state: account.state().name().to_owned(),
        created_at: account.created_at,
        id: account.id,
        name: account.name,
    });
    Ok(Accounts { accounts: accounts.collect() })
}

pub async fn set_role(link: &Link, who: &CallerAccount, request: SetRole) -> Result<Done, Refusal> {
    let (role, by, now) = (role(&request.role)?, who.name.clone(), link.now());
    link.write(move |tx| account::set_role(tx, &request.name, role, &by, now)).await?;
    Ok(Done {})
}

pub async fn disable_account(link: &Link, who: &CallerAccount, request: DisableAccount) -> Result<Done, Refusal> {
    let (by, now) = (who.name.clone(), link.now());
    link.write(move |tx| account::disable(tx, &request.name, &by, now)).await?;
    Ok(Done {})
}

pub async fn enable_account(link: &Link, who: &CallerAccount, request: EnableAccount) -> Result<Done, Refusal> {
    let (by, now) = (who.name.clone(), link.now());
    link.write(move |tx| account::enable(tx, &request.name, &by, now)).await?;
    Ok(Done {})
}

pub async fn create_token(link: &Link, who: &CallerAccount, request: CreateToken) -> Result<NewToken, Refusal> {
    let ((token, hash), by, now) = (new_token(), who.name.clone(), link.now());
    let new = NewSecret { hash, label: request.label, ttl_s: request.ttl_s };
    let id = link.write(move |tx| access::issue_access(tx, &request.account, &new, &by, now)).await?;
    Ok(NewToken { id: id.to_string(), token, expires_at: request.ttl_s.map(|ttl_s| now + ttl_s) })
}

pub async fn list_tokens(link: &Link, _: &CallerAccount, _: ListTokens) -> Result<Tokens, Refusal> {
    let now = link.now();
    let tokens = link.read(|view| {
        let name = |id: &str| Ok(view.account(id)?.map_or_else(|| id.to_owned(), |account| account.name));
        view.secrets()?
            .into_iter()
            .map(|secret| {
                let state = if secret.has_expired(now) { "expired" } else { secret.state().name() };
                Ok(TokenEntry {
                    id: secret.id().to_string(),
                    account: name(&secret.account)?,
                    purpose: secret.purpose.name().to_owned(),
                    state: state.to_owned(),
                    label: secret.label,
                    created_at: secret.created_at,
                    expires_at: secret.expires_at,
                })
            })
            .collect::<Result<_, Refusal>>()
    })?;
    Ok(Tokens { tokens })
}

pub async fn revoke_token(link: &Link, who: &CallerAccount, request: RevokeToken) -> Result<Done, Refusal> {
    let id: SecretId = request.id.parse().map_err(|error| invalid(format!("'{:.40}': {error}", request.id)))?;
    let (by, now) = (who.name.clone(), link.now());
    link.write(move |tx| access::revoke(tx, id, &by, now)).await?;
    Ok(Done {})
}

pub async fn who_am_i(_: &Link, who: &CallerAccount, _: WhoAmI) -> Result<Me, Refusal> {
    Ok(Me { id: who.id.clone(), name: who.name.clone(), role: who.role.name().to_owned() })
}

pub async fn list_audit(link: &Link, _: &CallerAccount, request: ListAudit) -> Result<Audit, Refusal> {
    let limit = request.limit.map_or(DEFAULT_ENTRIES, |limit| limit as usize).min(MAX_ENTRIES);
    let entries = link.read(|view| match request.after {
        Some(after) => view.audit_after(after, limit),
        None => view.audit_newest(limit),
    })?;
    let entry = |entry: audit::Entry| AuditEntry {
        seq: entry.seq,
        at: entry.at,
        event: entry.event.name().to_owned(),
        actor: entry.actor,
        subject: entry.subject,
        detail: entry.detail,
    };
    Ok(Audit { entries: entries.into_iter().map(entry).collect() })
}

pub async fn approve_login(link: &Link, who: &CallerAccount, request: ApproveLogin) -> Result<Done, Refusal> {
    link.logins.approve(&request.code, Approval { account: who.id.clone(), ttl_s: None }, link.now())?;
    Ok(Done {})
}

pub async fn approve_identity(link: &Link, who: &CallerAccount, request: ApproveIdentity) -> Result<Done, Refusal> {
    let ApproveIdentity { code, name, role, ttl_s } = request;
    if !(ttl_s > 0.0 && ttl_s.is_finite()) {
        return Err(invalid("the lifetime of the login is not positive"));
    }
    let (role, id, by, now) = (self::role(&role)?, hex(&random::<8>()), who.name.clone(), link.now());
    let account = link.write(move |tx| account::of_identity(tx, &id, &name, role, &by, now)).await?;
    link.logins.approve(&code, Approval { account: account.id, ttl_s: Some(ttl_s) }, now)?;
    Ok(Done {})
}
