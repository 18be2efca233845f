//! Accepted resources, and the defaults that the API server adds.

use serde_json::{Value, json};
use trellis_kube::federation::Federation;

use crate::cluster::Cluster;
use crate::resources::{daemon, process, stateful, with_pool, with_spec};

/// Violations that the other operator's own definition reports for a document.
#[derive(Debug, PartialEq)]
enum There {
    Accepted,
    /// It requires `images` in every pool, which its documents omit.
    WantsImages,
    /// It requires `containers` in every pod template, which its documents omit.
    WantsContainers,
}

/// Documents like those of the other operator: each block of its introduction, and each of its examples.
const DOCUMENTS: &str = include_str!("federations.yaml");
const THERE: [(&str, There); 35] = [
    ("quick-start", There::WantsImages),
    ("daemonset-mode", There::Accepted),
    ("statefulset-mode", There::Accepted),
    ("process-isolation", There::Accepted),
    ("subprocess-isolation", There::Accepted),
    ("pool-configuration", There::Accepted),
    ("multi-pool", There::Accepted),
    ("nvidia-pool", There::Accepted),
    ("amd-pool", There::Accepted),
    ("all-gpus", There::Accepted),
    ("mixed-gpus", There::Accepted),
    ("partitions", There::Accepted),
    ("edge", There::Accepted),
    ("static-config", There::Accepted),
    ("superlink-resources", There::Accepted),
    ("pool-resources", There::WantsImages),
    ("pools-with-different-resources", There::WantsImages),
    ("gpu-resources", There::WantsImages),
    ("short-daemonset-process", There::Accepted),
    ("short-statefulset-subprocess", There::Accepted),
    ("short-nodeconfig", There::Accepted),
    ("short-nodeconfig-daemonset", There::Accepted),
    ("example-daemonset-process", There::Accepted),
    ("example-daemonset-subprocess", There::Accepted),
    ("example-multipools", There::Accepted),
    ("example-nodeconfig-daemonset", There::Accepted),
    ("example-nodeconfig", There::Accepted),
    ("example-nvidia-gpu-pool", There::Accepted),
    ("example-resources", There::WantsContainers),
    ("example-resources-daemonset", There::Accepted),
    ("example-statefulset-process", There::Accepted),
    ("example-statefulset-subprocess", There::Accepted),
    ("example-volumeclaimtemplates-e2e", There::Accepted),
    ("example-volumes-e2e", There::Accepted),
    ("example-volumes", There::Accepted),
];

