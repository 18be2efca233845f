//! The SuperLink's own calls: name, request and answer of each, as JSON. Times are Unix seconds. Ids are strings,
//! because not every JSON reader supports 64-bit integers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// A request of a call.
pub trait Call: Serialize {
    const NAME: &'static str;
    type Answer: DeserializeOwned;

    /// Returns how long the SuperLink may hold the call before it answers.
    fn hold(&self) -> Duration {
        Duration::ZERO
    }
}

/// An answer without content.
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
    ApproveIdentity = "approve-identity" -> Done;
    RunHistory = "run-history" -> History;
    ReadLog = "read-log" -> LogText;
    PushAppLog = "push-app-log" -> Done;
    ReadAppLog = "read-app-log" -> LogText;
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListNodes {}

#[derive(Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// The SuperLink's clock, which all times below use.
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
    /// The node accepts no new work.
    #[serde(default)]
    pub draining: bool,
    /// The node asks the SuperLink for its shard.
    #[serde(default)]
    pub asks_for_shard: bool,
    /// Transport and Flower release of the node: `http 1.42.0`, or only the transport if the release is unknown.
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

/// A secret that is shown once.
#[derive(Serialize, Deserialize)]
pub struct NewToken {
    pub id: String,
    pub token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<f64>,
}

/// Registers a node with a join token. The call must be signed with the node's key.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    pub token: String,
    /// PEM, as in the node's other calls.
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

/// What a node reports about itself beyond Flower's calls. The call must be signed with its key. Missing fields keep
/// their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribeNode {
    pub node_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The node accepts no new work and must not be selected. Reset by a restart of the SuperLink or the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
}

/// Asks for the shard of a node in a run. The call must be signed with the node's key. A node with a configured shard
/// does not ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskShard {
    pub node_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
}

/// Without a shard, the node's own settings apply. Without a total, no control plane assigns shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShard {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// The shard will be assigned: retry.
    #[serde(default)]
    pub pending: bool,
}

/// Replaces the assignment of shards. A SuperLink loses it when it restarts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssignShards {
    pub total: u32,
    /// Shards by node id; `None`: no shard for the node.
    pub shards: BTreeMap<String, Option<u32>>,
    /// Nodes that runs must not select.
    pub left_out: BTreeSet<String>,
    /// The only nodes that runs may select.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<BTreeSet<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateAccount {
    pub name: String,
    /// `viewer`, `runner` or `admin`: each includes the permissions of the previous one.
    pub role: String,
}

/// A new account with its first token, which is shown once.
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

/// Serialises whole seconds as integers.
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

/// A listed token, without its secret.
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
    /// `fresh`, or why the token is void: `used`, `revoked`, `expired`.
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

/// Returns entries after the number `after`, or the newest entries. Oldest first.
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

/// Of a SuperLink, or of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    pub seq: u64,
    pub at: f64,
    pub event: String,
    pub actor: String,
    pub subject: String,
    pub detail: String,
}

/// Approves a waiting `flwr login` for the calling account.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproveLogin {
    pub code: String,
}

/// Approves a waiting `flwr login` for the account of this name, which gets the role. It is created if there is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproveIdentity {
    pub code: String,
    pub name: String,
    pub role: String,
    /// The login ends after this time, however often it is used.
    pub ttl_s: f64,
}

/// Returns the training reports of a run after the round `after_round`, or all.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHistory {
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_round: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct History {
    /// By round, as the ServerApp sent them.
    pub reports: Vec<Box<RawValue>>,
    /// There are more reports: ask again after the last round.
    pub more: bool,
}

/// Returns the SuperLink's log from `next` of an earlier answer, or the last lines.
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

/// Maximum text of a `PushAppLog`. Its JSON is at most twice as long, because it has no control characters but tabs and ends
/// of lines.
pub const MAX_APP_LOG_BYTES: usize = 24 << 10;

/// Lines that ClientApps of a run wrote on a node. The call must be signed with the node's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushAppLog {
    pub node_id: String,
    pub run_id: String,
    pub text: String,
}

/// Returns the lines of a node in a run from `next` of an earlier answer, or from the first stored one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAppLog {
    pub run_id: String,
    pub node_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Hold time of a watch without `wait_s`.
pub const DEFAULT_WAIT_S: u64 = 25;

/// Returns changes after `after`, the `at` of an earlier answer. Held for `wait_s` (60 at most) until there is a
/// change. Without `after`, or if `after` is too old, returns the current state at once.
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
    /// The position for the next watch. Opaque to clients.
    pub at: String,
    /// Runs with a new state or new reports.
    pub runs: Vec<String>,
    /// Nodes were added, removed or changed.
    pub nodes: bool,
}
