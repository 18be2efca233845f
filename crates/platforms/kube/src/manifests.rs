//! Objects of an installation of the operator, in the order in which they are applied. `trellis operator manifests`
//! prints them, `deploy/install.yaml` and `deploy/kustomize` contain them, and the chart is compared with them.
//!
//! Knows nothing about federations.

pub mod permissions;

use serde_json::{Map, Value, json};

use crate::object::Object;
use crate::pod_policy::PodPolicy;
use permissions::{PEOPLE, Reach, people_rules, rules};

pub const NAME: &str = "trellis-operator";
pub const NAMESPACE: &str = "trellis-system";
pub const METRICS_PORT: u16 = 8080;
pub const HEALTH_PORT: u16 = 8081;
/// User of the images.
pub const USER: u32 = 65532;
/// Time to complete a reconcile and release the lease.
const GRACE_S: u32 = 10;

/// Options of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub namespace: String,
    pub image: String,
    pub image_pull_secrets: Vec<String>,
    /// Namespaces of federations; empty: all.
    pub watched: Vec<String>,
    pub pod_policy: PodPolicy,
    pub replicas: u32,
    pub service_monitor: bool,
    pub network_policy: bool,
    /// Roles for users of federations.
    pub people: bool,
}

impl Default for Installation {
    fn default() -> Self {
        Installation {
            namespace: NAMESPACE.to_owned(),
            image: default_image(),
            image_pull_secrets: Vec::new(),
            watched: Vec::new(),
            pod_policy: PodPolicy::default(),
            replicas: 1,
            service_monitor: false,
            network_policy: false,
            people: false,
        }
    }
}

/// The image of this version, without a registry.
pub fn default_image() -> String {
    format!("{NAME}:{}", env!("CARGO_PKG_VERSION"))
}

/// All objects except the resource definitions.
pub fn objects(installation: &Installation) -> Vec<Object> {
    let mut objects = vec![namespace(installation), service_account(installation)];
    objects.extend(roles(installation));
    if installation.people {
        objects.extend(PEOPLE.iter().map(|(name, verbs)| people_role(name, verbs)));
    }
    objects.push(metrics_service(installation));
    objects.push(deployment(installation));
    if installation.replicas > 1 {
        objects.push(disruption_budget(installation));
    }
    if installation.network_policy {
        objects.push(network_policy(installation));
    }
    if installation.service_monitor {
        objects.push(service_monitor(installation));
    }
    objects.into_iter().map(Object).collect()
}

/// Selector of the pods of the operator. Selectors are immutable.
fn selector() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "trellis"})
}

fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Map<String, Value> {
    let mut metadata = Map::from_iter([("name".to_owned(), json!(name)), ("labels".to_owned(), labels())]);
    if let Some(namespace) = namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    Map::from_iter([
        ("apiVersion".to_owned(), json!(api_version)),
        ("kind".to_owned(), json!(kind)),
        ("metadata".to_owned(), Value::Object(metadata)),
    ])
}

fn with(mut object: Map<String, Value>, field: &str, value: Value) -> Map<String, Value> {
    object.insert(field.to_owned(), value);
    object
}

fn namespace(installation: &Installation) -> Value {
    let mut made = Value::Object(object("v1", "Namespace", None, &installation.namespace));
    // The pod of the operator satisfies the strictest Pod Security profile.
    for mode in ["enforce", "warn"] {
        made["metadata"]["labels"][format!("pod-security.kubernetes.io/{mode}")] = json!("restricted");
    }
    made
}

fn service_account(installation: &Installation) -> Value {
    object("v1", "ServiceAccount", Some(&installation.namespace), NAME).into()
}

fn roles(installation: &Installation) -> Vec<Value> {
    let own = format!("{NAME}-own");
    let mut made = Vec::new();
    if installation.watched.is_empty() {
        made.push(role(None, NAME, rules(&[Reach::Federations, Reach::Cluster])));
        made.push(binding(installation, None, NAME));
    }
    for watched in &installation.watched {
        made.push(role(Some(watched), NAME, rules(&[Reach::Federations])));
        made.push(binding(installation, Some(watched), NAME));
    }
    made.push(role(Some(&installation.namespace), &own, rules(&[Reach::Own])));
    made.push(binding(installation, Some(&installation.namespace), &own));
    made
}

