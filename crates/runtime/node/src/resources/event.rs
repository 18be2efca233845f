//! Events about GPUs, for logs and programs. Names and fields are a contract, as those of a SuperLink are: add, never rename.

use std::fmt;

use serde::Serialize;

use super::{Gpu, GpuStatus};

/// An event. Serialised, it consists of its data; unknown values are `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Event {
    GpuDetected { gpu_name: String, gpu_memory_mb: Option<u64>, driver_version: Option<String> },
    GpuUnavailable { fallback_device: &'static str },
}

impl Event {
    pub fn name(&self) -> &'static str {
        match self {
            Event::GpuDetected { .. } => "gpu_detected",
            Event::GpuUnavailable { .. } => "gpu_unavailable",
        }
    }

    /// Whether it needs attention.
    pub fn is_warning(&self) -> bool {
        matches!(self, Event::GpuUnavailable { .. })
    }

    /// The data as a JSON object.
    pub fn data(&self) -> String {
        serde_json::to_string(self).expect("names are text and values are plain")
    }
}

/// A sentence for people.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::GpuDetected { gpu_name, gpu_memory_mb: Some(mebibytes), .. } => {
                write!(f, "apps can use a GPU: {gpu_name}, {mebibytes} MiB")
            }
            Event::GpuDetected { gpu_name, .. } => write!(f, "apps can use a GPU: {gpu_name}"),
            Event::GpuUnavailable { fallback_device } => {
                write!(f, "a requested GPU is missing: apps use {fallback_device}")
            }
        }
    }
}

/// One event for each GPU that apps can use, and one if requested ones are missing.
pub(super) fn of(status: &GpuStatus) -> Vec<Event> {
    let (gpus, lacking): (&[Gpu], bool) = match status {
        GpuStatus::Unset | GpuStatus::Cpu => (&[], false),
        GpuStatus::Gpu { gpus } => (gpus, false),
        GpuStatus::Degraded { gpus, .. } => (gpus, true),
    };
    let detected = gpus.iter().map(|gpu| Event::GpuDetected {
        gpu_name: gpu.name.clone(),
        gpu_memory_mb: gpu.memory_bytes.map(|bytes| bytes >> 20),
        driver_version: gpu.driver_version.clone(),
    });
    let fallback_device = if gpus.is_empty() { "cpu" } else { "gpu" };
    detected.chain(lacking.then_some(Event::GpuUnavailable { fallback_device })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, data and text of every event.
    #[test]
    fn contract() {
        let known = Gpu {
            index: 0,
            uuid: None,
            name: "NVIDIA H200".into(),
            memory_bytes: Some(143_771 << 20),
            driver_version: Some("580.159.04".into()),
        };
        let unknown = Gpu { name: "unknown".into(), memory_bytes: None, driver_version: None, ..known.clone() };
        let reason = String::new();
        let statuses = [
            GpuStatus::Unset,
            GpuStatus::Cpu,
            GpuStatus::Gpu { gpus: vec![known.clone(), unknown] },
            GpuStatus::Degraded { reason: reason.clone(), gpus: vec![] },
            GpuStatus::Degraded { reason, gpus: vec![known] },
        ];
        let told: String = statuses
            .iter()
            .flat_map(of)
            .map(|event| {
                let level = if event.is_warning() { "warn" } else { "info" };
                format!("{level} {} {}\n  {event}\n", event.name(), event.data())
            })
            .collect();
        assert_eq!(
            told,
            r#"info gpu_detected {"gpu_name":"NVIDIA H200","gpu_memory_mb":143771,"driver_version":"580.159.04"}
  apps can use a GPU: NVIDIA H200, 143771 MiB
info gpu_detected {"gpu_name":"unknown","gpu_memory_mb":null,"driver_version":null}
  apps can use a GPU: unknown
warn gpu_unavailable {"fallback_device":"cpu"}
  a requested GPU is missing: apps use cpu
info gpu_detected {"gpu_name":"NVIDIA H200","gpu_memory_mb":143771,"driver_version":"580.159.04"}
  apps can use a GPU: NVIDIA H200, 143771 MiB
warn gpu_unavailable {"fallback_device":"gpu"}
  a requested GPU is missing: apps use gpu
"#
        );
    }
}
