//! A part as the resource that `trellis-kube` makes objects of: a federation that has nothing but this part. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trellis_flower::Image;
use trellis_flower::launch::{Argument, Common, Keepalive};
use trellis_kube::federation as kube;
use trellis_kube::render::{Durability, Ground, Trust};
use trellis_plan::{CoordinatorSpec, Desired, NodeSpec, Spec};
use trellis_spec::{ConfigValue, Exposure, Gpu, GpuVendor, Isolation, KubeSite, Persistence, Resources, Runtime, Tls};

use crate::names::Called;

/// What the objects follow from, beside what is wanted.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    pub site: &'a KubeSite,
    /// The coordinator's state has a claim.
    pub claim: bool,
    /// Where the node finds the coordinator.
    pub coordinator: Option<String>,
    /// Changes when certificates did, for programs that do not read them anew.
    pub revision: String,
}

/// All problems, or the resource and what is known beside it.
pub fn resource(desired: &Desired, place: &Place<'_>) -> Result<(kube::Federation, Ground), Vec<String>> {
    let called = Called::of(&desired.id);
    let mut problems = Vec::new();
    let spec = match &desired.spec {
        Spec::Coordinator(spec) => coordinator(spec, place, &mut problems),
        Spec::Node(spec) => node(desired, spec, place, &called, &mut problems),
    };
    if !problems.is_empty() {
        return Err(problems);
    }
    let federation = kube::Federation {
        name: called.federation.clone(),
        namespace: place.site.namespace.clone(),
        uid: String::new(),
        generation: 0,
        deleted: false,
        annotations: BTreeMap::new(),
        spec,
    };
    Ok((federation, ground(desired, place, &called)))
}

fn ground(desired: &Desired, place: &Place<'_>, called: &Called) -> Ground {
    let (tls, node_auth, ours) = match &desired.spec {
        Spec::Coordinator(spec) => (spec.tls != Tls::Off, spec.node_auth, spec.runtime == Runtime::Trellis),
        Spec::Node(spec) => (spec.tls != Tls::Off, spec.node_auth, spec.runtime == Runtime::Trellis),
    };
    let keys = called.pool.iter().filter(|_| node_auth).map(|pool| (pool.clone(), called.secret()));
    let trust = Trust {
        server_secret: called.secret(),
        authority_secret: called.secret(),
        revision: place.revision.clone(),
        bundle_revision: place.revision.clone(),
        node_keys: keys.collect(),
        admin_secret: ours.then(|| crate::names::admin_token(&desired.id.federation)),
    };
    Ground {
        durability: if place.claim { Durability::Claim } else { Durability::Pod },
        trust: tls.then_some(trust),
        sizes: BTreeMap::new(),
        operator_namespace: None,
    }
}

fn coordinator(spec: &CoordinatorSpec, place: &Place<'_>, problems: &mut Vec<String>) -> kube::Spec {
    let site = place.site;
    let image =
        image(&spec.runtime, spec.image.as_deref(), site.images.superlink.as_deref(), &spec.program, "superlink");
    if spec.tunnel.is_some() {
        problems.push(NO_TUNNEL.to_owned());
    }
    if spec.python.is_some() {
        problems.push(NO_PYTHON.to_owned());
    }
    let port = |port: Option<std::num::NonZeroU16>| port.map(|port| i32::from(port.get()));
    let endpoints = &spec.endpoints;
    let ports = kube::Ports {
        grpc: port(endpoints.fleet),
        server_app_io: port(endpoints.app),
        extra: port(endpoints.control),
        http: port(endpoints.http),
    };
    let service = kube::Service {
        kind: Some(exposure(site.exposure).to_owned()),
        ports: Some(ports),
        labels: BTreeMap::new(),
        annotations: site.service_annotations.clone(),
    };
    let superlink = kube::SuperLink {
        superexec_image: superexec(&spec.runtime, spec.isolation, &image),
        image,
        resources: resources(&spec.resources),
        env: env(&spec.env),
        extra_args: literal(
            keepalive(&spec.runtime, spec.keepalive)
                .into_iter()
                .chain(endpoint_names(spec))
                .chain(spec.extra_args.iter().cloned()),
        ),
        pod_template: pod_template(site),
        service: Some(service),
        ..kube::SuperLink::default()
    };
    let supernodes = kube::SuperNodes { image: superlink.image.clone(), ..kube::SuperNodes::default() };
    let size = match &spec.persistence {
        Persistence::Disk { size_bytes, .. } => size_bytes.map(|bytes| bytes.to_string()),
        Persistence::Memory => None,
    };
    kube::Spec {
        persistence: kube::Persistence {
            enabled: Some(place.claim),
            size,
            storage_class_name: site.storage_class.clone(),
            when_deleted: Some(kube::Retention::Delete),
            when_scaled: None,
        },
        ..base(
            &spec.runtime,
            spec.isolation,
            &spec.tls,
            spec.node_auth,
            (spec.metrics, spec.json_logs),
            superlink,
            supernodes,
        )
    }
}

