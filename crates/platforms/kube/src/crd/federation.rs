//! Schema of the spec of a federation: fields of the other operator with its defaults and limits, and optional fields
//! of Trellis.

use serde_json::json;

use super::core;
use super::rules;
use super::schema::Schema;

const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const MAX_DNS_LABEL: u32 = 63;
const MAX_DNS_NAME: u32 = 253;
const HIGHEST_PORT: i64 = 65_535;
const MAX_POOLS: u32 = 16;
/// Limits that the API server needs to estimate the cost of rules.
const MAX_CONFIG_KEYS: u32 = 128;
const MAX_CONFIG_VALUE: u32 = 2048;
const MAX_SITES: u32 = 256;
const MAX_CIDRS: u32 = 64;
const MAX_CIDR: u32 = 43;
const MAX_NODES: i64 = 100_000;
const MAX_EXTRA_NAMES: u32 = 64;
const MAX_SCALING_RULES: u32 = 16;
const DAY_SECONDS: i64 = 86_400;

/// Only rules on the name are allowed here.
pub fn metadata() -> Schema {
    let name = Schema::made(json!({ "type": "string" })).rules(rules::name());
    Schema::made(json!({ "type": "object" })).field("name", name)
}

pub fn spec() -> Schema {
    let ours = "Left out, everything is as the Flower operator has it.";
    Schema::object("Desired state of the federation.")
        .field(
            "mode",
            Schema::text("DaemonSet: a SuperNode on each matching machine. StatefulSet: as many as `replicas` says.")
                .one_of(["DaemonSet", "StatefulSet"]),
        )
        .field(
            "isolationMode",
            Schema::text(
                "process: apps run in sidecars of their own images. subprocess: SuperLink and SuperNodes start them.",
            )
            .one_of(["process", "subprocess"]),
        )
        .field(
            "version",
            Schema::text("The Flower release of images whose tag does not say it, like 1.25.").with("minLength", 1),
        )
        .field(
            "insecure",
            Schema::truth("No TLS. With false, the operator makes certificates, unless security.tls says otherwise.")
                .with("default", true),
        )
        .field("superlink", superlink())
        .field("supernodes", supernodes())
        .field(
            "runtime",
            Schema::text("Which programs the images hold, where their names do not say it.")
                .one_of(["trellis", "flower"]),
        )
        .field("security", security(ours))
        .field("persistence", persistence())
        .field("scaling", scaling())
        .field("monitoring", monitoring())
        .field("upgrade", upgrade())
        .field("sites", sites())
        .required(["mode", "isolationMode", "superlink", "supernodes"])
        .rules(rules::of_the_other())
        .rules(rules::of_ours())
}

fn superlink() -> Schema {
    Schema::object("The SuperLink.")
        .field("image", Schema::text("Its image.").with("minLength", 1))
        .field(
            "superexecImage",
            Schema::text("The image of the sidecar that runs ServerApps, with isolationMode process."),
        )
        .field("resources", resources("Of the SuperLink."))
        .field("superexecResources", resources("Of the sidecar."))
        .field("env", core::list_of("EnvVar", "Of all containers of the pod."))
        .field("extraArgs", arguments("Of the SuperLink, after those of the operator."))
        .field("superexecExtraArgs", arguments("Of the sidecar, after those of the operator."))
        .field("podTemplate", pod_template())
        .field("service", service())
        .field("volumes", core::list_of("Volume", "Of the pod."))
        .field("volumeMounts", core::list_of("VolumeMount", "Of the SuperLink."))
        .field("superexecVolumeMounts", core::list_of("VolumeMount", "Of the sidecar. Absent: volumeMounts."))
        .field("volumeClaimTemplates", claims())
        .required(["image"])
}

fn service() -> Schema {
    let words = |description| Schema::map(description, Schema::made(json!({ "type": "string" })));
    let kinds = ["ClusterIP", "NodePort", "LoadBalancer"];
    let port = |description: &str| Schema::int32(&format!("{description} 0 is the default.")).between(0, HIGHEST_PORT);
    let ports = Schema::object("Where the Service listens.")
        .field("grpc", port("The Fleet API, for SuperNodes.").with("default", 9092))
        .field("serverAppIO", port("The ServerAppIO API, with isolationMode process.").with("default", 9091))
        .field("extra", port("The Control API, for flwr run.").with("default", 9093))
        .field("http", port("The HTTP API, from Flower 1.35 on, and of Trellis; 8000."));
    Schema::object("How the SuperLink is reached.")
        .field("type", Schema::text("Of the Service.").one_of(kinds).with("default", "ClusterIP"))
        .field("ports", ports)
        .field("labels", words("Of the Service; those of the operator win."))
        .field("annotations", words("Of the Service."))
}

