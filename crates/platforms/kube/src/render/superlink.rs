//! The SuperLink: a StatefulSet with one pod, its state, and its Service.

use serde_json::{Map, Value, json};
use trellis_flower::Program;
use trellis_flower::changes::{CONTROL_BY_HTTP, FLEET_BY_HTTP};
use trellis_flower::launch::{HTTP_PORT, Serving, SuperExec};

use super::env::{Key, add, merged, variable};
use super::launch::state_directory;
use super::pod::{Container, Health, Outfit, STATE_VOLUME, TRELLIS_STATE, mounts, pod_fields, superexec_mounts};
use super::ports::serves_http;
use super::{Durability, Scene, labels, state_is_given, template};
use crate::federation::Retention;

const CONTAINER: &str = "superlink";
const SUPEREXEC_CONTAINER: &str = "superexec-serverapp";
/// Enough for runs, logs and models of a small federation.
const DEFAULT_CLAIM_SIZE: &str = "10Gi";
/// Time to complete writes.
const GRACE_S: i64 = 60;
/// Annotation of pods. It changes when programs must restart to read other certificates.
pub const TRUST_ANNOTATION: &str = "trellis.dev/trust";

pub(super) fn service(scene: &Scene<'_>) -> Value {
    let service = scene.federation.spec.superlink.service.clone().unwrap_or_default();
    let labels: Map<String, Value> = service.labels.into_iter().map(|(label, value)| (label, value.into())).collect();
    let mut labels = labels;
    labels.extend(scene.superlink_labels_shown());
    let mut metadata = scene.metadata(&scene.federation.superlink_name(), labels);
    if !service.annotations.is_empty() {
        metadata["annotations"] = json!(service.annotations);
    }
    let port = |port: super::ports::ServicePort| json!({"name": port.name, "port": port.port, "targetPort": port.target, "protocol": "TCP"});
    let kind = service.kind.filter(|kind| !kind.is_empty()).unwrap_or_else(|| "ClusterIP".to_owned());
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": kind,
            "selector": labels::superlink_labels(&scene.federation.name),
            "ports": scene.service_ports().into_iter().map(port).collect::<Vec<_>>(),
        },
    })
}

pub(super) fn workload(scene: &Scene<'_>) -> Value {
    let name = scene.federation.superlink_name();
    let mut spec = json!({
        "replicas": 1,
        // Not headless, as in the other operator: the field is immutable.
        "serviceName": name,
        "selector": {"matchLabels": labels::superlink_labels(&scene.federation.name)},
        "template": pod_template(scene),
    });
    let claims = claims(scene);
    if !claims.is_empty() {
        let deleted = Retention::policy(scene.federation.spec.persistence.when_deleted);
        spec["volumeClaimTemplates"] = Value::Array(claims);
        spec["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": deleted, "whenScaled": "Retain"});
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": scene.metadata(&name, scene.superlink_labels_shown()),
        "spec": spec,
    })
}

/// The volume or directory of the state. Arguments and volumes of the user take precedence.
pub(super) fn durability(scene: &Scene<'_>) -> Durability {
    if state_is_given(scene.federation) { Durability::Given } else { scene.ground.durability }
}

fn claims(scene: &Scene<'_>) -> Vec<Value> {
    let mut claims: Vec<Value> =
        scene.federation.spec.superlink.volume_claim_templates.iter().map(claim_template).collect();
    if durability(scene) == Durability::Claim {
        let persistence = &scene.federation.spec.persistence;
        let size = persistence.size.as_deref().unwrap_or(DEFAULT_CLAIM_SIZE);
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        if let Some(class) = &persistence.storage_class_name {
            spec["storageClassName"] = class.as_str().into();
        }
        claims.push(claim_template(&json!({"metadata": {"name": STATE_VOLUME}, "spec": spec})));
    }
    claims
}

/// In the form that the API server stores.
pub(super) fn claim_template(theirs: &Value) -> Value {
    let mut claim = theirs.clone();
    claim["apiVersion"] = "v1".into();
    claim["kind"] = "PersistentVolumeClaim".into();
    claim
}

