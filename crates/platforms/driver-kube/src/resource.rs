//! Converts one part of a plan to the Federation resource that [`trellis_kube`] renders: a federation with this part alone. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trellis_flower::Image;
use trellis_kube::federation as kube;
use trellis_kube::render::{Durability, Ground, LaunchSettings, Trust, literal};
use trellis_kube::trust::{admin_name, bundle_name, server_name};
use trellis_plan::{CoordinatorSpec, Desired, NodeSpec, Spec};
use trellis_spec::{Exposure, Gpu, GpuVendor, Isolation, KubeSite, Persistence, Resources, Runtime, Tls};

use crate::names::ObjectNames;

const NO_TUNNEL: &str = "pods have no gateway for a tunnel (to do: remove link.wireguard from Kubernetes sites, and set \
                         endpoints.advertise to an address that pods reach)";
const NO_PYTHON: &str = "a pod uses the Python of its image (to do: remove python, and set an image that has it)";

/// Input of the rendering beside the desired state.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    pub site: &'a KubeSite,
    /// The coordinator's state is in a volume claim.
    pub claim: bool,
    /// `host:port` of the coordinator, for nodes.
    pub coordinator: Option<String>,
    /// Revisions of certificates. Pods whose programs do not reload certificates restart when these change.
    pub trust: Option<Trust>,
}

/// The resource and what its objects depend on beside it, or all problems.
pub fn resource(desired: &Desired, context: &Context<'_>) -> Result<(kube::Federation, Ground), Vec<String>> {
    let names = ObjectNames::of(&desired.id);
    let problems = problems(&desired.spec, context.site);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (spec, launch) = match &desired.spec {
        Spec::Coordinator(spec) => (superlink(spec, context), superlink_settings(spec)),
        Spec::Node(spec) => (supernode(spec, context.site, &names), supernode_settings(desired, spec, context)),
    };
    let federation = kube::Federation {
        name: names.federation.clone(),
        namespace: context.site.namespace.clone(),
        uid: String::new(),
        generation: 0,
        deleted: false,
        annotations: BTreeMap::new(),
        spec,
    };
    let trust = context.trust.clone().or_else(|| trust_names(&desired.spec, &federation, &names));
    let ground = Ground {
        durability: if context.claim { Durability::Claim } else { Durability::Pod },
        trust,
        launch,
        ..Ground::default()
    };
    Ok((federation, ground))
}

/// The Secrets that pods of a part mount. Revisions are empty.
pub fn trust_names(spec: &Spec, federation: &kube::Federation, names: &ObjectNames) -> Option<Trust> {
    match spec {
        Spec::Coordinator(spec) => (spec.tls != Tls::Off).then(|| Trust {
            server_secret: server_name(federation),
            authority_secret: bundle_name(federation),
            admin_secret: (spec.runtime == Runtime::Trellis).then(|| admin_name(federation)),
            ..Trust::default()
        }),
        Spec::Node(spec) => (spec.tls != Tls::Off).then(|| {
            let keys = names.pool.iter().filter(|_| spec.node_auth).map(|pool| (pool.clone(), names.node_secret()));
            Trust { authority_secret: names.node_secret(), node_keys: keys.collect(), ..Trust::default() }
        }),
    }
}

fn problems(spec: &Spec, site: &KubeSite) -> Vec<String> {
    let (tunnel, python) = match spec {
        Spec::Coordinator(spec) => (spec.tunnel.is_some(), spec.python.is_some()),
        Spec::Node(spec) => (spec.tunnel.is_some(), spec.python.is_some()),
    };
    let mut problems = Vec::new();
    problems.extend(tunnel.then(|| NO_TUNNEL.to_owned()));
    problems.extend(python.then(|| NO_PYTHON.to_owned()));
    if let Spec::Node(NodeSpec { framework: Some(_), image: None, .. }) = spec
        && site.images.supernode.is_none()
    {
        // There is no image name for each framework that could be a default.
        let advice = "set the image of the pool, or kubernetes.images.supernode of the site";
        problems.push(format!("no image with the framework is configured (to do: {advice})"));
    }
    problems
}

