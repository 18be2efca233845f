//! Specs and a place for the tests of recipes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use trellis_plan::conformance::specs;
use trellis_plan::{CoordinatorSpec, NodeSpec, ResourceId};
use trellis_spec::{ConfigValue, Runtime, Tls};

use super::{Place, Ports, Program, ServedFiles, TlsFiles};

pub fn place(part: &str) -> Place {
    let id = ResourceId::try_from(format!("fed/lab/{part}")).expect("an id");
    let directory = PathBuf::from("/h/fed/lab").join(id.part.name());
    Place {
        id,
        program: "/bin/trellis".into(),
        state: directory.join("state"),
        directory,
        shared: "/h/shared".into(),
        models: "/h/models/fed".into(),
        ports: Ports { fleet: 1, control: 2, app: 3, http: 4, health: 5, metrics: 0 },
        listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
        tls: None,
        node_key: None,
        gpus: Vec::new(),
        coordinator_http: None,
    }
}

/// The same with certificates; a node has none of its own.
pub fn with_tls(place: Place) -> Place {
    let served = ServedFiles { certificate: "/h/tls/server.pem".into(), key: "/h/tls/server.key".into() };
    let served = (place.id.part.name() == "coordinator").then_some(served);
    Place { tls: Some(TlsFiles { served, trust: Some("/h/tls/ca.crt".into()) }), ..place }
}

pub fn coordinator(runtime: Runtime) -> CoordinatorSpec {
    CoordinatorSpec { runtime, tls: Tls::Off, ..specs::coordinator() }
}

pub fn node(runtime: Runtime) -> NodeSpec {
    let node_config = BTreeMap::from([("partition-id".to_owned(), ConfigValue::Int(0))]);
    NodeSpec { runtime, node_config, tls: Tls::Off, ..specs::node("127.0.0.1:1") }
}

/// A program as somebody would type it.
pub fn typed(program: &Program) -> String {
    let words = std::iter::once(program.path.as_os_str()).chain(program.args.iter().map(|word| word.as_os_str()));
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
