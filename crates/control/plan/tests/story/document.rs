//! Commands of a story that change the document.

use std::time::Duration;

use trellis_spec::{
    Change, ConfigTemplate, Expression, Federation, Gpu, GpuVendor, Link, MetricRule, Persistence, Pool, Release,
    Runtime, Scaling, ScalingPolicy, Schedule, SiteRule,
};

use crate::given;

pub fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

/// `30s`, `5m`.
pub fn millis(text: &str) -> u64 {
    let (count, unit) = text.split_at(text.len() - 1);
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        _ => panic!("`{text}` is not a duration: want 30s or 5m"),
    };
    u64::from(number(count)) * unit_ms
}

fn duration(text: &str) -> Duration {
    Duration::from_millis(millis(text))
}

/// `key=value`, or `key` alone.
pub fn setting(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, ""))
}

pub fn change(federation: &mut Federation, words: &[&str]) {
    match *words {
        ["site", site, ref settings @ ..] => change_site(federation, site, settings),
        ["coordinator", ref settings @ ..] => change_coordinator(federation, settings),
        ["runtime", "trellis"] => federation.runtime = Runtime::Trellis,
        ["runtime", "flower", version] => federation.runtime = Runtime::Flower(flower(version)),
        ["partitions", partitions] => federation.training.partitions = Some(number(partitions)),
        ["max-unavailable", most] => federation.upgrade.max_unavailable = number(most),
        ["drain-timeout", time] => federation.upgrade.drain_timeout = duration(time),
        ["pool", pool, ref settings @ ..] => change_pool(federation, pool, settings),
        ["rename-pool", from, to] => pool_of(federation, from).name = given::name(to),
        ["remove-pool", pool] => federation.pools.retain(|other| other.name.as_str() != pool),
        ref other => panic!("a story has no word `{}`", other.join(" ")),
    }
}

fn flower(version: &str) -> Release {
    let numbers: Vec<u16> = version.split('.').map(|number| number.parse().expect("a version")).collect();
    Release { minor: numbers[1], patch: numbers[2] }
}

fn site_index(federation: &Federation, site: &str) -> usize {
    let found = federation.sites.iter().position(|other| other.name.as_str() == site);
    found.unwrap_or_else(|| panic!("there is no site `{site}`"))
}

fn change_site(federation: &mut Federation, site: &str, settings: &[&str]) {
    if !federation.sites.iter().any(|other| other.name.as_str() == site) {
        federation.sites.push(given::site(site));
    }
    let index = site_index(federation, site);
    for setting in settings {
        match self::setting(setting) {
            ("max-nodes", most) => federation.sites[index].max_nodes = Some(number(most)),
            ("idle-timeout", time) => federation.sites[index].idle_timeout = Some(duration(time)),
            ("opennebula", "") => federation.sites[index].config = given::cloud().into(),
            ("wireguard", network) => federation.sites[index].link = Link::WireGuard(given::tunnel(network)),
            ("gateway", endpoint) => match &mut federation.sites[index].link {
                Link::WireGuard(link) => link.endpoint = Some(endpoint.to_owned()),
                Link::Direct => panic!("wireguard comes first"),
            },
            (other, _) => panic!("a site has no `{other}`"),
        }
    }
}

fn change_coordinator(federation: &mut Federation, settings: &[&str]) {
    for setting in settings {
        match self::setting(setting) {
            ("site", site) => federation.coordinator.site = site_index(federation, site),
            ("image", image) => federation.coordinator.image = Some(image.to_owned()),
            ("persistence", "memory") => federation.coordinator.persistence = Persistence::Memory,
            ("advertise", host) => federation.coordinator.endpoints.advertise = vec![host.to_owned()],
            (other, _) => panic!("a coordinator has no `{other}`"),
        }
    }
}

fn pool_of<'a>(federation: &'a mut Federation, pool: &str) -> &'a mut Pool {
    let found = federation.pools.iter_mut().find(|other| other.name.as_str() == pool);
    found.unwrap_or_else(|| panic!("there is no pool `{pool}`"))
}

fn change_pool(federation: &mut Federation, name: &str, settings: &[&str]) {
    if !federation.pools.iter().any(|other| other.name.as_str() == name) {
        federation.pools.push(given::pool(name, 0, 0));
    }
    for setting in settings {
        let (word, value) = self::setting(setting);
        if word == "site" {
            let site = site_index(federation, value);
            pool_of(federation, name).site = site;
        } else {
            set(pool_of(federation, name), word, value);
        }
    }
}

fn set(pool: &mut Pool, word: &str, value: &str) {
    let (policy, cooldown, rules) = (ScalingPolicy::Manual, Duration::ZERO, Vec::new());
    let scaling = Scaling { min: 0, max: 100, policy, cooldown, rules };
    let gpu = Gpu { vendor: GpuVendor::Nvidia, count: 1, memory_fraction: None, fallback_to_cpu: false };
    match word {
        "count" => pool.count = number(value),
        "drained" => pool.drained = value.split(',').filter(|one| !one.is_empty()).map(number).collect(),
        "image" => pool.image = Some(value.to_owned()),
        "env" => drop(pool.env.insert("SETTING".to_owned(), value.to_owned())),
        "gpu" => pool.gpu.get_or_insert(gpu).count = number(value),
        "fallback" => pool.gpu.get_or_insert(gpu).fallback_to_cpu = true,
        "config" => {
            let (key, value) = value.split_once(':').expect("config=key:value");
            pool.node_config.insert(key.to_owned(), ConfigTemplate::Text(value.to_owned()));
        }
        "min" => pool.scaling.get_or_insert(scaling).min = number(value),
        "max" => pool.scaling.get_or_insert(scaling).max = number(value),
        "per-run" => pool.scaling.get_or_insert(scaling).policy = ScalingPolicy::PerRun { nodes: number(value) },
        "idle" => pool.scaling.get_or_insert(scaling).policy = ScalingPolicy::Idle { after: duration(value) },
        "longest-round" => {
            pool.scaling.get_or_insert(scaling).policy = ScalingPolicy::RoundTime { longest: duration(value) };
        }
        "waiting" => pool.scaling.get_or_insert(scaling).policy = ScalingPolicy::Waiting,
        "rule" => {
            let (when, change) = value.split_once(':').expect("rule=CPU>80:1");
            let when = Expression::parse(when).expect("a condition");
            let change = Change::By(change.parse().expect("a number"));
            let rule = MetricRule { when, period_s: 60, periods: 3, change, cooldown_s: None };
            pool.scaling.get_or_insert(scaling).rules.push(SiteRule::Metric(rule));
        }
        "schedule" => {
            // Blanks separate the words of a story.
            let (at, count) = value.split_once(':').expect("schedule=0_9_*_*_*:4");
            let at = Schedule::parse(&at.replace('_', " ")).expect("a schedule");
            pool.scaling.get_or_insert(scaling).rules.push(SiteRule::Schedule { at, count: number(count) });
        }
        "cooldown" => pool.scaling.get_or_insert(scaling).cooldown = duration(value),
        other => panic!("a pool has no `{other}`"),
    }
}
