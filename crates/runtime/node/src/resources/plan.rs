//! Decides which GPUs apps may use, from the configuration, the detected GPUs and the node's own environment.

use thiserror::Error;

use super::Gpu;
use crate::config::{Gpus, WhenMissing};

/// Hides all GPUs. An empty list does too, but some programs treat it like an unset variable.
const NO_GPU: &str = "-1";

/// The GPUs that the apps of this node see.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuPlan {
    /// The value of `CUDA_VISIBLE_DEVICES`; `None`: inherited from the node.
    devices: Option<Vec<String>>,
    pub warnings: Vec<String>,
    pub status: GpuStatus,
}

#[derive(Debug, Clone, PartialEq)]
pub enum GpuStatus {
    /// No configuration.
    Unset,
    Cpu,
    /// Without slices of GPUs (MIG): their state cannot be queried.
    Gpu {
        gpus: Vec<Gpu>,
    },
    /// Fewer GPUs than requested, possibly none.
    Degraded {
        reason: String,
        gpus: Vec<Gpu>,
    },
}

/// The node does not start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}. Correct the configuration, or allow the node to start without these GPUs.")]
pub struct GpuError {
    pub reason: String,
}

/// A selected GPU, if it is known.
#[derive(Debug, Clone)]
struct Chosen {
    name: String,
    gpu: Option<Gpu>,
}

/// `node_visible` is the node's own `CUDA_VISIBLE_DEVICES`, which restricts the GPUs of apps.
pub fn decide(
    asked: &Gpus,
    missing: WhenMissing,
    detected: &[Gpu],
    node_visible: Option<&str>,
) -> Result<GpuPlan, GpuError> {
    let allowed = node_visible.map_or_else(|| detected.to_vec(), |list| visible(list, detected));
    let (chosen, lacking) = match asked {
        Gpus::Unset => return Ok(GpuPlan { devices: None, warnings: vec![], status: GpuStatus::Unset }),
        Gpus::None | Gpus::Count(0) => {
            return Ok(GpuPlan { devices: Some(vec![]), warnings: vec![], status: GpuStatus::Cpu });
        }
        Gpus::All => (all(&allowed), None),
        Gpus::Count(count) => {
            let chosen: Vec<Chosen> = all(&allowed).into_iter().take(*count as usize).collect();
            let few = chosen.len() < *count as usize;
            let lacking = few.then(|| format!("{count} GPUs are requested, but the node has {}", chosen.len()));
            (chosen, lacking)
        }
        Gpus::These(names) => by_names(names, detected, &allowed),
    };
    let lacking = match (detected.is_empty(), allowed.is_empty()) {
        (true, _) => Some("a GPU is requested, but this machine has no working GPU".to_owned()),
        (_, true) => Some("a GPU is requested, but CUDA_VISIBLE_DEVICES of the node hides all of them".to_owned()),
        _ => lacking,
    };
    match (lacking, missing) {
        (Some(reason), WhenMissing::Refuse) => Err(GpuError { reason }),
        (lacking, _) => Ok(plan(chosen, lacking)),
    }
}

fn plan(chosen: Vec<Chosen>, lacking: Option<String>) -> GpuPlan {
    let gpus: Vec<Gpu> = chosen.iter().filter_map(|chosen| chosen.gpu.clone()).collect();
    let devices = chosen.into_iter().map(|chosen| chosen.name).collect::<Vec<_>>();
    let fallback = if devices.is_empty() { "apps use the CPU" } else { "apps use the available ones" };
    let warnings = lacking.iter().map(|reason| format!("{reason}: {fallback}")).collect();
    let status = match lacking {
        Some(reason) => GpuStatus::Degraded { reason, gpus },
        None => GpuStatus::Gpu { gpus },
    };
    GpuPlan { devices: Some(devices), warnings, status }
}

