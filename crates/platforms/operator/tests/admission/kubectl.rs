//! Federations through `kubectl`.

use std::process::Output;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use trellis_spec::yaml;

use crate::cluster::Cluster;
use crate::resources::{daemon, process, stateful, with, with_pool, with_spec};

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn columns_are_those_of_the_other_operator() {
    let Some(cluster) = Cluster::of("columns").await else { return };
    cluster.created(&process()).await.expect("accepted");
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "AllReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({ "status": { "supernodes": "2/2", "conditions": [condition] } });
    let api = cluster.api(&process());
    api.patch_status("ward", &PatchParams::default(), &Patch::Merge(&status)).await.expect("taken");
    for name in ["federations", "federation", "fedf", "federations.flwr.exalsius.ai"] {
        let shown = said(&cluster.kubectl(&["get", name]));
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "MODE", "ISOLATION", "SUPERNODES", "READY", "AGE"]);
        assert_eq!(lines[1][..5], ["ward", "StatefulSet", "process", "2/2", "True"]);
    }
}

/// Users cannot write the status with the rest, nor the rest with the status.
#[tokio::test]
async fn status_is_a_subresource() {
    let Some(cluster) = Cluster::of("status").await else { return };
    let sent = with(stateful(), &json!({ "status": { "supernodes": "9/9" } }));
    let made = cluster.created(&sent).await.expect("accepted");
    assert!(made.get("status").is_none(), "{made}");
    let both = json!({ "spec": { "mode": "DaemonSet" }, "status": { "observedGeneration": 1 } });
    let api = cluster.api(&sent);
    let told = api.patch_status("ward", &PatchParams::default(), &Patch::Merge(&both)).await.expect("taken");
    assert_eq!(told.data["spec"]["mode"], "StatefulSet");
    assert_eq!(told.data["status"], json!({ "observedGeneration": 1 }));
    assert_eq!(told.metadata.generation, Some(1), "the generation is that of the spec");
}

#[tokio::test]
async fn client_side_apply_follows_a_document() {
    let Some(cluster) = Cluster::of("client-side").await else { return };
    let apply = |resource: &Value| said(&cluster.kubectl_with_input(&["apply", "-f", "-"], &yaml::document(resource)));
    assert_eq!(apply(&stateful()).trim(), "federation.flwr.exalsius.ai/ward created");
    assert_eq!(apply(&stateful()).trim(), "federation.flwr.exalsius.ai/ward unchanged");
    let pools = json!([{ "name": "a", "replicas": 1 }, { "name": "b", "replicas": 3 }]);
    assert_eq!(
        apply(&with_spec(stateful(), &json!({ "supernodes": { "pools": pools } }))).trim(),
        "federation.flwr.exalsius.ai/ward configured"
    );
    assert_eq!(apply(&daemon()).trim(), "federation.flwr.exalsius.ai/ward configured");
    let shown: Value =
        serde_json::from_str(&said(&cluster.kubectl(&["get", "fedf", "ward", "-o", "json"]))).expect("JSON");
    assert_eq!(shown["spec"]["supernodes"]["pools"], json!([{ "name": "default" }]));
}

