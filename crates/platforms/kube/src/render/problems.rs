//! Problems of a resource that the API server does not find, for example because an old definition is installed; and
//! advice.

use std::collections::BTreeSet;

use trellis_diagnostic::Diagnostic;
use trellis_flower::Isolation;
use trellis_flower::launch::{Serving, gives};

use super::network::one_port_for_all;
use super::{Scene, gpu, labels, node_config};
use crate::federation::{Pool, Vendor};
use crate::flower::Findings;

/// Limit of label values, and of names of Services.
const MAX_LABEL_CHARS: usize = 63;
/// The name of a StatefulSet with the hash of a revision is a label value.
const MAX_STATEFUL_SET_CHARS: usize = 52;

pub(super) fn find(scene: &Scene<'_>, findings: &mut Findings) {
    names(scene, &mut findings.problems);
    images(scene, &mut findings.problems);
    findings.problems.extend(scene.port_problems());
    security(scene, findings);
    monitoring(scene, &mut findings.notes);
    scaling(scene, &mut findings.notes);
    let mut seen = BTreeSet::new();
    for (index, (pool, _)) in scene.pools().enumerate() {
        let place = format!("spec.supernodes.pools[{index}]");
        if !seen.insert(&pool.name) {
            findings.problems.push(Diagnostic::error(
                format!("{place}.name"),
                format!("there are two pools of the name {}", pool.name),
                "give each pool a name of its own",
            ));
        }
        node_settings(scene, pool, &place, &mut findings.problems);
        pool_gpu(pool, &place, findings);
        if !scene.is_stateful() && !pool.volume_claim_templates.is_empty() {
            findings.notes.push(Diagnostic::warning(
                format!("{place}.volumeClaimTemplates"),
                "a DaemonSet has no claims: they have no effect",
                "use mode StatefulSet, or volumes",
            ));
        }
    }
}

fn names(scene: &Scene<'_>, problems: &mut Vec<Diagnostic>) {
    let federation = scene.federation;
    let mut check = |place: &str, name: &str, most: usize, what: &str| {
        if name.len() > most {
            let over = name.len() - most;
            problems.push(Diagnostic::error(
                place,
                format!("{what} {name} would have {} characters, and {most} are the most", name.len()),
                format!("make the name of the federation or of the pool shorter by {over}"),
            ));
        }
    };
    check("metadata.name", &federation.superlink_name(), MAX_STATEFUL_SET_CHARS, "the StatefulSet");
    for (index, (pool, _)) in scene.pools().enumerate() {
        let place = format!("spec.supernodes.pools[{index}].name");
        let (kind, most) = if scene.is_stateful() {
            ("the StatefulSet", MAX_STATEFUL_SET_CHARS)
        } else {
            ("the DaemonSet", MAX_LABEL_CHARS)
        };
        check(&place, &federation.pool_name(&pool.name), most, kind);
        check(&place, &labels::pool_component(&pool.name), MAX_LABEL_CHARS, "the label app.kubernetes.io/component");
    }
    let first = federation.name.chars().next();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !first.is_some_and(|first| first.is_ascii_lowercase()) || !federation.name.chars().all(fits) {
        problems.push(Diagnostic::error(
            "metadata.name",
            format!("no Service can be called {}", federation.superlink_name()),
            "use a name of small letters, digits and dashes that begins with a letter",
        ));
    }
}

/// Rules of the definition that an old definition in the cluster may lack.
fn images(scene: &Scene<'_>, problems: &mut Vec<Diagnostic>) {
    let spec = &scene.federation.spec;
    if spec.isolation_mode != Isolation::Process {
        return;
    }
    let missing = |image: &Option<String>| image.as_deref().is_none_or(str::is_empty);
    if missing(&spec.superlink.superexec_image) {
        problems.push(Diagnostic::error(
            "spec.superlink.superexecImage",
            "spec.superlink.superexecImage is required when isolationMode=process",
            "name an image with flower-superexec, or use isolationMode subprocess",
        ));
    }
    for (index, pool) in spec.supernodes.pools.iter().enumerate() {
        if missing(&pool.images.superexec_client_app) {
            problems.push(Diagnostic::error(
                format!("spec.supernodes.pools[{index}].images.superexecClientApp"),
                "spec.supernodes.pools[*].images.superexecClientApp is required when isolationMode=process",
                "name an image with flower-superexec, or use isolationMode subprocess",
            ));
        }
    }
}