fn superlink(spec: &CoordinatorSpec, context: &Context<'_>) -> kube::Spec {
    let site = context.site;
    let image =
        image(&spec.runtime, spec.image.as_deref(), site.images.superlink.as_deref(), &spec.program, "superlink");
    let port = |port: Option<std::num::NonZeroU16>| port.map(|port| i32::from(port.get()));
    let endpoints = &spec.endpoints;
    let ports = kube::Ports {
        grpc: port(endpoints.fleet),
        server_app_io: port(endpoints.app),
        extra: port(endpoints.control),
        http: port(endpoints.http),
    };
    let superlink = kube::SuperLink {
        superexec_image: superexec(&spec.runtime, spec.isolation, &image),
        image,
        resources: resources(&spec.resources),
        env: env(&spec.env),
        extra_args: spec.extra_args.iter().map(|argument| literal(argument)).collect(),
        pod_template: pod_template(site),
        service: Some(kube::Service {
            kind: Some(service_type(site.exposure).to_owned()),
            ports: Some(ports),
            labels: BTreeMap::new(),
            annotations: site.service_annotations.clone(),
        }),
        ..kube::SuperLink::default()
    };
    let supernodes = kube::SuperNodes { image: superlink.image.clone(), ..kube::SuperNodes::default() };
    let size = match &spec.persistence {
        Persistence::Disk { size_bytes, .. } => size_bytes.map(|bytes| bytes.to_string()),
        Persistence::Memory => None,
    };
    let tls = kube::Tls {
        mode: (spec.tls == Tls::Auto).then_some(kube::TlsMode::Auto),
        extra_names: endpoints.advertise.clone(),
        ..kube::Tls::default()
    };
    let mut spec = Settings::of_coordinator(spec).spec(superlink, supernodes);
    spec.security.tls = tls;
    spec.persistence = kube::Persistence {
        enabled: Some(context.claim),
        size,
        storage_class_name: site.storage_class.clone(),
        when_deleted: Some(kube::Retention::Delete),
        when_scaled: None,
    };
    spec
}

fn superlink_settings(spec: &CoordinatorSpec) -> LaunchSettings {
    let has_names = spec.runtime == Runtime::Trellis && spec.tls != Tls::Off;
    LaunchSettings {
        keepalive: spec.keepalive,
        endpoints: if has_names { spec.endpoints.advertise.clone() } else { Vec::new() },
        ..LaunchSettings::default()
    }
}

fn supernode(spec: &NodeSpec, site: &KubeSite, names: &ObjectNames) -> kube::Spec {
    let given = site.images.supernode.as_deref();
    let image = image(&spec.runtime, spec.image.as_deref(), given, &spec.program, "supernode");
    let superexec = superexec(&spec.runtime, spec.isolation, &image);
    let pool = kube::Pool {
        name: names.pool.clone().unwrap_or_default(),
        replicas: Some(1),
        images: kube::Images { supernode: None, superexec_client_app: superexec.clone() },
        gpu: spec.gpu.as_ref().map(gpu),
        supernode_resources: resources(&spec.resources),
        pod_template: pod_template(site),
        extra_args: spec.extra_args.iter().map(|argument| literal(argument)).collect(),
        env: env(&spec.env),
        ..kube::Pool::default()
    };
    let superlink = kube::SuperLink { superexec_image: superexec, image: image.clone(), ..kube::SuperLink::default() };
    Settings::of_node(spec).spec(superlink, kube::SuperNodes { image, env: Vec::new(), pools: vec![pool] })
}

fn supernode_settings(desired: &Desired, spec: &NodeSpec, context: &Context<'_>) -> LaunchSettings {
    LaunchSettings {
        keepalive: spec.keepalive,
        superlink: context.coordinator.clone(),
        node_name: Some(desired.id.part.name()),
        client_app: spec.client_app.clone(),
        gpu_memory_fraction: spec.gpu.as_ref().and_then(|gpu| gpu.memory_fraction),
        node_config: spec.node_config.clone(),
        ..LaunchSettings::default()
    }
}

/// The fields that the specs of coordinators and nodes share.
struct Settings<'s> {
    runtime: &'s Runtime,
    isolation: Isolation,
    tls: bool,
    node_auth: bool,
    monitoring: kube::Monitoring,
}

