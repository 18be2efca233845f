//! A pool of SuperNodes: a StatefulSet with its headless Service and its PodDisruptionBudget, or a DaemonSet.

use serde_json::{Map, Value, json};
use trellis_flower::Isolation;
use trellis_flower::launch::{CLIENTAPPIO_PORT, HTTP_PORT};

use super::env::{self, Key, merged, put};
use super::gpu::Gpus;
use super::launch::HEALTH_PORT;
use super::pod::{Container, Health, Outfit, STATE_VOLUME, TRELLIS_STATE, mounts, pod_fields, superexec_mounts};
use super::superlink::{TRUST_ANNOTATION, claim_template};
use super::{Scene, labels, node_config, template};
use crate::federation::{Pool, Retention};
use crate::flower::PoolPrograms;

const CONTAINER: &str = "supernode";
const SUPEREXEC_CONTAINER: &str = "superexec-clientapp";
/// Default drain time of a node.
const DEFAULT_DRAIN_S: u32 = 600;
/// An official SuperNode ends at once on SIGTERM, and ignores it in its first seconds.
const FLOWER_GRACE_S: u32 = 30;
/// A node that drains gives up if its SuperLink is unreachable for this long. A SuperLink pod is replaced in less.
const DRAIN_SUPERLINK_TIMEOUT: &str = "30s";
const POD_NAME: &str = "POD_NAME";
/// Label of pods of a StatefulSet, since Kubernetes 1.28.
const POD_INDEX_LABEL: &str = "metadata.labels['apps.kubernetes.io/pod-index']";

pub(super) fn objects(scene: &Scene<'_>, pool: &Pool, programs: &PoolPrograms) -> Vec<Value> {
    if scene.is_stateful() {
        vec![headless_service(scene, pool), stateful_set(scene, pool, programs), budget(scene, pool)]
    } else {
        vec![daemon_set(scene, pool, programs)]
    }
}

/// Gives each node a DNS name: `<pod>.<fed>-supernode-<pool>`.
fn headless_service(scene: &Scene<'_>, pool: &Pool) -> Value {
    let name = scene.federation.pool_name(&pool.name);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": scene.metadata(&name, scene.pool_labels_shown(&pool.name)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": labels::pool_labels(&scene.federation.name, &pool.name),
            "ports": [{"name": "health", "port": HEALTH_PORT, "targetPort": HEALTH_PORT, "protocol": "TCP"}],
        },
    })
}

fn stateful_set(scene: &Scene<'_>, pool: &Pool, programs: &PoolPrograms) -> Value {
    let name = scene.federation.pool_name(&pool.name);
    let selector = labels::pool_labels(&scene.federation.name, &pool.name);
    let mut template = pod_template(scene, pool, programs);
    if template["spec"]["topologySpreadConstraints"].is_null() {
        template["spec"]["topologySpreadConstraints"] = json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector},
        }]);
    }
    let mut spec = json!({
        "replicas": scene.size(pool),
        "serviceName": name,
        // Nodes start independently.
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector},
        "template": template,
    });
    if let Some(away) = &scene.federation.spec.upgrade.max_unavailable {
        spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": away}});
    }
    if !pool.volume_claim_templates.is_empty() {
        spec["volumeClaimTemplates"] = pool.volume_claim_templates.iter().map(claim_template).collect();
        let persistence = &scene.federation.spec.persistence;
        spec["persistentVolumeClaimRetentionPolicy"] = json!({
            "whenDeleted": Retention::policy(persistence.when_deleted),
            "whenScaled": Retention::policy(persistence.when_scaled),
        });
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": scene.metadata(&name, scene.pool_labels_shown(&pool.name)),
        "spec": spec,
    })
}

fn daemon_set(scene: &Scene<'_>, pool: &Pool, programs: &PoolPrograms) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": labels::pool_labels(&scene.federation.name, &pool.name)},
        "template": pod_template(scene, pool, programs),
    });
    if let Some(away) = &scene.federation.spec.upgrade.max_unavailable {
        spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": away}});
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": scene.metadata(&scene.federation.pool_name(&pool.name), scene.pool_labels_shown(&pool.name)),
        "spec": spec,
    })
}

/// Limits voluntary disruptions. Pods that are not ready do not count.
fn budget(scene: &Scene<'_>, pool: &Pool) -> Value {
    let away = scene.federation.spec.upgrade.max_unavailable.clone().unwrap_or_else(|| json!(1));
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": scene.metadata(&scene.federation.pool_name(&pool.name), scene.pool_labels_shown(&pool.name)),
        "spec": {
            "maxUnavailable": away,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels::pool_labels(&scene.federation.name, &pool.name)},
        },
    })
}

