//! What must exist for a federation, as objects in the order in which they are applied. Deterministic: the same input, the same
//! bytes.

use std::collections::BTreeMap;

use crate::federation::Federation;
use crate::object::Object;

/// What is known beside the resource when its objects are made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ground {
    pub durability: Durability,
    pub trust: Option<Trust>,
    /// Pools whose size is not (only) what the resource says: pool, nodes.
    pub sizes: BTreeMap<String, i32>,
    /// Of the operator, which may use the Control API.
    pub operator_namespace: Option<String>,
}

/// Where the SuperLink's state is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// In a claim of its own.
    Claim,
    /// In a directory of the pod: it survives the program, not the pod.
    #[default]
    Pod,
    /// Where the user's arguments and volumes say.
    Given,
}

/// The secrets that pods of a federation with TLS mount. It is there whenever the federation is served with TLS by certificates
/// that the operator knows, whatever `insecure` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// `tls.crt`, `tls.key`, `ca.crt`: for the SuperLink.
    pub server_secret: String,
    /// `ca.crt`: for nodes, and for whoever else calls the SuperLink.
    pub authority_secret: String,
    /// Changes when a SuperLink that does not read its certificate anew must be started again.
    pub revision: String,
    /// Changes when a node that does not read anew whom it trusts must be started again.
    pub bundle_revision: String,
    /// With node authentication, for each pool the secret with the keys of its nodes, each named by its pod.
    pub node_keys: BTreeMap<String, String>,
    /// `token`: of the account `admin`, for SuperLinks of Trellis (`--admin-token-file`).
    pub admin_secret: Option<String>,
}

/// The objects, and what is wrong with the resource beyond what the API server can refuse. With problems there are no objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rendered {
    pub objects: Vec<Object>,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `spec.supernodes.pools[0].nodeConfig`
    pub place: String,
    pub what: String,
    pub to_do: String,
}

pub fn render(_federation: &Federation, _ground: &Ground) -> Rendered {
    Rendered::default()
}
