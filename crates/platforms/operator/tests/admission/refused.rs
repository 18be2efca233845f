//! Refused resources and their messages. Each case has exactly the expected violations.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::resources::{daemon, process, stateful, with, with_pool, with_spec};

/// A resource, and the fields and (ends of) messages of all its violations.
type Case<'a> = (&'a str, Value, &'a [(&'a str, &'a str)]);

async fn check(test: &str, cases: Vec<Case<'_>>) {
    let Some(cluster) = Cluster::of(test).await else { return };
    let mut wrong = Vec::new();
    for (name, resource, expected) in cases {
        let causes = match cluster.tried(&resource).await {
            Ok(_) => {
                wrong.push(format!("{name}: accepted"));
                continue;
            }
            Err(causes) => causes,
        };
        let as_expected = causes.len() == expected.len()
            && expected.iter().all(|(field, message)| {
                causes.iter().any(|cause| cause.field == *field && cause.message.ends_with(message))
            });
        if !as_expected {
            wrong.push(format!("{name}: {causes:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Messages of the other operator, word by word (reference 1.3).
#[tokio::test]
async fn rules_of_the_other_operator_have_its_words() {
    let no_pools = with_spec(stateful(), &json!({ "supernodes": { "pools": [] } }));
    let no_images = with_pool(process(), &json!({ "images": null }));
    let empty_image = with_pool(process(), &json!({ "images": { "superexecClientApp": "" } }));
    let no_sidecar = "spec.superlink.superexecImage is required when isolationMode=process";
    let no_client_app = "spec.supernodes.pools[*].images.superexecClientApp is required when isolationMode=process";
    check(
        "rules",
        vec![
            (
                "1: no pools",
                no_pools,
                &[
                    ("spec.supernodes.pools", "should have at least 1 items"),
                    ("spec", "spec.supernodes.pools must contain at least one pool"),
                ],
            ),
            (
                "2: replicas with DaemonSet",
                with_pool(daemon(), &json!({ "replicas": 1 })),
                &[("spec", "replicas must not be set for pools when mode is DaemonSet")],
            ),
            (
                "3: no replicas with StatefulSet",
                with_pool(stateful(), &json!({ "replicas": null })),
                &[("spec", "replicas must be set (>=1) for every pool when mode is StatefulSet")],
            ),
            (
                "4: no image of the sidecar",
                with_spec(process(), &json!({ "superlink": { "superexecImage": null } })),
                &[("spec", no_sidecar)],
            ),
            (
                "4: an empty image of the sidecar",
                with_spec(process(), &json!({ "superlink": { "superexecImage": "" } })),
                &[("spec", no_sidecar)],
            ),
            ("5: no image of the pool's sidecar", no_images, &[("spec", no_client_app)]),
            ("5: an empty image of the pool's sidecar", empty_image, &[("spec", no_client_app)]),
            (
                "6: an image of the sidecar with subprocess",
                with_spec(stateful(), &json!({ "superlink": { "superexecImage": "a" } })),
                &[("spec", "spec.superlink.superexecImage must be empty when isolationMode=subprocess")],
            ),
            (
                "7: an image of the pool's sidecar with subprocess",
                with_pool(stateful(), &json!({ "images": { "superexecClientApp": "a" } })),
                &[(
                    "spec",
                    "spec.supernodes.pools[*].images.superexecClientApp must be empty when isolationMode=subprocess",
                )],
            ),
            (
                "8: all GPUs of nobody",
                with_pool(stateful(), &json!({ "gpu": { "mountAll": true } })),
                &[("spec", "spec.supernodes.pools[*].gpu.vendor is required when gpu.mountAll=true")],
            ),
        ],
    )
    .await;
}

/// All violations are reported at once.
#[tokio::test]
async fn all_rules_that_do_not_hold_are_told_together() {
    let resource =
        with_pool(daemon(), &json!({ "replicas": 1, "gpu": { "mountAll": true }, "nodeConfig": { "a": "{index}" } }));
    check(
        "together",
        vec![(
            "three",
            resource,
            &[
                ("spec", "replicas must not be set for pools when mode is DaemonSet"),
                ("spec", "spec.supernodes.pools[*].gpu.vendor is required when gpu.mountAll=true"),
                (
                    "spec",
                    "spec.supernodes.pools[*].nodeConfig must not use {index} or {replicas} when mode is DaemonSet: use \
                     {node} or {pool}",
                ),
            ],
        )],
    )
    .await;
}

/// Required fields, enumerations, bounds and patterns of the other operator (reference 1.2).
#[tokio::test]
async fn fields_of_the_other_operator_have_its_bounds() {
    let many: Vec<Value> = (0..17).map(|n| json!({ "name": format!("p{n}"), "replicas": 1 })).collect();
    check(
        "fields",
        vec![
            ("no spec", with(stateful(), &json!({ "spec": null })), &[("spec", "Required value")]),
            ("no mode", with_spec(stateful(), &json!({ "mode": null })), &[("spec.mode", "Required value")]),
            (
                "another mode",
                with_spec(stateful(), &json!({ "mode": "Deployment" })),
                &[("spec.mode", "supported values: \"DaemonSet\", \"StatefulSet\"")],
            ),
            (
                "no isolation mode",
                with_spec(stateful(), &json!({ "isolationMode": null })),
                &[("spec.isolationMode", "Required value")],
            ),
            (
                "another isolation mode",
                with_spec(stateful(), &json!({ "isolationMode": "none" })),
                &[("spec.isolationMode", "supported values: \"process\", \"subprocess\"")],
            ),
            (
                "an empty version",
                with_spec(stateful(), &json!({ "version": "" })),
                &[("spec.version", "should be at least 1 chars long")],
            ),
            (
                "no superlink",
                with_spec(stateful(), &json!({ "superlink": null })),
                &[("spec.superlink", "Required value")],
            ),
            (
                "no image",
                with_spec(stateful(), &json!({ "superlink": { "image": null } })),
                &[("spec.superlink.image", "Required value")],
            ),
            (
                "an empty image",
                with_spec(stateful(), &json!({ "superlink": { "image": "" } })),
                &[("spec.superlink.image", "should be at least 1 chars long")],
            ),
            (
                "another kind of Service",
                with_spec(stateful(), &json!({ "superlink": { "service": { "type": "ExternalName" } } })),
                &[("spec.superlink.service.type", "supported values: \"ClusterIP\", \"NodePort\", \"LoadBalancer\"")],
            ),
            (
                "a claim without a name",
                with_spec(
                    stateful(),
                    &json!({ "superlink": { "volumeClaimTemplates": [{ "metadata": {}, "spec": {} }] } }),
                ),
                &[("spec.superlink.volumeClaimTemplates[0].metadata.name", "Required value")],
            ),
            (
                "a claim without more",
                with_spec(stateful(), &json!({ "superlink": { "volumeClaimTemplates": [{}] } })),
                &[
                    ("spec.superlink.volumeClaimTemplates[0].metadata", "Required value"),
                    ("spec.superlink.volumeClaimTemplates[0].spec", "Required value"),
                ],
            ),
            (
                "no supernodes",
                with_spec(stateful(), &json!({ "supernodes": null })),
                &[("spec.supernodes", "Required value")],
            ),
            (
                "no image of nodes",
                with_spec(stateful(), &json!({ "supernodes": { "image": null } })),
                &[("spec.supernodes.image", "Required value")],
            ),
            (
                "an empty image of nodes",
                with_spec(stateful(), &json!({ "supernodes": { "image": "" } })),
                &[("spec.supernodes.image", "should be at least 1 chars long")],
            ),
            (
                "too many pools",
                with_spec(stateful(), &json!({ "supernodes": { "pools": many } })),
                &[("spec.supernodes.pools", "must have at most 16 items")],
            ),
            (
                "a pool without a name",
                with_spec(stateful(), &json!({ "supernodes": { "pools": [{ "replicas": 1 }] } })),
                &[("spec.supernodes.pools[0].name", "Required value")],
            ),
            (
                "a pool with capitals",
                with_pool(stateful(), &json!({ "name": "Ward" })),
                &[("spec.supernodes.pools[0].name", "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'")],
            ),
            (
                "a pool that ends with a dash",
                with_pool(stateful(), &json!({ "name": "ward-" })),
                &[("spec.supernodes.pools[0].name", "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'")],
            ),
            (
                "no nodes",
                with_pool(stateful(), &json!({ "replicas": 0 })),
                &[
                    ("spec.supernodes.pools[0].replicas", "should be greater than or equal to 1"),
                    ("spec", "replicas must be set (>=1) for every pool when mode is StatefulSet"),
                ],
            ),
            (
                "another vendor",
                with_pool(stateful(), &json!({ "gpu": { "vendor": "intel" } })),
                &[("spec.supernodes.pools[0].gpu.vendor", "supported values: \"nvidia\", \"amd\"")],
            ),
            (
                "no GPU",
                with_pool(stateful(), &json!({ "gpu": { "enabled": true, "count": 0 } })),
                &[("spec.supernodes.pools[0].gpu.count", "should be greater than or equal to 1")],
            ),
        ],
    )
    .await;
}

/// A7, A8, A9: accepted by the other operator without an effect, or with a later failure.
#[tokio::test]
async fn what_never_worked_is_refused() {
    let ports = |ports: Value| with_spec(stateful(), &json!({ "superlink": { "service": { "ports": ports } } }));
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"] } });
    let long = "x".repeat(2049);
    let many: Value = (0..129).map(|n| (format!("k{n}"), "v".into())).collect::<serde_json::Map<_, _>>().into();
    let placeholders = "spec.supernodes.pools[*].nodeConfig must not use {index} or {replicas} when mode is DaemonSet: use {node} or {pool}";
    check(
        "worked",
        vec![
            (
                "a port below",
                ports(json!({ "grpc": -1 })),
                &[("spec.superlink.service.ports.grpc", "should be greater than or equal to 0")],
            ),
            (
                "a port above",
                ports(json!({ "extra": 65536 })),
                &[("spec.superlink.service.ports.extra", "should be less than or equal to 65535")],
            ),
            (
                "a third port above",
                ports(json!({ "serverAppIO": 70000, "http": 70000 })),
                &[
                    ("spec.superlink.service.ports.serverAppIO", "should be less than or equal to 65535"),
                    ("spec.superlink.service.ports.http", "should be less than or equal to 65535"),
                ],
            ),
            (
                "one port for two",
                ports(json!({ "grpc": 9093 })),
                &[("spec", "spec.superlink.service.ports.grpc and extra must not be the same")],
            ),
            (
                "one port for two, with sidecars",
                with_spec(process(), &json!({ "superlink": { "service": { "ports": { "serverAppIO": 9092 } } } })),
                &[(
                    "spec",
                    "spec.superlink.service.ports.serverAppIO must not be that of grpc or extra when isolationMode=process",
                )],
            ),
            (
                "claims with DaemonSet",
                with_pool(daemon(), &json!({ "volumeClaimTemplates": [claim] })),
                &[(
                    "spec",
                    "spec.supernodes.pools[*].volumeClaimTemplates must not be set when mode is DaemonSet, which makes no \
                     claims: use volumes",
                )],
            ),
            (
                "{index} with DaemonSet",
                with_pool(daemon(), &json!({ "nodeConfig": { "a": "n-{index}" } })),
                &[("spec", placeholders)],
            ),
            (
                "{replicas} with DaemonSet",
                with_pool(daemon(), &json!({ "nodeConfig": { "a": "b", "c": "{replicas}" } })),
                &[("spec", placeholders)],
            ),
            (
                "a key with a space",
                with_pool(stateful(), &json!({ "nodeConfig": { "a b": "c" } })),
                &[("spec.supernodes.pools[0].nodeConfig", "keys are letters, digits, - and _, with dots between parts")],
            ),
            (
                "a key that is two",
                with_pool(stateful(), &json!({ "nodeConfig": { "a=1 b": "c" } })),
                &[("spec.supernodes.pools[0].nodeConfig", "keys are letters, digits, - and _, with dots between parts")],
            ),
            (
                "a value with NUL",
                with_pool(stateful(), &json!({ "nodeConfig": { "a": "\u{0}" } })),
                &[("spec.supernodes.pools[0].nodeConfig.a", "should match '^[^\\x00]*$'")],
            ),
            (
                "a long value",
                with_pool(stateful(), &json!({ "nodeConfig": { "a": long } })),
                &[("spec.supernodes.pools[0].nodeConfig.a", "may not be more than 2048 bytes")],
            ),
            (
                "many keys",
                with_pool(stateful(), &json!({ "nodeConfig": many })),
                &[("spec.supernodes.pools[0].nodeConfig", "must have at most 128 items")],
            ),
            (
                "a value that is a number",
                with_pool(stateful(), &json!({ "nodeConfig": { "a": 1 } })),
                &[("spec.supernodes.pools[0].nodeConfig.a", "must be of type string: \"integer\"")],
            ),
        ],
    )
    .await;
}

/// A1.
#[tokio::test]
async fn two_pools_of_one_name_are_refused() {
    let pool = json!({ "name": "a", "replicas": 1 });
    let two = with_spec(stateful(), &json!({ "supernodes": { "pools": [pool, pool] } }));
    check("twins", vec![("twins", two, &[("spec.supernodes.pools[1]", "Duplicate value: {\"name\":\"a\"}")])]).await;
}

/// A10.
#[tokio::test]
async fn names_that_are_too_long_for_what_is_named_after_them_are_refused() {
    let named = |resource: Value, length: usize| with(resource, &json!({ "metadata": { "name": "f".repeat(length) } }));
    let pooled = |resource: Value, length: usize| with_pool(resource, &json!({ "name": "p".repeat(length) }));
    let federation = "must have no more than 42 characters: that of the StatefulSet <name>-superlink may have 52";
    let together = "metadata.name and spec.supernodes.pools[*].name must have no more than 41 characters together: that of the \
                    StatefulSet <name>-supernode-<pool> may have 52";
    let Some(cluster) = Cluster::of("fitting").await else { return };
    for fitting in [
        named(daemon(), 42),
        pooled(named(stateful(), 1), 40),
        pooled(named(stateful(), 40), 1),
        pooled(named(daemon(), 42), 58),
    ] {
        cluster.tried(&fitting).await.expect("accepted");
    }
    check(
        "lengths",
        vec![
            ("a federation", named(daemon(), 43), &[("metadata.name", federation)]),
            ("a pool", pooled(named(stateful(), 1), 41), &[("<nil>", together)]),
            (
                "a label",
                pooled(daemon(), 59),
                &[(
                    "spec.supernodes.pools[0].name",
                    "must have no more than 58 characters: the label pool-<name> may have 63",
                )],
            ),
            (
                "a dot",
                with(stateful(), &json!({ "metadata": { "name": "a.b" } })),
                &[(
                    "metadata.name",
                    "must be lowercase letters, digits and dashes, as the Service <name>-superlink needs it",
                )],
            ),
        ],
    )
    .await;
}

/// The optional fields of ours.
#[tokio::test]
async fn fields_of_ours_have_bounds_and_rules() {
    let spec = |fields: Value| with_spec(stateful(), &fields);
    let two = json!([{ "name": "a", "replicas": 1 }, { "name": "b", "replicas": 1 }]);
    check(
        "ours",
        vec![
            (
                "another runtime",
                spec(json!({ "runtime": "docker" })),
                &[("spec.runtime", "supported values: \"trellis\", \"flower\"")],
            ),
            (
                "another TLS mode",
                spec(json!({ "security": { "tls": { "mode": "on" } } })),
                &[("spec.security.tls.mode", "supported values: \"off\", \"auto\", \"certManager\", \"secret\"")],
            ),
            (
                "no secret",
                spec(json!({ "security": { "tls": { "mode": "secret" } } })),
                &[("spec.security.tls", "secretName is required when mode=secret")],
            ),
            (
                "no issuer",
                spec(json!({ "security": { "tls": { "mode": "certManager" } } })),
                &[("spec.security.tls", "issuerRef is required when mode=certManager")],
            ),
            (
                "an issuer without a name",
                spec(json!({ "security": { "tls": { "mode": "certManager", "issuerRef": {} } } })),
                &[("spec.security.tls.issuerRef.name", "Required value")],
            ),
            (
                "node authentication without TLS",
                spec(json!({ "security": { "nodeAuth": true } })),
                &[("spec", "spec.security.nodeAuth needs TLS: set insecure to false, or security.tls.mode")],
            ),
            (
                "node authentication with TLS off",
                spec(json!({ "insecure": false, "security": { "nodeAuth": true, "tls": { "mode": "off" } } })),
                &[("spec", "spec.security.nodeAuth needs TLS: set insecure to false, or security.tls.mode")],
            ),
            (
                "a size that is none",
                spec(json!({ "persistence": { "size": "10 GB" } })),
                &[(
                    "spec.persistence.size",
                    "should match '^[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$'",
                )],
            ),
            (
                "another retention",
                spec(json!({ "persistence": { "whenDeleted": "Keep" } })),
                &[("spec.persistence.whenDeleted", "supported values: \"Retain\", \"Delete\"")],
            ),
            (
                "scaling of a DaemonSet",
                with_spec(daemon(), &json!({ "scaling": { "replicas": 2 } })),
                &[("spec", "spec.scaling needs mode StatefulSet: a DaemonSet has one SuperNode on each machine")],
            ),
            (
                "scaling of which pool",
                spec(json!({ "supernodes": { "pools": two }, "scaling": { "replicas": 2 } })),
                &[("spec", "spec.scaling.pool must name a pool when there are several")],
            ),
            (
                "scaling of no pool",
                spec(json!({ "scaling": { "pool": "other" } })),
                &[("spec", "spec.scaling.pool must be the name of a pool")],
            ),
            (
                "bounds the wrong way round",
                spec(json!({ "scaling": { "minReplicas": 3, "maxReplicas": 2 } })),
                &[("spec.scaling", "minReplicas must not be more than maxReplicas")],
            ),
            (
                "fewer than none",
                spec(json!({ "scaling": { "replicas": -1, "rules": [{ "step": 0 }] } })),
                &[
                    ("spec.scaling.replicas", "should be greater than or equal to 0"),
                    (".spec.scaling.replicas", "should be a non-negative integer"),
                    ("spec.scaling.rules[0].metric", "Required value"),
                    ("spec.scaling.rules[0].step", "should be greater than or equal to 1"),
                ],
            ),
            (
                "a share that is none",
                spec(json!({ "upgrade": { "maxUnavailable": "0%" } })),
                &[("spec.upgrade.maxUnavailable", "should match '^([1-9][0-9]?|100)%$'")],
            ),
            (
                "nobody away",
                spec(json!({ "upgrade": { "maxUnavailable": 0 } })),
                &[("spec.upgrade.maxUnavailable", "should be greater than or equal to 1")],
            ),
            (
                "two sites of one name",
                spec(json!({ "sites": [{ "name": "a", "nodes": 1 }, { "name": "a", "nodes": 2 }] })),
                &[("spec.sites[1]", "Duplicate value: {\"name\":\"a\"}")],
            ),
            (
                "a site without nodes",
                spec(json!({ "sites": [{ "name": "a", "nodes": 0 }] })),
                &[("spec.sites[0].nodes", "should be greater than or equal to 1")],
            ),
            (
                "a site in a network that is none",
                spec(json!({ "sites": [{ "name": "a", "nodes": 1, "cidrs": ["10.0.0.0/99"] }] })),
                &[("spec.sites[0].cidrs[0]", "must be of type cidr: \"10.0.0.0/99\"")],
            ),
        ],
    )
    .await;
}

/// Values of core types are checked by their types; the API server checks the rest when the objects are created.
#[tokio::test]
async fn core_types_are_checked() {
    let superlink = |fields: Value| with_spec(stateful(), &json!({ "superlink": fields }));
    check(
        "core",
        vec![
            (
                "a variable without a name",
                superlink(json!({ "env": [{ "value": "a" }] })),
                &[("spec.superlink.env[0].name", "Required value")],
            ),
            (
                "a variable that is a number",
                superlink(json!({ "env": [{ "name": "a", "value": 1 }] })),
                &[("spec.superlink.env[0].value", "must be of type string: \"integer\"")],
            ),
            (
                "a quantity that is none",
                superlink(json!({ "resources": { "limits": { "cpu": "two" } } })),
                &[(
                    "spec.superlink.resources.limits.cpu",
                    "should match '^[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$'",
                )],
            ),
            (
                "a mount without a path",
                superlink(json!({ "volumeMounts": [{ "name": "a" }] })),
                &[("spec.superlink.volumeMounts[0].mountPath", "Required value")],
            ),
            (
                "two containers of one name",
                superlink(json!({ "podTemplate": { "spec": { "containers": [{ "name": "a" }, { "name": "a" }] } } })),
                &[("spec.superlink.podTemplate.spec.containers[1]", "Duplicate value: {\"name\":\"a\"}")],
            ),
        ],
    )
    .await;
}
