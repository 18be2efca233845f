//! The fields of a pool. Its site is resolved later, when all sites are known.

use std::collections::{BTreeMap, BTreeSet};

use trellis_flower::Isolation;

use super::coordinator::{Fit, ISOLATIONS, PYTHON_HELP, image, resources};
use super::scaling;
use crate::federation::{ConfigTemplate, Framework, Gpu, GpuVendor, Name, Pool, Resources, Scaling};
use crate::kind::{
    Choice, ListOf, Scalar, arguments, choice, environment, flag, fraction, name, node_config, path, whole, word,
};
use crate::node_config::looks_like_go;
use crate::object::Object;
use crate::problem::Place;

pub(crate) const FRAMEWORKS: [Choice<Framework>; 3] =
    [("pytorch", Framework::PyTorch), ("tensorflow", Framework::TensorFlow), ("sklearn", Framework::Sklearn)];
pub(crate) const VENDORS: [Choice<GpuVendor>; 2] = [("nvidia", GpuVendor::Nvidia), ("amd", GpuVendor::Amd)];
const MAX_GPUS: u32 = 64;

const SITE_HELP: &str = "Site of its nodes; the first one by default.";
const IMAGE_HELP: &str = "Container or VM image, instead of the default of runtime and framework.";
const APP_HELP: &str = "A built-in ClientApp, used for every run instead of the app of the run.";
const ISOLATION_HELP: &str =
    "How ClientApps are started: by the SuperNode (subprocess), or by a separate SuperExec (process).";
const DRAINED_HELP: &str = "Indices of nodes that finish their work and take no new work: [2] is the node POOL-2.";
const CONFIG_HELP: &str = "Node config of apps. Text may contain {index} {replicas} {pool} {site} {node}; {{ and }} \
                           stand for braces.";

pub(crate) struct PoolDraft {
    /// `None` if it is invalid, or the document has no `pools`.
    pub name: Option<Name>,
    pub name_at: Place,
    pub site: Option<Name>,
    pub site_at: Place,
    pub fit: Fit,
    pub scaling_at: Place,
    pub pool: Pool,
}

impl PoolDraft {
    /// The pool of a document with `nodes` instead of `pools`.
    pub fn only(nodes: u32, at: Place) -> Self {
        let pool = plain_pool(super::only_pool(), nodes);
        let fit = Fit { image: None, framework: None, python: None, env: None, extra_args: None };
        Self { name: None, name_at: at.clone(), site: None, site_at: at.clone(), fit, scaling_at: at, pool }
    }
}

/// A pool with defaults for everything but its name and count.
pub(crate) fn plain_pool(name: Name, count: u32) -> Pool {
    Pool {
        name,
        site: 0,
        count,
        drained: BTreeSet::new(),
        scaling: None,
        image: None,
        framework: None,
        client_app: None,
        isolation: Isolation::Subprocess,
        resources: Resources::default(),
        gpu: None,
        node_config: BTreeMap::new(),
        env: BTreeMap::new(),
        python: None,
        extra_args: Vec::new(),
    }
}

pub(crate) fn read(object: &mut Object<'_>) -> PoolDraft {
    let name = object.required("name", name("clinics"), "Name of the pool.");
    let site = object.optional("site", crate::kind::name("cloud"), SITE_HELP);
    let help = "Number of nodes; 1 by default, or the minimum of scaling.";
    let count = object.optional("count", whole(0..=super::MAX_NODES), help);
    let drained = object.any("drained", ListOf(whole(0..=super::MAX_NODES)), DRAINED_HELP);
    let scaling = object.optional_object("scaling", "Automatic scaling, within bounds.", scaling::read);
    let count = count.unwrap_or_else(|| scaling.as_ref().map_or(1, |scaling| scaling.min));
    let pool = Pool {
        image: object.optional("image", image(), IMAGE_HELP),
        framework: object.optional(
            "framework",
            choice(&FRAMEWORKS),
            "Framework that the image must contain for the apps.",
        ),
        client_app: object.optional("clientApp", client_app(), APP_HELP),
        isolation: object.or("isolation", choice(&ISOLATIONS), "subprocess", ISOLATION_HELP),
        resources: object.object("resources", "Limits of each node; none by default.", resources),
        gpu: object.optional_object("gpu", "GPUs of each node; none by default.", gpu),
        node_config: object.any("nodeConfig", node_config(), CONFIG_HELP),
        env: object.any("env", environment(), "Environment variables. Only administrators see their values."),
        python: object.optional("python", path("/opt/torch/bin/python"), PYTHON_HELP),
        extra_args: object.any("extraArgs", arguments(), "Further arguments of each SuperNode, after all others."),
        drained: drained.into_iter().collect(),
        scaling,
        ..plain_pool(name.clone().unwrap_or_else(super::only_pool), count)
    };
    refuse_count_out_of_bounds(object, &pool);
    warn_of_go_templates(object, &pool.node_config);
    let fit = Fit::of_program(object, &pool.env, &pool.extra_args);
    let (name_at, site_at, scaling_at) = (object.at("name"), object.at("site"), object.at("scaling"));
    PoolDraft { name, name_at, site, site_at, fit, scaling_at, pool }
}

fn refuse_count_out_of_bounds(object: &Object<'_>, pool: &Pool) {
    if let (Some(Scaling { min, max, .. }), true) = (&pool.scaling, object.has("count"))
        && min <= max
        && !(*min..=*max).contains(&pool.count)
    {
        let what = format!("{} is not within the bounds of scaling, {min} to {max}", pool.count);
        object.at("count").refuse(what, "change one of them, or leave the count out to start with the minimum");
    }
}

fn warn_of_go_templates(object: &Object<'_>, node_config: &BTreeMap<String, ConfigTemplate>) {
    for (key, value) in node_config {
        if matches!(value, ConfigTemplate::Text(text) if looks_like_go(text)) {
            let what = format!("{key} looks like a Go template, and stays text with single braces");
            object.at("nodeConfig").warn(what, "write placeholders like {index}");
        }
    }
}

fn client_app() -> Scalar<String> {
    word("a built-in app", "native:mlp", "^native:[a-z0-9-]+$", |text| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        text.strip_prefix("native:").is_some_and(|name| !name.is_empty() && name.chars().all(plain))
    })
}

fn gpu(object: &mut Object<'_>) -> Gpu {
    Gpu {
        vendor: object.or("vendor", choice(&VENDORS), "nvidia", "Whose GPUs."),
        count: object.or("count", whole(1..=MAX_GPUS), "1", "GPUs of each node."),
        memory_fraction: object.optional(
            "memoryFraction",
            fraction(),
            "Share of the memory of a GPU that an app may take.",
        ),
        fallback_to_cpu: object.or(
            "fallbackToCpu",
            flag(),
            "false",
            "Use the CPU if there is no GPU, instead of failing.",
        ),
    }
}
