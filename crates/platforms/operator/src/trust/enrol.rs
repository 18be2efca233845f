//! Makes nodes known to a SuperLink that takes known ones only, and has it forget those that left. Each step may be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use trellis_client::{Error as CallError, SuperLink};
use trellis_kube::federation::Federation;
use trellis_kube::object::Identity;
use trellis_kube::status::Condition;
use trellis_kube::trust::{SecretWanted, Seen};

use super::Error;
use super::kept::{Kept, Written};
use crate::cache;
use crate::context::{Context, Findings};

pub const ENROLLED: &str = "NodesEnrolled";
/// What SuperLinks say of a key that they know, in every release.
const KNOWN: &str = "already in use";
/// Of a node that was taken away, in a list of nodes.
const GONE: &str = "unregistered";
/// How often it is looked at whether a SuperLink still knows its nodes.
const LOOK: Duration = Duration::from_secs(60);
/// After a try that came to nothing: the way to a SuperLink that has just become ready may open a moment later.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The keys of a federation's nodes.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Public halves (PEM), and what they are called.
    pub known: BTreeMap<String, String>,
    pub left: Vec<Left>,
    /// Secrets that go when what is in them is forgotten.
    pub abandoned: Vec<String>,
    /// Keys that cannot be read; their nodes cannot join.
    pub damaged: Vec<String>,
}

/// A key whose node is no more.
#[derive(Debug, Clone)]
pub struct Left {
    pub secret: String,
    pub entry: String,
    /// `None`: nobody can have used it.
    pub public: Option<String>,
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.left.is_empty() && self.abandoned.is_empty()
    }
}

/// In a pass of the operator: as soon as the SuperLink is there, and again from time to time, because one that lost its state must
/// be told anew.
pub async fn in_pass(context: &Context, federation: &Federation, seen: &cache::Seen, keys: &Keys) -> Findings {
    let mut findings = Findings::default();
    if keys.is_empty() {
        return findings;
    }
    findings.again = Some(LOOK);
    if !federation.spec.security.node_auth {
        // A SuperLink that takes every node knows no keys, and there is nothing to tell it.
        if let Err(error) = forget(&context.client, federation, keys).await {
            let message = format!("what nodes that left had cannot be taken away: {}", error.words());
            findings.conditions.push(Condition::new(ENROLLED, false, "SecretsUnavailable", message));
        }
        return findings;
    }
    let api_version = "apps/v1".to_owned();
    let place = Identity { api_version, kind: "StatefulSet".to_owned(), name: federation.superlink_name() };
    let ready = seen.objects.get(&place).and_then(|workload| workload.0["status"]["readyReplicas"].as_i64());
    if ready.unwrap_or(0) < 1 {
        let message = "nodes are made known as soon as the SuperLink is ready";
        findings.conditions.push(Condition::new(ENROLLED, false, "WaitingForSuperLink", message));
        return findings;
    }
    let told = match context.settings.reach.superlink(&context.client, federation).await {
        Ok(reached) => {
            enrol(&context.client, federation, &reached.superlink, keys).await.map_err(|error| error.words())
        }
        Err(error) => Err(error.to_string()),
    };
    let failed = |why: String| {
        let message = format!("nodes cannot be made known to the SuperLink: {why}");
        Condition::new(ENROLLED, false, "SuperLinkUnreachable", message)
    };
    let told = told.unwrap_or_else(failed);
    if told.holds != Some(true) {
        findings.again = Some(TRY_AGAIN);
    }
    findings.conditions.push(told);
    findings
}

/// Tells the SuperLink, and then takes away keys of nodes that left. What could not be told is told at the next try.
pub async fn enrol(
    client: &Client,
    federation: &Federation,
    superlink: &SuperLink,
    keys: &Keys,
) -> Result<Condition, Error> {
    match tell(superlink, keys).await {
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
            let message = format!("cannot be read: {}; delete the entry, and a new key is made", damaged.join(", "));
            Condition::new(ENROLLED, false, "KeyUnusable", message)
        }
    })
}

async fn tell(superlink: &SuperLink, keys: &Keys) -> Result<(), CallError> {
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

/// Takes keys of nodes that left out of their Secrets.
async fn forget(client: &Client, federation: &Federation, keys: &Keys) -> Result<(), Error> {
    let kept = Kept::new(client, federation);
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
        let wanted = SecretWanted { name: name.clone(), entries, annotations: BTreeMap::new() };
        let mut seen = Seen { secrets: BTreeMap::from([(name.clone(), present)]), ..Seen::default() };
        if let Written::Contended = kept.write(&wanted, &mut seen).await? {
            return Err(Error::Contended(name.clone()));
        }
    }
    Ok(())
}
