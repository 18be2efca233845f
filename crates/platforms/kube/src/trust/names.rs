//! By which names and addresses a SuperLink is called, and so must have in its certificate.

use trellis_pki::{Certificate, Endpoint};

use crate::federation::Federation;
use crate::render::Problem;

/// What clusters call themselves unless told otherwise. Another one is given by `extraNames`.
const CLUSTER_DOMAIN: &str = "cluster.local";
const PLACE: &str = "spec.security.tls.extraNames";

/// The Service of a SuperLink, as far as it says where it is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceSeen {
    /// ClusterIP, NodePort, LoadBalancer.
    pub kind: String,
    pub cluster_ips: Vec<String>,
    pub external_ips: Vec<String>,
    /// Of load balancers: addresses and names.
    pub ingress: Vec<String>,
    /// Name, port, and the port of each machine of the cluster where there is one.
    pub ports: Vec<(String, u16, Option<u16>)>,
}

/// The names that a certificate must have, and those that it gets when it is made anyway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub needed: Vec<Endpoint>,
    pub welcome: Vec<Endpoint>,
}

impl Names {
    pub fn of(federation: &Federation, service: Option<&ServiceSeen>) -> (Names, Vec<Problem>) {
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
                Ok(_) => problems.push(wrong(index, text, "it means to listen everywhere; nobody connects to that")),
                Err(why) => problems.push(wrong(index, text, &why)),
            }
        }
        let service = service.cloned().unwrap_or_default();
        for text in service.ingress.iter().chain(&service.external_ips) {
            // What the cluster says is not ours to judge: a name that no certificate can have is left out.
            Endpoint::parse(text).into_iter().for_each(|endpoint| push(&mut needed, endpoint));
        }
        let mut welcome = Vec::new();
        for text in &service.cluster_ips {
            let found = Endpoint::parse(text).into_iter().filter(|endpoint| !needed.contains(endpoint));
            found.for_each(|endpoint| push(&mut welcome, endpoint));
        }
        (Names { needed, welcome }, problems)
    }

    /// What a certificate made now has.
    pub fn all(&self) -> Vec<Endpoint> {
        self.needed.iter().chain(&self.welcome).cloned().collect()
    }

    /// What is asked of a certificate that is there. One for a program that must be started again for a new one is good as
    /// long as nothing that is needed is missing: what it has and nobody needs any more goes when it ends.
    pub fn asked_of(&self, leaf: &Certificate, reloads: bool) -> Vec<Endpoint> {
        let has = |endpoint: &Endpoint| leaf.names.contains(&endpoint.to_string());
        match reloads || !self.needed.iter().all(has) {
            true => self.all(),
            false => leaf.names.iter().filter_map(|name| Endpoint::parse(name).ok()).collect(),
        }
    }

    /// Where nodes of the cluster find it, and what was asked for beside: a certificate that somebody brings must have these.
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

fn wrong(index: usize, text: &str, why: &str) -> Problem {
    Problem {
        place: format!("{PLACE}[{index}]"),
        what: format!("{text:?} cannot be in a certificate: {why}"),
        to_do: "give host names and IP addresses that clients use".to_owned(),
    }
}
