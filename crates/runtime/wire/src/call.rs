//! The calls a SuperLink answers beside Flower's: name, question and answer of each, in JSON, for both sides. Times are
//! seconds since 1970; ids are texts, because not every JSON reader has numbers that large.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// A question that has an answer.
pub trait Call: Serialize {
    const NAME: &'static str;
    type Answer: DeserializeOwned;

    /// How long the SuperLink may hold the call before it answers, beyond what any call takes.
    fn hold(&self) -> Duration {
        Duration::ZERO
    }
}

/// An answer that says no more than "done".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

macro_rules! calls {
    ($($question:ident = $name:literal -> $answer:ident;)*) => {
        $(impl Call for $question {
            const NAME: &'static str = $name;
            type Answer = $answer;
        })*
    };
}

calls! {
    ListNodes = "list-nodes" -> Nodes;
    RevokeNode = "revoke-node" -> Done;
    CreateJoinToken = "create-join-token" -> NewToken;
    Join = "join" -> Joined;
    DescribeNode = "describe-node" -> Done;
    AskShard = "node-shard" -> NodeShard;
    AssignShards = "assign-shards" -> Done;
    CreateAccount = "create-account" -> NewAccount;
    ListAccounts = "list-accounts" -> Accounts;
    SetRole = "set-role" -> Done;
    DisableAccount = "disable-account" -> Done;
    EnableAccount = "enable-account" -> Done;
    CreateToken = "create-token" -> NewToken;
    ListTokens = "list-tokens" -> Tokens;
    RevokeToken = "revoke-token" -> Done;
    WhoAmI = "who-am-i" -> Me;
    ListAudit = "list-audit" -> Audit;
    ApproveLogin = "approve-login" -> Done;
    RunHistory = "run-history" -> History;
    ReadLog = "read-log" -> LogText;
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListNodes {}

#[derive(Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// The SuperLink's clock, which the times below are by.
    pub now: f64,
    pub nodes: Vec<Node>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Node {
    pub id: String,
    pub name: String,
    pub location: String,
    /// `registered`, `online`, `offline` or `unregistered`.
    pub status: String,
    /// It takes no new work.
    #[serde(default)]
    pub draining: bool,
    /// It works with the shard that it is assigned.
    #[serde(default)]
    pub asks_for_shard: bool,
    /// Transport and version of Flower it speaks: `http 1.42.0`; without the version where none was announced.
    pub client: String,
    pub owner: String,
    pub registered_at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_activated_at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_deactivated_at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online_until: Option<f64>,
    pub key_fingerprint: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeNode {
    pub id: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    #[serde(serialize_with = "seconds")]
    pub ttl_s: f64,
    #[serde(default)]
    pub label: String,
}

/// A secret that is told once.
#[derive(Serialize, Deserialize)]
pub struct NewToken {
    pub id: String,
    pub token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<f64>,
}

/// A node asks to be known. The join token is the proof that it may; the call must be signed with the key.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    pub token: String,
    /// PEM, as the node will send it with every call.
    pub public_key: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub location: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Joined {
    pub node_id: String,
}

/// What a node says of itself beyond Flower's own calls; the call must be signed with its key. What is left out stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribeNode {
    pub node_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// It takes no new work, and is not to be chosen for any. Forgotten when the SuperLink or the node starts anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
}

/// A node asks which part of the data it has, in a run; the call must be signed with its key. A node with a shard of its own
/// does not ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskShard {
    pub node_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
}

/// Without a shard the node's own settings count. Without a total, no control plane assigns shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShard {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// It will have one: ask again.
    #[serde(default)]
    pub pending: bool,
}

/// Replaces the assignment of shards, which a SuperLink forgets when it starts anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssignShards {
    pub total: u32,
    /// Of nodes that ask, by id; `None`: there is none for it.
    pub shards: BTreeMap<String, Option<u32>>,
    /// Nodes that runs must not select.
    pub left_out: BTreeSet<String>,
    /// Runs must select no others than these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<BTreeSet<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateAccount {
    pub name: String,
    /// `viewer`, `runner` or `admin`: each may do all that the ones before it may.
    pub role: String,
}

/// With its first token, which is told once.
#[derive(Serialize, Deserialize)]
pub struct NewAccount {
    pub id: String,
    pub name: String,
    pub role: String,
    pub token: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListAccounts {}

#[derive(Debug, Serialize, Deserialize)]
pub struct Accounts {
    pub accounts: Vec<Account>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Account {
    pub id: String,
    pub name: String,
    pub role: String,
    /// `active` or `disabled`.
    pub state: String,
    pub created_at: f64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRole {
    pub name: String,
    pub role: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisableAccount {
    pub name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnableAccount {
    pub name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    pub account: String,
    #[serde(default)]
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "some_seconds")]
    pub ttl_s: Option<f64>,
}

/// Whole seconds are written as a whole number.
fn seconds<S: Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match *seconds as u64 {
        whole if whole as f64 == *seconds => serializer.serialize_u64(whole),
        _ => serializer.serialize_f64(*seconds),
    }
}

fn some_seconds<S: Serializer>(some: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match some {
        Some(some) => seconds(some, serializer),
        None => serializer.serialize_none(),
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTokens {}

#[derive(Debug, Serialize, Deserialize)]
pub struct Tokens {
    pub tokens: Vec<TokenEntry>,
}

/// A token as it is listed: everything but the secret.
#[derive(Debug, Serialize, Deserialize)]
pub struct TokenEntry {
    pub id: String,
    pub account: String,
    /// `access`, `refresh` (of a login) or `join`.
    pub purpose: String,
    pub label: String,
    pub created_at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<f64>,
    /// `fresh`, or why it is no longer good: `used`, `revoked`, `expired`.
    pub state: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    pub id: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhoAmI {}

#[derive(Debug, Serialize, Deserialize)]
pub struct Me {
    pub id: String,
    pub name: String,
    pub role: String,
}

/// Entries after the number `after`; without one, the newest. Oldest first in both cases.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListAudit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Audit {
    pub entries: Vec<AuditEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct AuditEntry {
    pub seq: u64,
    pub at: f64,
    pub event: String,
    pub actor: String,
    pub subject: String,
    pub detail: String,
}

/// Lets a `flwr login` that waits go on as the account that approves it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproveLogin {
    pub code: String,
}

/// What the ServerApp of a native run told of its rounds, after the round `after_round`; without one, from the beginning.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHistory {
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_round: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct History {
    /// By round, each as the ServerApp wrote it.
    pub reports: Vec<Box<RawValue>>,
    /// There are later rounds: ask again, after the last of these.
    pub more: bool,
}

/// What the SuperLink wrote to its log after a place, the `next` of an earlier answer; without one, the last lines.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadLog {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogText {
    pub text: String,
    /// `NUMBER-NUMBER`.
    pub next: String,
}

/// How long a watch is held that says nothing about it.
pub const DEFAULT_WAIT_S: u64 = 25;

/// What changed after `after`, the `at` of an earlier answer. Held for `wait_s` (60 at most) while there is nothing to tell.
/// Without `after`, and where that is too long ago: what there is, at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
}

impl Call for Watch {
    const NAME: &'static str = "watch";
    type Answer = Changed;

    fn hold(&self) -> Duration {
        Duration::from_secs(self.wait_s.unwrap_or(DEFAULT_WAIT_S))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// To ask on from here. Means nothing to others than the SuperLink.
    pub at: String,
    /// Runs that are in another state or have new reports.
    pub runs: Vec<String>,
    /// Nodes came, went or changed.
    pub nodes: bool,
}
