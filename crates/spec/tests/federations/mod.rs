//! Federations of every shape that a document can have.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use trellis_spec::*;

const MAX_NODES: u32 = 100_000;

prop_compose! {
    pub fn federation()(
        name in name(),
        runtime in runtime(),
        sites in vec((driver(), of(0..=MAX_NODES)), 1..4),
        security in security(),
        parts in (training(), any::<bool>(), any::<bool>(), 1..=MAX_NODES, duration()),
    )(
        coordinator in coordinator(sites.clone()),
        pools in vec(pool(sites.clone()), 1..4),
        (name, runtime, sites, security, parts) in Just((name, runtime, sites, security, parts)),
    ) -> Federation {
        let (mut training, metrics, json_logs, max_unavailable, drain_timeout) = parts;
        let most = |pool: &Pool| pool.scaling.as_ref().map_or(pool.count, |scaling| scaling.max);
        let most: u32 = pools.iter().map(most).sum();
        training.partitions = training.partitions.map(|more| (more + most).clamp(1, MAX_NODES));
        let site = |(index, (driver, max_nodes))| Site { name: numbered("site", index), driver, max_nodes, link: Link::Direct };
        let named = |(index, pool)| Pool { name: numbered("pool", index), ..pool };
        Federation {
            name,
            runtime,
            coordinator,
            security,
            sites: sites.into_iter().enumerate().map(site).collect(),
            pools: pools.into_iter().enumerate().map(named).collect(),
            training,
            monitoring: Monitoring { metrics, json_logs },
            upgrade: Upgrade { max_unavailable, drain_timeout },
        }
    }
}

fn numbered(word: &str, index: usize) -> Name {
    Name::new(&format!("{word}-{index}")).unwrap()
}

fn name() -> impl Strategy<Value = Name> {
    "[a-z]([a-z0-9-]{0,38}[a-z0-9])?".prop_map(|text| Name::new(&text).unwrap())
}

fn runtime() -> impl Strategy<Value = Runtime> {
    let flower = (25u16..=42, 0u16..=9).prop_map(|(minor, patch)| Runtime::Flower(FlowerVersion { minor, patch }));
    prop_oneof![Just(Runtime::Trellis), flower]
}

fn driver() -> impl Strategy<Value = Driver> {
    let containers = select(vec![Containers::No, Containers::Podman, Containers::Docker]);
    prop_oneof![
        containers.prop_map(|containers| Driver::Local { containers }),
        ("https?://[a-z0-9.:]{1,20}(/[!-~]{0,20})?", of("[ -~]*[!-~]")).prop_map(|(endpoint, zone)| {
            let (network, images) = (String::new(), OneImages::default());
            let (flow, auth_file, datastore) = (None, None, None);
            Driver::OpenNebula(OneSite { endpoint, flow, zone, auth_file, network, datastore, images })
        }),
        (of("[!-~][ -~é☃]*"), "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
            .prop_map(|(context, namespace)| Driver::Kubernetes { context, namespace }),
    ]
}

fn security() -> impl Strategy<Value = Security> {
    let files = (path(), path(), path()).prop_map(|(certificate, key, trust)| Tls::Files { certificate, key, trust });
    let tls = prop_oneof![Just(Tls::Auto), Just(Tls::Off), files];
    (tls, any::<bool>()).prop_map(|(tls, node_auth)| Security { node_auth: node_auth && tls != Tls::Off, tls })
}

fn training() -> impl Strategy<Value = Training> {
    let value = prop_oneof![
        any_number(),
        any::<String>().prop_filter("NUL", |text| !text.contains('\0')).prop_map(ConfigTemplate::Text)
    ];
    (btree_map("app(\\.[A-Za-z0-9_-]{1,8}){1,2}", value, 0..4), of(0u32..10))
        .prop_map(|(defaults, partitions)| Training { defaults, partitions })
}

fn any_number() -> impl Strategy<Value = ConfigTemplate> {
    prop_oneof![
        any::<bool>().prop_map(ConfigTemplate::Bool),
        any::<i64>().prop_map(ConfigTemplate::Int),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(ConfigTemplate::Float),
    ]
}

/// Text with placeholders, in which every other brace is doubled.
fn template() -> impl Strategy<Value = ConfigTemplate> {
    let text = any::<String>().prop_map(|text| text.replace('\0', "").replace('{', "{{").replace('}', "}}"));
    let placeholder = select(vec!["{index}", "{replicas}", "{pool}", "{site}", "{node}"]).prop_map(str::to_owned);
    let texts = vec(prop_oneof![text, placeholder], 0..4).prop_map(|parts| ConfigTemplate::Text(parts.concat()));
    let tricky = select(vec![
        "",
        "true",
        "no",
        "~",
        "null",
        "007",
        "1e3",
        ".inf",
        "- a",
        "a: b",
        "#",
        " x ",
        "{{.Index}}",
        "=",
        "<<",
    ]);
    prop_oneof![any_number(), texts, tricky.prop_map(|text| ConfigTemplate::Text(text.to_owned()))]
}

fn path() -> impl Strategy<Value = PathBuf> {
    "[!-~][ -~ü]{0,20}".prop_map(PathBuf::from)
}

/// Whole seconds, up to 30 days.
fn duration() -> impl Strategy<Value = Duration> {
    (0u64..=30 * 86400).prop_map(Duration::from_secs)
}

fn env() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[A-Za-z_][A-Za-z0-9_]{0,10}", text(), 0..3)
}

