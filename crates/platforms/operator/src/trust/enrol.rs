//! Registers node keys at SuperLinks that admit known nodes only, and removes those of deleted nodes. Each step is
//! idempotent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use trellis_client::{Error as CallError, SuperLink};
use trellis_kube::federation::Federation;
use trellis_kube::object::Identity;
use trellis_kube::status::Condition;
use trellis_kube::trust::{DesiredSecret, Seen};

use super::Error;
use super::secrets::{SecretStore, Written};
use crate::cache;
use crate::context::{Context, Findings};

pub const ENROLLED: &str = "NodesEnrolled";
/// Message of SuperLinks about a key that is registered already, in every release.
const KNOWN: &str = "already in use";
/// Status of a removed node in a list of nodes.
const GONE: &str = "unregistered";
/// Interval of checks whether a SuperLink still knows its nodes.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Retry interval: a SuperLink that has just become ready may not be reachable yet.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Node keys of a federation.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Public keys (PEM) with their names.
    pub known: BTreeMap<String, String>,
    pub left: Vec<Left>,
    /// Secrets to delete once their keys are removed from the SuperLink.
    pub abandoned: Vec<String>,
    /// Keys that cannot be read; their nodes cannot join.
    pub damaged: Vec<String>,
}

/// A key of a deleted node.
#[derive(Debug, Clone)]
pub struct Left {
    pub secret: String,
    pub entry: String,
    /// `None`: the key is damaged, so no node can have used it.
    pub public: Option<String>,
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.left.is_empty() && self.abandoned.is_empty()
    }
}

/// Runs in a reconcile as soon as the SuperLink is available, and again at intervals, because a SuperLink that lost its
/// state must learn the keys again.
pub async fn in_reconcile(context: &Context, federation: &Federation, seen: &cache::Seen, keys: &Keys) -> Findings {
    let mut findings = Findings::default();
    if keys.is_empty() {
        return findings;
    }
    findings.requeue_after = Some(RECHECK_INTERVAL);
    if !federation.spec.security.node_auth {
        // A SuperLink that admits every node has no registered keys.
        if let Err(error) = forget(&context.client, federation, keys).await {
            let message = format!("cannot delete the keys of removed nodes: {}", error.words());
            findings.conditions.push(Condition::new(ENROLLED, false, "SecretsUnavailable", message));
        }
        return findings;
    }
    let api_version = "apps/v1".to_owned();
    let place = Identity { api_version, kind: "StatefulSet".to_owned(), name: federation.superlink_name() };
    let ready = seen.objects.get(&place).and_then(|workload| workload.0["status"]["readyReplicas"].as_i64());
    if ready.unwrap_or(0) < 1 {
        let message = "nodes are registered as soon as the SuperLink is ready";
        findings.conditions.push(Condition::new(ENROLLED, false, "WaitingForSuperLink", message));
        return findings;
    }
    let condition = match context.settings.reach.superlink(&context.client, federation).await {
        Ok(reached) => {
            enrol(&context.client, federation, &reached.superlink, keys).await.map_err(|error| error.words())
        }
        Err(error) => Err(error.to_string()),
    };
    let failed = |why: String| {
        let message = format!("nodes cannot be registered at the SuperLink: {why}");
        Condition::new(ENROLLED, false, "SuperLinkUnreachable", message)
    };
    let condition = condition.unwrap_or_else(failed);
    if condition.holds != Some(true) {
        findings.requeue_after = Some(TRY_AGAIN);
    }
    findings.conditions.push(condition);
    findings
}

/// Registers keys at the SuperLink, then deletes keys of deleted nodes. Failures are retried.
pub async fn enrol(
    client: &Client,
    federation: &Federation,
    superlink: &SuperLink,
    keys: &Keys,
) -> Result<Condition, Error> {
    match register_keys(superlink, keys).await {
        Ok(()) => {}
        Err(error) => {
            let message = format!("the SuperLink does not take the keys of its nodes: {error}");
            return Ok(Condition::new(ENROLLED, false, "SuperLinkRefuses", message));
        }
    }
    forget(client, federation, keys).await?;
    Ok(match keys.damaged.as_slice() {
        [] => Condition::new(ENROLLED, true, "Enrolled", format!("the SuperLink knows {} nodes", keys.known.len())),
        damaged => {
            let message = format!("cannot be read: {}; delete the entry, and a new key is created", damaged.join(", "));
            Condition::new(ENROLLED, false, "KeyUnusable", message)
        }
    })
}

async fn register_keys(superlink: &SuperLink, keys: &Keys) -> Result<(), CallError> {
    let listed = superlink.list_nodes().await?;
    let present: BTreeMap<String, u64> = listed
        .iter()
        .filter(|node| node.status != GONE)
        .map(|node| (String::from_utf8_lossy(&node.public_key).trim().to_owned(), node.node_id))
        .collect();
    for public in keys.known.keys().filter(|public| !present.contains_key(public.trim())) {
        match superlink.register_node(public).await {
            Err(CallError::Refused { detail, .. }) if detail.contains(KNOWN) => {}
            other => drop(other?),
        }
    }
    for public in keys.left.iter().filter_map(|left| left.public.as_ref()) {
        if let Some(node) = present.get(public.trim()) {
            superlink.unregister_node(*node).await?;
        }
    }
    Ok(())
}

/// Removes keys of deleted nodes from their Secrets.
async fn forget(client: &Client, federation: &Federation, keys: &Keys) -> Result<(), Error> {
    let kept = SecretStore::new(client, federation);
    for name in &keys.abandoned {
        kept.delete(name).await?;
    }
    let touched: BTreeSet<&String> =
        keys.left.iter().map(|left| &left.secret).filter(|name| !keys.abandoned.contains(name)).collect();
    for name in touched {
        let Some(present) = kept.secret(name).await? else { continue };
        let gone = |entry: &String| keys.left.iter().any(|left| left.secret == *name && left.entry == *entry);
        let entries = present.entries.iter().filter(|(entry, _)| !gone(entry));
        let entries = entries.map(|(entry, bytes)| (entry.clone(), bytes.clone())).collect();
        let wanted = DesiredSecret { name: name.clone(), entries, annotations: BTreeMap::new() };
        let mut seen = Seen { secrets: BTreeMap::from([(name.clone(), present)]), ..Seen::default() };
        if let Written::Contended = kept.write(&wanted, &mut seen).await? {
            return Err(Error::Contended(name.clone()));
        }
    }
    Ok(())
}
