//! Minimal federations for tests.
#![allow(dead_code)]

pub mod random;

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::ControlFlow;
use std::time::Duration;

use trellis_plan::{Call, Controller, Host, NodeKey, Reconciled};
use trellis_spec::{
    Coordinator, Endpoints, Federation, Isolation, Link, Monitoring, Name, OneImages, OneSite, Persistence, Pool,
    Resources, Runtime, Security, Site, SiteConfig, Tls, Training, Upgrade, WireGuardLink,
};

/// A host with fixed drivers that forwards every result, and ends the loop if the federation was deleted.
pub struct FixedHost<F>(pub F);

impl<F: FnMut(&Reconciled) + Send> Host for FixedHost<F> {
    fn prepare<'a>(&'a mut self, _: &'a mut Controller) -> Call<'a, ControlFlow<()>> {
        Box::pin(ready(ControlFlow::Continue(())))
    }

    fn report<'a>(&'a mut self, result: &'a Reconciled) -> Call<'a, ControlFlow<()>> {
        (self.0)(result);
        let is_deleted = matches!(result, Reconciled::Acted { planned, .. } if planned.status.gone);
        Box::pin(ready(if is_deleted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }))
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|| panic!("`{text}` is not a name"))
}

pub fn key(pool: &str, index: u32) -> NodeKey {
    NodeKey { pool: name(pool), index }
}

pub fn site(text: &str) -> Site {
    let config = SiteConfig::default();
    Site { name: name(text), config, max_nodes: None, link: Link::Direct, idle_timeout: None }
}

pub fn cloud() -> OneSite {
    OneSite {
        endpoint: "https://one.example.org:2633/RPC2".to_owned(),
        flow: None,
        zone: None,
        auth_file: None,
        allow_plain_http: false,
        network: "private".to_owned(),
        datastore: None,
        images: OneImages::default(),
    }
}

pub fn tunnel(network: &str) -> WireGuardLink {
    let networks = vec![network.to_owned()];
    WireGuardLink { endpoint: None, listen_port: 51820, networks, mtu: 1420, keepalive_s: 25, subnet: None }
}

pub fn pool(text: &str, site: usize, count: u32) -> Pool {
    Pool {
        name: name(text),
        site,
        count,
        drained: Default::default(),
        scaling: None,
        image: None,
        framework: None,
        client_app: None,
        isolation: Isolation::Subprocess,
        resources: Resources::default(),
        gpu: None,
        node_config: BTreeMap::new(),
        env: BTreeMap::new(),
        python: None,
        extra_args: Vec::new(),
    }
}

/// A federation without sites and pools.
pub fn federation() -> Federation {
    Federation {
        name: name("demo"),
        runtime: Runtime::Trellis,
        coordinator: Coordinator {
            site: 0,
            image: None,
            endpoints: Endpoints::default(),
            persistence: Persistence::Disk { path: None, size_bytes: None },
            isolation: Isolation::Subprocess,
            resources: Resources::default(),
            env: BTreeMap::new(),
            python: None,
            extra_args: Vec::new(),
        },
        security: Security { tls: Tls::Auto, node_auth: true },
        sites: Vec::new(),
        pools: Vec::new(),
        training: Training::default(),
        monitoring: Monitoring { metrics: true, json_logs: false },
        upgrade: Upgrade { max_unavailable: 1, drain_timeout: Duration::from_secs(300) },
    }
}
