//! The smaller parts of the operator's document: environment, resources, ports, GPUs, node config.

use std::collections::BTreeMap;

use serde_json::json;
use trellis_flower::Isolation;

use crate::amount;
use crate::document::VENDORS;
use crate::federation::{ConfigTemplate, Endpoints, Gpu, GpuVendor, Resources};
use crate::kind::{Fault, MapOf, Scalar, choice, flag, port, text, whole};
use crate::node_config::{looks_like_go, with_literal_braces};
use crate::object::Object;

/// Placeholders of the operator; other text in braces is literal.
const PLACEHOLDERS: [&str; 4] = ["index", "replicas", "pool", "node"];
const MAX_GPUS: u32 = 64;

/// The settings of pools that do not set their own.
pub(super) struct Settings {
    pub image: Option<String>,
    pub env: BTreeMap<String, String>,
    pub isolation: Isolation,
}

/// The list `env`. A variable from a Secret causes a warning and is ignored.
pub(super) fn environment(object: &mut Object<'_>) -> BTreeMap<String, String> {
    let variables = object.objects("env", "", |variable| {
        let name = variable.required("name", text("the name of a variable", "HTTPS_PROXY"), "");
        let value = variable.optional("value", text("text", "\"http://proxy:3128\""), "");
        // A variable without value and source is empty.
        let value = value.or_else(|| (!variable.has("valueFrom")).then(String::new));
        name.zip(value)
    });
    variables.into_iter().flatten().collect()
}

/// The limits, or the requests if there are no limits.
pub(super) fn resources(object: &mut Object<'_>) -> Resources {
    let limits = object.object("limits", "", quantities);
    let requests = object.object("requests", "", quantities);
    Resources {
        cpu_millis: limits.cpu_millis.or(requests.cpu_millis),
        memory_bytes: limits.memory_bytes.or(requests.memory_bytes),
        disk_bytes: limits.disk_bytes.or(requests.disk_bytes),
    }
}

fn quantities(object: &mut Object<'_>) -> Resources {
    let cpu = || quantity("a quantity of processors", "500m", amount::cpu_millis);
    let bytes = || quantity("a quantity of bytes", "2Gi", amount::kubernetes_bytes);
    Resources {
        cpu_millis: object.optional("cpu", cpu(), ""),
        memory_bytes: object.optional("memory", bytes(), ""),
        disk_bytes: object.optional("ephemeral-storage", bytes(), ""),
    }
}

fn quantity<T: 'static>(words: &str, example: &'static str, parse: fn(&str) -> Option<T>) -> Scalar<T> {
    Scalar::new(words, example, json!({}), move |text, _| parse(text).ok_or(Fault::Unfit))
}

/// The object `service`.
pub(super) fn ports(object: &mut Object<'_>) -> Endpoints {
    object.object("ports", "", |ports| Endpoints {
        fleet: Some(ports.or("grpc", port(), "9092", "")),
        control: Some(ports.or("extra", port(), "9093", "")),
        app: Some(ports.or("serverAppIO", port(), "9091", "")),
        http: None,
        advertise: Vec::new(),
    })
}

pub(super) fn images(object: &mut Object<'_>) -> Option<String> {
    object.optional("supernode", crate::document::image(), "")
}

pub(super) fn gpu(object: &mut Object<'_>) -> Option<Gpu> {
    let enabled = object.or("enabled", flag(), "false", "");
    let vendor = object.optional("vendor", choice(&VENDORS), "").unwrap_or(GpuVendor::Nvidia);
    let count = object.or("count", whole(1..=MAX_GPUS), "1", "");
    if object.or("mountAll", flag(), "false", "") {
        object
            .at("mountAll")
            .warn("all GPUs of a machine at once have no counterpart; count is used", "set the number");
    }
    enabled.then_some(Gpu { vendor, count, memory_fraction: None, fallback_to_cpu: false })
}

/// The mapping `nodeConfig`, whose values are all text.
pub(super) fn node_config(object: &mut Object<'_>, on_each_machine: bool) -> BTreeMap<String, ConfigTemplate> {
    let values = Scalar::new("text", "\"{index}\"", json!({}), |text, _| Ok((text.to_owned(), typed(text))));
    let values = object.any("nodeConfig", MapOf::of_config(values), "");
    for (key, (text, _)) in &values {
        if looks_like_go(text) {
            object
                .at("nodeConfig")
                .warn(format!("{key} is {text:?}, which stays literal text, as in the operator"), "write {index}");
        }
        if on_each_machine && (text.contains("{index}") || text.contains("{replicas}")) {
            let what = format!("{key} uses {{index}} or {{replicas}}, which do not exist with mode: DaemonSet");
            object.at("nodeConfig").refuse(what, "use {node} or {pool}");
        }
    }
    values.into_iter().map(|(key, (_, value))| (key, value)).collect()
}

/// Whole numbers, `true` and `false` get their type; numbers with a fraction stay text.
fn typed(text: &str) -> ConfigTemplate {
    let digits = text.trim_start_matches(['-', '+']);
    let number = (digits == "0" || !digits.starts_with('0')).then(|| text.parse().ok()).flatten();
    match (text, number) {
        ("true", _) => ConfigTemplate::Bool(true),
        ("false", _) => ConfigTemplate::Bool(false),
        (_, Some(number)) => ConfigTemplate::Int(number),
        (_, None) => ConfigTemplate::Text(with_literal_braces(text, &PLACEHOLDERS)),
    }
}
