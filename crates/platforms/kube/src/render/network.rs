//! Network policies, if the resource enables them, and the PodMonitor. Policies restrict incoming connections only, so
//! that DNS and data sources keep working.

use serde_json::{Value, json};
use trellis_flower::changes::FLEET_BY_HTTP;

use super::Scene;
use super::labels;
use super::ports::ServicePort;

pub(super) fn policies(scene: &Scene<'_>) -> Vec<Value> {
    if !scene.federation.spec.security.network_policy.enabled {
        return Vec::new();
    }
    vec![superlink_policy(scene), node_policy(scene)]
}

/// Whether one port serves nodes and users, so that a policy cannot distinguish them.
pub(super) fn one_port_for_all(scene: &Scene<'_>) -> bool {
    scene.programs.superlink.since(FLEET_BY_HTTP)
}

fn policy(
    scene: &Scene<'_>,
    name: &str,
    labels: labels::Labels,
    selector: labels::Labels,
    ingress: Vec<Value>,
) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": scene.metadata(name, labels),
        "spec": {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": ingress},
    })
}

fn superlink_policy(scene: &Scene<'_>) -> Value {
    let federation = scene.federation;
    let ports = scene.service_ports();
    let of = |wanted: &dyn Fn(&ServicePort) -> bool| -> Vec<Value> {
        let mut targets: Vec<u16> = ports.iter().filter(|port| wanted(port)).map(|port| port.target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets.into_iter().map(|target| json!({"protocol": "TCP", "port": target})).collect()
    };
    // The SuperLink serves users on a separate port if it has one. Nodes of other sites dial the fleet port.
    let dialled: Vec<i32> = scene.pools().map(|(_, programs)| scene.dialled(programs.supernode)).collect();
    let mut nodes = json!({"ports": of(&|port| port.name == "fleet" || dialled.contains(&port.port))});
    let sites = &federation.spec.sites;
    // Nodes of a site without networks may be anywhere.
    if sites.iter().all(|site| !site.cidrs.is_empty()) {
        let pods = json!({"podSelector": {"matchLabels": labels::node_labels(&federation.name)}});
        let cidrs = sites.iter().flat_map(|site| &site.cidrs).collect::<std::collections::BTreeSet<_>>();
        let outside = cidrs.into_iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}}));
        nodes["from"] = std::iter::once(pods).chain(outside).collect();
    }
    let mut users = Vec::new();
    if let Some(namespace) = &scene.ground.operator_namespace {
        users.push(json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}));
    }
    users.extend(federation.spec.security.network_policy.clients.iter().cloned());
    let mut ingress = vec![nodes];
    // A rule without peers would admit everybody.
    if !users.is_empty() {
        ingress.push(json!({"from": users, "ports": of(&|port| ["control", "http"].contains(&port.name))}));
    }
    ingress.extend(metrics_rule(scene));
    let selector = labels::superlink_labels(&federation.name);
    policy(scene, &federation.superlink_name(), scene.superlink_labels_shown(), selector, ingress)
}

/// Nodes accept no connections.
fn node_policy(scene: &Scene<'_>) -> Value {
    let name = format!("{}-supernode", scene.federation.name);
    let selector = labels::node_labels(&scene.federation.name);
    policy(scene, &name, scene.node_labels_shown(), selector, metrics_rule(scene).into_iter().collect())
}

/// From all pods of the cluster, because the collector of metrics is unknown.
fn metrics_rule(scene: &Scene<'_>) -> Option<Value> {
    let port = super::launch::METRICS_PORT;
    let rule = json!({"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": port}]});
    scene.federation.spec.monitoring.metrics.then_some(rule)
}

/// A PodMonitor of the Prometheus operator.
pub(super) fn pod_monitor(scene: &Scene<'_>) -> Option<Value> {
    let (federation, monitoring) = (scene.federation, &scene.federation.spec.monitoring);
    if !monitoring.pod_monitor || !monitoring.metrics {
        return None;
    }
    let labels = labels::instance_labels(&federation.name);
    Some(json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": scene.metadata(&federation.name, labels.clone()),
        "spec": {
            "selector": {"matchLabels": labels},
            "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics"}],
            "podTargetLabels": ["app.kubernetes.io/instance", "app.kubernetes.io/component", "flower.flwr.ai/pool"],
        },
    }))
}
