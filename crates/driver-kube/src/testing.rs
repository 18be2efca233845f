//! Wishes for tests.

use std::collections::BTreeMap;

use trellis_plan::{CoordinatorSpec, Desired, NodeSpec, ResourceId, Spec};
use trellis_spec::{ConfigValue, Endpoints, Isolation, KubeSite, Persistence, Resources, Runtime, Tls};

pub fn id(text: &str) -> ResourceId {
    ResourceId::try_from(text.to_owned()).expect("an id")
}

pub fn site() -> KubeSite {
    KubeSite::of("federations")
}

pub fn desired(part: &str) -> Desired {
    let id = id(part);
    let spec = match id.node_key() {
        None => Spec::Coordinator(coordinator()),
        Some(key) => Spec::Node(NodeSpec { shard: key.index, ..node() }),
    };
    Desired::new(id, spec)
}

pub fn coordinator() -> CoordinatorSpec {
    CoordinatorSpec {
        runtime: Runtime::Trellis,
        program: Some("1.0.0".to_owned()),
        image: None,
        containers: None,
        endpoints: Endpoints { advertise: vec!["fl.example.org".to_owned()], ..Endpoints::default() },
        persistence: Persistence::Disk { path: None, size_bytes: None },
        isolation: Isolation::Subprocess,
        resources: Resources::default(),
        env: BTreeMap::new(),
        python: None,
        extra_args: Vec::new(),
        tls: Tls::Auto,
        node_auth: false,
        metrics: false,
        json_logs: true,
        tunnel: None,
        keepalive: None,
    }
}

pub fn node() -> NodeSpec {
    NodeSpec {
        runtime: Runtime::Trellis,
        program: Some("1.0.0".to_owned()),
        image: None,
        containers: None,
        framework: None,
        client_app: None,
        isolation: Isolation::Subprocess,
        resources: Resources { cpu_millis: Some(500), memory_bytes: Some(1 << 30), disk_bytes: None },
        gpu: None,
        shard: 0,
        shards: 2,
        node_config: BTreeMap::from([("partition-id".to_owned(), ConfigValue::Int(0))]),
        env: BTreeMap::new(),
        python: None,
        extra_args: Vec::new(),
        coordinator: "fl.example.org:9092".to_owned(),
        tls: Tls::Auto,
        node_auth: false,
        metrics: false,
        json_logs: true,
        tunnel: None,
        keepalive: None,
        rules: None,
    }
}
