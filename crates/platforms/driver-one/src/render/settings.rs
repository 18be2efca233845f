//! Context variables of a specification, by their names without `ONEAPP_`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use trellis_flower::launch::{CONTROL_PORT, FLEET_PORT, Keepalive};
use trellis_plan::{CoordinatorSpec, NodeSpec, Spec};
use trellis_spec::{ConfigValue, Framework, Isolation, Runtime, Tls};

pub type Settings = BTreeMap<String, String>;

pub fn settings(spec: &Spec) -> Settings {
    match spec {
        Spec::Coordinator(spec) => coordinator(spec),
        Spec::Node(spec) => node(spec),
    }
}

fn coordinator(spec: &CoordinatorSpec) -> Settings {
    let mut settings = both(&spec.runtime, spec.isolation, &spec.tls, spec.json_logs, spec.keepalive);
    let port = |port: Option<std::num::NonZeroU16>, usual: u16| port.map_or(usual, std::num::NonZeroU16::get);
    set(&mut settings, "FL_FLEET_API_ADDRESS", format!("0.0.0.0:{}", port(spec.endpoints.fleet, FLEET_PORT)));
    set(&mut settings, "FL_CONTROL_API_ADDRESS", format!("0.0.0.0:{}", port(spec.endpoints.control, CONTROL_PORT)));
    set(&mut settings, "FL_NODE_AUTH", yes(spec.node_auth));
    set(&mut settings, "FL_METRICS_ENABLED", yes(spec.metrics));
    if !spec.endpoints.advertise.is_empty() {
        let names: Vec<String> = spec.endpoints.advertise.iter().map(|host| subject(host)).collect();
        set(&mut settings, "FL_CERT_EXTRA_SAN", names.join(","));
    }
    settings
}

fn node(spec: &NodeSpec) -> Settings {
    let mut settings = both(&spec.runtime, spec.isolation, &spec.tls, spec.json_logs, spec.keepalive);
    set(&mut settings, "FL_SUPERLINK_ADDRESS", spec.coordinator.clone());
    set(&mut settings, "FL_NODE_CONFIG", node_config(&spec.node_config));
    if let Some(framework) = spec.framework {
        let word = match framework {
            Framework::PyTorch => "pytorch",
            Framework::TensorFlow => "tensorflow",
            Framework::Sklearn => "sklearn",
        };
        set(&mut settings, "FL_FRAMEWORK", word);
    }
    if let Some(app) = &spec.client_app {
        set(&mut settings, "FL_CLIENT_APP", app.clone());
    }
    set(&mut settings, "FL_GPU_ENABLED", yes(spec.gpu.is_some()));
    if let Some(gpu) = &spec.gpu {
        set(&mut settings, "FL_GPU_FALLBACK", yes(gpu.fallback_to_cpu));
    }
    if let Some(fraction) = spec.gpu.as_ref().and_then(|gpu| gpu.memory_fraction) {
        set(&mut settings, "FL_GPU_MEMORY_FRACTION", fraction.to_string());
    }
    settings
}

fn both(runtime: &Runtime, isolation: Isolation, tls: &Tls, json_logs: bool, keepalive: Option<Keepalive>) -> Settings {
    let mut settings = Settings::new();
    match runtime {
        Runtime::Trellis => set(&mut settings, "FL_RUNTIME", "trellis"),
        Runtime::Flower(version) => {
            set(&mut settings, "FL_RUNTIME", "flower");
            set(&mut settings, "FLOWER_VERSION", version.to_string());
        }
    }
    set(&mut settings, "FL_ISOLATION", isolation.name());
    set(&mut settings, "FL_TLS_ENABLED", yes(*tls != Tls::Off));
    set(&mut settings, "FL_LOG_FORMAT", if json_logs { "json" } else { "text" });
    if let Some(keepalive) = keepalive {
        set(&mut settings, "FL_GRPC_KEEPALIVE_TIME", keepalive.interval_s.to_string());
        set(&mut settings, "FL_GRPC_KEEPALIVE_TIMEOUT", keepalive.timeout_s.to_string());
    }
    settings
}

pub fn set(settings: &mut Settings, name: &str, value: impl Into<String>) {
    settings.insert(name.to_owned(), value.into());
}

pub fn yes(on: bool) -> &'static str {
    if on { "YES" } else { "NO" }
}

/// A name or an address that a certificate covers.
fn subject(host: &str) -> String {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => format!("IP:{address}"),
        Err(_) => format!("DNS:{host}"),
    }
}

/// `key=value` pairs separated by spaces; texts are quoted.
fn node_config(config: &BTreeMap<String, ConfigValue>) -> String {
    let pairs = config.iter().map(|(key, value)| match value {
        ConfigValue::Bool(on) => format!("{key}={on}"),
        ConfigValue::Int(number) => format!("{key}={number}"),
        ConfigValue::Float(number) => format!("{key}={number:?}"),
        ConfigValue::Text(text) => {
            format!("{key}={}", serde_json::to_string(text).expect("a text is valid JSON"))
        }
    });
    pairs.collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_cover_names_and_addresses_of_both_kinds() {
        for (host, expected) in [
            ("fl.example.org", "DNS:fl.example.org"),
            ("10.0.0.4", "IP:10.0.0.4"),
            ("2001:db8::1", "IP:2001:db8::1"),
            ("[2001:db8::1]", "IP:2001:db8::1"),
        ] {
            assert_eq!(subject(host), expected);
        }
    }

    #[test]
    fn the_node_config_keeps_its_types() {
        let config = BTreeMap::from([
            ("a".to_owned(), ConfigValue::Int(3)),
            ("b".to_owned(), ConfigValue::Float(1.0)),
            ("c".to_owned(), ConfigValue::Bool(true)),
            ("d".to_owned(), ConfigValue::Text("7 \"x\"".to_owned())),
        ]);
        assert_eq!(node_config(&config), r#"a=3 b=1.0 c=true d="7 \"x\"""#);
    }
}
