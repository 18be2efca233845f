//! Resources that an older definition admitted: they are kept, and their valid fields can be changed.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use trellis_kube::crd;

use crate::cluster::{Cluster, causes, dynamic, eventually, install};
use crate::resources::{daemon, stateful, with, with_pool, with_spec};

const GROUP: &str = "older.exalsius.ai";

/// Our definition in another group, so that other tests are not affected.
fn definition() -> Value {
    let mut definition = crd::federation();
    definition["metadata"]["name"] = json!(format!("federations.{GROUP}"));
    definition["spec"]["group"] = json!(GROUP);
    definition["spec"]["names"]["shortNames"] = json!([]);
    definition
}

/// Like the definition of the other operator: without our rules.
fn older() -> Value {
    let mut older = definition();
    let schema = &mut older["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema.as_object_mut().expect("a schema").remove("x-kubernetes-validations");
    let fields = &mut schema["properties"];
    fields["metadata"] = json!({ "type": "object" });
    let spec = &mut fields["spec"];
    spec.as_object_mut().expect("a schema").remove("x-kubernetes-validations");
    let pools = &mut spec["properties"]["supernodes"]["properties"]["pools"];
    for mark in ["x-kubernetes-list-type", "x-kubernetes-list-map-keys"] {
        pools.as_object_mut().expect("a schema").remove(mark);
    }
    older
}

#[tokio::test]
async fn what_an_older_definition_let_pass_stays_and_is_told_about() {
    let Some(cluster) = Cluster::of("older").await else { return };
    install(cluster.plane, &[older()]);
    let named = |resource: Value, name: &str| {
        with(resource, &json!({ "apiVersion": format!("{GROUP}/v1"), "metadata": { "name": name } }))
    };
    let pool = json!({ "name": "a", "replicas": 1 });
    let long = "f".repeat(43);
    let claim = json!({ "metadata": { "name": "data" }, "spec": {} });
    let kept = [
        named(with_pool(daemon(), &json!({ "volumeClaimTemplates": [claim] })), "claims"),
        named(with_pool(daemon(), &json!({ "nodeConfig": { "a": "{index}" } })), "placeholder"),
        named(with_spec(stateful(), &json!({ "supernodes": { "pools": [pool, pool] } })), "twins"),
        named(daemon(), &long),
    ];
    for resource in &kept {
        cluster.created(resource).await.expect("accepted by the older definition");
    }
    install(cluster.plane, &[definition()]);
    let twins = trellis_spec::yaml::document(&named(kept[2].clone(), "new-twins"));
    let refuses = || !cluster.kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &twins).status.success();
    eventually(refuses, "the newer definition is heeded");

    for resource in &kept {
        let name = resource["metadata"]["name"].as_str().expect("a name");
        let api = cluster.api(resource);
        let status = json!({ "status": { "supernodes": "0/2" } });
        let told = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        assert_eq!(told.unwrap_or_else(|why| panic!("{name}: {why}")).data["status"]["supernodes"], "0/2");
        let image = json!({ "metadata": { "labels": { "team": "a" } } });
        api.patch(name, &PatchParams::default(), &Patch::Merge(&image))
            .await
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    // A change of the spec reports the violation.
    let changed = json!({ "spec": { "superlink": { "image": "flwr/superlink:1.26.0" } } });
    let api = cluster.api(&kept[0]);
    let why = api.patch("claims", &PatchParams::default(), &Patch::Merge(&changed)).await.expect_err("refused");
    assert!(causes(&why)[0].message.contains("volumeClaimTemplates must not be set"), "{why}");
    let new = dynamic(&named(kept[0].clone(), "new-claims"));
    assert!(api.create(&kube::api::PostParams::default(), &new).await.is_err());
}
