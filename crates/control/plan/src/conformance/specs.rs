//! Minimal specs. Tests change what they need.

use std::collections::BTreeMap;

use trellis_spec::{Endpoints, Isolation, Persistence, Resources, Runtime, Tls};

use crate::resource::{CoordinatorSpec, NodeSpec};

pub fn coordinator() -> CoordinatorSpec {
    CoordinatorSpec {
        runtime: Runtime::Trellis,
        program: None,
        image: None,
        containers: None,
        endpoints: Endpoints::default(),
        persistence: Persistence::Disk { path: None, size_bytes: None },
        isolation: Isolation::Subprocess,
        resources: Resources::default(),
        env: BTreeMap::new(),
        python: None,
        extra_args: Vec::new(),
        tls: Tls::Auto,
        node_auth: false,
        metrics: false,
        json_logs: false,
        tunnel: None,
        keepalive: None,
    }
}

/// The first of two nodes.
pub fn node(coordinator: &str) -> NodeSpec {
    NodeSpec {
        runtime: Runtime::Trellis,
        program: None,
        image: None,
        containers: None,
        framework: None,
        client_app: None,
        isolation: Isolation::Subprocess,
        resources: Resources::default(),
        gpu: None,
        shard: 0,
        shards: 2,
        node_config: BTreeMap::new(),
        env: BTreeMap::new(),
        python: None,
        extra_args: Vec::new(),
        coordinator: coordinator.to_owned(),
        tls: Tls::Auto,
        node_auth: false,
        metrics: false,
        json_logs: false,
        tunnel: None,
        keepalive: None,
        rules: None,
    }
}