fn all(gpus: &[Gpu]) -> Vec<Chosen> {
    gpus.iter().map(|gpu| Chosen { name: gpu.index.to_string(), gpu: Some(gpu.clone()) }).collect()
}

/// The GPUs with these names, and an error about unknown names.
fn by_names(names: &[String], detected: &[Gpu], allowed: &[Gpu]) -> (Vec<Chosen>, Option<String>) {
    let slices = names.iter().any(|name| is_slice(name));
    let (mut chosen, mut lacking) = (Vec::<Chosen>::new(), Vec::new());
    for name in names {
        let found = match named(name, allowed) {
            Some(gpu) => {
                // CUDA accepts indices or identifiers, not both in one list; slices have identifiers only.
                let index = gpu.index.to_string();
                let name = if slices { gpu.uuid.clone().unwrap_or(index) } else { index };
                Chosen { name, gpu: Some(gpu.clone()) }
            }
            None if is_slice(name) && !allowed.is_empty() => Chosen { name: name.clone(), gpu: None },
            None => {
                let hidden = named(name, detected).is_some();
                lacking.push(format!("{name}{}", if hidden { " (hidden from the node)" } else { "" }));
                continue;
            }
        };
        // CUDA stops at the second occurrence of a GPU.
        if !chosen.iter().any(|other| other.name == found.name) {
            chosen.push(found);
        }
    }
    let lacking = (!lacking.is_empty()).then(|| format!("the node has no GPU {}", lacking.join(", ")));
    (chosen, lacking)
}

/// A slice of a GPU (MIG).
fn is_slice(name: &str) -> bool {
    name.starts_with("MIG-")
}

/// By index, or by an unambiguous prefix of the identifier.
fn named<'a>(name: &str, gpus: &'a [Gpu]) -> Option<&'a Gpu> {
    if let Ok(index) = name.parse::<u32>() {
        return gpus.iter().find(|gpu| gpu.index == index);
    }
    let fits = |gpu: &&Gpu| name.starts_with("GPU-") && gpu.uuid.as_ref().is_some_and(|uuid| uuid.starts_with(name));
    let mut fitting = gpus.iter().filter(fits);
    fitting.next().filter(|_| fitting.next().is_none())
}

/// Parses the list as CUDA does: it ends at the first invalid name.
fn visible(list: &str, detected: &[Gpu]) -> Vec<Gpu> {
    list.split(',').map_while(|name| named(name.trim(), detected).cloned()).collect()
}

impl GpuPlan {
    /// The value of `CUDA_VISIBLE_DEVICES` for all apps together; `None`: inherited.
    pub fn visible(&self) -> Option<String> {
        self.assign(0, 1)
    }

    /// The value for the app in a slot. GPUs are distributed round robin: with more GPUs than slots each app has several, with fewer
    /// some apps share one.
    pub fn assign(&self, slot: usize, slots: usize) -> Option<String> {
        let devices = self.devices.as_ref()?;
        let mine: Vec<&str> = match devices.len() {
            0 => vec![NO_GPU],
            count if count < slots => vec![&devices[slot % count]],
            _ => devices.iter().skip(slot % slots.max(1)).step_by(slots.max(1)).map(String::as_str).collect(),
        };
        Some(mine.join(","))
    }

    pub fn may_use_gpus(&self) -> bool {
        self.devices.as_ref().is_none_or(|devices| !devices.is_empty())
    }

    /// A warning if apps on one GPU may together use more memory than it has.
    pub(super) fn oversubscription(&self, fraction: Option<f64>, slots: usize) -> Vec<String> {
        let (Some(fraction), Some(devices)) = (fraction, &self.devices) else { return vec![] };
        if devices.is_empty() {
            return vec![];
        }
        let sharing = slots.div_ceil(devices.len());
        let crowded = sharing > 1 && sharing as f64 * fraction > 1.0;
        let text = || {
            format!("{sharing} apps share a GPU, and each may use {fraction} of its memory: together more than it has")
        };
        crowded.then(text).into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
