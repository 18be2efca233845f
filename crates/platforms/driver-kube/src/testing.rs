//! Desired parts for tests.

use std::collections::BTreeMap;

use trellis_plan::conformance::specs;
use trellis_plan::{CoordinatorSpec, Desired, NodeSpec, ResourceId, Spec};
use trellis_spec::{ConfigValue, Endpoints, KubeSite, Resources};

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
        program: Some("1.0.0".to_owned()),
        endpoints: Endpoints { advertise: vec!["fl.example.org".to_owned()], ..Endpoints::default() },
        json_logs: true,
        ..specs::coordinator()
    }
}

pub fn node() -> NodeSpec {
    NodeSpec {
        program: Some("1.0.0".to_owned()),
        resources: Resources { cpu_millis: Some(500), memory_bytes: Some(1 << 30), disk_bytes: None },
        node_config: BTreeMap::from([("partition-id".to_owned(), ConfigValue::Int(0))]),
        json_logs: true,
        ..specs::node("fl.example.org:9092")
    }
}
