//! The effective settings as a configuration file, each with the place it came from. What is printed can be given back
//! with `--config` and means the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use toml::Value;
use trellis_link::config::{Isolation, StateLocation};

use super::address::Address;
use super::check::Checked;
use super::problem::Source;
use super::{duration, size};
use crate::logging::LogFormat;

/// Flags that say the same as the one that is printed.
const ALIASES: [(&str, &str); 3] = [
    ("control-api-address", "exec-api-address"),
    ("serverappio-api-address", "runtime-api-address"),
    ("allow-runtime-dependency-installation", "disable-runtime-dependency-installation"),
];

/// The file's text.
pub fn config_file(checked: &Checked, sources: &BTreeMap<String, Source>) -> String {
    let rows = rows(checked);
    let assignment = |(name, value): &(&str, Option<Value>)| match value {
        Some(value) => format!("{name} = {value}"),
        None => format!("# {name} ="),
    };
    let width = rows.iter().map(|row| assignment(row).chars().count()).max().unwrap_or(0);
    rows.iter()
        .map(|row| {
            let place = match row {
                (_, None) => "not set".to_owned(),
                (name, Some(_)) => source(name, sources).to_string(),
            };
            format!("{:width$}  # {place}\n", assignment(row))
        })
        .collect()
}

fn source<'a>(name: &str, sources: &'a BTreeMap<String, Source>) -> &'a Source {
    let alias = ALIASES.iter().find(|(printed, _)| *printed == name).and_then(|(_, alias)| sources.get(*alias));
    sources.get(name).or(alias).unwrap_or(&Source::Default)
}

type Row = (&'static str, Option<Value>);

fn rows(checked: &Checked) -> Vec<Row> {
    let groups = [addresses, security, state_and_apps, connections_and_limits, log];
    groups.iter().flat_map(|group| group(checked)).collect()
}

fn addresses(Checked { config, .. }: &Checked) -> Vec<Row> {
    let http = Address::parse(&config.http_address).ok();
    let endpoints = (!config.endpoints.is_empty()).then(|| Value::from(config.endpoints.clone()));
    vec![
        ("host", http.as_ref().map(|http| http.host.to_string().into())),
        ("port", http.map(|http| i64::from(http.port).into())),
        ("control-api-address", text(&config.control_address)),
        ("fleet-api-address", text(&config.fleet_address)),
        ("serverappio-api-address", text(&config.serverappio_address)),
        ("health-server-address", config.health_address.as_deref().and_then(text)),
        ("metrics-address", config.metrics_address.as_deref().and_then(text)),
        ("endpoint", endpoints),
    ]
}

fn security(Checked { config, insecure_network_allowed, .. }: &Checked) -> Vec<Row> {
    let tls = config.tls.as_ref();
    vec![
        ("insecure", Some(tls.is_none().into())),
        ("allow-insecure-network", Some((*insecure_network_allowed).into())),
        ("ssl-certfile", tls.and_then(|tls| path(&tls.certificate))),
        ("ssl-keyfile", tls.and_then(|tls| path(&tls.key))),
        ("ssl-ca-certfile", tls.and_then(|tls| path(&tls.ca_certificate))),
        ("enable-supernode-auth", Some(config.supernode_auth.into())),
        ("account-auth", text(if config.accounts { "on" } else { "off" })),
    ]
}

fn state_and_apps(Checked { config, .. }: &Checked) -> Vec<Row> {
    let (state_dir, database) = match &config.state {
        StateLocation::Ephemeral => (None, text(":memory:")),
        StateLocation::Directory { directory, database } => (path(directory), database.as_deref().and_then(path)),
    };
    let isolation = match config.isolation {
        Isolation::Subprocess => "subprocess",
        Isolation::Process => "process",
    };
    vec![
        ("state-dir", state_dir),
        ("database", database),
        ("isolation", text(isolation)),
        ("python", config.python.as_deref().and_then(path)),
        ("superexec-auth-secret-file", config.superexec_secret.as_deref().and_then(path)),
        ("allow-runtime-dependency-installation", Some(config.dependency_installation.into())),
    ]
}

fn connections_and_limits(Checked { config, .. }: &Checked) -> Vec<Row> {
    let time = |time: Duration| Some(duration::show(time).into());
    let bytes = |bytes: u64| Some(size::show(bytes).into());
    vec![
        ("keepalive-interval", time(config.keepalive.interval)),
        ("keepalive-timeout", time(config.keepalive.timeout)),
        ("idle-timeout", time(config.keepalive.idle)),
        ("max-message-size", bytes(config.limits.message_bytes as u64)),
        ("max-object-size", bytes(config.limits.object_bytes)),
        ("object-cache-size", bytes(config.limits.object_cache_bytes)),
    ]
}

fn log(Checked { log, .. }: &Checked) -> Vec<Row> {
    let format = match log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    let file = log.file.as_ref();
    vec![
        ("log-format", text(format)),
        ("log-level", text(&log.level)),
        ("log-file", file.and_then(|file| path(&file.path))),
        ("log-rotation-interval-hours", file.map(|file| i64::from(file.interval_hours).into())),
        ("log-rotation-backup-count", file.map(|file| i64::from(file.backups).into())),
    ]
}

fn text(text: &str) -> Option<Value> {
    Some(text.into())
}

fn path(path: &Path) -> Option<Value> {
    Some(path.to_string_lossy().into_owned().into())
}