/// A2, A3. If the definition of the other operator is available (`FLOWER_OPERATOR_CRD`), the table is compared with it.
#[tokio::test]
async fn every_published_shape_is_accepted() {
    let Some(cluster) = Cluster::of("published").await else { return };
    let applied = cluster.kubectl_with_input(&["apply", "--validate=strict", "-f", "-"], DOCUMENTS);
    let said = String::from_utf8_lossy(&applied.stdout);
    assert!(applied.status.success(), "{said}{}", String::from_utf8_lossy(&applied.stderr));
    for (name, _) in THERE {
        assert!(
            said.lines().any(|line| line == format!("federation.flwr.exalsius.ai/{name} created")),
            "{name}: {said}"
        );
    }
    assert_eq!(said.lines().count(), THERE.len(), "a document is not in the table, or none of a line of it");

    let listed = cluster.kubectl(&["get", "fedf", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    for resource in listed["items"].as_array().expect("a list") {
        Federation::read(resource).unwrap_or_else(|why| panic!("{}: {why}", resource["metadata"]["name"]));
    }
}

#[test]
fn the_table_says_what_the_other_operator_says() {
    let Some(plane) = trellis_testing::kube::shared(trellis_testing::kube::Parts::ApiServer) else { return };
    let Some(file) = std::env::var_os("FLOWER_OPERATOR_CRD") else {
        eprintln!(
            "SKIP: FLOWER_OPERATOR_CRD does not name the other operator's definition; its answers are not checked"
        );
        return;
    };
    // In another group than ours.
    let theirs =
        std::fs::read_to_string(file).expect("the definition").replace("flwr.exalsius.ai", "theirs.exalsius.ai");
    let applied = plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &theirs);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let kind = "federations.theirs.exalsius.ai";
    crate::cluster::eventually(|| plane.kubectl(&["get", kind]).status.success(), kind);
    let documents = DOCUMENTS.replace("flwr.exalsius.ai", "theirs.exalsius.ai");
    let namespace = plane.namespace("theirs");
    let applied = plane.kubectl_with_input(&["--namespace", &namespace, "apply", "-f", "-"], &documents);
    let (said, refused) = (String::from_utf8_lossy(&applied.stdout), String::from_utf8_lossy(&applied.stderr));
    for (name, there) in THERE {
        let reason = refused.lines().find(|line| line.contains(&format!("\"{name}\" is invalid"))).unwrap_or_default();
        let found = if said.lines().any(|line| line == format!("federation.theirs.exalsius.ai/{name} created")) {
            There::Accepted
        } else if reason.contains("containers: Required value") {
            There::WantsContainers
        } else {
            assert!(reason.contains("images: Required value"), "{name}: {reason}");
            There::WantsImages
        };
        assert_eq!(found, there, "{name}: {reason}");
    }
}

/// Every YAML block of the other operator's introduction: complete ones unchanged, partial ones completed.
#[tokio::test]
async fn every_block_of_the_other_introduction_is_accepted() {
    let Some(file) = std::env::var_os("FLOWER_OPERATOR_README") else {
        eprintln!(
            "SKIP: FLOWER_OPERATOR_README does not name the other operator's introduction; documents of its shape are tried"
        );
        return;
    };
    let Some(cluster) = Cluster::of("introduction").await else { return };
    let text = std::fs::read_to_string(file).expect("the introduction");
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("\n```").next().expect("a block"));
    let documents: Vec<String> = blocks.enumerate().map(|(index, block)| completed(block, index)).collect();
    let applied = cluster.kubectl_with_input(&["apply", "--validate=strict", "-f", "-"], &documents.join("\n---\n"));
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let accepted = String::from_utf8_lossy(&applied.stdout).lines().count();
    println!("{accepted} blocks accepted");
    assert_eq!(accepted, documents.len());
}

/// Completes a partial document.
fn completed(block: &str, index: usize) -> String {
    const SUPERLINK: &str = "  superlink: {image: flwr/superlink:1.25.0}\n";
    let inside = |spaces: usize| {
        let indent = " ".repeat(spaces);
        block.lines().map(|line| format!("{indent}{line}\n")).collect::<String>()
    };
    let mode = if block.contains("replicas:") { "StatefulSet" } else { "DaemonSet" };
    let parts = match block.split(':').next().expect("a first word") {
        "apiVersion" => return block.to_owned(),
        "supernodes" => format!("{SUPERLINK}{}", inside(2)),
        "superlink" => {
            format!("{}  supernodes: {{image: flwr/supernode:1.25.0, pools: [{{name: default}}]}}\n", inside(2))
        }
        "pools" => format!("{SUPERLINK}  supernodes:\n    image: flwr/supernode:1.25.0\n{}", inside(4)),
        "nodeConfig" => {
            let pool = format!("    - name: default\n{}", inside(6));
            format!("{SUPERLINK}  supernodes:\n    image: flwr/supernode:1.25.0\n    pools:\n{pool}")
        }
        word => panic!("a block begins with {word}"),
    };
    format!(
        "apiVersion: flwr.exalsius.ai/v1\nkind: Federation\nmetadata:\n  name: block-{index}\nspec:\n  mode: {mode}\n  \
         isolationMode: subprocess\n{parts}"
    )
}

/// Reference 1.2: the defaults. Except for `gpu.enabled`: a default could not be told from an explicit false.
#[tokio::test]
async fn defaults_are_those_of_the_other_operator() {
    let Some(cluster) = Cluster::of("defaults").await else { return };
    let made = cluster.tried(&stateful()).await.expect("accepted");
    let expected = with_spec(stateful(), &json!({ "insecure": true }));
    assert_eq!(made["spec"], expected["spec"], "nothing else is added");

    let given = with_spec(stateful(), &json!({ "insecure": false, "superlink": { "service": { "ports": {} } } }));
    let given = with_pool(given, &json!({ "gpu": {} }));
    let made = cluster.tried(&given).await.expect("accepted");
    assert_eq!(made["spec"]["insecure"], false);
    let service = json!({ "type": "ClusterIP", "ports": { "grpc": 9092, "serverAppIO": 9091, "extra": 9093 } });
    assert_eq!(made["spec"]["superlink"]["service"], service);
    assert_eq!(made["spec"]["supernodes"]["pools"][0]["gpu"], json!({ "count": 1 }));
}

