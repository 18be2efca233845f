//! GPUs of a pool: an extended resource, a resource claim, or all GPUs of the machine. No container becomes privileged.

use serde_json::{Map, Value, json};

use crate::federation::{Gpu, Pool, Vendor};

const CLAIM: &str = "gpu";
const NVIDIA_RUNTIME_CLASS: &str = "nvidia";
/// Devices of AMD: name of the volume, path on the machine, type.
const AMD_DEVICES: [(&str, &str, &str); 2] =
    [("dev-kfd", "/dev/kfd", "CharDevice"), ("dev-dri", "/dev/dri", "Directory")];

/// Access of the apps of a pool to GPUs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Gpus<'g> {
    None,
    Resource {
        name: &'g str,
        count: i32,
    },
    Claim {
        template: &'g str,
    },
    /// All GPUs of the machine, shared with all its pods.
    All(Vendor),
}

impl<'g> Gpus<'g> {
    pub(super) fn of(pool: &'g Pool) -> Gpus<'g> {
        let Some(gpu) = &pool.gpu else { return Gpus::None };
        if let (true, Some(vendor)) = (mounts_all(gpu), gpu.vendor) {
            return Gpus::All(vendor);
        }
        if !gpu.enabled.unwrap_or_default() {
            return Gpus::None;
        }
        match gpu.resource_claim_template.as_deref().filter(|template| !template.is_empty()) {
            Some(template) => Gpus::Claim { template },
            None => Gpus::Resource { name: resource_name(gpu), count: gpu.count.unwrap_or(1) },
        }
    }

    /// Fields of the pod outside of its containers.
    pub(super) fn pod_fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        match self {
            Gpus::All(Vendor::Nvidia) => {
                fields.insert("runtimeClassName".to_owned(), NVIDIA_RUNTIME_CLASS.into());
            }
            Gpus::Claim { template } => {
                let claims = json!([{"name": CLAIM, "resourceClaimTemplateName": template}]);
                fields.insert("resourceClaims".to_owned(), claims);
            }
            _ => {}
        }
        fields
    }

    pub(super) fn volumes(&self) -> Vec<Value> {
        let volume =
            |(name, path, kind): (&str, &str, &str)| json!({"name": name, "hostPath": {"path": path, "type": kind}});
        if *self == Gpus::All(Vendor::Amd) { AMD_DEVICES.map(volume).to_vec() } else { Vec::new() }
    }

    pub(super) fn mounts(&self) -> Vec<Value> {
        let mount = |(name, path, _): (&str, &str, &str)| json!({"name": name, "mountPath": path});
        if *self == Gpus::All(Vendor::Amd) { AMD_DEVICES.map(mount).to_vec() } else { Vec::new() }
    }

    /// AMD needs no variable: ROCm sees all devices without it.
    pub(super) fn variables(&self) -> Vec<Value> {
        if *self == Gpus::All(Vendor::Nvidia) {
            vec![super::env::variable("NVIDIA_VISIBLE_DEVICES", "all")]
        } else {
            Vec::new()
        }
    }

    /// Resource requests of the container with the apps.
    pub(super) fn request(&self, resources: Option<&Value>) -> Option<Value> {
        let mut asked = resources.cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        match self {
            Gpus::Resource { name, count } => {
                for list in ["limits", "requests"] {
                    if !asked[list].is_object() {
                        asked[list] = json!({});
                    }
                    asked[list][*name] = Value::from(count.to_string());
                }
            }
            Gpus::Claim { .. } => {
                let mut claims = asked["claims"].as_array().cloned().unwrap_or_default();
                super::env::add(&mut claims, json!({"name": CLAIM}), super::env::Key::Name);
                asked["claims"] = Value::Array(claims);
            }
            _ => {}
        }
        asked.as_object().is_some_and(|asked| !asked.is_empty()).then_some(asked)
    }
}

/// `enabled: false` disables GPUs. If it is absent, `mountAll` enables them.
pub(super) fn mounts_all(gpu: &Gpu) -> bool {
    gpu.mount_all && gpu.enabled != Some(false)
}

fn resource_name(gpu: &Gpu) -> &str {
    match (gpu.resource_name.as_deref().filter(|name| !name.is_empty()), gpu.vendor) {
        (Some(name), _) => name,
        (None, Some(Vendor::Amd)) => "amd.com/gpu",
        (None, _) => "nvidia.com/gpu",
    }
}
