//! Desired states and views for tests.

use std::collections::BTreeMap;

use trellis_plan::conformance::specs;
use trellis_plan::{CoordinatorSpec, Desired, NodeSpec, ResourceId, Spec};
use trellis_spec::{ConfigValue, Endpoints, Gpu, GpuVendor, Name, OneImages, OneSite, Resources};

use crate::view::{ContextSecrets, Life, VmView};

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub fn id(text: &str) -> ResourceId {
    ResourceId::try_from(text.to_owned()).expect("an id")
}

pub fn site() -> OneSite {
    OneSite {
        endpoint: "http://one.example.org:2633/RPC2".to_owned(),
        flow: None,
        zone: None,
        auth_file: None,
        allow_plain_http: false,
        network: "private".to_owned(),
        datastore: None,
        images: OneImages::default(),
    }
}

/// Nodes of a pool called `gpu` have one.
pub fn desired(part: &str) -> Desired {
    let id = id(part);
    let spec = match id.node_key() {
        None => Spec::Coordinator(coordinator()),
        Some(key) => Spec::Node(NodeSpec {
            shard: key.index,
            gpu: (key.pool.as_str() == "gpu").then_some(Gpu {
                vendor: GpuVendor::Nvidia,
                count: 1,
                memory_fraction: Some(0.5),
                fallback_to_cpu: false,
            }),
            ..node()
        }),
    };
    Desired::new(id, spec)
}

pub fn coordinator() -> CoordinatorSpec {
    CoordinatorSpec {
        endpoints: Endpoints { advertise: vec!["fl.example.org".to_owned()], ..Endpoints::default() },
        metrics: true,
        json_logs: true,
        ..specs::coordinator()
    }
}

pub fn node() -> NodeSpec {
    NodeSpec {
        resources: Resources { cpu_millis: Some(1500), memory_bytes: Some(4 << 30), disk_bytes: None },
        node_config: BTreeMap::from([("partition-id".to_owned(), ConfigValue::Int(0))]),
        json_logs: true,
        ..specs::node("10.0.0.4:9092")
    }
}

pub fn vm(id: u32, attributes: &[(&str, &str)]) -> VmView {
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    VmView {
        id,
        life: Life::Running,
        state: "RUNNING".to_owned(),
        error: None,
        attributes: attributes.collect(),
        addresses: vec![format!("10.0.0.{id}")],
        secrets: ContextSecrets::default(),
    }
}
