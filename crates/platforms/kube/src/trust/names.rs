//! Names and addresses of a SuperLink, which its certificate must contain.

use serde_json::Value;
use trellis_pki::{Certificate, Endpoint};

use crate::federation::Federation;
use trellis_diagnostic::Diagnostic;

/// Default domain of clusters. Other domains are given by `extraNames`.
const CLUSTER_DOMAIN: &str = "cluster.local";
const PLACE: &str = "spec.security.tls.extraNames";

/// Addresses of the Service of a SuperLink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedService {
    /// ClusterIP, NodePort, LoadBalancer.
    pub kind: String,
    pub cluster_ips: Vec<String>,
    pub external_ips: Vec<String>,
    /// Addresses and names of load balancers.
    pub ingress: Vec<String>,
    /// Name, port, and node port if there is one.
    pub ports: Vec<(String, u16, Option<u16>)>,
}

impl ObservedService {
    /// Parses the resource as the API server returns it.
    pub fn read(service: &Value) -> ObservedService {
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
        };
        let spec = &service["spec"];
        let number = |port: &Value| port.as_u64().and_then(|port| u16::try_from(port).ok());
        let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| {
            let name = port["name"].as_str().unwrap_or_default().to_owned();
            Some((name, number(&port["port"])?, number(&port["nodePort"])))
        });
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
        let hosts = ingress.flat_map(|one| [&one["ip"], &one["hostname"]]).filter_map(Value::as_str);
        ObservedService {
            kind: spec["type"].as_str().unwrap_or_default().to_owned(),
            cluster_ips: texts(&spec["clusterIPs"]).into_iter().filter(|ip| ip != "None").collect(),
            external_ips: texts(&spec["externalIPs"]),
            ingress: hosts.map(str::to_owned).collect(),
            ports: ports.collect(),
        }
    }
}

/// Names that a certificate must contain, and names that a new certificate contains too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub needed: Vec<Endpoint>,
    pub welcome: Vec<Endpoint>,
}

impl Names {
    pub fn of(federation: &Federation, service: Option<&ObservedService>) -> (Names, Vec<Diagnostic>) {
        let (name, namespace) = (federation.superlink_name(), &federation.namespace);
        let mut needed = Vec::new();
        for host in [name.clone(), format!("{name}-0.{name}")] {
            for end in ["", ".svc", &format!(".svc.{CLUSTER_DOMAIN}")] {
                push(&mut needed, Endpoint::Name(format!("{host}.{namespace}{end}")));
            }
        }
        needed.insert(0, Endpoint::Name(name));
        needed.extend(Endpoint::localhost());
        let mut problems = Vec::new();
        for (index, text) in federation.spec.security.tls.extra_names.iter().enumerate() {
            match Endpoint::parse(text) {
                Ok(endpoint) if !endpoint.is_wildcard() => push(&mut needed, endpoint),
                Ok(_) => problems.push(wrong(index, text, "it is an address to listen on, not to connect to")),
                Err(why) => problems.push(wrong(index, text, &why)),
            }
        }
        let service = service.cloned().unwrap_or_default();
        for text in service.ingress.iter().chain(&service.external_ips) {
            // Names of the cluster that no certificate can contain are left out.
            Endpoint::parse(text).into_iter().for_each(|endpoint| push(&mut needed, endpoint));
        }
        let mut welcome = Vec::new();
        for text in &service.cluster_ips {
            let found = Endpoint::parse(text).into_iter().filter(|endpoint| !needed.contains(endpoint));
            found.for_each(|endpoint| push(&mut welcome, endpoint));
        }
        (Names { needed, welcome }, problems)
    }

    /// Names of a new certificate.
    pub fn all(&self) -> Vec<Endpoint> {
        self.needed.iter().chain(&self.welcome).cloned().collect()
    }

    /// Names that a live certificate must contain. If the program must restart for a new certificate, the live one is
    /// kept while it contains all needed names.
    pub fn asked_of(&self, leaf: &Certificate, reloads: bool) -> Vec<Endpoint> {
        let has = |endpoint: &Endpoint| leaf.names.contains(&endpoint.to_string());
        match reloads || !self.needed.iter().all(has) {
            true => self.all(),
            false => leaf.names.iter().filter_map(|name| Endpoint::parse(name).ok()).collect(),
        }
    }

    /// Names that a certificate of the user must contain: the Service, and `extraNames`.
    pub fn asked_of_given(federation: &Federation) -> Vec<Endpoint> {
        let extra = federation.spec.security.tls.extra_names.iter().filter_map(|text| Endpoint::parse(text).ok());
        std::iter::once(Endpoint::Name(federation.superlink_name())).chain(extra).collect()
    }
}

fn push(all: &mut Vec<Endpoint>, endpoint: Endpoint) {
    if !all.contains(&endpoint) {
        all.push(endpoint);
    }
}

fn wrong(index: usize, text: &str, why: &str) -> Diagnostic {
    Diagnostic::error(
        format!("{PLACE}[{index}]"),
        format!("a certificate cannot contain {text:?}: {why}"),
        "give host names and IP addresses that clients use".to_owned(),
    )
}
