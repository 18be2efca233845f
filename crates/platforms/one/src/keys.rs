//! Attributes of a VM's USER_TEMPLATE that appliances, the driver and OneFlow share. All values are text.
//!
//! The agent in the VM writes its attributes through OneGate, in one update; the driver writes its own through XML-RPC. Each
//! attribute has one writer.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use trellis_digest::hex;

/// Readiness for OneFlow: `YES` while the VM serves, otherwise `NO`.
pub const READY: &str = "READY";
/// The SuperLink serves: `YES` or `NO`.
pub const FL_READY: &str = "FL_READY";
/// Address of the SuperLink's Fleet API: `host:port`, an IPv6 host in brackets.
pub const FL_ENDPOINT: &str = "FL_ENDPOINT";
/// Version of Flower for the apps, `X.Y.Z`.
pub const FL_VERSION: &str = "FL_VERSION";
/// `superlink`, `supernode` or `gateway`.
pub const FL_ROLE: &str = "FL_ROLE";
/// Failure as code and text: `config_validation_failed: ...`. Erased when the failure is over.
pub const FL_ERROR: &str = "FL_ERROR";
/// Codes of [`FL_ERROR`] that mean waiting: the agent depends on another component.
pub const FL_WAITS: [&str; 6] = [
    "awaits_assignment",
    "discovery_timeout",
    "onegate_unreachable",
    "preflight_failed",
    "health_check_timeout",
    JOIN_REFUSED,
];
/// Code in [`FL_ERROR`] if the SuperLink rejects the node's join token; the text begins with its [`token_mark`].
pub const JOIN_REFUSED: &str = "join_refused";
/// `YES` or `NO`.
pub const FL_TLS: &str = "FL_TLS";
/// Base64 of the PEM of all trusted authorities, two during a rotation.
pub const FL_CA_CERT: &str = "FL_CA_CERT";
/// The node is connected: `YES` or `NO`.
pub const FL_NODE_READY: &str = "FL_NODE_READY";
/// Id of the node at the SuperLink.
pub const FL_NODE_ID: &str = "FL_NODE_ID";
pub const FL_FRAMEWORK: &str = "FL_FRAMEWORK";
pub const FL_GPU_AVAILABLE: &str = "FL_GPU_AVAILABLE";
/// For elasticity: `YES` while an instruction is executed, and the same as a number for expressions.
pub const FL_TRAINING_ACTIVE: &str = "FL_TRAINING_ACTIVE";
/// 1 idle, 2 training, 3 not ready.
pub const FL_CLIENT_STATUS: &str = "FL_CLIENT_STATUS";
/// SuperLink: number of completed rounds of the active run.
pub const FL_ROUND_NUMBER: &str = "FL_ROUND_NUMBER";

/// Label of the VM's template: the federation of the controller. The agent waits for an assignment if it is set.
pub const TRELLIS_FEDERATION: &str = "TRELLIS_FEDERATION";
/// Set by the driver: an [`Assignment`].
pub const TRELLIS_ASSIGNMENT: &str = "TRELLIS_ASSIGNMENT";
/// Set by the driver: the part of the VM, `federation/site/node/pool-3`.
pub const TRELLIS_PART: &str = "TRELLIS_PART";
/// Set by the driver: `YES` if the node must not accept new work.
pub const TRELLIS_DRAIN: &str = "TRELLIS_DRAIN";
/// Set by the driver: the instance to restart.
pub const TRELLIS_RESTART: &str = "TRELLIS_RESTART";

/// Generation of the assignment in force.
pub const TRELLIS_GENERATION: &str = "TRELLIS_GENERATION";
/// Differs for each start of the program.
pub const TRELLIS_INSTANCE: &str = "TRELLIS_INSTANCE";
pub const TRELLIS_DRAINING: &str = "TRELLIS_DRAINING";
/// `YES` or `NO`; absent if it is unknown.
pub const TRELLIS_BUSY: &str = "TRELLIS_BUSY";
/// SuperLink: number of active runs.
pub const TRELLIS_RUNS: &str = "TRELLIS_RUNS";
/// SuperLink: `host:port` of its Control and HTTP APIs.
pub const TRELLIS_CONTROL: &str = "TRELLIS_CONTROL";
pub const TRELLIS_HTTP: &str = "TRELLIS_HTTP";
/// SuperLink without a controller: shard of each node VM, and number of shards: `12:0,13:1/2`.
pub const TRELLIS_SHARDS: &str = "TRELLIS_SHARDS";
/// Time of the agent's last update in seconds since 1970. An old value means that the agent is dead.
pub const TRELLIS_SEEN: &str = "TRELLIS_SEEN";

/// Identifies the join token of a node between driver and agent: an HMAC of the node's name with the token as key. VMs
/// of the same service can read it, so it depends on the node and reveals nothing about the token.
pub fn token_mark(token: &str, node: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()), node.as_bytes());
    hex(&tag.as_ref()[..8])
}

/// What the driver assigns to a VM: its part, and settings that override the context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    pub part: String,
    pub generation: String,
    /// Context variables, by their names without `ONEAPP_`.
    pub settings: BTreeMap<String, String>,
}

impl Assignment {
    /// Value of the attribute: JSON in base64, which needs no quoting.
    pub fn to_attribute(&self) -> String {
        let text = serde_json::to_vec(self).expect("an assignment with text keys is valid JSON");
        STANDARD.encode(text)
    }

    pub fn from_attribute(text: &str) -> Result<Assignment, String> {
        let bytes =
            STANDARD.decode(text.trim()).map_err(|error| format!("{TRELLIS_ASSIGNMENT} is not base64: {error}"))?;
        serde_json::from_slice(&bytes).map_err(|error| format!("{TRELLIS_ASSIGNMENT} is invalid: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_token_differs_by_token_and_node() {
        let mark = token_mark("secret", "cpu-0");
        assert_eq!((mark.len(), mark.as_str()), (16, token_mark("secret", "cpu-0").as_str()));
        assert_ne!(mark, token_mark("secret", "cpu-1"));
        assert_ne!(mark, token_mark("other", "cpu-0"));
    }

    #[test]
    fn an_assignment_survives_its_way_through_a_template() {
        let settings = BTreeMap::from([("FL_NODE_CONFIG".to_owned(), "a=\"$(reboot)\"\n'b'=1".to_owned())]);
        let sent = Assignment { part: "f/s/node/p-0".into(), generation: "00000000000000ab".into(), settings };
        let text = sent.to_attribute();
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)), "{text}");
        assert_eq!(Assignment::from_attribute(&text), Ok(sent));
        assert!(Assignment::from_attribute("{}").is_err());
    }
}
