//! Settings of a SuperLink.

use super::{Reader, training, value};
use crate::settings::{Certificates, Common, Runtime, SuperLinkSettings, UseCase};

/// Ports of the ServerAppIo API, which is local, and of the exporter of GPU metrics.
const PORTS_IN_USE: [(u16, &str); 2] = [(9091, "the ServerAppIo API"), (9400, "the metrics of GPUs")];
/// Ports, and an address for all of them.
const OPERATORS: [&str; 3] = ["FL_SSL_CA_CERTFILE", "FL_SSL_CERTFILE", "FL_SSL_KEYFILE"];

pub fn read(reader: &mut Reader, common: &Common) -> SuperLinkSettings {
    let fleet = reader.or_default("FL_FLEET_API_ADDRESS", value::listen);
    let control = reader.or_default("FL_CONTROL_API_ADDRESS", value::listen);
    if fleet.port() == control.port() {
        let what = format!("the Fleet API and the Control API both use port {}", fleet.port());
        reader.reject("FL_CONTROL_API_ADDRESS", what, "give them different ports");
    }
    let http = reader.or_default("FL_HTTP_API_ADDRESS", value::listen);
    if http.port() == fleet.port() || http.port() == control.port() {
        let what = format!("the HTTP API and another one use port {}", http.port());
        reader.reject("FL_HTTP_API_ADDRESS", what, "give them different ports");
    }
    let mut taken =
        vec![(fleet.port(), "the Fleet API"), (control.port(), "the Control API"), (http.port(), "the HTTP API")];
    taken.extend(PORTS_IN_USE);
    let use_case = use_case(reader);
    let training = training::read(reader, common, use_case.is_some());
    SuperLinkSettings {
        fleet,
        control,
        http,
        database: reader.or_default("FL_DATABASE", value::relative_path),
        certificates: certificates(reader, common.tls),
        node_auth: reader.switch("FL_NODE_AUTH"),
        admin_token: reader.take("FL_ADMIN_TOKEN", value::admin_token),
        metrics_port: metrics_port(reader, &taken),
        training,
        use_case,
        allowed_networks: reader.take("FL_ALLOWED_NETWORKS", value::networks).unwrap_or_default(),
        state_disk: reader.take("FL_STATE_DISK", value::device),
    }
}

fn metrics_port(reader: &mut Reader, taken: &[(u16, &str)]) -> Option<u16> {
    let enabled = reader.switch("FL_METRICS_ENABLED");
    let port = u16::try_from(reader.integer("FL_METRICS_PORT")).unwrap_or(u16::MAX);
    if let Some((_, who)) = taken.iter().find(|(used, _)| *used == port && enabled) {
        reader.reject("FL_METRICS_PORT", format!("port {port} is that of {who}"), "choose another one");
    }
    if !enabled && reader.is_set("FL_METRICS_PORT") {
        reader.warn("FL_METRICS_PORT", "metrics are disabled, so it is ignored", "set FL_METRICS_ENABLED=YES too");
    }
    enabled.then_some(port)
}

fn certificates(reader: &mut Reader, tls: bool) -> Certificates {
    let extra = reader.take("FL_CERT_EXTRA_SAN", value::names).unwrap_or_default();
    let said = OPERATORS.map(|name| reader.is_set(name));
    let ca = reader.take(OPERATORS[0], value::certificates);
    let certificate = reader.take(OPERATORS[1], value::certificates);
    let key = reader.take(OPERATORS[2], value::private_key);
    if said.contains(&true) {
        for (name, _) in OPERATORS.into_iter().zip(said).filter(|(_, said)| !said) {
            let what = "it is missing, and the operator's other certificates are set";
            reader.reject(name, what, format!("set all of {}, or none", OPERATORS.join(", ")));
        }
        if reader.is_set("FL_CERT_EXTRA_SAN") {
            let what = "the operator's certificate has its own names, so it is ignored";
            reader.warn("FL_CERT_EXTRA_SAN", what, "request a certificate with these names");
        }
    }
    for name in OPERATORS.into_iter().chain(["FL_CERT_EXTRA_SAN"]).filter(|_| !tls) {
        if reader.is_set(name) {
            reader.warn(name, "TLS is disabled, so it is ignored", "leave FL_TLS_ENABLED out");
        }
    }
    match (ca, certificate, key) {
        (Some(ca), Some(certificate), Some(key)) => Certificates::Operator { ca, certificate, key },
        _ => Certificates::Own { extra },
    }
}

pub fn use_case(reader: &mut Reader) -> Option<UseCase> {
    match reader.choice("FL_USE_CASE") {
        "image-classification" => Some(UseCase::ImageClassification),
        "anomaly-detection" => Some(UseCase::AnomalyDetection),
        "llm-fine-tuning" => Some(UseCase::LlmFineTuning),
        _ => None,
    }
}

/// Whether a SuperLink of this runtime supports defaults of runs.
pub fn has_defaults(common: &Common) -> bool {
    common.runtime == Runtime::Trellis
}