fn pod_template(scene: &Scene<'_>) -> Value {
    let superlink = &scene.federation.spec.superlink;
    let program = scene.programs.superlink;
    let outfit = outfit(scene);
    let mut containers = vec![program_container(scene, &outfit).render()];
    let superexec = scene.superlink_superexec();
    let trusts = superexec.as_ref().is_some_and(|superexec| superexec.authority.is_some());
    containers
        .extend(superexec.and_then(|superexec| superexec_container(scene, &superexec, &outfit)).map(Container::render));
    let mut volumes = merged(&superlink.volumes, &[], Key::Name);
    for volume in outfit.volumes {
        add(&mut volumes, volume, Key::Name);
    }
    let mut spec = pod_fields(program, GRACE_S);
    spec.insert("containers".to_owned(), Value::Array(containers));
    if !volumes.is_empty() {
        spec.insert("volumes".to_owned(), Value::Array(volumes));
    }
    let mut metadata = json!({"labels": scene.superlink_labels_shown()});
    if let Some(trust) = &scene.ground.trust {
        match (program, trusts) {
            // It reloads certificates.
            (Program::Trellis, false) => {}
            (Program::Trellis, true) => metadata["annotations"] = json!({TRUST_ANNOTATION: trust.bundle_revision}),
            _ => metadata["annotations"] = json!({TRUST_ANNOTATION: trust.revision}),
        }
    }
    let mut template = json!({"metadata": metadata, "spec": spec});
    template::apply(&mut template, superlink.pod_template.as_ref());
    template
}

fn outfit(scene: &Scene<'_>) -> Outfit {
    let mut outfit = Outfit::default();
    let program = scene.programs.superlink;
    match durability(scene) {
        Durability::Claim => {
            outfit.mounts.push(json!({"name": STATE_VOLUME, "mountPath": state_directory(program)}));
        }
        Durability::Pod => outfit.directory(STATE_VOLUME, state_directory(program)),
        Durability::Given => {}
    }
    if program.is_trellis() {
        outfit.temporary();
    }
    if let Some(trust) = &scene.ground.trust {
        outfit.trust(&trust.server_secret, true);
        if scene.superlink_superexec().is_some_and(|superexec| superexec.authority.is_some()) {
            outfit.superexec_trust(&trust.authority_secret);
        }
        if let (Program::Trellis, Some(secret)) = (program, &trust.admin_secret) {
            outfit.admin_token(secret);
        }
    }
    outfit
}

fn program_container<'s>(scene: &Scene<'s>, outfit: &Outfit) -> Container<'s> {
    let spec = &scene.federation.spec;
    let (superlink, program) = (&spec.superlink, scene.programs.superlink);
    let launch = scene.superlink().launch();
    let http = scene.container_ports().http;
    let mut env = merged(&superlink.env, &[], Key::Name);
    if program.is_trellis() {
        // Its images have no users, and therefore no home directory.
        add(&mut env, variable("HOME", TRELLIS_STATE), Key::Name);
    }
    Container {
        name: CONTAINER,
        image: &superlink.image,
        health: Health::of(&launch, http, scene.serving() != Serving::Plain),
        launch,
        env,
        ports: container_ports(scene),
        resources: superlink.resources.clone(),
        mounts: mounts(&superlink.volume_mounts, &outfit.mounts),
        program,
        pod: program,
    }
}

fn container_ports(scene: &Scene<'_>) -> Vec<(&'static str, u16)> {
    let (program, pod) = (scene.programs.superlink, scene.container_ports());
    let mut ports = Vec::new();
    if !program.since(FLEET_BY_HTTP) {
        ports.push(("fleet", pod.fleet));
    }
    if !program.since(CONTROL_BY_HTTP) {
        ports.push(("control", pod.control));
    }
    if scene.serves_serverappio() {
        ports.push(("serverappio", pod.serverappio));
    }
    if serves_http(program) {
        ports.push(("http", pod.http));
    }
    ports
        .extend(scene.metrics_port(program, &scene.federation.spec.superlink.extra_args).map(|port| ("metrics", port)));
    ports
}

fn superexec_container<'s>(scene: &Scene<'s>, superexec: &SuperExec, outfit: &Outfit) -> Option<Container<'s>> {
    let superlink = &scene.federation.spec.superlink;
    let theirs = superexec_mounts(&superlink.superexec_volume_mounts, &superlink.volume_mounts);
    let launch = superexec.launch();
    Some(Container {
        name: SUPEREXEC_CONTAINER,
        image: superlink.superexec_image.as_deref()?,
        health: Health::of(&launch, HTTP_PORT, false),
        launch,
        env: merged(&superlink.env, &[], Key::Name),
        ports: Vec::new(),
        resources: superlink.superexec_resources.clone(),
        mounts: mounts(theirs, &outfit.superexec_mounts),
        program: superexec.program,
        pod: scene.programs.superlink,
    })
}
