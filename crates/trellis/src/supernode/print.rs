//! The effective settings of a SuperNode, by the names of their flags.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::Value;
use trellis_client::Security;
use trellis_node::config::{AppMode, Backoff, Gpus, Spare, TransportChoice, WhenMissing};

use super::check::Checked;
use crate::address::{Address, Host};
use crate::duration;
use crate::settings::print::{self, Row, bytes, path, text, time};
use crate::settings::problem::Source;

/// Flags that say the same as the one that is printed.
const ALIASES: [(&str, &str); 5] = [
    ("clientappio-api-address", "runtime-api-address"),
    ("clientappio-api-address", "host"),
    ("clientappio-api-address", "port"),
    ("cuda-visible-devices", "gpus"),
    ("transport", "grpc-rere"),
];

/// The file's text.
pub fn config_file(checked: &Checked, sources: &BTreeMap<String, Source>) -> String {
    print::config_file(&rows(checked), &ALIASES, sources)
}

/// How many retries, in the words that mean the same whatever the program is called.
pub fn max_retries(limit: Option<u64>) -> String {
    match limit {
        None => "unlimited".to_owned(),
        Some(0) => "never".to_owned(),
        Some(retries) => retries.to_string(),
    }
}

/// How long without a link, in words.
pub fn max_wait(limit: Option<Duration>) -> String {
    match limit {
        None => "unlimited".to_owned(),
        Some(Duration::ZERO) => "never".to_owned(),
        Some(time) if time.subsec_nanos() == 0 => duration::show(time),
        Some(time) => time.as_secs_f64().to_string(),
    }
}

fn rows(checked: &Checked) -> Vec<Row> {
    let groups = [link, retry, identity, apps, warm, sandbox, resources, limits, addresses];
    groups.iter().flat_map(|group| group(checked)).chain(print::log(&checked.log)).collect()
}

fn link(Checked { config, given, .. }: &Checked) -> Vec<Row> {
    let target = &config.superlink;
    let superlink = Host::parse(&target.host).map(|host| Address { host, port: target.port }.to_string());
    let transport = match config.transport {
        TransportChoice::Auto => "auto",
        TransportChoice::Grpc => "grpc",
        TransportChoice::Http => "http",
    };
    vec![
        ("superlink", superlink.ok().map(Value::from)),
        ("insecure", Some(matches!(target.security, Security::Plaintext).into())),
        ("root-certificates", given.root_certificates.as_deref().and_then(path)),
        ("transport", text(transport)),
        ("keepalive-interval", config.keepalive.interval.and_then(time)),
        ("keepalive-timeout", time(config.keepalive.timeout)),
    ]
}

fn retry(Checked { config, .. }: &Checked) -> Vec<Row> {
    let (backoff, first, cap) = match config.retry.backoff {
        Backoff::Exponential { first, cap } => ("exponential", first, Some(cap)),
        Backoff::Fixed(pause) => ("fixed", pause, None),
    };
    vec![
        ("max-retries", text(&max_retries(config.retry.max_retries))),
        ("max-wait-time", text(&max_wait(config.retry.max_wait))),
        ("backoff", text(backoff)),
        ("backoff-first", time(first)),
        ("backoff-max", cap.and_then(time)),
    ]
}

fn identity(Checked { config, given, .. }: &Checked) -> Vec<Row> {
    vec![
        ("state-dir", path(&config.state_dir)),
        ("name", config.name.as_deref().and_then(text)),
        ("auth-supernode-private-key", config.key.as_deref().and_then(path)),
        ("node-config", given.node_config.as_deref().and_then(text)),
        ("trusted-entities", given.trusted_entities.as_deref().and_then(path)),
    ]
}