fn text() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| text.replace('\0', ""))
}

fn isolation() -> impl Strategy<Value = Isolation> {
    select(vec![Isolation::Subprocess, Isolation::Process])
}

fn resources() -> impl Strategy<Value = Resources> {
    let sizes = || of(prop_oneof![1u64..1 << 40, (1u64..4096).prop_map(|mib| mib << 20)]);
    (of(1u32..=1_000_000), sizes(), sizes()).prop_map(|(cpu_millis, memory_bytes, disk_bytes)| Resources {
        cpu_millis,
        memory_bytes,
        disk_bytes,
    })
}

type Sites = Vec<(Driver, Option<u32>)>;

/// A site, and what its driver can use: an image, or else an interpreter.
fn place(sites: Sites) -> impl Strategy<Value = (usize, Option<String>, Option<PathBuf>)> {
    (0..sites.len(), of("[a-z0-9./:@-]{1,30}"), of(path())).prop_map(move |(site, image, python)| {
        match sites[site].0 == (Driver::Local { containers: Containers::No }) {
            true => (site, None, python),
            false => (site, image, None),
        }
    })
}

fn coordinator(sites: Sites) -> impl Strategy<Value = Coordinator> {
    let port = || of((1u16..=10_000).prop_map(|port| port));
    let ports = (port(), port(), port(), port()).prop_map(|(fleet, control, app, http)| {
        // Each from a range of its own, so that no two are the same.
        let port = |port: Option<u16>, base: u16| port.map(|port| NonZeroU16::new(port + base).unwrap());
        (port(fleet, 0), port(control, 10_000), port(app, 20_000), port(http, 30_000))
    });
    let hosts =
        vec(prop_oneof!["[a-z]{1,9}(-[a-z0-9]{1,5}){0,2}(\\.[a-z]{2,5}){0,2}", Just("fe80::1".to_owned())], 0..3);
    let disk = (of(path()), of(1u64..1 << 40));
    let disk = disk.prop_map(|(path, size_bytes)| Persistence::Disk { path, size_bytes });
    let persistence = prop_oneof![Just(Persistence::Memory), disk];
    let rest = (isolation(), resources(), env(), vec(text(), 0..3));
    (place(sites), ports, hosts, persistence, rest).prop_map(
        |((site, image, python), ports, advertise, persistence, rest)| {
            let (fleet, control, app, http) = ports;
            let (isolation, mut resources, env, extra_args) = rest;
            if let Persistence::Disk { size_bytes: Some(kept), .. } = persistence {
                resources.disk_bytes = resources.disk_bytes.map(|disk| disk.max(kept));
            }
            let endpoints = Endpoints { fleet, control, app, http, advertise };
            Coordinator { site, image, endpoints, persistence, isolation, resources, env, python, extra_args }
        },
    )
}

fn pool(sites: Sites) -> impl Strategy<Value = Pool> {
    let framework = select(vec![Framework::PyTorch, Framework::TensorFlow, Framework::Sklearn]);
    let what = (of(framework), of("native:[a-z0-9-]{1,10}"), isolation(), resources(), of(gpu()));
    let rest = (btree_map("[A-Za-z0-9_-]{1,8}(\\.[A-Za-z0-9_-]{1,8})?", template(), 0..4), env(), vec(text(), 0..3));
    let numbers = (0u32..=1000, of(scaling()));
    (place(sites.clone()), numbers, what, rest).prop_map(
        move |((site, image, python), (count, scaling), what, rest)| {
            let (framework, client_app, isolation, resources, gpu) = what;
            let (node_config, env, extra_args) = rest;
            let starts_images = sites[site].0 != (Driver::Local { containers: Containers::No });
            let framework = framework.filter(|_| starts_images && image.is_none());
            let count = scaling.as_ref().map_or(count, |scaling: &Scaling| count.clamp(scaling.min, scaling.max));
            let name = Name::new("pool").unwrap();
            Pool {
                name,
                site,
                count,
                scaling,
                image,
                framework,
                client_app,
                isolation,
                resources,
                gpu,
                node_config,
                env,
                python,
                extra_args,
            }
        },
    )
}

fn gpu() -> impl Strategy<Value = Gpu> {
    let fraction = of(prop_oneof![Just(1.0), 1e-9f64..1.0]);
    (select(vec![GpuVendor::Nvidia, GpuVendor::Amd]), 1u32..=64, fraction, any::<bool>()).prop_map(
        |(vendor, count, memory_fraction, fallback_to_cpu)| Gpu { vendor, count, memory_fraction, fallback_to_cpu },
    )
}

fn scaling() -> impl Strategy<Value = Scaling> {
    let policy = prop_oneof![
        Just(ScalingPolicy::Manual),
        (1u32..1000).prop_map(|nodes| ScalingPolicy::PerRun { nodes }),
        duration().prop_map(|after| ScalingPolicy::Idle { after }),
    ];
    (0u32..1000, 1u32..1000, policy, duration()).prop_map(|(a, b, policy, cooldown)| Scaling {
        min: a.min(b),
        max: a.max(b),
        policy,
        cooldown,
    })
}
