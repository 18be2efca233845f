//! Nodes outside of the cluster: one Secret for each site with all that a machine needs to join, and problems.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::names::ObservedService;
use super::secret::{BUNDLE, Entries, ObservedSecret};
use crate::federation::{Federation, Site};

/// Entry with `host:port` of the SuperLink.
pub const ADDRESS: &str = "address";
/// Service port for nodes: the first of these names that exists.
const NODE_PORTS: [&str; 2] = ["fleet", "http"];

pub fn secret_name(federation: &Federation, site: &str) -> String {
    format!("{}-join-{site}", federation.name)
}

/// `node-0.key`: the key of one node of a site.
pub fn key_name(index: i32) -> String {
    format!("node-{index}.key")
}

/// The configuration of one node of a site.
pub fn settings_name(index: i32) -> String {
    format!("node-{index}.toml")
}

/// Address of the SuperLink for machines outside of the cluster, or why there is none.
pub fn address(federation: &Federation, service: Option<&ObservedService>) -> Result<String, String> {
    let service = service.ok_or("the Service of the SuperLink does not exist yet")?;
    let found = NODE_PORTS.iter().find_map(|name| service.ports.iter().find(|port| port.0 == *name));
    let (_, port, node_port) = found.ok_or("the Service of the SuperLink has no port for nodes")?;
    let extra = federation.spec.security.tls.extra_names.first();
    match service.kind.as_str() {
        "LoadBalancer" => {
            let host = extra.or(service.ingress.first()).ok_or("the load balancer has no address yet")?;
            Ok(joined(host, *port))
        }
        "NodePort" => {
            let host = extra.ok_or("name a machine of the cluster in security.tls.extraNames")?;
            Ok(joined(host, node_port.ok_or("the Service has no port on machines of the cluster yet")?))
        }
        _ => {
            let why = "the SuperLink is reached within the cluster only: set superlink.service.type to LoadBalancer or \
                       NodePort, or name what forwards to it in security.tls.extraNames";
            Ok(joined(extra.ok_or(why)?, *port))
        }
    }
}

fn joined(host: &str, port: u16) -> String {
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Content of the Secret of a site. `keys`: keys of its nodes by name; empty without node authentication.
pub fn bundle(site: &Site, address: &str, trust: Option<&str>, keys: &BTreeMap<String, String>) -> Entries {
    let mut entries = Entries::from([(ADDRESS.to_owned(), address.as_bytes().to_vec())]);
    if let Some(trust) = trust {
        entries.insert(BUNDLE.to_owned(), trust.as_bytes().to_vec());
    }
    for index in 0..site.nodes.max(0) {
        let key = key_name(index);
        let has_key = keys.contains_key(&key);
        if let Some(text) = keys.get(&key) {
            entries.insert(key.clone(), text.as_bytes().to_vec());
        }
        let text = settings(site, index, address, trust.is_some(), has_key);
        entries.insert(settings_name(index), text.into_bytes());
    }
    entries
}

/// Configuration file for `trellis supernode --config`, started in the directory of the other entries.
fn settings(site: &Site, index: i32, address: &str, tls: bool, has_key: bool) -> String {
    let mut text = format!("superlink = {}\nname = {}\n", quoted(address), quoted(&format!("{}-{index}", site.name)));
    match tls {
        true => text.push_str(&format!("root-certificates = {}\n", quoted(BUNDLE))),
        false => text.push_str("insecure = true\n"),
    }
    if has_key {
        text.push_str(&format!("auth-supernode-private-key = {}\n", quoted(&key_name(index))));
    }
    text
}

fn quoted(text: &str) -> String {
    // A JSON string of plain letters is a TOML string.
    Value::from(text).to_string()
}

/// Existing keys of a site.
pub fn present_keys(secret: Option<&ObservedSecret>) -> BTreeMap<String, String> {
    let entries = secret.into_iter().flat_map(|secret| &secret.entries);
    let keys = entries.filter(|(name, _)| name.ends_with(".key"));
    keys.filter_map(|(name, bytes)| Some((name.clone(), String::from_utf8(bytes.clone()).ok()?))).collect()
}

/// An item of `.status.sites`.
pub fn status(federation: &Federation, site: &Site, found: &Result<String, String>) -> Value {
    match found {
        Ok(address) => {
            json!({"name": site.name, "secretName": secret_name(federation, &site.name), "address": address})
        }
        Err(why) => json!({"name": site.name, "message": why}),
    }
}