fn apps(Checked { config, .. }: &Checked) -> Vec<Row> {
    let apps = &config.apps;
    let (isolation, lifecycle, native) = match &apps.mode {
        AppMode::Warm(_) => ("subprocess", Some("warm"), None),
        AppMode::PerMessage => ("subprocess", Some("per-message"), None),
        AppMode::Process => ("process", None, None),
        AppMode::Native { name, settings } => ("subprocess", None, Some((name, settings))),
    };
    let started = lifecycle.is_some();
    let settings = native.map(|(_, settings)| settings).filter(|settings| !settings.is_empty());
    let settings = settings.map(|settings| settings.iter().map(|(key, value)| format!("{key}={value}")));
    vec![
        ("isolation", text(isolation)),
        ("app-lifecycle", lifecycle.and_then(text)),
        ("max-concurrent-apps", Some((apps.max_concurrent as i64).into())),
        ("app-timeout", apps.timeout.and_then(time)),
        ("python", started.then(|| path(&apps.python)).flatten()),
        ("client-app", native.map(|(name, _)| format!("native:{name}").into())),
        ("client-app-setting", settings.map(|settings| settings.collect::<Vec<_>>().into())),
        ("allow-runtime-dependency-installation", Some(apps.allow_dependency_installation.into()).filter(|_| started)),
        ("flwr-dir", apps.flwr_home.as_deref().and_then(path)),
    ]
}

fn warm(Checked { config, .. }: &Checked) -> Vec<Row> {
    let AppMode::Warm(warm) = &config.apps.mode else { return Vec::new() };
    vec![
        ("app-idle-timeout", time(warm.idle)),
        ("app-recycle-memory", warm.recycle_bytes.and_then(bytes)),
        ("max-idle-apps", Some((warm.max_idle as i64).into())),
        ("app-spare", text(if warm.spare == Spare::None { "off" } else { "on" })),
    ]
}

fn sandbox(Checked { config, .. }: &Checked) -> Vec<Row> {
    match config.apps.mode {
        AppMode::Warm(_) | AppMode::PerMessage => {
            let settings = &config.apps.sandbox;
            let network = ("app-network", text(settings.network.word()));
            crate::sandbox::rows(settings).into_iter().chain([network]).collect()
        }
        AppMode::Process | AppMode::Native { .. } => Vec::new(),
    }
}

fn resources(Checked { config, .. }: &Checked) -> Vec<Row> {
    let resources = &config.resources;
    let (gpus, devices) = match &resources.gpus {
        Gpus::Unset => (None, None),
        Gpus::None => (Some("none".to_owned()), None),
        Gpus::All => (Some("all".to_owned()), None),
        Gpus::Count(count) => (Some(count.to_string()), None),
        Gpus::These(devices) => (None, Some(devices.join(","))),
    };
    let missing = match resources.gpu_missing {
        WhenMissing::Warn => "warn",
        WhenMissing::Refuse => "refuse",
    };
    vec![
        ("gpus", gpus.map(Value::from)),
        ("cuda-visible-devices", devices.map(Value::from)),
        ("gpu-missing", text(missing)),
        ("gpu-memory-fraction", resources.gpu_memory_fraction.map(Value::from)),
        ("app-cpus", resources.app_cpus.map(Value::from)),
        ("app-memory", resources.app_memory_bytes.and_then(bytes)),
    ]
}

fn limits(Checked { config, .. }: &Checked) -> Vec<Row> {
    let limits = &config.limits;
    vec![
        ("disk-limit", bytes(limits.disk_bytes)),
        ("bandwidth-limit", limits.bandwidth.and_then(bytes)),
        ("parallel-transfers", Some((limits.parallel_objects as i64).into())),
    ]
}

fn addresses(Checked { config, .. }: &Checked) -> Vec<Row> {
    let address = |address: Option<std::net::SocketAddr>| address.map(|address| address.to_string().into());
    vec![
        ("metrics-address", address(config.metrics_address)),
        ("health-server-address", address(config.health_address)),
        ("clientappio-api-address", address(Some(config.apps.address))),
        ("superexec-auth-secret-file", config.apps.superexec_secret.as_deref().and_then(path)),
    ]
}