fn role(namespace: Option<&str>, name: &str, rules: Vec<Value>) -> Value {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    with(object("rbac.authorization.k8s.io/v1", kind, namespace, name), "rules", json!(rules)).into()
}

fn binding(installation: &Installation, namespace: Option<&str>, name: &str) -> Value {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let made = object("rbac.authorization.k8s.io/v1", &format!("{kind}Binding"), namespace, name);
    let made = with(made, "roleRef", json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}));
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": installation.namespace});
    with(made, "subjects", json!([subject])).into()
}

fn people_role(name: &str, verbs: &[&str]) -> Value {
    role(None, &format!("{NAME}-federation-{name}"), people_rules(verbs))
}

fn metrics_service(installation: &Installation) -> Value {
    let made = object("v1", "Service", Some(&installation.namespace), &format!("{NAME}-metrics"));
    let port = json!({"name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": "metrics"});
    with(made, "spec", json!({"selector": selector(), "ports": [port]})).into()
}

fn deployment(installation: &Installation) -> Value {
    let made = object("apps/v1", "Deployment", Some(&installation.namespace), NAME);
    let template = json!({"metadata": {"labels": labels()}, "spec": pod(installation)});
    let spec = json!({
        "replicas": installation.replicas,
        "selector": {"matchLabels": selector()},
        "template": template,
    });
    with(made, "spec", spec).into()
}

fn pod(installation: &Installation) -> Value {
    let mut pod = json!({
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container(installation)],
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()},
        }],
    });
    if !installation.image_pull_secrets.is_empty() {
        let secrets: Vec<Value> = installation.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
        pod["imagePullSecrets"] = json!(secrets);
    }
    pod
}

fn container(installation: &Installation) -> Value {
    let from_pod = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, delay_s: u32, period_s: u32| json!({"httpGet": {"path": path, "port": "health"}, "initialDelaySeconds": delay_s, "periodSeconds": period_s});
    json!({
        "name": "operator",
        "image": installation.image,
        "args": arguments(installation),
        "env": [from_pod("POD_NAME", "metadata.name"), from_pod("POD_NAMESPACE", "metadata.namespace")],
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": probe("/healthz", 15, 20),
        "readinessProbe": probe("/readyz", 5, 10),
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"cpu": "500m", "memory": "128Mi"},
        },
        "securityContext": {
            "runAsUser": USER,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    })
}

/// Arguments of `trellis operator run`, the entry point of the image.
fn arguments(installation: &Installation) -> Vec<String> {
    let policy = &installation.pod_policy;
    let usual = [
        "--leader-elect".to_owned(),
        format!("--metrics-address=0.0.0.0:{METRICS_PORT}"),
        format!("--health-address=0.0.0.0:{HEALTH_PORT}"),
    ];
    let watched = installation.watched.iter().map(|namespace| format!("--namespace={namespace}"));
    let privileged = policy.allow_privileged.then(|| "--allow-privileged-pods".to_owned());
    let accounts = policy.service_accounts.iter().map(|name| format!("--allow-service-account={name}"));
    usual.into_iter().chain(watched).chain(privileged).chain(accounts).collect()
}

fn disruption_budget(installation: &Installation) -> Value {
    let made = object("policy/v1", "PodDisruptionBudget", Some(&installation.namespace), NAME);
    with(made, "spec", json!({"maxUnavailable": 1, "selector": {"matchLabels": selector()}})).into()
}

/// Admits scrapes from namespaces with a label. The operator accepts no other connections.
fn network_policy(installation: &Installation) -> Value {
    let made = object("networking.k8s.io/v1", "NetworkPolicy", Some(&installation.namespace), NAME);
    let collectors = json!({"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}});
    let spec = json!({
        "podSelector": {"matchLabels": selector()},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [collectors], "ports": [{"port": "metrics", "protocol": "TCP"}]}],
    });
    with(made, "spec", spec).into()
}