impl<'s> Settings<'s> {
    fn of_coordinator(spec: &'s CoordinatorSpec) -> Settings<'s> {
        let monitoring =
            kube::Monitoring { metrics: spec.metrics, json_logs: spec.json_logs, ..kube::Monitoring::default() };
        let (tls, node_auth) = (spec.tls != Tls::Off, spec.node_auth);
        Settings { runtime: &spec.runtime, isolation: spec.isolation, tls, node_auth, monitoring }
    }

    fn of_node(spec: &'s NodeSpec) -> Settings<'s> {
        let monitoring =
            kube::Monitoring { metrics: spec.metrics, json_logs: spec.json_logs, ..kube::Monitoring::default() };
        let (tls, node_auth) = (spec.tls != Tls::Off, spec.node_auth);
        Settings { runtime: &spec.runtime, isolation: spec.isolation, tls, node_auth, monitoring }
    }

    fn spec(self, superlink: kube::SuperLink, supernodes: kube::SuperNodes) -> kube::Spec {
        let (runtime, version) = match self.runtime {
            Runtime::Trellis => (kube::Runtime::Trellis, None),
            Runtime::Flower(version) => (kube::Runtime::Flower, Some(version.to_string())),
        };
        kube::Spec {
            mode: kube::Mode::StatefulSet,
            isolation_mode: self.isolation,
            version,
            insecure: Some(!self.tls),
            superlink,
            supernodes,
            runtime: Some(runtime),
            security: kube::Security { node_auth: self.node_auth, ..kube::Security::default() },
            persistence: kube::Persistence::default(),
            scaling: None,
            monitoring: self.monitoring,
            upgrade: kube::Upgrade::default(),
            sites: Vec::new(),
        }
    }
}

/// The image of the part, else that of the site, else the published name.
fn image(runtime: &Runtime, own: Option<&str>, site: Option<&str>, program: &Option<String>, role: &str) -> String {
    match (own.or(site), runtime) {
        (Some(image), _) => image.to_owned(),
        (None, Runtime::Flower(version)) => Image::published(role, version),
        (None, Runtime::Trellis) => {
            format!("trellis-{role}:{}", program.as_deref().unwrap_or(env!("CARGO_PKG_VERSION")))
        }
    }
}

fn superexec(runtime: &Runtime, isolation: Isolation, image: &str) -> Option<String> {
    (isolation == Isolation::Process).then(|| match runtime {
        Runtime::Flower(version) => Image::published("superexec", version),
        Runtime::Trellis => image.to_owned(),
    })
}

pub fn service_type(exposure: Exposure) -> &'static str {
    match exposure {
        Exposure::Cluster => "ClusterIP",
        Exposure::NodePort => "NodePort",
        Exposure::LoadBalancer => "LoadBalancer",
    }
}

/// Requests equal limits, because apps share their machine with others.
fn resources(desired: &Resources) -> Option<Value> {
    let cpu = desired.cpu_millis.map(|millis| ("cpu", format!("{millis}m")));
    let memory = desired.memory_bytes.map(|bytes| ("memory", bytes.to_string()));
    let disk = desired.disk_bytes.map(|bytes| ("ephemeral-storage", bytes.to_string()));
    let all: BTreeMap<&str, String> = [cpu, memory, disk].into_iter().flatten().collect();
    (!all.is_empty()).then(|| json!({ "requests": all, "limits": all }))
}

fn gpu(gpu: &Gpu) -> kube::Gpu {
    kube::Gpu {
        enabled: Some(true),
        vendor: Some(match gpu.vendor {
            GpuVendor::Nvidia => kube::Vendor::Nvidia,
            GpuVendor::Amd => kube::Vendor::Amd,
        }),
        count: i32::try_from(gpu.count).ok(),
        ..kube::Gpu::default()
    }
}

fn env(variables: &BTreeMap<String, String>) -> Vec<Value> {
    variables.iter().map(|(name, value)| json!({ "name": name, "value": literal(value) })).collect()
}

fn pod_template(site: &KubeSite) -> Option<Value> {
    let mut spec = serde_json::Map::new();
    if !site.node_selector.is_empty() {
        spec.insert("nodeSelector".to_owned(), json!(site.node_selector));
    }
    if !site.image_pull_secrets.is_empty() {
        let secrets = site.image_pull_secrets.iter().map(|name| json!({ "name": name }));
        spec.insert("imagePullSecrets".to_owned(), secrets.collect());
    }
    (!spec.is_empty()).then(|| json!({ "spec": spec }))
}
