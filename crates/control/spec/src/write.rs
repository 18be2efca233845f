//! The canonical form of a federation: all fields including defaults, in a fixed order. Reading it gives the same federation.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::amount::{show_bytes, show_cpu, show_duration};
use crate::document::{
    API_VERSION, FRAMEWORKS, ISOLATIONS, KIND, MEDIA, Medium, Mode, POLICIES, PolicyKind, TLS_MODES, VENDORS,
    show_change,
};
use crate::federation::{
    Change, ConfigTemplate, Coordinator, Endpoints, Federation, Gpu, Link, Persistence, Pool, Resources, Scaling,
    ScalingPolicy, Security, Site, SiteRule, Tls, WireGuardLink,
};
use crate::kind::choice_name;
use crate::yaml::{Map, Out, emit};

/// As YAML. Fields without a value are omitted.
pub fn to_yaml(federation: &Federation) -> String {
    let sites = &federation.sites;
    let spec = Map::new()
        .put("runtime", federation.runtime.to_string())
        .put("sites", Out::list(sites, site))
        .put("coordinator", coordinator(&federation.coordinator, sites))
        .put("pools", Out::list(&federation.pools, |each| pool(each, sites)))
        .put("security", security(&federation.security))
        .put("training", training(federation))
        .put("monitoring", monitoring(federation))
        .put("upgrade", upgrade(federation));
    let document = Map::new()
        .put("apiVersion", API_VERSION)
        .put("kind", KIND)
        .put("metadata", Map::new().put("name", federation.name.as_str()))
        .put("spec", spec);
    emit(document)
}

fn site(site: &Site) -> Out {
    let map = Map::new().put("name", site.name.as_str()).maybe("maxNodes", site.max_nodes);
    map.put(site.config.kind(), site.config.write()).maybe("link", link(site)).into()
}

/// `None` if the link has only defaults.
fn link(site: &Site) -> Option<Map> {
    let idle = site.idle_timeout.map(|idle| Out::Amount(show_duration(idle)));
    match &site.link {
        Link::Direct => idle.map(|idle| Map::new().put("idleTimeout", idle)),
        Link::WireGuard(tunnel) => Some(Map::new().put("wireguard", wireguard(tunnel)).maybe("idleTimeout", idle)),
    }
}

fn wireguard(tunnel: &WireGuardLink) -> Map {
    let keepalive = std::time::Duration::from_secs(tunnel.keepalive_s.into());
    Map::new()
        .maybe("endpoint", tunnel.endpoint.as_deref())
        .put("listenPort", u32::from(tunnel.listen_port))
        .put("networks", show_texts(&tunnel.networks))
        .put("mtu", u32::from(tunnel.mtu))
        .put("keepalive", Out::Amount(show_duration(keepalive)))
        .maybe("subnet", tunnel.subnet.as_deref())
}

fn coordinator(coordinator: &Coordinator, sites: &[Site]) -> Map {
    Map::new()
        .put("site", sites[coordinator.site].name.as_str())
        .maybe("image", coordinator.image.as_deref())
        .put("endpoints", endpoints(&coordinator.endpoints))
        .put("persistence", persistence(&coordinator.persistence))
        .put("isolation", choice_name(&ISOLATIONS, &coordinator.isolation))
        .put("resources", resources(&coordinator.resources))
        .put("env", show_variables(&coordinator.env))
        .maybe("python", coordinator.python.as_deref().map(show_path))
        .put("extraArgs", show_texts(&coordinator.extra_args))
}

fn endpoints(endpoints: &Endpoints) -> Map {
    let number = |port: Option<std::num::NonZeroU16>| port.map(|port| u32::from(port.get()));
    Map::new()
        .maybe("fleet", number(endpoints.fleet))
        .maybe("control", number(endpoints.control))
        .maybe("app", number(endpoints.app))
        .maybe("http", number(endpoints.http))
        .put("advertise", show_texts(&endpoints.advertise))
}

fn persistence(persistence: &Persistence) -> Map {
    let medium = |medium| Map::new().put("medium", choice_name(&MEDIA, &medium));
    match persistence {
        Persistence::Memory => medium(Medium::Memory),
        Persistence::Disk { path: directory, size_bytes } => medium(Medium::Disk)
            .maybe("path", directory.as_deref().map(show_path))
            .maybe("size", size_bytes.map(|bytes| Out::Amount(show_bytes(bytes)))),
    }
}

fn pool(pool: &Pool, sites: &[Site]) -> Out {
    Map::new()
        .put("name", pool.name.as_str())
        .put("site", sites[pool.site].name.as_str())
        .put("count", pool.count)
        .maybe("drained", drained(pool))
        .maybe("scaling", pool.scaling.as_ref().map(scaling))
        .maybe("image", pool.image.as_deref())
        .maybe("framework", pool.framework.map(|framework| choice_name(&FRAMEWORKS, &framework)))
        .maybe("clientApp", pool.client_app.as_deref())
        .put("isolation", choice_name(&ISOLATIONS, &pool.isolation))
        .put("resources", resources(&pool.resources))
        .maybe("gpu", pool.gpu.as_ref().map(gpu))
        .put("nodeConfig", config(&pool.node_config))
        .put("env", show_variables(&pool.env))
        .maybe("python", pool.python.as_deref().map(show_path))
        .put("extraArgs", show_texts(&pool.extra_args))
        .into()
}

