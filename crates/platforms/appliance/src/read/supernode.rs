//! Settings of a SuperNode.

use std::time::Duration;

use super::{Reader, superlink, value};
use crate::settings::{Backoff, Common, Framework, Gpu, Limit, SuperNodeSettings, UseCase};

pub fn read(reader: &mut Reader, common: &Common) -> SuperNodeSettings {
    let gpu = gpu(reader);
    let use_case = superlink::use_case(reader);
    let framework = framework(reader, use_case);
    if use_case == Some(UseCase::LlmFineTuning) && gpu.is_none() {
        reader.reject("FL_USE_CASE", "a language model cannot be trained without a GPU", "set FL_GPU_ENABLED=YES too");
    }
    let dcgm = reader.switch("FL_DCGM_ENABLED");
    if dcgm && gpu.is_none() {
        reader.warn(
            "FL_DCGM_ENABLED",
            "GPUs are disabled, so there is nothing to measure",
            "set FL_GPU_ENABLED=YES too",
        );
    }
    if !common.tls && reader.is_set("FL_SSL_CA_CERTFILE") {
        reader.warn("FL_SSL_CA_CERTFILE", "TLS is disabled, so it is ignored", "leave FL_TLS_ENABLED out");
    }
    SuperNodeSettings {
        coordinator: reader.take("FL_SUPERLINK_ADDRESS", value::authority),
        trust: reader.take("FL_SSL_CA_CERTFILE", value::certificates),
        node_config: reader.take("FL_NODE_CONFIG", value::node_config).unwrap_or_default(),
        max_retries: limit(reader.integer("FL_MAX_RETRIES")),
        max_wait: limit(reader.integer("FL_MAX_WAIT_TIME")),
        framework,
        use_case,
        gpu,
        dcgm,
        backoff: Backoff {
            exponential: reader.choice("FL_EDGE_BACKOFF") == "exponential",
            max_interval: Duration::from_secs(reader.integer("FL_EDGE_MAX_BACKOFF")),
        },
        join_token: reader.take("FL_JOIN_TOKEN", value::word),
        client_app: reader.take("FL_CLIENT_APP", value::word),
    }
}

fn limit(number: u64) -> Limit {
    match number {
        0 => Limit::Unlimited,
        number => Limit::At(number),
    }
}

/// The framework must fit the app. Without a value, none is required.
fn framework(reader: &mut Reader, use_case: Option<UseCase>) -> Framework {
    let said = match reader.choice("FL_FRAMEWORK") {
        "pytorch" => Framework::PyTorch,
        "tensorflow" => Framework::TensorFlow,
        "sklearn" => Framework::Sklearn,
        _ => Framework::None,
    };
    let fitting: &[Framework] = match use_case {
        None => return said,
        Some(UseCase::ImageClassification) => &[Framework::PyTorch, Framework::TensorFlow],
        Some(UseCase::AnomalyDetection) => &[Framework::Sklearn],
        Some(UseCase::LlmFineTuning) => &[Framework::PyTorch],
    };
    if said != Framework::None && !fitting.contains(&said) {
        let names: Vec<&str> = fitting.iter().map(|framework| framework.name()).collect();
        let what = format!("there is no such app for {}", said.name());
        reader.reject("FL_USE_CASE", what, format!("set FL_FRAMEWORK to {}", names.join(" or ")));
    }
    said
}

fn gpu(reader: &mut Reader) -> Option<Gpu> {
    let enabled = reader.switch("FL_GPU_ENABLED");
    let visible = reader.or_default("FL_CUDA_VISIBLE_DEVICES", value::devices);
    let memory_fraction = reader.number("FL_GPU_MEMORY_FRACTION");
    let fallback_to_cpu = reader.switch("FL_GPU_FALLBACK");
    for name in ["FL_CUDA_VISIBLE_DEVICES", "FL_GPU_MEMORY_FRACTION", "FL_GPU_FALLBACK"] {
        if !enabled && reader.is_set(name) {
            reader.warn(name, "GPUs are disabled, so it is ignored", "set FL_GPU_ENABLED=YES too");
        }
    }
    enabled.then_some(Gpu { visible, memory_fraction, fallback_to_cpu })
}
