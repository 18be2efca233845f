//! Random federations of every shape that a document can have.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use trellis_spec::*;

const MAX_NODES: u32 = 100_000;

prop_compose! {
    pub fn federation()(
        name in name(),
        runtime in runtime(),
        sites in vec((config(), of(0..=MAX_NODES)), 1..4),
        security in security(),
        parts in (training(), any::<bool>(), any::<bool>(), 1..=MAX_NODES, duration()),
        links in (any::<bool>(), of(of(tunnel())), vec(of((10u64..3600).prop_map(Duration::from_secs)), 3)),
    )(
        coordinator in coordinator(sites.clone()),
        pools in vec(pool(sites.clone()), 1..4),
        (name, runtime, sites, security, parts, links) in Just((name, runtime, sites, security, parts, links)),
    ) -> Federation {
        let (mut training, metrics, json_logs, max_unavailable, drain_timeout) = parts;
        let most = |pool: &Pool| pool.scaling.as_ref().map_or(pool.count, |scaling| scaling.max);
        let most: u32 = pools.iter().map(most).sum();
        training.partitions = training.partitions.map(|more| (more + most).clamp(1, MAX_NODES));
        let (is_linked, hub, idle) = links;
        let site = |(index, (config, max_nodes))| {
            let link = Link::Direct;
            Site { name: numbered("site", index), config, max_nodes, link, idle_timeout: idle[index] }
        };
        let named = |(index, pool)| Pool { name: numbered("pool", index), ..pool };
        let mut federation = Federation {
            name,
            runtime,
            coordinator,
            security,
            sites: sites.into_iter().enumerate().map(site).collect(),
            pools: pools.into_iter().enumerate().map(named).collect(),
            training,
            monitoring: Monitoring { metrics, json_logs },
            upgrade: Upgrade { max_unavailable, drain_timeout },
        };
        if let Some(hub) = hub.filter(|_| is_linked) {
            join(&mut federation, hub);
        }
        let_reach(&mut federation);
        federation
    }
}

/// Links sites by tunnels, if they support gateways.
fn join(federation: &mut Federation, spoke: Option<WireGuardLink>) {
    let hub = federation.coordinator.site;
    if !federation.sites[hub].config.traits().makes_gateways {
        return;
    }
    for (index, site) in federation.sites.iter_mut().enumerate() {
        let network = |part: u32| format!("10.{index}.{part}.0/24");
        let plain = WireGuardLink {
            endpoint: Some("[fe80::1]:51820".to_owned()),
            listen_port: 1,
            networks: Vec::new(),
            mtu: 9000,
            keepalive_s: 0,
            subnet: Some("fd66::/64".to_owned()),
        };
        let link = match (&spoke, index == hub) {
            (_, true) => plain,
            (Some(spoke), false) => spoke.clone(),
            (None, false) => WireGuardLink { subnet: None, endpoint: None, ..plain },
        };
        if site.config.traits().makes_gateways {
            site.link = Link::WireGuard(WireGuardLink { networks: vec![network(0), network(9)], ..link });
        }
    }
}

/// Sites elsewhere need a reachable, encrypted coordinator.
fn let_reach(federation: &mut Federation) {
    let hub = federation.coordinator.site;
    let local = |site: usize| federation.sites[site].config.traits().on_this_machine;
    let far = |pool: &&Pool| pool.site != hub && !(local(pool.site) && local(hub));
    let direct = |pool: &Pool| federation.sites[pool.site].link == Link::Direct;
    if federation.pools.iter().filter(far).any(direct) {
        let advertise = &mut federation.coordinator.endpoints.advertise;
        if advertise.is_empty() {
            advertise.push("link.example.org".to_owned());
        }
        if federation.security.tls == Tls::Off {
            federation.security.tls = Tls::Auto;
        }
    }
}

fn tunnel() -> impl Strategy<Value = WireGuardLink> {
    let endpoint = of("[a-z0-9]{1,9}(\\.[a-z]{2,5}){0,2}:[1-9][0-9]{0,3}");
    (endpoint, 1u16.., 1280u16..=9000, any::<u16>()).prop_map(|(endpoint, listen_port, mtu, keepalive_s)| {
        WireGuardLink { endpoint, listen_port, networks: Vec::new(), mtu, keepalive_s, subnet: None }
    })
}

fn numbered(word: &str, index: usize) -> Name {
    Name::new(&format!("{word}-{index}")).unwrap()
}