fn supernodes() -> Schema {
    let pools = Schema::list_by("Groups of SuperNodes that are alike: a workload each.", "name", pool());
    Schema::object("The SuperNodes.")
        .field("image", Schema::text("Of pools that have none of their own.").with("minLength", 1))
        .field("env", core::list_of("EnvVar", "Of all pools; theirs win."))
        .field("pools", pools.with("minItems", 1).at_most_items(MAX_POOLS))
        .required(["image", "pools"])
}

fn pool() -> Schema {
    Schema::object("A pool.")
        .field("name", dns_label("Of the pool.").rules([rules::pool_name()]))
        .field("replicas", Schema::int32("How many SuperNodes, with mode StatefulSet.").at_least(1))
        .field("images", images())
        .field("gpu", gpu())
        .field("supernodeResources", resources("Of the SuperNode."))
        .field("superexecResources", resources("Of the sidecar."))
        .field("podTemplate", pod_template())
        .field("extraArgs", arguments("Of the SuperNode, after those of the operator."))
        .field("superexecExtraArgs", arguments("Of the sidecar, after those of the operator."))
        .field("env", core::list_of("EnvVar", "Of all containers of the pod."))
        .field("volumes", core::list_of("Volume", "Of the pod."))
        .field("volumeMounts", core::list_of("VolumeMount", "Of the SuperNode."))
        .field("superexecVolumeMounts", core::list_of("VolumeMount", "Of the sidecar. Absent: volumeMounts."))
        .field("volumeClaimTemplates", claims())
        .field("nodeConfig", node_config())
        .required(["name"])
}

fn images() -> Schema {
    // Server-side apply of `images: {}` to an object with a field results in null.
    Schema::object("Images of this pool.")
        .with("nullable", true)
        .field("supernode", Schema::text("In place of supernodes.image."))
        .field("superexecClientApp", Schema::text("Of the sidecar that runs ClientApps, with isolationMode process."))
}

fn gpu() -> Schema {
    Schema::object("GPUs of each SuperNode.")
        // No default: false disables mountAll, and a default could not be distinguished from it.
        .field("enabled", Schema::truth("Ask for GPUs. Absent: no, but for mountAll, which is then enough."))
        .field("vendor", Schema::text("Vendor of the GPUs.").one_of(["nvidia", "amd"]))
        .field("resourceName", Schema::text("The extended resource. Absent: that of the vendor."))
        .field("count", Schema::int32("How many for each SuperNode.").at_least(1).with("default", 1))
        .field("mountAll", Schema::truth("All GPUs of the machine, without asking for any."))
        .field(
            "resourceClaimTemplate",
            dns_name("A ResourceClaimTemplate of this namespace, in place of an extended resource."),
        )
}

fn node_config() -> Schema {
    let value = Schema::text("Text, which may hold {index}, {replicas}, {pool} and {node}.")
        .with("maxLength", MAX_CONFIG_VALUE)
        .with("pattern", r"^[^\x00]*$");
    Schema::map("Node config of each SuperNode, as --node-config.", value)
        .with("maxProperties", MAX_CONFIG_KEYS)
        .rules([rules::node_config_keys()])
}

fn claims() -> Schema {
    let words = |description| Schema::map(description, Schema::made(json!({ "type": "string" })));
    let metadata = Schema::object("Of the claims.")
        .field("name", Schema::text("That volumeMounts refer to.").with("minLength", 1))
        .field("labels", words("Of the claims."))
        .field("annotations", words("Of the claims."))
        .required(["name"]);
    let claim = Schema::object("A claim for each pod.")
        .field("metadata", metadata)
        .field("spec", core::of("PersistentVolumeClaimSpec"))
        .required(["metadata", "spec"]);
    Schema::list("Claims that each pod gets, with mode StatefulSet.", claim)
}

fn pod_template() -> Schema {
    core::of("PodTemplateSpec").describe(
        "Anything else of the pod: merged over what the operator makes, containers by their names. Nothing in it is required.",
    )
}

fn resources(description: &str) -> Schema {
    core::of("ResourceRequirements").describe(description)
}

fn arguments(description: &str) -> Schema {
    Schema::list(description, Schema::made(json!({ "type": "string" })))
}