fn node(
    desired: &Desired,
    spec: &NodeSpec,
    place: &Place<'_>,
    called: &Called,
    problems: &mut Vec<String>,
) -> kube::Spec {
    let site = place.site;
    if spec.tunnel.is_some() {
        problems.push(NO_TUNNEL.to_owned());
    }
    if spec.python.is_some() {
        problems.push(NO_PYTHON.to_owned());
    }
    let given = site.images.supernode.as_deref();
    let image = match (given, spec.framework) {
        // Of an image for each framework nobody said the name.
        (None, Some(_)) if spec.image.is_none() => {
            let what = "no image is named that has the framework";
            problems.push(format!(
                "{what} (to do: name one in the pool's image, or in the site's kubernetes.images.supernode)"
            ));
            String::new()
        }
        _ => image(&spec.runtime, spec.image.as_deref(), given, &spec.program, "supernode"),
    };
    let ours = spec.runtime == Runtime::Trellis;
    let way = place.coordinator.iter().map(|address| format!("--superlink={address}"));
    let name = ours.then(|| format!("--name={}", desired.id.part.name()));
    let app = spec.client_app.iter().filter(|_| ours).map(|app| format!("--client-app={app}"));
    let share = spec.gpu.as_ref().and_then(|gpu| gpu.memory_fraction).filter(|_| ours);
    let share = share.map(|share| format!("--gpu-memory-fraction={share}"));
    let args = way.chain(name).chain(app).chain(share);
    let args = args.chain(keepalive(&spec.runtime, spec.keepalive)).chain(spec.extra_args.iter().cloned());
    let settings = (!spec.node_config.is_empty()).then(|| format!("--node-config={}", node_config(&spec.node_config)));
    let pool = kube::Pool {
        name: called.pool.clone().unwrap_or_default(),
        replicas: Some(1),
        images: kube::Images {
            supernode: None,
            superexec_client_app: superexec(&spec.runtime, spec.isolation, &image),
        },
        gpu: spec.gpu.as_ref().map(gpu),
        supernode_resources: resources(&spec.resources),
        pod_template: pod_template(site),
        extra_args: literal(args.chain(settings)),
        env: env(&spec.env),
        ..kube::Pool::default()
    };
    let superlink = kube::SuperLink {
        superexec_image: superexec(&spec.runtime, spec.isolation, &image),
        image: image.clone(),
        ..kube::SuperLink::default()
    };
    let supernodes = kube::SuperNodes { image, env: Vec::new(), pools: vec![pool] };
    base(
        &spec.runtime,
        spec.isolation,
        &spec.tls,
        spec.node_auth,
        (spec.metrics, spec.json_logs),
        superlink,
        supernodes,
    )
}

const NO_TUNNEL: &str = "pods have no gateway for a tunnel (to do: leave link.wireguard out of Kubernetes sites, and let the \
                         coordinator advertise an address that they reach)";
const NO_PYTHON: &str = "a pod has the Python of its image (to do: leave python out, and name an image that has it)";

