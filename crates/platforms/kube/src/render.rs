//! What must exist for a federation, as objects in the order in which they are applied. Deterministic: the same input, the same
//! bytes. Knows nothing of what is live, but for what [`Ground`] says.

mod env;
mod gpu;
mod launch;
mod marks;
mod network;
mod node_config;
mod pod;
mod pool;
mod ports;
mod problems;
mod superlink;
mod template;

use std::collections::BTreeMap;

use trellis_flower::launch::gives;

use crate::federation::{Federation, Mode, Pool};
use crate::flower::{PoolPrograms, Programs};
use crate::object::Object;
pub use marks::{MANAGED_BY, instance_labels, node_labels, pool_labels, superlink_labels};
pub use ports::{Endpoints, endpoints};
pub use superlink::TRUST_ANNOTATION;

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
    /// What works, and should be told.
    pub notes: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `spec.supernodes.pools[0].nodeConfig`
    pub place: String,
    pub what: String,
    pub to_do: String,
}

pub fn render(federation: &Federation, ground: &Ground) -> Rendered {
    let programs = Programs::of(federation);
    let scene = Scene { federation, ground, programs: &programs };
    let mut findings = programs.findings(federation);
    problems::find(&scene, &mut findings);
    if !findings.problems.is_empty() {
        return Rendered { objects: Vec::new(), problems: findings.problems, notes: findings.notes };
    }
    // The Service first: nodes that start at once find a name that resolves.
    let mut objects = vec![superlink::service(&scene), superlink::workload(&scene)];
    for (pool, programs) in scene.pools() {
        objects.extend(pool::objects(&scene, pool, programs));
    }
    objects.extend(network::policies(&scene));
    objects.extend(network::pod_monitor(&scene));
    Rendered { objects: objects.into_iter().map(Object).collect(), problems: Vec::new(), notes: findings.notes }
}

/// Whether the user's own arguments or claims say where the SuperLink's state is.
pub fn state_is_given(federation: &Federation) -> bool {
    let superlink = &federation.spec.superlink;
    let flags = ["--database", "--state-dir"];
    !superlink.volume_claim_templates.is_empty() || flags.iter().any(|flag| gives(&superlink.extra_args, flag))
}

/// What all objects of a federation are made from.
#[derive(Debug, Clone, Copy)]
struct Scene<'s> {
    federation: &'s Federation,
    ground: &'s Ground,
    programs: &'s Programs,
}

impl<'s> Scene<'s> {
    fn pools(&self) -> impl Iterator<Item = (&'s Pool, &'s PoolPrograms)> + use<'s> {
        self.federation.spec.supernodes.pools.iter().zip(&self.programs.pools)
    }

    /// How many nodes a pool of a StatefulSet has. As few as the resource may say where it says nothing.
    fn size(&self, pool: &Pool) -> i32 {
        self.ground.sizes.get(&pool.name).copied().or(pool.replicas).unwrap_or(1)
    }

    fn is_stateful(&self) -> bool {
        self.federation.spec.mode == Mode::StatefulSet
    }
}