/// Pools are merged by name (A1), so two users may apply one each.
#[tokio::test]
async fn server_side_apply_merges_pools_by_name() {
    let Some(cluster) = Cluster::of("server-side").await else { return };
    let apply = |manager: &str, pools: Value| {
        let resource = with_spec(stateful(), &json!({ "supernodes": { "pools": pools } }));
        let manager = format!("--field-manager={manager}");
        said(&cluster.kubectl_with_input(&["apply", "--server-side", &manager, "-f", "-"], &yaml::document(&resource)));
        let shown: Value =
            serde_json::from_str(&said(&cluster.kubectl(&["get", "fedf", "ward", "-o", "json"]))).expect("JSON");
        let pools = shown["spec"]["supernodes"]["pools"].as_array().expect("pools").clone();
        pools.iter().map(|pool| pool["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(apply("one", json!([{ "name": "a", "replicas": 1 }])), ["a"]);
    assert_eq!(apply("two", json!([{ "name": "b", "replicas": 1 }])), ["a", "b"]);
    assert_eq!(apply("one", json!([{ "name": "c", "replicas": 1 }])), ["b", "c"]);
}

/// Removing sidecars: `images: {}` is applied over images.
#[tokio::test]
async fn images_are_emptied_by_server_side_apply() {
    let Some(cluster) = Cluster::of("emptied").await else { return };
    let apply = |isolation: &str, images: Value, superexec: Value| {
        let pools = json!([{ "name": "a", "replicas": 1, "images": images }]);
        let spec = json!({ "isolationMode": isolation, "superlink": superexec, "supernodes": { "pools": pools } });
        let resource = with_spec(stateful(), &spec);
        said(&cluster.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &yaml::document(&resource)))
    };
    let image = "flwr/superexec:1.25.0";
    apply("process", json!({ "superexecClientApp": image }), json!({ "superexecImage": image }));
    apply("subprocess", json!({}), json!({ "superexecImage": "" }));
    let shown: Value =
        serde_json::from_str(&said(&cluster.kubectl(&["get", "fedf", "ward", "-o", "json"]))).expect("JSON");
    let federation = trellis_kube::federation::Federation::read(&shown).expect("it can be read");
    assert_eq!(federation.spec.supernodes.pools[0].images, trellis_kube::federation::Images::default());
}

#[tokio::test]
async fn a_federation_with_one_pool_is_scaled() {
    let Some(cluster) = Cluster::of("scale").await else { return };
    cluster.created(&stateful()).await.expect("accepted");
    let scaled = said(&cluster.kubectl(&["scale", "fedf/ward", "--replicas=5"]));
    assert_eq!(scaled.trim(), "federation.flwr.exalsius.ai/ward scaled");
    let status = json!({ "status": { "scaling": { "replicas": 4 }, "selector": "flower.flwr.ai/pool=default" } });
    let api = cluster.api(&stateful());
    api.patch_status("ward", &PatchParams::default(), &Patch::Merge(&status)).await.expect("taken");
    let scale = api.get_scale("ward").await.expect("there");
    assert_eq!(scale.spec.expect("given").replicas, Some(5));
    let told = scale.status.expect("told");
    assert_eq!((told.replicas, told.selector.as_deref()), (4, Some("flower.flwr.ai/pool=default")));
    let whole = api.get("ward").await.expect("there");
    assert_eq!(whole.data["spec"]["scaling"], json!({ "replicas": 5 }));
}

#[tokio::test]
async fn scaling_what_has_no_size_says_why_not() {
    let Some(cluster) = Cluster::of("unscaled").await else { return };
    cluster.created(&daemon()).await.expect("accepted");
    let why = refused(&cluster.kubectl(&["scale", "fedf/ward", "--replicas=5"]));
    assert!(
        why.contains("spec.scaling needs mode StatefulSet: a DaemonSet has one SuperNode on each machine"),
        "{why}"
    );
}

/// A12: unknown fields are refused, not ignored.
#[tokio::test]
async fn fields_that_nobody_knows_are_refused() {
    let Some(cluster) = Cluster::of("strict").await else { return };
    let template = |template: Value| with_pool(stateful(), &json!({ "podTemplate": template }));
    for (resource, path) in [
        (with_spec(stateful(), &json!({ "isolation": "process" })), "spec.isolation"),
        (with_pool(stateful(), &json!({ "replica": 1 })), "spec.supernodes.pools[0].replica"),
        (template(json!({ "spec": { "nodeSelektor": {} } })), "spec.supernodes.pools[0].podTemplate.spec.nodeSelektor"),
        (
            template(json!({ "metadata": { "finalizers": ["a"] } })),
            "spec.supernodes.pools[0].podTemplate.metadata.finalizers",
        ),
        (
            template(json!({ "spec": { "containers": [{ "name": "a", "livenessprobe": {} }] } })),
            "spec.supernodes.pools[0].podTemplate.spec.containers[0].livenessprobe",
        ),
        (
            template(json!({ "spec": { "affinity": { "nodeAffinity": { "required": {} } } } })),
            "spec.supernodes.pools[0].podTemplate.spec.affinity.nodeAffinity.required",
        ),
        (
            with_spec(stateful(), &json!({ "superlink": { "env": [{ "name": "a", "valueFrom": { "secret": {} } }] } })),
            "spec.superlink.env[0].valueFrom.secret",
        ),
        (
            with_spec(stateful(), &json!({ "superlink": { "volumes": [{ "name": "a", "configmap": {} }] } })),
            "spec.superlink.volumes[0].configmap",
        ),
    ] {
        let output = cluster.kubectl_with_input(&["apply", "--validate=strict", "-f", "-"], &yaml::document(&resource));
        let why = refused(&output);
        assert!(why.contains(&format!("unknown field \"{path}\"")), "{path}: {why}");
    }
}

#[tokio::test]
async fn fields_are_explained() {
    let Some(cluster) = Cluster::of("explain").await else { return };
    for (field, words) in [
        ("federation.spec.scaling", "kubectl scale"),
        ("federation.spec.supernodes.pools.nodeConfig", "--node-config"),
        ("federation.status.endpoints", "fleet"),
        ("federationrun.spec.schedule", "minute, hour, day"),
    ] {
        let text = said(&cluster.kubectl(&["explain", field]));
        assert!(text.contains(words), "{field}: {text}");
    }
}