fn base(
    runtime: &Runtime,
    isolation: Isolation,
    tls: &Tls,
    node_auth: bool,
    (metrics, json_logs): (bool, bool),
    superlink: kube::SuperLink,
    supernodes: kube::SuperNodes,
) -> kube::Spec {
    let (runtime, version) = match runtime {
        Runtime::Trellis => (kube::Runtime::Trellis, None),
        Runtime::Flower(version) => (kube::Runtime::Flower, Some(version.to_string())),
    };
    kube::Spec {
        mode: kube::Mode::StatefulSet,
        isolation_mode: isolation,
        version,
        insecure: Some(*tls == Tls::Off),
        superlink,
        supernodes,
        runtime: Some(runtime),
        security: kube::Security { node_auth, ..kube::Security::default() },
        persistence: kube::Persistence::default(),
        scaling: None,
        monitoring: kube::Monitoring { metrics, json_logs, pod_monitor: false },
        upgrade: kube::Upgrade::default(),
        sites: Vec::new(),
    }
}

/// What the part says, what the site says, or what the program is called.
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

pub fn exposure(exposure: Exposure) -> &'static str {
    match exposure {
        Exposure::Cluster => "ClusterIP",
        Exposure::NodePort => "NodePort",
        Exposure::LoadBalancer => "LoadBalancer",
    }
}

/// What is wanted is also what must not be exceeded: apps share their machine with others.
fn resources(wanted: &Resources) -> Option<Value> {
    let cpu = wanted.cpu_millis.map(|millis| ("cpu", format!("{millis}m")));
    let memory = wanted.memory_bytes.map(|bytes| ("memory", bytes.to_string()));
    let disk = wanted.disk_bytes.map(|bytes| ("ephemeral-storage", bytes.to_string()));
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
    variables.iter().map(|(name, value)| json!({ "name": name, "value": unexpanded(value) })).collect()
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

/// The resource has no field for it.
fn keepalive(runtime: &Runtime, keepalive: Option<Keepalive>) -> Vec<String> {
    let common = Common { keepalive, program: runtime.program(), ..Common::default() };
    common.keepalive().iter().map(Argument::joined).collect()
}

fn endpoint_names(spec: &CoordinatorSpec) -> Vec<String> {
    let ours = spec.runtime == Runtime::Trellis && spec.tls != Tls::Off;
    let names = spec.endpoints.advertise.iter().filter(|_| ours);
    names.map(|name| format!("--endpoint={name}")).collect()
}

/// As they are: Kubernetes would put variables in.
fn literal(args: impl Iterator<Item = String>) -> Vec<String> {
    args.map(|arg| unexpanded(&arg)).collect()
}

fn unexpanded(text: &str) -> String {
    text.replace("$(", "$$(")
}

/// `key=value` pairs, values as TOML writes them.
pub fn node_config(settings: &BTreeMap<String, ConfigValue>) -> String {
    let pairs = settings.iter().map(|(key, value)| match value {
        ConfigValue::Bool(on) => format!("{key}={on}"),
        ConfigValue::Int(number) => format!("{key}={number}"),
        ConfigValue::Float(number) => format!("{key}={number:?}"),
        ConfigValue::Text(text) => format!("{key}={}", quoted(text)),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// Without escapes where that is possible: not every reader of pairs knows them.
fn quoted(text: &str) -> String {
    let has = |letters: &[char]| text.contains(letters) || text.contains(char::is_control);
    match text {
        text if !has(&['"', '\\']) => format!("\"{text}\""),
        text if !has(&['\'']) => format!("'{text}'"),
        text => {
            let escaped = text.chars().map(|letter| match letter {
                '"' | '\\' => format!("\\{letter}"),
                letter if letter.is_control() => format!("\\U{:08X}", u32::from(letter)),
                letter => letter.to_string(),
            });
            format!("\"{}\"", escaped.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_pairs_that_toml_reads_and_kubernetes_leaves_alone() {
        let settings = [
            ("a", ConfigValue::Int(3)),
            ("b", ConfigValue::Float(1.0)),
            ("c", ConfigValue::Bool(true)),
            ("d", ConfigValue::Text("plain {index}".to_owned())),
            ("e", ConfigValue::Text("a \"b\" \\".to_owned())),
            ("f", ConfigValue::Text("it's \"both\"".to_owned())),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value)).into();
        let expected = r#"a=3 b=1.0 c=true d="plain {index}" e='a "b" \' f="it's \"both\"""#;
        assert_eq!(node_config(&settings), expected);
        assert_eq!(unexpanded("$(POD_NAME) $5"), "$$(POD_NAME) $5");
    }
}
