//! Names of services as lines of a hosts file, and the endpoints of their addresses. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// The API server has no endpoints here: it listens on loopback.
const API_SERVICE: (&str, &str) = ("default", "kubernetes");

pub(super) type Routes = BTreeMap<SocketAddr, Vec<SocketAddr>>;

/// As seen from the namespace: names in other namespaces contain the namespace.
pub(super) fn hosts(namespace: &str, services: &[impl AsRef<Service>], slices: &[impl AsRef<EndpointSlice>]) -> String {
    let mut lines = vec!["127.0.0.1 localhost".to_owned()];
    for service in services.iter().map(AsRef::as_ref) {
        let (of, name) = named(service);
        match cluster_ip(service) {
            Some(address) => lines.push(line(&address.to_string(), name, of, namespace)),
            None => lines.extend(headless(service, slices, namespace)),
        }
    }
    lines.sort();
    lines.dedup();
    lines.join("\n") + "\n"
}

fn headless(service: &Service, slices: &[impl AsRef<EndpointSlice>], namespace: &str) -> Vec<String> {
    let (of, name) = named(service);
    let mut lines = Vec::new();
    for endpoint in slices_of(service, slices).flat_map(|slice| &slice.endpoints).filter(|endpoint| is_ready(endpoint))
    {
        for address in &endpoint.addresses {
            lines.push(line(address, name, of, namespace));
            if let Some(host) = &endpoint.hostname {
                lines.push(line(address, &format!("{host}.{name}"), of, namespace));
            }
        }
    }
    lines
}

fn line(address: &str, name: &str, of: &str, namespace: &str) -> String {
    let short = if of == namespace { format!(" {name}") } else { String::new() };
    format!("{address} {name}.{of}.svc.cluster.local {name}.{of}.svc {name}.{of}{short}")
}

/// Ready endpoints by service address.
pub(super) fn routes(
    services: &[impl AsRef<Service>],
    slices: &[impl AsRef<EndpointSlice>],
    api_server: SocketAddr,
) -> Routes {
    let mut routes = Routes::new();
    for service in services.iter().map(AsRef::as_ref) {
        let Some(address) = cluster_ip(service) else { continue };
        for port in service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()) {
            let Ok(number) = u16::try_from(port.port) else { continue };
            let behind = if named(service) == API_SERVICE {
                vec![api_server]
            } else {
                slices_of(service, slices).flat_map(|slice| backends(slice, port.name.as_deref())).collect()
            };
            routes.insert(SocketAddr::new(address, number), behind);
        }
    }
    routes
}

fn backends(slice: &EndpointSlice, name: Option<&str>) -> Vec<SocketAddr> {
    let is_it = |given: &Option<String>| given.as_deref().unwrap_or_default() == name.unwrap_or_default();
    let port = slice.ports.iter().flatten().find(|port| is_it(&port.name)).and_then(|port| port.port);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let ready = slice.endpoints.iter().filter(|endpoint| is_ready(endpoint));
    let addresses = ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok());
    addresses.map(|address| SocketAddr::new(address, port)).collect()
}

fn slices_of<'a>(
    service: &'a Service,
    slices: &'a [impl AsRef<EndpointSlice>],
) -> impl Iterator<Item = &'a EndpointSlice> {
    slices.iter().map(AsRef::as_ref).filter(|slice| {
        let label = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
        slice.metadata.namespace == service.metadata.namespace && label == service.metadata.name.as_ref()
    })
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

fn cluster_ip(service: &Service) -> Option<IpAddr> {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).and_then(|address| address.parse().ok())
}

fn named(service: &Service) -> (&str, &str) {
    let metadata = &service.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn service(namespace: &str, name: &str, address: &str) -> Arc<Service> {
        let ports = json!([{"name": "fleet", "port": 9192, "targetPort": 9092}]);
        let service = json!({
            "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": address, "ports": ports},
        });
        Arc::new(serde_json::from_value(service).expect("a service"))
    }

    fn slice(namespace: &str, name: &str) -> Arc<EndpointSlice> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": "s", "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "ports": [{"name": "fleet", "port": 9092}],
                "endpoints": [
                    {"addresses": ["10.1.0.1"], "conditions": {"ready": true}, "hostname": "pool-0"},
                    {"addresses": ["10.1.0.2"], "conditions": {"ready": false}, "hostname": "pool-1"},
                ],
            }))
            .expect("a slice"),
        )
    }

    #[test]
    fn a_service_has_its_own_address_and_a_headless_one_those_of_its_ready_pods() {
        let services =
            [service("a", "link", "10.96.0.7"), service("a", "pool", "None"), service("b", "link", "10.96.0.8")];
        let expected = "\
10.1.0.1 pool-0.pool.a.svc.cluster.local pool-0.pool.a.svc pool-0.pool.a pool-0.pool
10.1.0.1 pool.a.svc.cluster.local pool.a.svc pool.a pool
10.96.0.7 link.a.svc.cluster.local link.a.svc link.a link
10.96.0.8 link.b.svc.cluster.local link.b.svc link.b
127.0.0.1 localhost
";
        assert_eq!(hosts("a", &services, &[slice("a", "pool"), slice("b", "link")]), expected);
    }

    #[test]
    fn ports_of_services_lead_to_those_of_pods() {
        let services = [service("a", "link", "10.96.0.7"), service("default", "kubernetes", "10.96.0.1")];
        let api_server = "127.0.0.1:6443".parse().expect("an address");
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let expected = [
            (address("10.96.0.1:9192"), vec![api_server]),
            (address("10.96.0.7:9192"), vec![address("10.1.0.1:9092")]),
        ];
        assert_eq!(routes(&services, &[slice("a", "link"), slice("b", "link")], api_server), expected.into());
    }
}