/// Quantities need no quotes; a pod template has no required fields, and all its fields are kept (A3, A12).
#[tokio::test]
async fn what_pods_take_is_taken() {
    let Some(cluster) = Cluster::of("pods").await else { return };
    let template = json!({
        "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } },
        "spec": {
            "nodeSelector": { "disk": "ssd" },
            "initContainers": [{ "name": "fetch", "image": "busybox", "resources": { "limits": { "cpu": 1, "memory": "1Gi" } } }],
            "containers": [{ "name": "log", "ports": [{ "containerPort": 80 }] }],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {},
            }],
            "tolerations": [{ "key": "gpu", "operator": "Exists" }],
            "terminationGracePeriodSeconds": 30,
            "hostAliases": [{ "ip": "127.0.0.1", "hostnames": ["a"] }],
            "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            } } } }],
        },
    });
    let fields =
        json!({ "podTemplate": template, "supernodeResources": { "requests": { "cpu": 2, "memory": "1.5Gi" } } });
    let made = cluster.tried(&with_pool(daemon(), &fields)).await.expect("accepted");
    let pool = &made["spec"]["supernodes"]["pools"][0];
    let mut expected = template;
    // The key of a list has a default.
    expected["spec"]["containers"][0]["ports"][0]["protocol"] = json!("TCP");
    assert_eq!(pool["podTemplate"], expected);
    assert_eq!(pool["supernodeResources"]["requests"]["cpu"], 2);
}

/// Every field of ours.
#[tokio::test]
async fn fields_of_ours_are_taken_and_kept() {
    let Some(cluster) = Cluster::of("all-of-ours").await else { return };
    let ours = json!({
        "runtime": "trellis",
        "security": {
            "tls": { "mode": "certManager", "issuerRef": { "name": "ca", "kind": "ClusterIssuer" }, "extraNames": ["fl.example"] },
            "nodeAuth": true,
            "networkPolicy": { "enabled": true, "clients": [{ "namespaceSelector": { "matchLabels": { "a": "b" } } }] },
        },
        "persistence": { "enabled": true, "size": "5Gi", "storageClassName": "fast", "whenDeleted": "Delete" },
        "scaling": {
            "pool": "default", "replicas": 0, "minReplicas": 0, "maxReplicas": 9, "cooldownSeconds": 60,
            "rules": [{ "metric": "roundTime", "above": 60, "step": 2 }],
        },
        "monitoring": { "metrics": true, "jsonLogs": true, "podMonitor": true },
        "upgrade": { "maxUnavailable": "20%", "drainTimeoutSeconds": 900 },
        "sites": [{ "name": "clinic", "nodes": 3 }],
    });
    let given = with_spec(process(), &ours);
    let given = with_pool(
        given,
        &json!({
            "superexecExtraArgs": ["--a"], "gpu": { "enabled": true, "count": 1, "resourceClaimTemplate": "one-gpu" },
            "nodeConfig": { "partition.id": "{index}", "name": "a \"quoted\" $(x) \u{e9} \n text" },
        }),
    );
    let made = cluster.tried(&given).await.expect("accepted");
    assert_eq!(made["spec"], with_pool(with_spec(given, &json!({ "insecure": true })), &json!({}))["spec"]);
    Federation::read(&made).expect("readable");
}

/// Both are valid: ports of 0, and a port of a listener that subprocess mode does not have.
#[tokio::test]
async fn ports_that_worked_still_work() {
    let Some(cluster) = Cluster::of("ports").await else { return };
    for ports in [
        json!({ "grpc": 0, "extra": 0, "serverAppIO": 0 }),
        json!({ "grpc": 9091 }),
        json!({ "grpc": 9093, "extra": 1 }),
    ] {
        let given = with_spec(stateful(), &json!({ "superlink": { "service": { "ports": ports } } }));
        cluster.tried(&given).await.unwrap_or_else(|why| panic!("{ports}: {why:?}"));
    }
}
