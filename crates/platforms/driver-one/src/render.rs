//! Requests to the cloud for a federation at a site: templates of VMs, images and services, contexts, assignments. Pure:
//! equal inputs give equal texts, so a changed text means a changed desired state.

pub mod context;
pub mod service;
pub mod settings;
pub mod template;

use trellis_digest::fnv1a;
use trellis_plan::{NodeKey, Spec};
use trellis_spec::Name;

/// Labels of our objects in a cloud. They identify the objects without local state.
pub mod labels {
    pub use trellis_one::keys::TRELLIS_FEDERATION as FEDERATION;

    pub const SITE: &str = "TRELLIS_SITE";
    pub const ROLE: &str = "TRELLIS_ROLE";
    /// Pool of a node's role.
    pub const POOL: &str = "TRELLIS_POOL";
    /// Shape of the VMs of a template: properties that cannot change while they run.
    pub const SHAPE: &str = "TRELLIS_SHAPE";
    /// Digest of the rest of the text.
    pub const DIGEST: &str = "TRELLIS_DIGEST";
    /// Purpose of an image: `state`, or `upload`.
    pub const PURPOSE: &str = "TRELLIS_PURPOSE";
}

pub const SUPERLINK: &str = "superlink";
pub const SUPERNODE: &str = "supernode";
pub const GATEWAY: &str = "gateway";

/// OpenNebula truncates names longer than 128, of a service and a VM template together.
const SERVICE_NAME_CHARS: usize = 56;
const TEMPLATE_NAME_CHARS: usize = 64;
const IMAGE_NAME_CHARS: usize = 96;

/// A group of equal VMs of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoleOf {
    SuperLink,
    Pool(Name),
    Gateway,
}

impl RoleOf {
    pub fn of(key: Option<&NodeKey>) -> RoleOf {
        key.map_or(RoleOf::SuperLink, |key| RoleOf::Pool(key.pool.clone()))
    }

    /// Role of a pool if it is not the only one.
    pub fn long_name(pool: &Name) -> String {
        format!("{SUPERNODE}_{}", pool.as_str().replace('-', "_"))
    }
}

pub fn service_name(federation: &Name, site: &Name) -> String {
    bounded(&format!("trellis-{federation}-{site}"), SERVICE_NAME_CHARS)
}

pub fn template_name(federation: &Name, site: &Name, role: &str) -> String {
    bounded(&format!("trellis-{federation}-{site}-{role}"), TEMPLATE_NAME_CHARS)
}

pub fn state_disk_name(federation: &Name, site: &Name) -> String {
    bounded(&format!("trellis-{federation}-{site}-state"), IMAGE_NAME_CHARS)
}

/// Name of an uploaded image. It contains a digest of the path.
pub fn upload_name(federation: &Name, site: &Name, file: &str) -> String {
    let digest = fnv1a(file.as_bytes());
    bounded(&format!("trellis-{federation}-{site}-{digest:016x}"), IMAGE_NAME_CHARS)
}

/// Shortens a name with a digest, so that different names stay different.
fn bounded(name: &str, most: usize) -> String {
    const HASH_CHARS: usize = 9;
    if name.len() <= most {
        return name.to_owned();
    }
    let short = fnv1a(name.as_bytes()) as u32;
    format!("{}-{short:08x}", &name[..most - HASH_CHARS])
}

/// Properties that require a new VM: image, size, GPUs.
pub fn shape(spec: &Spec) -> String {
    let text = match spec {
        Spec::Coordinator(spec) => serde_json::to_vec(&(&spec.image, &spec.resources, &spec.persistence)),
        Spec::Node(spec) => {
            let gpu = spec.gpu.as_ref().map(|gpu| (gpu.vendor, gpu.count));
            serde_json::to_vec(&(&spec.image, &spec.resources, gpu, spec.framework))
        }
    };
    let text = text.expect("a shape without keys is valid JSON");
    format!("{:016x}", fnv1a(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_together_however_long_their_parts_are() {
        let longest = Name::new(&"a".repeat(Name::MAX_CHARS)).expect("a name");
        let other = Name::new(&format!("{}b", "a".repeat(Name::MAX_CHARS - 1))).expect("a name");
        let role = RoleOf::long_name(&longest);
        let (service, template) = (service_name(&longest, &longest), template_name(&longest, &longest, &role));
        assert!(service.len() + template.len() < 128, "{service} {template}");
        assert_ne!(service, service_name(&longest, &other));
        assert_ne!(template, template_name(&longest, &other, &role));
        let (demo, lab) = (Name::new("demo").expect("a name"), Name::new("lab").expect("a name"));
        assert_eq!(service_name(&demo, &lab), "trellis-demo-lab");
        assert_eq!(template_name(&demo, &lab, SUPERLINK), "trellis-demo-lab-superlink");
    }

    #[test]
    fn pools_do_not_share_a_role() {
        let name = |text| Name::new(text).expect("a name");
        assert_eq!(RoleOf::long_name(&name("a-b")), "supernode_a_b");
        assert_ne!(RoleOf::long_name(&name("a-b")), RoleOf::long_name(&name("ab")));
    }
}