fn security(ours: &str) -> Schema {
    let issuer = Schema::object("The issuer of mode certManager.")
        .field("name", dns_name("Its name."))
        .field("kind", Schema::text("Issuer or ClusterIssuer; Issuer."))
        .field("group", Schema::text("cert-manager.io."))
        .required(["name"]);
    let tls = Schema::object("Certificates.")
        .field(
            "mode",
            Schema::text(
                "auto: the operator is the authority. certManager: issuerRef is. secret: secretName holds them. off: none. \
                 Absent: auto with insecure false, unless extraArgs bring certificates; else off.",
            )
            .one_of(["off", "auto", "certManager", "secret"]),
        )
        .field("secretName", dns_name("A Secret with tls.crt, tls.key and ca.crt, of mode secret."))
        .field("issuerRef", issuer)
        .field(
            "extraNames",
            Schema::list(
                "Names and addresses of the SuperLink in addition to those of its Service.",
                Schema::made(json!({ "type": "string", "minLength": 1, "maxLength": MAX_DNS_NAME })),
            )
            .at_most_items(MAX_EXTRA_NAMES),
        )
        .rules(rules::tls());
    let policy = Schema::object("Clients that may reach the SuperLink.")
        .field("enabled", Schema::truth("Make a NetworkPolicy."))
        .field(
            "clients",
            core::list_of("NetworkPolicyPeer", "Clients that may use the Control API, in addition to the operator."),
        );
    Schema::object(&format!("TLS, identity of nodes, who may call. {ours}"))
        .field("tls", tls)
        .field("nodeAuth", Schema::truth("Only SuperNodes whose keys are known may join. Needs TLS."))
        .field("networkPolicy", policy)
}

fn persistence() -> Schema {
    let retention = |description: &str| Schema::text(description).one_of(["Retain", "Delete"]);
    Schema::object("Where the SuperLink keeps its state, and how long claims are kept.")
        .field(
            "enabled",
            Schema::truth("In a claim. Absent: where the cluster has a default storage class. Else in the pod."),
        )
        .field("size", Schema::quantity().describe("Of the claim; 10Gi."))
        .field("storageClassName", Schema::text("Of the claim. Absent: the default of the cluster."))
        .field(
            "whenDeleted",
            retention("What becomes of the claims of the SuperLink and of pools when the federation or the pool is deleted; Retain."),
        )
        .field("whenScaled", retention("What becomes of the claims of nodes when their pool gets smaller; Retain."))
}

fn scaling() -> Schema {
    let size = |description: &str| Schema::int32(description).between(0, MAX_NODES);
    let rule = Schema::object("When to grow, and when to shrink.")
        .field("metric", Schema::text("Metric that is measured.").length(1, MAX_DNS_LABEL))
        .field("above", Schema::int64("Grow when it is more."))
        .field("below", Schema::int64("Shrink when it is less."))
        .field("step", Schema::int32("By how many SuperNodes at once; 1.").between(1, MAX_NODES))
        .required(["metric"]);
    Schema::object(
        "How many SuperNodes one pool has, in place of its replicas. kubectl scale and autoscalers write it.",
    )
    .field("pool", dns_label("Name of the pool. Absent: the only one."))
    .field("replicas", size("How many. Absent: the pool's replicas."))
    .field("minReplicas", size("Never fewer."))
    .field("maxReplicas", size("Never more."))
    .field(
        "rules",
        Schema::list("When the operator changes the number by itself.", rule).at_most_items(MAX_SCALING_RULES),
    )
    .field("cooldownSeconds", Schema::int32("Between two changes by rules.").between(0, DAY_SECONDS))
    .rules([rules::bounds_of_scaling()])
}

fn monitoring() -> Schema {
    Schema::object("Metrics and logs of pods with Trellis images.")
        .field("metrics", Schema::truth("Metrics for Prometheus, on a port of every pod."))
        .field("jsonLogs", Schema::truth("Logs as JSON."))
        .field("podMonitor", Schema::truth("A PodMonitor of the Prometheus operator."))
}

fn upgrade() -> Schema {
    Schema::object("How pods are replaced.")
        .field(
            "maxUnavailable",
            Schema::number_or_text()
                .describe("SuperNodes of a pool that may be away at once: a number or a share like 20%; 1.")
                .with("minimum", 1)
                .with("pattern", "^([1-9][0-9]?|100)%$"),
        )
        .field(
            "drainTimeoutSeconds",
            Schema::int32("Time for a SuperNode to finish its work; default 600 for Trellis, and 30 for Flower, which does not finish its work.").between(0, DAY_SECONDS),
        )
}

fn sites() -> Schema {
    let site = Schema::object("A place outside of the cluster.")
        .field("name", dns_label("Of the site."))
        .field("nodes", Schema::int32("How many SuperNodes may join from there.").between(1, MAX_NODES))
        .field(
            "cidrs",
            Schema::list(
                "Networks that they call from, for the NetworkPolicy. Absent: from anywhere.",
                Schema::made(json!({ "type": "string", "format": "cidr", "maxLength": MAX_CIDR })),
            )
            .at_most_items(MAX_CIDRS),
        )
        .required(["name", "nodes"]);
    Schema::list_by("SuperNodes outside of the cluster.", "name", site).at_most_items(MAX_SITES)
}

fn dns_label(description: &str) -> Schema {
    Schema::text(description).length(1, MAX_DNS_LABEL).with("pattern", DNS_LABEL)
}

fn dns_name(description: &str) -> Schema {
    Schema::text(description).length(1, MAX_DNS_NAME)
}
