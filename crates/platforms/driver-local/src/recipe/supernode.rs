//! The recipe of a SuperNode, ours or official.

use trellis_flower::launch::{self, Common, Gpus, Limits, NodeConfig, SuperNode, Trust};
use trellis_plan::NodeSpec;
use trellis_spec::{Gpu, GpuVendor};

use super::{Place, Probe, Program, Programs, Recipe, node_config};
use crate::ports::serves_apps;

const NODE_CONFIG: &str = "node-config.toml";
/// Names the log file of the last start and the position at which that start begins.
const LOG_NOTE: &str = "log-from";
/// The log is where this writes to.
const NOTE: &str = r#"{ stat -Lc %s /proc/self/fd/3 && readlink /proc/self/fd/3; } 3>&1 >"$0""#;

pub fn recipe(spec: &NodeSpec, place: &Place, programs: Programs) -> Recipe {
    let supernode = describe(spec, place, programs);
    let launch = supernode.launch();
    let mut before = programs.provide(&spec.runtime, spec.python.as_deref(), place);
    let mut all = vec![programs.program(&launch, place)];
    let superexec = supernode.superexec(place.app_address());
    all.extend(superexec.map(|superexec| programs.program(&superexec.launch(), place)));
    let probe = match launch.probe {
        launch::Probe::Socket(socket) => Probe::SuperNode { socket },
        _ => {
            let note = place.directory.join(LOG_NOTE);
            before.push(Program::new("/bin/sh").flag("-c", NOTE).arg(&note));
            Probe::FlowerSuperNode { note }
        }
    };
    let version = super::version(&spec.runtime);
    Recipe { files: launch.files, before, programs: all, after: Vec::new(), probe, version }
}

pub fn describe(spec: &NodeSpec, place: &Place, programs: Programs) -> SuperNode {
    let common = programs.common(&spec.runtime, spec.isolation, place);
    let common = Common {
        python: spec.python.clone(),
        sandbox: common.sandbox.filter(|_| spec.client_app.is_none()),
        metrics: spec.metrics.then(|| place.reached(place.ports.metrics)),
        json_logs: spec.json_logs,
        keepalive: spec.keepalive,
        env: spec.env.clone(),
        extra_args: spec.extra_args.clone(),
        ..common
    };
    let trust = match (&place.tls, place.trust()) {
        (None, _) => Trust::Plain,
        (Some(_), Some(trust)) => Trust::Authority(trust.to_owned()),
        (Some(_), None) => Trust::Default,
    };
    let limits = &spec.resources;
    // AMD's are not managed: apps see what the node sees.
    let managed = spec.gpu.as_ref().filter(|gpu| gpu.vendor == GpuVendor::Nvidia);
    SuperNode {
        key: place.node_key.clone(),
        apps: serves_apps(spec).then(|| place.app_address().into()),
        name: Some(place.id.part.name().to_owned()),
        state: Some(place.state.clone()),
        client_app: spec.client_app.clone(),
        node_config: Some(NodeConfig::File(place.directory.join(NODE_CONFIG), node_config::toml(&spec.node_config))),
        limits: Limits {
            cpu_millis: limits.cpu_millis,
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
        },
        gpus: gpus(spec.gpu.as_ref(), place),
        gpus_may_be_missing: managed.map(|gpu| gpu.fallback_to_cpu),
        gpu_memory_fraction: managed.and_then(|gpu| gpu.memory_fraction),
        superlink: spec.coordinator.clone(),
        common,
        trust,
        ..SuperNode::default()
    }
}

/// A node that did not ask for GPUs has none, as everywhere else.
fn gpus(gpu: Option<&Gpu>, place: &Place) -> Gpus {
    match gpu {
        None => Gpus::None,
        Some(gpu) if gpu.vendor == GpuVendor::Amd => Gpus::Unmanaged,
        // Which there are is not known here: the node finds out.
        Some(gpu) if place.gpus.is_empty() => Gpus::Count(gpu.count),
        Some(_) => Gpus::Listed(place.gpus.clone()),
    }
}
