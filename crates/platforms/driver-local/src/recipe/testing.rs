//! Specs and a context for tests of recipes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use trellis_plan::conformance::specs;
use trellis_plan::{CoordinatorSpec, NodeSpec, ResourceId};
use trellis_spec::{ConfigValue, Runtime, Tls};

use super::{PartContext, Ports, Program, ServedFiles, TlsFiles};

pub fn context(part: &str) -> PartContext {
    let id = ResourceId::try_from(format!("fed/lab/{part}")).expect("an id");
    let directory = PathBuf::from("/h/fed/lab").join(id.part.name());
    PartContext {
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

/// With certificates. A node has no certificate of its own.
pub fn with_tls(context: PartContext) -> PartContext {
    let served = ServedFiles { certificate: "/h/tls/server.pem".into(), key: "/h/tls/server.key".into() };
    let served = (context.id.part.name() == "coordinator").then_some(served);
    PartContext { tls: Some(TlsFiles { served, trust: Some("/h/tls/ca.crt".into()) }), ..context }
}

pub fn coordinator(runtime: Runtime) -> CoordinatorSpec {
    CoordinatorSpec { runtime, tls: Tls::Off, ..specs::coordinator() }
}

pub fn node(runtime: Runtime) -> NodeSpec {
    let node_config = BTreeMap::from([("partition-id".to_owned(), ConfigValue::Int(0))]);
    NodeSpec { runtime, node_config, tls: Tls::Off, ..specs::node("127.0.0.1:1") }
}

/// A program as a command line.
pub fn typed(program: &Program) -> String {
    let words = std::iter::once(program.path.as_os_str()).chain(program.args.iter().map(|word| word.as_os_str()));
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