fn pod_template(scene: &Scene<'_>, pool: &Pool, programs: &PoolPrograms) -> Value {
    let spec = &scene.federation.spec;
    let (gpus, outfit) = (Gpus::of(pool), outfit(scene, pool, programs));
    let mut containers = vec![node_container(scene, pool, programs, &gpus, &outfit).render()];
    if programs.supernode.is_trellis() {
        // The node completes the instructions that it has, within the grace period of the pod, so that rounds do not
        // wait for a lost node. A kubelet does not interrupt the hook if the grace period is shortened, so the hook
        // ends by itself if the federation and its SuperLink are deleted.
        let command = [
            "trellis",
            "supernode",
            "drain",
            "--wait",
            "--superlink-timeout",
            DRAIN_SUPERLINK_TIMEOUT,
            "--state-dir",
            TRELLIS_STATE,
        ];
        containers[0]["lifecycle"] = json!({"preStop": {"exec": {"command": command}}});
    }
    containers.extend(superexec_container(scene, pool, programs, &gpus).map(Container::render));
    let mut volumes = merged(&pool.volumes, &gpus.volumes(), Key::Name);
    for volume in outfit.volumes {
        env::add(&mut volumes, volume, Key::Name);
    }
    let usual = if programs.supernode.is_trellis() { DEFAULT_DRAIN_S } else { FLOWER_GRACE_S };
    let drain = spec.upgrade.drain_timeout_seconds.unwrap_or(usual);
    let mut pod = pod_fields(programs.supernode, drain.into());
    pod.insert("containers".to_owned(), Value::Array(containers));
    pod.extend(gpus.pod_fields());
    if !volumes.is_empty() {
        pod.insert("volumes".to_owned(), Value::Array(volumes));
    }
    let mut metadata = json!({"labels": scene.pool_labels_shown(&pool.name)});
    if let (Some(trust), false) = (&scene.ground.trust, programs.supernode.is_trellis()) {
        metadata["annotations"] = json!({TRUST_ANNOTATION: trust.bundle_revision});
    }
    let mut template = json!({"metadata": metadata, "spec": Value::Object(pod)});
    template::apply(&mut template, pool.pod_template.as_ref());
    template
}

fn outfit(scene: &Scene<'_>, pool: &Pool, programs: &PoolPrograms) -> Outfit {
    let mut outfit = Outfit::default();
    if programs.supernode.is_trellis() {
        outfit.directory(STATE_VOLUME, TRELLIS_STATE);
        outfit.temporary();
    }
    if let Some(trust) = &scene.ground.trust {
        outfit.trust(&trust.authority_secret, false);
        if let Some(secret) = trust.node_keys.get(&pool.name) {
            outfit.node_key(secret);
        }
    }
    outfit
}

/// Variables of all pools, then of this pool, in the order of the resource.
fn variables(scene: &Scene<'_>, pool: &Pool, gpus: &Gpus<'_>) -> Vec<Value> {
    let mut variables = merged(&scene.federation.spec.supernodes.env, &pool.env, Key::Name);
    for variable in gpus.variables() {
        env::add(&mut variables, variable, Key::Name);
    }
    variables
}

/// Variables that arguments refer to. They take precedence over variables of the user.
fn downward(scene: &Scene<'_>, pool: &Pool, programs: &PoolPrograms) -> Map<String, Value> {
    let mut fields = Map::new();
    let has_key = scene.has_node_keys(pool);
    let differs = node_config::differs_by_node(&pool.node_config);
    if differs || has_key || programs.supernode.is_trellis() {
        fields.insert(POD_NAME.to_owned(), "metadata.name".into());
    }
    if differs {
        fields.insert(node_config::NODE.to_owned(), "spec.nodeName".into());
        if scene.is_stateful() {
            fields.insert(node_config::INDEX.to_owned(), POD_INDEX_LABEL.into());
        }
    }
    fields
}

fn node_container<'s>(
    scene: &Scene<'s>,
    pool: &'s Pool,
    programs: &PoolPrograms,
    gpus: &Gpus<'_>,
    outfit: &Outfit,
) -> Container<'s> {
    let spec = &scene.federation.spec;
    let program = programs.supernode;
    let launch = scene.supernode(pool, programs).launch();
    let mut env = variables(scene, pool, gpus);
    if program.is_trellis() {
        env::add(&mut env, env::variable("HOME", TRELLIS_STATE), Key::Name);
    }
    for (name, path) in downward(scene, pool, programs) {
        put(&mut env, env::field(&name, path.as_str().unwrap_or_default()), Key::Name);
    }
    let mut ports = vec![("clientappio", CLIENTAPPIO_PORT)];
    ports.extend(scene.metrics_port(program, &pool.extra_args).map(|port| ("metrics", port)));
    let alone = spec.isolation_mode == Isolation::Subprocess;
    let resources = pool.supernode_resources.as_ref();
    let image = pool.images.supernode.as_deref().filter(|image| !image.is_empty());
    Container {
        name: CONTAINER,
        image: image.unwrap_or(&spec.supernodes.image),
        health: Health::of(&launch, HTTP_PORT, false),
        launch,
        env,
        ports,
        // With a SuperExec container, apps and GPUs are there.
        resources: if alone { gpus.request(resources) } else { resources.cloned() },
        mounts: mounts(&merged(&pool.volume_mounts, &gpus.mounts(), Key::MountPath), &outfit.mounts),
        program,
        pod: program,
    }
}

fn superexec_container<'s>(
    scene: &Scene<'s>,
    pool: &'s Pool,
    programs: &PoolPrograms,
    gpus: &Gpus<'_>,
) -> Option<Container<'s>> {
    let superexec = scene.pool_superexec(pool, programs)?;
    let image = pool.images.superexec_client_app.as_deref()?;
    let launch = superexec.launch();
    let theirs = superexec_mounts(&pool.superexec_volume_mounts, &pool.volume_mounts);
    Some(Container {
        name: SUPEREXEC_CONTAINER,
        image,
        health: Health::of(&launch, HTTP_PORT, false),
        launch,
        env: variables(scene, pool, gpus),
        ports: Vec::new(),
        resources: gpus.request(pool.superexec_resources.as_ref()),
        mounts: merged(theirs, &gpus.mounts(), Key::MountPath),
        program: superexec.program,
        pod: programs.supernode,
    })
}
