//! The document `trellis.dev/v1` of kind Federation: its fields, and how it becomes a checked [`Federation`].

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
/// Of one pool; and nodes that may be away at once.
pub(crate) const MAX_NODES: u32 = 100_000;

/// A whole document. `None`: something is wrong with it, which is noted.
pub(crate) fn federation(document: &mut Object<'_>) -> Option<Federation> {
    document.required("apiVersion", one_of(&[API_VERSION]), "Which document this is.");
    document.required("kind", one_of(&[KIND]), "Which document this is.");
    let named = document.required_object("metadata", "What it is called.", metadata);
    let spec = document.required_object("spec", "What there shall be.", Spec::read);
    spec.checked(named)
}

fn metadata(metadata: &mut Object<'_>) -> Option<Name> {
    let help = "Name of the federation; unique among those that one controller looks after.";
    metadata.required("name", name("digits"), help)
}

/// The pool of those who only say how many nodes there are.
pub(crate) fn only_pool() -> Name {
    Name::new("nodes").expect("it is a name")
}

/// The site of those who name none.
fn only_site() -> Site {
    let name = Name::new("local").expect("it is a name");
    Site { name, config: SiteConfig::default(), max_nodes: None, link: Link::Direct, idle_timeout: None }
}

/// What is read, before its parts are fitted together.
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
        let help = "Whose programs run: ours, or the official ones of a release. The plan says which promises then \
                    cannot be kept.";
        let runtime = spec.or("runtime", runtime(), "trellis", help);
        let help = "Short for one pool called `nodes`, of so many nodes.";
        let nodes = spec.optional("nodes", whole(0..=MAX_NODES), help);
        let help = "Groups of nodes that are alike.";
        let mut pools = spec.objects("pools", help, pool::read);
        let help = "Places with their own network and driver. Without any there is one called `local`: this machine.";
        let sites = spec.objects("sites", help, site::read);
        let coordinator = spec.object("coordinator", "The SuperLink.", coordinator::read);
        let security = spec.object("security", "Who may take part, and what is encrypted.", security::read);
        let training = spec.object("training", "Settings of runs that do not say otherwise.", training::read);
        let monitoring = spec.object("monitoring", "What can be watched.", monitoring);
        let upgrade = spec.object("upgrade", "How changes are carried out.", upgrade);

        match (nodes, spec.has("nodes"), spec.has("pools")) {
            (_, true, true) => {
                spec.at("nodes").refuse("nodes is short for one pool, and pools are given too", "keep one of them");
            }
            (Some(nodes), ..) => pools = vec![PoolDraft::only(nodes, spec.at("nodes"))],
            (None, false, _) if pools.is_empty() && spec.complains() => {
                spec.at("pools").refuse("there are no nodes", "write nodes: 4, or pools with a name and a count each");
            }
            _ => {}
        }
        Self { runtime, coordinator, security, sites, pools, training, monitoring, upgrade }
    }
}

fn monitoring(monitoring: &mut Object<'_>) -> Monitoring {
    Monitoring {
        metrics: monitoring.or("metrics", flag(), "true", "Metrics for Prometheus."),
        json_logs: monitoring.or("jsonLogs", flag(), "false", "Logs as JSON, an object on each line, instead of text."),
    }
}

fn upgrade(upgrade: &mut Object<'_>) -> (Unavailable, Duration) {
    let help =
        "Nodes that may be away at once because of a change: a number, or a share of all (rounded down, at least 1).";
    let away = upgrade.or("maxUnavailable", unavailable(MAX_NODES), "1", help);
    let help = "How long a node may finish what it works on before it is taken away.";
    (away, upgrade.or("drainTimeout", duration(), "10m", help))
}
