//! Converts a `Federation` of the Kubernetes operator of exalsius (`flwr.exalsius.ai/v1`) to one of ours. A field without a
//! counterpart causes a warning.

mod parts;

use std::collections::BTreeMap;

use trellis_flower::Isolation;
use trellis_flower::{Image, Release};

use crate::document::{CoordinatorDraft, Fit, PoolDraft, SiteDraft, Spec, TrainingDraft};
use crate::federation::{
    Coordinator, Endpoints, Federation, Link, Monitoring, Name, Persistence, Pool, Runtime, Security, Site, Tls,
    Training,
};
use crate::kind::{Choice, Unavailable, choice, flag, name, text, whole};
use crate::object::{self, Object};
use crate::problem::Place;
use crate::site_kind::{KubeSite, SiteConfig};
use crate::tree::Node;
use parts::{Settings, environment, gpu, images, node_config, ports, resources};

pub(crate) const API_VERSION: &str = "flwr.exalsius.ai/v1";
const MODES: [Choice<Mode>; 2] = [("DaemonSet", Mode::DaemonSet), ("StatefulSet", Mode::StatefulSet)];
/// Fields that the API server adds.
const OF_THE_SERVER: [&str; 9] = [
    "annotations",
    "creationTimestamp",
    "finalizers",
    "generation",
    "labels",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    DaemonSet,
    StatefulSet,
}

/// `None` if there are errors, which are recorded.
pub(crate) fn federation(document: &Node, place: Place) -> Option<Federation> {
    object::read_leniently(document, place, |document| {
        document.ignore(&["apiVersion", "kind", "status"]);
        let (name, namespace) = document.required_object("metadata", "", metadata);
        let config = SiteConfig::from(KubeSite::of(&namespace));
        document.required_object("spec", "", |spec| read(spec, config.clone())).checked(name)
    })
}

fn metadata(object: &mut Object<'_>) -> (Option<Name>, String) {
    object.ignore(&OF_THE_SERVER);
    let name = object.required("name", name("digits"), "");
    (name, object.or("namespace", text("the name of a namespace", "default"), "default", ""))
}

fn read(object: &mut Object<'_>, config: SiteConfig) -> Spec {
    let mode = object.required("mode", choice(&MODES), "");
    let isolation = object.required("isolationMode", choice(&crate::document::ISOLATIONS), "");
    let isolation = isolation.unwrap_or(Isolation::Subprocess);
    let insecure = object.or("insecure", flag(), "true", "");
    let version = object.optional("version", text("a release of Flower", "1.39.0"), "");
    let version_at = object.at("version");
    let link = object.required_object("superlink", "", |link| superlink(link, isolation));
    let runtime = match version {
        Some(version) => runtime_of(&version, &version_at),
        None => runtime_of_image(link.coordinator.image.as_deref().unwrap_or_default(), &object.at("superlink")),
    };
    let pools = object.required_object("supernodes", "", |nodes| supernodes(nodes, mode, isolation));
    if pools.is_empty() {
        object.at("supernodes").refuse("the federation has no pools", "write at least one");
    }
    let site_name = Name::new("kubernetes").expect("it is a name");
    let here = object.place().clone();
    Spec {
        runtime,
        coordinator: link,
        security: Security { tls: if insecure { Tls::Off } else { Tls::Auto }, node_auth: false },
        sites: vec![SiteDraft {
            site: Some(Site {
                name: site_name.clone(),
                config,
                max_nodes: None,
                link: Link::Direct,
                idle_timeout: None,
            }),
            name: Some(site_name),
            name_at: here.clone(),
            link_at: here.clone(),
        }],
        pools,
        training: TrainingDraft { training: Training::default(), places: BTreeMap::new(), partitions_at: here },
        monitoring: Monitoring { metrics: true, json_logs: false },
        upgrade: (Unavailable::Nodes(1), std::time::Duration::from_secs(600)),
    }
}

/// The tags of official images begin with the release.
fn runtime_of_image(image: &str, at: &Place) -> Runtime {
    if image.contains("trellis") {
        return Runtime::Trellis;
    }
    let version = Image::read(image).tag.and_then(|tag| tag.split('-').next()).unwrap_or_default();
    if version.starts_with(|c: char| c.is_ascii_digit()) {
        return runtime_of(version, at);
    }
    let newest = Release::NEWEST;
    let what = format!("the image {image:?} does not name a release of Flower; {newest} is used");
    at.warn(what, "write spec.version");
    Runtime::Flower(newest)
}

fn runtime_of(version: &str, at: &Place) -> Runtime {
    let found = Release::parse(version);
    if found.is_none() {
        let (oldest, newest) = (Release::OLDEST, Release::NEWEST);
        at.refuse(format!("{version:?} is not a supported release of Flower"), format!("use {oldest} to {newest}"));
    }
    Runtime::Flower(found.unwrap_or(Release::NEWEST))
}

fn superlink(object: &mut Object<'_>, isolation: Isolation) -> CoordinatorDraft {
    let coordinator = Coordinator {
        site: 0,
        image: object.required("image", crate::document::image(), ""),
        endpoints: Endpoints { advertise: Vec::new(), ..object.object("service", "", ports) },
        persistence: Persistence::Disk { path: None, size_bytes: None },
        isolation,
        resources: object.object("resources", "", resources),
        env: environment(object),
        python: None,
        extra_args: object.any("extraArgs", crate::kind::arguments(), ""),
    };
    let (place, fit) = (object.place().clone(), Fit::of(object));
    CoordinatorDraft { coordinator, site: None, site_at: place.clone(), place, fit }
}

fn supernodes(object: &mut Object<'_>, mode: Option<Mode>, isolation: Isolation) -> Vec<PoolDraft> {
    let image = object.required("image", crate::document::image(), "");
    let env = environment(object);
    let common = Settings { image, env, isolation };
    object.objects("pools", "", |pool| read_pool(pool, mode, &common))
}

fn read_pool(object: &mut Object<'_>, mode: Option<Mode>, common: &Settings) -> PoolDraft {
    let name = object.required("name", name("clinics"), "");
    let replicas = object.optional("replicas", whole(1..=crate::document::MAX_NODES), "");
    match mode {
        Some(Mode::StatefulSet) if !object.has("replicas") => {
            object.at("replicas").refuse("mode: StatefulSet requires it", "set the number of nodes");
        }
        Some(Mode::DaemonSet) if object.has("replicas") => {
            object.at("replicas").refuse("it must not be set with mode: DaemonSet", "leave it out");
        }
        Some(Mode::DaemonSet) => {
            let what = "a node on each machine of the cluster (mode: DaemonSet) has no counterpart; 1 is used";
            object.place().warn(what, "write a document of trellis.dev/v1, with a count");
        }
        _ => {}
    }
    let mut env = common.env.clone();
    env.extend(environment(object));
    let plain =
        crate::document::plain_pool(name.clone().unwrap_or_else(crate::document::only_pool), replicas.unwrap_or(1));
    let pool = Pool {
        image: object.object("images", "", images).or_else(|| common.image.clone()),
        isolation: common.isolation,
        resources: object.object("supernodeResources", "", resources),
        gpu: object.object("gpu", "", gpu),
        node_config: node_config(object, mode == Some(Mode::DaemonSet)),
        env,
        extra_args: object.any("extraArgs", crate::kind::arguments(), ""),
        ..plain
    };
    let (name_at, place) = (object.at("name"), object.place().clone());
    let fit = Fit { image: Some(place.clone()), framework: None, python: None, env: None, extra_args: None };
    PoolDraft { name, name_at, site: None, site_at: place.clone(), fit, scaling_at: place, pool }
}