fn name() -> impl Strategy<Value = Name> {
    "[a-z]([a-z0-9-]{0,38}[a-z0-9])?".prop_map(|text| Name::new(&text).unwrap())
}

fn runtime() -> impl Strategy<Value = Runtime> {
    let flower = (25u16..=42, 0u16..=9).prop_map(|(minor, patch)| Runtime::Flower(Release { minor, patch }));
    prop_oneof![Just(Runtime::Trellis), flower]
}

fn config() -> impl Strategy<Value = SiteConfig> {
    let containers = select(vec![Containers::No, Containers::Podman, Containers::Docker]);
    prop_oneof![
        containers.prop_map(|containers| SiteConfig::from(LocalSite { containers })),
        one_site().prop_map(SiteConfig::from),
        kube_site().prop_map(SiteConfig::from),
    ]
}

fn kube_site() -> impl Strategy<Value = KubeSite> {
    let id = || "[!-~][ -~é☃]*";
    let dns = || "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
    let labels = || btree_map("([a-z]{1,8}\\.io/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?", "[ -~é]{0,10}", 0..3);
    let exposure = select(vec![Exposure::Cluster, Exposure::NodePort, Exposure::LoadBalancer]);
    let images = (of(id()), of(id())).prop_map(|(superlink, supernode)| KubeImages { superlink, supernode });
    let reached = (of(path()), of(id()), dns(), exposure, labels());
    (reached, of(id()), images, vec(dns(), 0..3), labels()).prop_map(
        |(reached, storage_class, images, image_pull_secrets, node_selector)| {
            let (kubeconfig, context, namespace, exposure, service_annotations) = reached;
            KubeSite {
                kubeconfig,
                context,
                namespace,
                exposure,
                service_annotations,
                storage_class,
                images,
                image_pull_secrets,
                node_selector,
            }
        },
    )
}