fn service_monitor(installation: &Installation) -> Value {
    let made = object("monitoring.coreos.com/v1", "ServiceMonitor", Some(&installation.namespace), NAME);
    // The namespace of a sample is that of the federation, not of the operator.
    let endpoint = json!({"port": "metrics", "path": "/metrics", "honorLabels": true});
    with(made, "spec", json!({"selector": {"matchLabels": selector()}, "endpoints": [endpoint]})).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(installation: &Installation) -> Vec<String> {
        let named = |object: &Object| format!("{} {}", object.identity().kind, object.identity().name);
        objects(installation).iter().map(named).collect()
    }

    #[test]
    fn an_operator_for_the_whole_cluster_has_a_cluster_role() {
        let expected = [
            "Namespace trellis-system",
            "ServiceAccount trellis-operator",
            "ClusterRole trellis-operator",
            "ClusterRoleBinding trellis-operator",
            "Role trellis-operator-own",
            "RoleBinding trellis-operator-own",
            "Service trellis-operator-metrics",
            "Deployment trellis-operator",
        ];
        assert_eq!(kinds(&Installation::default()), expected);
    }

    /// P5
    #[test]
    fn an_operator_for_some_namespaces_has_nothing_outside_of_them() {
        let watched = vec!["blue".to_owned(), "green".to_owned()];
        let objects = objects(&Installation { watched, ..Installation::default() });
        assert!(objects.iter().all(|object| !object.identity().kind.starts_with("ClusterRole")));
        let roles: Vec<_> = objects.iter().filter(|object| object.identity().kind == "Role").collect();
        let places: Vec<_> = roles.iter().map(|role| role.0["metadata"]["namespace"].as_str().unwrap()).collect();
        assert_eq!(places, ["blue", "green", "trellis-system"]);
        let secrets = roles.iter().filter(|role| role.0["rules"].to_string().contains("secrets")).count();
        assert_eq!(secrets, 2, "secrets of its own namespace are none of its business");
        let deployment = objects.iter().find(|object| object.identity().kind == "Deployment").unwrap();
        let args = &deployment.0["spec"]["template"]["spec"]["containers"][0]["args"];
        assert_eq!(args.as_array().unwrap()[3..], [json!("--namespace=blue"), json!("--namespace=green")]);
    }

    #[test]
    fn what_is_asked_for_is_there() {
        let all = Installation {
            namespace: "flower".to_owned(),
            image: "example.org/trellis-operator:1".to_owned(),
            image_pull_secrets: vec!["pull".to_owned()],
            replicas: 2,
            service_monitor: true,
            network_policy: true,
            people: true,
            ..Installation::default()
        };
        let usual = kinds(&Installation { namespace: "flower".to_owned(), ..Installation::default() });
        let mut added = kinds(&all);
        added.retain(|kind| !usual.contains(kind));
        let expected = [
            "ClusterRole trellis-operator-federation-admin",
            "ClusterRole trellis-operator-federation-editor",
            "ClusterRole trellis-operator-federation-viewer",
            "PodDisruptionBudget trellis-operator",
            "NetworkPolicy trellis-operator",
            "ServiceMonitor trellis-operator",
        ];
        assert_eq!(added, expected);
        let deployment = objects(&all).into_iter().find(|object| object.identity().kind == "Deployment").unwrap().0;
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(deployment["spec"]["replicas"], 2);
        assert_eq!(pod["containers"][0]["image"], "example.org/trellis-operator:1");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]));
    }

    #[test]
    fn selectors_find_the_pods() {
        let objects = objects(&Installation::default());
        let deployment = &objects.iter().find(|object| object.identity().kind == "Deployment").unwrap().0["spec"];
        let labels = &deployment["template"]["metadata"]["labels"];
        for (name, value) in deployment["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(labels[name], *value);
        }
    }
}
