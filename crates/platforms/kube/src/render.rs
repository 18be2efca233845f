//! Renders the objects of a federation in the order in which they are applied. Deterministic. Live state is visible
//! through [`Ground`] only.

mod env;
mod gpu;
mod labels;
mod launch;
mod network;
mod node_config;
mod pod;
mod pool;
mod ports;
mod problems;
mod superlink;
mod template;

use std::collections::BTreeMap;

use serde_json::Value;
use trellis_diagnostic::Diagnostic;
use trellis_flower::launch::{Keepalive, gives};
use trellis_spec::ConfigValue;

use crate::federation::{Federation, Mode, Pool};
use crate::flower::{PoolPrograms, Programs};
use crate::object::Object;
pub use env::literal;
pub use labels::{MANAGED_BY, instance_labels, node_labels, pool_labels, superlink_labels};
pub use ports::{Endpoints, endpoints};
pub use superlink::TRUST_ANNOTATION;

/// Inputs of the objects in addition to the resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ground {
    pub durability: Durability,
    pub trust: Option<Trust>,
    /// Sizes of pools that differ from the resource.
    pub sizes: BTreeMap<String, i32>,
    /// The namespace of the operator, which may use the Control API.
    pub operator_namespace: Option<String>,
    pub launch: LaunchSettings,
}

/// Settings of programs that the resource has no fields for. The driver of the REST API sets them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchSettings {
    pub keepalive: Option<Keepalive>,
    /// Names and addresses by which clients outside of the cluster call the SuperLink.
    pub endpoints: Vec<String>,
    /// `host:port` of a SuperLink that is not behind the Service of this federation.
    pub superlink: Option<String>,
    /// Absent: the name of the pod.
    pub node_name: Option<String>,
    pub client_app: Option<String>,
    pub gpu_memory_fraction: Option<f64>,
    /// Values for one node, which take precedence over `nodeConfig` of its pool.
    pub node_config: BTreeMap<String, ConfigValue>,
}

/// A workload of a federation, with the objects that serve only this workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'p> {
    SuperLink,
    Pool(&'p str),
}

/// Where the SuperLink stores its state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// In a volume claim.
    Claim,
    /// In a directory of the pod: it survives the program, not the pod.
    #[default]
    Pod,
    /// As arguments and volumes of the user say.
    Given,
}

/// The Secrets that pods of a federation with TLS mount. Present if the operator knows the certificates, whatever
/// `insecure` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// `tls.crt`, `tls.key`, `ca.crt`: for the SuperLink.
    pub server_secret: String,
    /// `ca.crt`: for nodes and other clients.
    pub authority_secret: String,
    /// Changes when a SuperLink that does not reload its certificate must restart.
    pub revision: String,
    /// Changes when a node that does not reload the authorities must restart.
    pub bundle_revision: String,
    /// With node authentication, for each pool the Secret with the keys of its nodes by the names of their pods.
    pub node_keys: BTreeMap<String, String>,
    /// `token`: of the account `admin`, for SuperLinks of Trellis (`--admin-token-file`).
    pub admin_secret: Option<String>,
}

/// The objects, and problems that the API server does not find. With problems there are no objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rendered {
    pub objects: Vec<Object>,
    pub problems: Vec<Diagnostic>,
    /// Advice: the objects work.
    pub notes: Vec<Diagnostic>,
}

/// All objects of a federation.
pub fn render(federation: &Federation, ground: &Ground) -> Rendered {
    rendered(federation, ground, |scene| {
        let mut objects = scene.part(Part::SuperLink);
        objects.extend(scene.pools().flat_map(|(pool, _)| scene.part(Part::Pool(&pool.name))));
        objects.extend(network::policies(scene));
        objects.extend(network::pod_monitor(scene));
        objects
    })
}

/// The objects of one part, equal to those that [`render`] makes for it.
pub fn render_part(federation: &Federation, ground: &Ground, part: Part<'_>) -> Rendered {
    rendered(federation, ground, |scene| scene.part(part))
}

fn rendered(federation: &Federation, ground: &Ground, objects: impl FnOnce(&Scene<'_>) -> Vec<Value>) -> Rendered {
    let programs = Programs::of(federation);
    let scene = Scene { federation, ground, programs: &programs };
    let mut findings = programs.findings(federation);
    problems::find(&scene, &mut findings);
    let objects = if findings.problems.is_empty() { objects(&scene) } else { Vec::new() };
    Rendered { objects: objects.into_iter().map(Object).collect(), problems: findings.problems, notes: findings.notes }
}

/// Whether the user's own arguments or volume claims say where the SuperLink stores its state.
pub fn state_is_given(federation: &Federation) -> bool {
    let superlink = &federation.spec.superlink;
    let flags = ["--database", "--state-dir"];
    !superlink.volume_claim_templates.is_empty() || flags.iter().any(|flag| gives(&superlink.extra_args, flag))
}

/// Input of all rendering functions.
#[derive(Debug, Clone, Copy)]
struct Scene<'s> {
    federation: &'s Federation,
    ground: &'s Ground,
    programs: &'s Programs,
}

impl<'s> Scene<'s> {
    fn part(&self, part: Part<'_>) -> Vec<Value> {
        match part {
            // The Service comes first, so that its name resolves when nodes start.
            Part::SuperLink => vec![superlink::service(self), superlink::workload(self)],
            Part::Pool(name) => {
                let pool = self.pools().find(|(pool, _)| pool.name == name);
                pool.map(|(pool, programs)| pool::objects(self, pool, programs)).unwrap_or_default()
            }
        }
    }

    fn pools(&self) -> impl Iterator<Item = (&'s Pool, &'s PoolPrograms)> + use<'s> {
        self.federation.spec.supernodes.pools.iter().zip(&self.programs.pools)
    }

    /// Number of nodes of a StatefulSet pool.
    fn size(&self, pool: &Pool) -> i32 {
        self.ground.sizes.get(&pool.name).copied().or(pool.replicas).unwrap_or(1)
    }

    fn is_stateful(&self) -> bool {
        self.federation.spec.mode == Mode::StatefulSet
    }
}