fn one_site() -> impl Strategy<Value = OneSite> {
    let url = || "https?://[a-z0-9.:]{1,20}(/[!-~]{0,20})?";
    let id = || "[ -~é]{0,10}[!-~]";
    let images = (of(id()), of(id())).prop_map(|(superlink, supernode)| OneImages { superlink, supernode });
    (url(), of(url()), of(id()), (of(path()), any::<bool>()), id(), of(id()), images).prop_map(
        |(endpoint, flow, zone, (auth_file, allow_plain_http), network, datastore, images)| OneSite {
            endpoint,
            flow,
            zone,
            auth_file,
            allow_plain_http,
            network,
            datastore,
            images,
        },
    )
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

/// Text with placeholders and escaped braces.
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

type Sites = Vec<(SiteConfig, Option<u32>)>;

/// A site, and the fields that its driver supports: an image or an interpreter.
fn place(sites: Sites) -> impl Strategy<Value = (usize, Option<String>, Option<PathBuf>)> {
    (0..sites.len(), of("[a-z0-9./:@-]{1,30}"), of(path())).prop_map(move |(site, image, python)| {
        match sites[site].0.traits().starts_processes() {
            true => (site, None, python),
            false => (site, image, None),
        }
    })
}

fn coordinator(sites: Sites) -> impl Strategy<Value = Coordinator> {
    let port = || of((1u16..=10_000).prop_map(|port| port));
    let ports = (port(), port(), port(), port()).prop_map(|(fleet, control, app, http)| {
        // Disjoint ranges, so that no two ports are the same.
        let port = |port: Option<u16>, base: u16| port.map(|port| NonZeroU16::new(port + base).unwrap());
        (port(fleet, 0), port(control, 10_000), port(app, 20_000), port(http, 30_000))
    });
    let hosts =
        vec(prop_oneof!["[a-z]{1,9}(-[a-z0-9]{1,5}){0,2}(\\.[a-z]{2,5}){0,2}", Just("fe80::1".to_owned())], 0..3);
    let disk = (of(path()), of(1u64..1 << 40));
    let disk = disk.prop_map(|(path, size_bytes)| Persistence::Disk { path, size_bytes });
    let persistence = prop_oneof![Just(Persistence::Memory), disk];
    let rest = (isolation(), resources(), env(), vec(text(), 0..3));
    (place(sites.clone()), ports, hosts, persistence, rest).prop_map(
        move |((site, image, python), ports, advertise, persistence, rest)| {
            let (fleet, control, app, http) = ports;
            let (isolation, mut resources, env, extra_args) = rest;
            let (env, extra_args) = fit_program(env, extra_args, &sites[site].0);
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
    let numbers = (0u32..=1000, btree_set(0u32..=1000, 0..3), of(scaling()));
    (place(sites.clone()), numbers, what, rest).prop_map(
        move |((site, image, python), (count, drained, scaling), what, rest)| {
            let (framework, client_app, isolation, resources, gpu) = what;
            let (node_config, env, extra_args) = rest;
            let (env, extra_args) = fit_program(env, extra_args, &sites[site].0);
            let starts_images = !sites[site].0.traits().starts_processes();
            let framework = framework.filter(|_| starts_images && image.is_none());
            let is_one = sites[site].0.traits().runs_scaling_rules;
            let scaling = scaling.map(|scaling| fit_rules(scaling, is_one));
            let count = scaling.as_ref().map_or(count, |scaling: &Scaling| count.clamp(scaling.min, scaling.max));
            let name = Name::new("pool").unwrap();
            Pool {
                name,
                site,
                count,
                drained,
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

/// Appliances support neither.
fn fit_program(
    env: BTreeMap<String, String>,
    extra_args: Vec<String>,
    site: &SiteConfig,
) -> (BTreeMap<String, String>, Vec<String>) {
    if site.traits().starts_appliances { (BTreeMap::new(), Vec::new()) } else { (env, extra_args) }
}

fn gpu() -> impl Strategy<Value = Gpu> {
    let fraction = of(prop_oneof![Just(1.0), 1e-9f64..1.0]);
    (select(vec![GpuVendor::Nvidia, GpuVendor::Amd]), 1u32..=64, fraction, any::<bool>()).prop_map(
        |(vendor, count, memory_fraction, fallback_to_cpu)| Gpu { vendor, count, memory_fraction, fallback_to_cpu },
    )
}

/// Rules require the policy `Manual`, those on metrics OpenNebula, and OneFlow at least one machine.
fn fit_rules(mut scaling: Scaling, is_one: bool) -> Scaling {
    let keeps = |rule: &SiteRule| is_one || matches!(rule, SiteRule::Schedule { .. });
    scaling.rules.retain(keeps);
    if scaling.policy != ScalingPolicy::Manual {
        scaling.rules.clear();
    }
    if is_one && !scaling.rules.is_empty() {
        scaling.min = scaling.min.max(1);
    }
    scaling
}

fn rule() -> impl Strategy<Value = SiteRule> {
    let sign = |number: i32| prop_oneof![1..=number, -number..=-1];
    let change = prop_oneof![
        sign(100_000).prop_map(Change::By),
        sign(1000).prop_map(Change::Percent),
        (0u32..=100_000).prop_map(Change::To),
    ];
    let when = select(vec!["CPU > 80", "!(A = 1) & b<>-2.5", "(CPU > 1) || MEMORY < 2 || C >= D"]);
    let seconds = || 0u32..=30 * 86400;
    let metric = (when, seconds(), 1u32..=1000, change, of(seconds()));
    let metric = metric.prop_map(|(when, period_s, periods, change, cooldown_s)| {
        let when = Expression::parse(when).unwrap();
        SiteRule::Metric(MetricRule { when, period_s, periods, change, cooldown_s })
    });
    let at = select(vec!["0 9 * * mon-fri", "*/7 0-5 1,2,31 */2 *", "* * * * *"]);
    let schedule = (at, 0u32..=100_000);
    let schedule = schedule.prop_map(|(at, count)| SiteRule::Schedule { at: Schedule::parse(at).unwrap(), count });
    prop_oneof![metric, schedule]
}

fn scaling() -> impl Strategy<Value = Scaling> {
    let policy = prop_oneof![
        Just(ScalingPolicy::Manual),
        Just(ScalingPolicy::Waiting),
        (1u32..1000).prop_map(|nodes| ScalingPolicy::PerRun { nodes }),
        duration().prop_map(|after| ScalingPolicy::Idle { after }),
        duration().prop_map(|longest| ScalingPolicy::RoundTime { longest }),
    ];
    (0u32..1000, 1u32..1000, policy, duration(), vec(rule(), 0..4))
        .prop_map(|(a, b, policy, cooldown, rules)| Scaling { min: a.min(b), max: a.max(b), policy, cooldown, rules })
}
