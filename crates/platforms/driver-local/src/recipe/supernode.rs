//! The recipe of a SuperNode, ours or official.

use trellis_flower::launch::{self, Common, Gpus, Limits, NodeConfig, SuperNode, Trust};
use trellis_plan::NodeSpec;
use trellis_spec::{Gpu, GpuVendor};

use super::{PartContext, Probe, Program, Programs, Recipe, node_config};
use crate::ports::serves_apps;

const NODE_CONFIG: &str = "node-config.toml";
/// File with the offset at which the last start begins, and the path of its log.
const LOG_NOTE: &str = "log-from";
/// Writes that file. The log is the standard output of the command.
const NOTE: &str = r#"{ stat -Lc %s /proc/self/fd/3 && readlink /proc/self/fd/3; } 3>&1 >"$0""#;

pub fn recipe(spec: &NodeSpec, context: &PartContext, programs: Programs) -> Recipe {
    let supernode = describe(spec, context, programs);
    let launch = supernode.launch();
    let mut before = programs.provide(&spec.runtime, spec.python.as_deref(), context);
    let mut all = vec![programs.program(&launch, context)];
    let superexec = supernode.superexec(context.app_address());
    all.extend(superexec.map(|superexec| programs.program(&superexec.launch(), context)));
    let probe = match launch.probe {
        launch::Probe::Socket(socket) => Probe::SuperNode { socket },
        _ => {
            let note = context.directory.join(LOG_NOTE);
            before.push(Program::new("/bin/sh").flag("-c", NOTE).arg(&note));
            Probe::FlowerSuperNode { note }
        }
    };
    let version = super::version(&spec.runtime);
    Recipe { files: launch.files, before, programs: all, after: Vec::new(), probe, version }
}

pub fn describe(spec: &NodeSpec, context: &PartContext, programs: Programs) -> SuperNode {
    let common = programs.common(&spec.runtime, spec.isolation, context);
    let common = Common {
        python: spec.python.clone(),
        sandbox: common.sandbox.filter(|_| spec.client_app.is_none()),
        metrics: spec.metrics.then(|| context.reached(context.ports.metrics)),
        json_logs: spec.json_logs,
        keepalive: spec.keepalive,
        env: spec.env.clone(),
        extra_args: spec.extra_args.clone(),
        ..common
    };
    let trust = match (&context.tls, context.trust()) {
        (None, _) => Trust::Plain,
        (Some(_), Some(trust)) => Trust::Authority(trust.to_owned()),
        (Some(_), None) => Trust::Default,
    };
    let limits = &spec.resources;
    // GPUs of AMD are not managed: apps see those of the node.
    let managed = spec.gpu.as_ref().filter(|gpu| gpu.vendor == GpuVendor::Nvidia);
    SuperNode {
        key: context.node_key.clone(),
        apps: serves_apps(spec).then(|| context.app_address().into()),
        name: Some(context.id.part.name().to_owned()),
        state: Some(context.state.clone()),
        client_app: spec.client_app.clone(),
        node_config: Some(NodeConfig::File(context.directory.join(NODE_CONFIG), node_config::toml(&spec.node_config))),
        limits: Limits {
            cpu_millis: limits.cpu_millis,
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
        },
        gpus: gpus(spec.gpu.as_ref(), context),
        gpus_may_be_missing: managed.map(|gpu| gpu.fallback_to_cpu),
        gpu_memory_fraction: managed.and_then(|gpu| gpu.memory_fraction),
        superlink: spec.coordinator.clone(),
        common,
        trust,
        ..SuperNode::default()
    }
}

/// A node without GPUs in the document sees none.
fn gpus(gpu: Option<&Gpu>, context: &PartContext) -> Gpus {
    match gpu {
        None => Gpus::None,
        Some(gpu) if gpu.vendor == GpuVendor::Amd => Gpus::Unmanaged,
        // The GPUs of this machine are unknown, so the node checks their number.
        Some(gpu) if context.gpus.is_empty() => Gpus::Count(gpu.count),
        Some(_) => Gpus::Listed(context.gpus.clone()),
    }
}
