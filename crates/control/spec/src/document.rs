//! The document `trellis.dev/v1` of kind Federation: its fields, and the conversion to a checked [`Federation`].

mod between;
mod check;
mod coordinator;
mod link;
mod pool;
mod scaling;
mod security;
mod site;
mod training;

use std::time::Duration;

use crate::federation::{Federation, Link, Monitoring, Name, Runtime, Security, Site};
use crate::kind::{Unavailable, duration, flag, name, one_of, unavailable, whole};
use crate::object::Object;
use crate::runtime::runtime;
use crate::site_kind::SiteConfig;

pub use between::USUAL_SUBNET;
pub(crate) use coordinator::{CoordinatorDraft, Fit, ISOLATIONS, MEDIA, Medium, image};
pub(crate) use pool::{FRAMEWORKS, PoolDraft, VENDORS, plain_pool};
pub(crate) use scaling::{POLICIES, PolicyKind, show_change};
pub(crate) use security::{Mode, TLS_MODES};
pub(crate) use site::SiteDraft;
pub use training::STRATEGIES;
pub(crate) use training::TrainingDraft;

pub(crate) const API_VERSION: &str = "trellis.dev/v1";
pub(crate) const KIND: &str = "Federation";
/// Limit for the nodes of a pool, and for `maxUnavailable`.
pub(crate) const MAX_NODES: u32 = 100_000;

/// Reads a document. `None` if it has errors, which are recorded.
pub(crate) fn federation(document: &mut Object<'_>) -> Option<Federation> {
    document.required("apiVersion", one_of(&[API_VERSION]), "Version of the document format.");
    document.required("kind", one_of(&[KIND]), "Kind of the document.");
    let named = document.required_object("metadata", "Identity of the federation.", metadata);
    let spec = document.required_object("spec", "Desired state of the federation.", Spec::read);
    spec.checked(named)
}

fn metadata(metadata: &mut Object<'_>) -> Option<Name> {
    let help = "Name of the federation; unique within one control plane.";
    metadata.required("name", name("digits"), help)
}

/// The pool of a document without `pools`.
pub(crate) fn only_pool() -> Name {
    Name::new("nodes").expect("a valid name")
}

/// The site of a document without `sites`.
fn only_site() -> Site {
    let name = Name::new("local").expect("a valid name");
    Site { name, config: SiteConfig::default(), max_nodes: None, link: Link::Direct, idle_timeout: None }
}

/// The fields of a document before its parts are combined and checked.
pub(crate) struct Spec {
    pub runtime: Runtime,
    pub coordinator: CoordinatorDraft,
    pub security: Security,
    pub sites: Vec<SiteDraft>,
    pub pools: Vec<PoolDraft>,
    pub training: TrainingDraft,
    pub monitoring: Monitoring,
    pub upgrade: (Unavailable, Duration),
}

impl Spec {
    pub fn read(spec: &mut Object<'_>) -> Self {
        let help = "Programs to run: ours, or the official ones of a release. The plan lists guarantees that then do \
                    not hold.";
        let runtime = spec.or("runtime", runtime(), "trellis", help);
        let help = "Shorthand for one pool called `nodes` with this many nodes.";
        let nodes = spec.optional("nodes", whole(0..=MAX_NODES), help);
        let help = "Groups of nodes with the same configuration.";
        let mut pools = spec.objects("pools", help, pool::read);
        let help = "Places with their own network and driver. The default is one site called `local`: this machine.";
        let sites = spec.objects("sites", help, site::read);
        let coordinator = spec.object("coordinator", "The SuperLink.", coordinator::read);
        let security = spec.object("security", "Authentication of nodes, and encryption.", security::read);
        let training = spec.object("training", "Default settings of runs.", training::read);
        let monitoring = spec.object("monitoring", "Metrics and logs.", monitoring);
        let upgrade = spec.object("upgrade", "How changes are rolled out.", upgrade);

        match (nodes, spec.has("nodes"), spec.has("pools")) {
            (_, true, true) => {
                spec.at("nodes").refuse("nodes is a shorthand for one pool, and pools are set too", "keep one of them");
            }
            (Some(nodes), ..) => pools = vec![PoolDraft::only(nodes, spec.at("nodes"))],
            (None, false, _) if pools.is_empty() && spec.complains() => {
                spec.at("pools")
                    .refuse("the federation has no nodes", "write nodes: 4, or pools with a name and a count each");
            }
            _ => {}
        }
        Self { runtime, coordinator, security, sites, pools, training, monitoring, upgrade }
    }
}

fn monitoring(monitoring: &mut Object<'_>) -> Monitoring {
    Monitoring {
        metrics: monitoring.or("metrics", flag(), "true", "Metrics for Prometheus."),
        json_logs: monitoring.or("jsonLogs", flag(), "false", "Logs as JSON, one object per line, instead of text."),
    }
}

fn upgrade(upgrade: &mut Object<'_>) -> (Unavailable, Duration) {
    let help = "Nodes that may be unavailable at once because of a change: a number, or a share of all nodes (rounded down, at least 1).";
    let away = upgrade.or("maxUnavailable", unavailable(MAX_NODES), "1", help);
    let help = "How long a node may finish its work before it is stopped.";
    (away, upgrade.or("drainTimeout", duration(), "10m", help))
}
