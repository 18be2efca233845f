//! Kinds of objects that the operator manages.

use kube::core::{ApiResource, GroupVersionKind};
use trellis_kube::federation;

/// Label of all managed objects. The operator that this one replaces sets the same label.
pub const MANAGED: &str = "app.kubernetes.io/managed-by=flower-operator";
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    /// The kind may be missing or forbidden; the operator works without it.
    pub optional: bool,
    /// Applied after other objects, because its pods need them.
    pub is_workload: bool,
}

const fn core(kind: &'static str, plural: &'static str) -> Kind {
    Kind { group: "", version: "v1", kind, plural, optional: false, is_workload: false }
}

const fn of(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version: "v1", kind, plural, optional: false, is_workload: false }
}

const fn workload(kind: &'static str, plural: &'static str) -> Kind {
    Kind { is_workload: true, ..of("apps", kind, plural) }
}

const fn optional(kind: Kind) -> Kind {
    Kind { optional: true, ..kind }
}

/// Objects of a federation. All kinds are watched.
pub static OWNED: [Kind; 8] = [
    workload("StatefulSet", "statefulsets"),
    workload("DaemonSet", "daemonsets"),
    core("Service", "services"),
    core("Secret", "secrets"),
    of("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    of("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    optional(of("monitoring.coreos.com", "PodMonitor", "podmonitors")),
    optional(of("cert-manager.io", "Certificate", "certificates")),
];

pub static FEDERATION: Kind =
    Kind { group: federation::GROUP, version: federation::VERSION, ..of("", federation::KIND, federation::PLURAL) };
/// Created by early releases of the other operator only, so it is listed from time to time and not watched.
pub static DEPLOYMENT: Kind = workload("Deployment", "deployments");
/// Neither created nor watched; listed if a workload does not become ready.
pub static POD: Kind = core("Pod", "pods");
pub static EVENT: Kind = core("Event", "events");
pub static STORAGE_CLASS: Kind = optional(of("storage.k8s.io", "StorageClass", "storageclasses"));

impl Kind {
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }

    /// The kind of an object, from its type fields.
    pub fn find(api_version: &str, kind: &str) -> Option<&'static Kind> {
        OWNED.iter().chain([&DEPLOYMENT]).find(|known| known.kind == kind && known.api_version() == api_version)
    }
}
