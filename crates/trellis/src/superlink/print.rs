//! The effective settings of a SuperLink, by the names of their flags.

use std::collections::BTreeMap;

use toml::Value;
use trellis_link::config::{AppTrust, Isolation};

use super::check::Checked;
use super::state::StateLocation;
use crate::address::Address;
use crate::settings::print::{self, Row, bytes, path, text, time};
use crate::settings::problem::Source;

/// Flags that say the same as the one that is printed.
const ALIASES: [(&str, &str); 3] = [
    ("control-api-address", "exec-api-address"),
    ("serverappio-api-address", "runtime-api-address"),
    ("allow-runtime-dependency-installation", "disable-runtime-dependency-installation"),
];

/// The file's text.
pub fn config_file(checked: &Checked, sources: &BTreeMap<String, Source>) -> String {
    print::config_file(&rows(checked), &ALIASES, sources)
}

fn rows(checked: &Checked) -> Vec<Row> {
    let groups = [addresses, security, state_and_apps, sandbox, connections_and_limits];
    groups.iter().flat_map(|group| group(checked)).chain(print::log(&checked.log)).collect()
}

fn addresses(Checked { config, .. }: &Checked) -> Vec<Row> {
    let http = Address::parse(&config.http_address).ok();
    let list = |hosts: &[String]| (!hosts.is_empty()).then(|| Value::from(hosts.to_vec()));
    vec![
        ("host", http.as_ref().map(|http| http.host.to_string().into())),
        ("port", http.map(|http| i64::from(http.port).into())),
        ("control-api-address", text(&config.control_address)),
        ("fleet-api-address", text(&config.fleet_address)),
        ("serverappio-api-address", text(&config.serverappio_address)),
        ("health-server-address", config.health_address.as_deref().and_then(text)),
        ("metrics-address", config.metrics_address.as_deref().and_then(text)),
        ("endpoint", list(&config.endpoints)),
        ("allowed-host", list(&config.allowed_hosts)),
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
        ("admin-token-file", config.admin_token.as_deref().and_then(path)),
    ]
}

fn state_and_apps(Checked { config, state, run_defaults, .. }: &Checked) -> Vec<Row> {
    let (state_dir, database) = match state {
        StateLocation::Memory | StateLocation::Temporary { .. } => (None, text(":memory:")),
        StateLocation::Directory { directory, database } => (path(directory), database.as_deref().and_then(path)),
    };
    let isolation = match config.isolation {
        Isolation::Subprocess => "subprocess",
        Isolation::Process => "process",
    };
    let trust = match config.app_trust {
        AppTrust::User => "user",
        AppTrust::Machine => "machine",
        AppTrust::Network => "network",
    };
    vec![
        ("state-dir", state_dir),
        ("database", database),
        ("isolation", text(isolation)),
        ("python", config.python.as_deref().and_then(path)),
        ("models-dir", config.native_app.as_ref().and_then(|app| path(app.models.as_deref()?))),
        ("run-defaults", run_defaults.as_deref().and_then(path)),
        ("superexec-auth-secret-file", config.superexec_secret.as_deref().and_then(path)),
        ("serverappio-trust", text(trust)),
        ("allow-runtime-dependency-installation", Some(config.dependency_installation.into())),
    ]
}

fn sandbox(Checked { config, .. }: &Checked) -> Vec<Row> {
    crate::sandbox::rows(&config.sandbox)
}

fn connections_and_limits(Checked { config, .. }: &Checked) -> Vec<Row> {
    vec![
        ("keepalive-interval", time(config.keepalive.interval)),
        ("keepalive-timeout", time(config.keepalive.timeout)),
        ("idle-timeout", time(config.keepalive.idle)),
        ("max-serverapps", config.limits.server_apps.and_then(|count| Some(i64::try_from(count).ok()?.into()))),
        ("max-message-size", bytes(config.limits.message_bytes as u64)),
        ("max-object-size", bytes(config.limits.object_bytes)),
        ("object-cache-size", bytes(config.limits.object_cache_bytes)),
    ]
}