fn scaling(scaling: &Scaling) -> Map {
    let map = Map::new().put("min", scaling.min).put("max", scaling.max);
    let policy = |map: Map, kind| map.put("policy", choice_name(&POLICIES, &kind));
    let map = match scaling.policy {
        ScalingPolicy::Manual => policy(map, PolicyKind::Manual),
        ScalingPolicy::PerRun { nodes } => policy(map, PolicyKind::PerRun).put("nodesPerRun", nodes),
        ScalingPolicy::Idle { after } => {
            policy(map, PolicyKind::Idle).put("idleAfter", Out::Amount(show_duration(after)))
        }
        ScalingPolicy::RoundTime { longest } => {
            policy(map, PolicyKind::RoundTime).put("longestRound", Out::Amount(show_duration(longest)))
        }
        ScalingPolicy::Waiting => policy(map, PolicyKind::Waiting),
    };
    let map = map.put("cooldown", Out::Amount(show_duration(scaling.cooldown)));
    if scaling.rules.is_empty() { map } else { map.put("policies", Out::list(&scaling.rules, rule)) }
}

fn rule(rule: &SiteRule) -> Out {
    let seconds = |seconds: u32| Out::Amount(show_duration(std::time::Duration::from_secs(seconds.into())));
    match rule {
        SiteRule::Schedule { at, count } => Map::new().put("schedule", at.to_string()).put("count", *count).into(),
        SiteRule::Metric(rule) => {
            let count = match rule.change {
                Change::To(count) => Some(count),
                Change::By(_) | Change::Percent(_) => None,
            };
            Map::new()
                .put("when", rule.when.as_str())
                .put("period", seconds(rule.period_s))
                .put("periods", rule.periods)
                .maybe("change", show_change(rule.change))
                .maybe("count", count)
                .maybe("cooldown", rule.cooldown_s.map(seconds))
                .into()
        }
    }
}

fn gpu(gpu: &Gpu) -> Map {
    Map::new()
        .put("vendor", choice_name(&VENDORS, &gpu.vendor))
        .put("count", gpu.count)
        .maybe("memoryFraction", gpu.memory_fraction.map(|share| json!(share)))
        .put("fallbackToCpu", gpu.fallback_to_cpu)
}

fn security(security: &Security) -> Map {
    let mode = |mode| Map::new().put("mode", choice_name(&TLS_MODES, &mode));
    let tls = match &security.tls {
        Tls::Auto => mode(Mode::Auto),
        Tls::Off => mode(Mode::None),
        Tls::Files { certificate, key, trust } => mode(Mode::Files)
            .put("certificate", show_path(certificate))
            .put("key", show_path(key))
            .put("trust", show_path(trust)),
    };
    Map::new().put("tls", tls).put("nodeAuth", security.node_auth)
}

fn training(federation: &Federation) -> Map {
    let training = &federation.training;
    Map::new().maybe("partitions", training.partitions).put("runConfig", config(&training.defaults))
}

fn monitoring(federation: &Federation) -> Map {
    let monitoring = &federation.monitoring;
    Map::new().put("metrics", monitoring.metrics).put("jsonLogs", monitoring.json_logs)
}

fn upgrade(federation: &Federation) -> Map {
    let upgrade = &federation.upgrade;
    Map::new()
        .put("maxUnavailable", upgrade.max_unavailable)
        .put("drainTimeout", Out::Amount(show_duration(upgrade.drain_timeout)))
}

fn resources(resources: &Resources) -> Map {
    Map::new()
        .maybe("cpu", resources.cpu_millis.map(|millis| Out::Amount(show_cpu(millis))))
        .maybe("memory", resources.memory_bytes.map(|bytes| Out::Amount(show_bytes(bytes))))
        .maybe("disk", resources.disk_bytes.map(|bytes| Out::Amount(show_bytes(bytes))))
}

fn config(values: &BTreeMap<String, ConfigTemplate>) -> Map {
    values.iter().fold(Map::new(), |map, (key, value)| match value {
        ConfigTemplate::Bool(on) => map.put(key, *on),
        ConfigTemplate::Int(number) => map.put(key, json!(number)),
        ConfigTemplate::Float(number) => map.put(key, json!(number)),
        ConfigTemplate::Text(text) => map.put(key, text.as_str()),
    })
}

pub(crate) fn show_variables(variables: &BTreeMap<String, String>) -> Map {
    variables.iter().fold(Map::new(), |map, (name, value)| map.put(name, value.as_str()))
}

fn drained(pool: &Pool) -> Option<Out> {
    let numbers = pool.drained.iter().map(|number| (*number).into());
    (!pool.drained.is_empty()).then(|| Out::List(numbers.collect()))
}

pub(crate) fn show_texts(arguments: &[String]) -> Out {
    Out::list(arguments, |argument| argument.as_str().into())
}

/// Only paths that can be read come from documents; others are converted lossily.
pub(crate) fn show_path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