fn security(scene: &Scene<'_>, findings: &mut Findings) {
    let spec = &scene.federation.spec;
    if spec.security.node_auth && scene.serving() == Serving::Plain {
        findings.problems.push(Diagnostic::error(
            "spec.security.nodeAuth",
            "nodes can authenticate only over TLS, and this federation has none",
            "set spec.insecure to false",
        ));
    }
    if scene.serving() == Serving::Given && !gives(&spec.superlink.extra_args, "--ssl-certfile") {
        findings.notes.push(Diagnostic::warning(
            "spec.insecure",
            "it is false, and the SuperLink has no certificate: it will not start, or serve without TLS",
            "let spec.security.tls.mode be auto, or give --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile",
        ));
    }
    if scene.serving() == Serving::Plain && gives(&spec.superlink.extra_args, "--ssl-certfile") {
        findings.notes.push(Diagnostic::warning(
            "spec.insecure",
            "the SuperLink is given a certificate and --insecure: Flower serves without TLS then, and Trellis refuses to start",
            "set spec.insecure to false",
        ));
    }
    if spec.security.network_policy.enabled && one_port_for_all(scene) {
        findings.notes.push(Diagnostic::warning(
            "spec.security.networkPolicy",
            format!("{} serves nodes and users at one port: the policy lets both reach it", scene.programs.superlink),
            "use node authentication, or a SuperLink of Trellis, which has a port for each",
        ));
    }
}

fn monitoring(scene: &Scene<'_>, notes: &mut Vec<Diagnostic>) {
    let monitoring = &scene.federation.spec.monitoring;
    let asked = monitoring.metrics || monitoring.json_logs || monitoring.pod_monitor;
    let programs = scene.programs;
    let some = programs.superlink.is_trellis() || programs.pools.iter().any(|pool| pool.supernode.is_trellis());
    if asked && !some {
        notes.push(Diagnostic::warning(
            "spec.monitoring",
            "programs of Flower have neither metrics nor logs as JSON: it has no effect",
            "use images of Trellis",
        ));
    } else if monitoring.pod_monitor && !monitoring.metrics {
        notes.push(Diagnostic::warning(
            "spec.monitoring.podMonitor",
            "it has no effect without metrics",
            "set spec.monitoring.metrics to true",
        ));
    }
}

/// `kubectl scale` writes `spec.scaling.replicas`, which overrides `replicas` of the pool.
fn scaling(scene: &Scene<'_>, notes: &mut Vec<Diagnostic>) {
    let spec = &scene.federation.spec;
    let scaled = spec.scaling.as_ref().and_then(|scaling| scaling.replicas).zip(spec.scaled_pool());
    let Some((counts, pool)) = scaled else { return };
    let index = spec.supernodes.pools.iter().position(|other| other.name == pool.name).unwrap_or_default();
    if let Some(said) = pool.replicas.filter(|said| *said != counts) {
        notes.push(Diagnostic::warning(
            format!("spec.supernodes.pools[{index}].replicas"),
            format!("it is {said} and has no effect, because spec.scaling.replicas is {counts}"),
            "change spec.scaling.replicas (kubectl scale does), or remove spec.scaling",
        ));
    }
}

fn node_settings(scene: &Scene<'_>, pool: &Pool, place: &str, problems: &mut Vec<Diagnostic>) {
    for (key, value) in &pool.node_config {
        if !scene.is_stateful() && node_config::counts_nodes(value) {
            problems.push(Diagnostic::error(
                format!("{place}.nodeConfig"),
                format!(
                    "pool \"{}\" nodeConfig key \"{key}\" uses {{index}} or {{replicas}} which are not supported in \
                     DaemonSet mode",
                    pool.name
                ),
                "use {node} or {pool} instead",
            ));
        }
        if !node_config::is_key(key) {
            problems.push(Diagnostic::error(
                format!("{place}.nodeConfig"),
                format!("{key:?} cannot be the name of a setting"),
                "use letters, digits, dashes and underscores",
            ));
        }
    }
}

fn pool_gpu(pool: &Pool, place: &str, findings: &mut Findings) {
    let Some(gpu) = &pool.gpu else { return };
    let place = format!("{place}.gpu");
    if gpu.mount_all && gpu.vendor.is_none() {
        findings.problems.push(Diagnostic::error(
            format!("{place}.vendor"),
            "spec.supernodes.pools[*].gpu.vendor is required when gpu.mountAll=true",
            "set it to nvidia or amd",
        ));
    }
    if gpu.mount_all && !gpu::mounts_all(gpu) {
        findings.notes.push(Diagnostic::warning(
            format!("{place}.mountAll"),
            "it has no effect, since gpu.enabled is false",
            "set gpu.enabled to true",
        ));
    }
    if gpu::mounts_all(gpu) && gpu.vendor == Some(Vendor::Amd) {
        findings.notes.push(Diagnostic::warning(
            format!("{place}.mountAll"),
            "the devices of AMD are mounted, and containers are not privileged: some runtimes let them open no device then",
            "use the device plugin (gpu.resourceName amd.com/gpu), or set securityContext.privileged for the container in \
             podTemplate, with the groups render and video in the pod's supplementalGroups",
        ));
    }
}
