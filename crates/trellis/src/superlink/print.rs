//! The effective settings as a configuration file, each with the place it came from. What is printed can be given back
//! with `--config` and means the same.

use std::collections::BTreeMap;
use std::path::Path;

use trellis_link::config::{Isolation, StateLocation};

use super::check::Checked;
use super::problem::Source;
use super::size;
use crate::logging::LogFormat;

/// The file's text.
pub fn config_file(checked: &Checked, sources: &BTreeMap<String, Source>) -> String {
    let rows = rows(checked);
    let assignment = |(name, value): &(&str, Option<toml::Value>)| match value {
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
    // The old name stands for the new one, which is what we print.
    let old = sources.get("exec-api-address").filter(|_| name == "control-api-address");
    old.or(sources.get(name)).unwrap_or(&Source::Default)
}

fn rows(Checked { config, log, .. }: &Checked) -> Vec<(&'static str, Option<toml::Value>)> {
    let text = |text: &str| Some(toml::Value::from(text));
    let path = |path: &Path| Some(toml::Value::from(path.to_string_lossy().into_owned()));
    let bytes = |bytes: u64| Some(toml::Value::from(size::show(bytes)));
    let tls = config.tls.as_ref();
    let (state_dir, database) = match &config.state {
        StateLocation::Ephemeral => (None, text(":memory:")),
        StateLocation::Directory { directory, database } => (path(directory), database.as_deref().and_then(path)),
    };
    let isolation = match config.isolation {
        Isolation::Subprocess => "subprocess",
        Isolation::Process => "process",
    };
    let format = match log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    vec![
        ("control-api-address", text(&config.control_address)),
        ("fleet-api-address", text(&config.fleet_address)),
        ("serverappio-api-address", text(&config.serverappio_address)),
        ("health-server-address", config.health_address.as_deref().and_then(text)),
        ("insecure", Some(toml::Value::from(tls.is_none()))),
        ("ssl-certfile", tls.and_then(|tls| path(&tls.certificate))),
        ("ssl-keyfile", tls.and_then(|tls| path(&tls.key))),
        ("ssl-ca-certfile", tls.and_then(|tls| path(&tls.ca_certificate))),
        ("enable-supernode-auth", Some(toml::Value::from(config.supernode_auth))),
        ("state-dir", state_dir),
        ("database", database),
        ("isolation", text(isolation)),
        ("python", config.python.as_deref().and_then(path)),
        ("max-message-size", bytes(config.limits.message_bytes as u64)),
        ("max-object-size", bytes(config.limits.object_bytes)),
        ("object-cache-size", bytes(config.limits.object_cache_bytes)),
        ("log-format", text(format)),
        ("log-level", text(&log.level)),
    ]
}
