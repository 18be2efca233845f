//! VM and image templates as ordered attributes. Independent of their text format.

use trellis_digest::fnv1a;
use trellis_plan::Spec;
use trellis_spec::{GpuVendor, Name, OneSite, Resources};

use super::{RoleOf, labels, shape, state_disk_name, template_name, upload_name};

const MIB: u64 = 1024 * 1024;

/// Default sizes. A SuperNode with a framework needs at least this.
const SUPERLINK_MEMORY_MIB: u64 = 4096;
const SUPERNODE_MEMORY_MIB: u64 = 8192;
const GATEWAY_MEMORY_MIB: u64 = 512;
const CPU_MILLIS: u32 = 2000;
const GATEWAY_CPU_MILLIS: u32 = 500;
/// Target of the state disk; the root disk comes first.
pub const STATE_TARGET: &str = "vdb";
const STATE_DISK_MIB: u64 = 10 * 1024;

use trellis_one::Template;
pub use trellis_one::template::Value as Attribute;

/// Ids of the parts of a VM template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Material {
    pub image: Thing,
    pub network: Thing,
    /// The disk for the coordinator's state, which outlives its VM.
    pub state_disk: Option<Thing>,
}

/// An object by id, or by name if its id is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thing {
    Number(u32),
    Name(String),
}

impl Thing {
    fn pair(&self, kind: &str) -> (String, String) {
        match self {
            Thing::Number(number) => (format!("{kind}_ID"), number.to_string()),
            Thing::Name(name) => (kind.to_owned(), name.clone()),
        }
    }
}

/// Federation, site and role of a template.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub federation: &'a Name,
    pub site: &'a Name,
}

pub fn text(name: &str, value: impl Into<String>) -> (String, Attribute) {
    (name.to_owned(), Attribute::Text(value.into()))
}

pub fn vector<const N: usize>(name: &str, values: [(&str, String); N]) -> (String, Attribute) {
    let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    (name.to_owned(), Attribute::Vector(values))
}

/// The VM template of a role. `spec` is `None` for the gateway.
pub fn vm_template(
    place: Place<'_>,
    of: &RoleOf,
    role: &str,
    spec: Option<&Spec>,
    material: &Material,
    context: Vec<(String, String)>,
) -> Template {
    let size = Size::of(spec);
    let mut disk = vec![material.image.pair("IMAGE")];
    if let Some(bytes) = size.disk_bytes {
        disk.push(("SIZE".to_owned(), mib(bytes).to_string()));
    }
    let mut template = vec![
        text("NAME", template_name(place.federation, place.site, role)),
        text("DESCRIPTION", format!("Role {role} of federation {} at site {}", place.federation, place.site)),
        text("CPU", decimal(size.cpu_millis)),
        text("VCPU", size.cpu_millis.div_ceil(1000).to_string()),
        text("MEMORY", size.memory_mib.to_string()),
        ("DISK".to_owned(), Attribute::Vector(disk)),
    ];
    if let Some(state) = &material.state_disk {
        template.push((
            "DISK".to_owned(),
            Attribute::Vector(vec![
                state.pair("IMAGE"),
                ("DEV_PREFIX".to_owned(), "vd".to_owned()),
                ("TARGET".to_owned(), STATE_TARGET.to_owned()),
            ]),
        ));
    }
    template.push(("NIC".to_owned(), Attribute::Vector(vec![material.network.pair("NETWORK")])));
    for _ in 0..size.gpus {
        template.push(vector("PCI", [("CLASS", "0302".to_owned()), ("VENDOR", size.gpu_vendor.to_owned())]));
    }
    template.push(vector("OS", [("ARCH", "x86_64".to_owned())]));
    template.push(vector("GRAPHICS", [("LISTEN", "127.0.0.1".to_owned()), ("TYPE", "VNC".to_owned())]));
    template.push(("CONTEXT".to_owned(), Attribute::Vector(context)));
    template.push(text(labels::FEDERATION, place.federation.as_str()));
    template.push(text(labels::SITE, place.site.as_str()));
    template.push(text(labels::ROLE, role));
    if let RoleOf::Pool(pool) = of {
        template.push(text(labels::POOL, pool.as_str()));
    }
    template.push(text(labels::SHAPE, spec.map_or_else(|| "gateway".to_owned(), shape)));
    let digest = fnv1a(format!("{template:?}").as_bytes());
    template.push(text(labels::DIGEST, format!("{digest:016x}")));
    Template(template)
}

/// The state disk of the coordinator.
pub fn state_disk(place: Place<'_>, size_bytes: Option<u64>) -> Template {
    Template(vec![
        text("NAME", state_disk_name(place.federation, place.site)),
        text("DESCRIPTION", format!("State of the coordinator of federation {}", place.federation)),
        text("TYPE", "DATABLOCK"),
        text("PERSISTENT", "YES"),
        text("SIZE", size_bytes.map_or(STATE_DISK_MIB, mib).to_string()),
        text("FS", "ext4"),
        text(labels::FEDERATION, place.federation.as_str()),
        text(labels::SITE, place.site.as_str()),
        text(labels::PURPOSE, "state"),
    ])
}

/// An image that the cloud copies from a file of its front-end, or from a URL.
pub fn upload(place: Place<'_>, path: &str) -> Template {
    Template(vec![
        text("NAME", upload_name(place.federation, place.site, path)),
        text("DESCRIPTION", format!("Appliance of federation {}", place.federation)),
        text("TYPE", "OS"),
        text("PATH", path),
        text("DEV_PREFIX", "vd"),
        text("DRIVER", "qcow2"),
        text(labels::FEDERATION, place.federation.as_str()),
        text(labels::SITE, place.site.as_str()),
        text(labels::PURPOSE, "upload"),
    ])
}

/// The image of a role, from the document.
pub fn image_of(one: &OneSite, spec: Option<&Spec>) -> String {
    let (own, site, usual) = match spec {
        Some(Spec::Node(spec)) => (&spec.image, &one.images.supernode, "trellis-supernode"),
        Some(Spec::Coordinator(spec)) => (&spec.image, &one.images.superlink, "trellis-superlink"),
        None => (&None, &one.images.superlink, "trellis-superlink"),
    };
    own.as_ref().or(site.as_ref()).map_or_else(|| usual.to_owned(), Clone::clone)
}

/// Whether an image is given by path or URL instead of its name.
pub fn is_file(image: &str) -> bool {
    image.contains('/')
}

struct Size {
    cpu_millis: u32,
    memory_mib: u64,
    disk_bytes: Option<u64>,
    gpus: u32,
    gpu_vendor: &'static str,
}

impl Size {
    fn of(spec: Option<&Spec>) -> Size {
        let (resources, history, gpu) = match spec {
            None => {
                let gateway = Resources { cpu_millis: Some(GATEWAY_CPU_MILLIS), ..Resources::default() };
                (gateway, GATEWAY_MEMORY_MIB, None)
            }
            Some(Spec::Coordinator(spec)) => (spec.resources.clone(), SUPERLINK_MEMORY_MIB, None),
            Some(Spec::Node(spec)) => (spec.resources.clone(), SUPERNODE_MEMORY_MIB, spec.gpu.as_ref()),
        };
        let vendor = match gpu.map(|gpu| gpu.vendor) {
            Some(GpuVendor::Amd) => "1002",
            _ => "10de",
        };
        Size {
            cpu_millis: resources.cpu_millis.unwrap_or(CPU_MILLIS),
            memory_mib: resources.memory_bytes.map_or(history, mib),
            disk_bytes: resources.disk_bytes,
            gpus: gpu.map_or(0, |gpu| gpu.count),
            gpu_vendor: vendor,
        }
    }
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(MIB).max(1)
}

fn decimal(millis: u32) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_cpu_are_decimals() {
        for (millis, expected) in [(2000, "2"), (500, "0.5"), (1250, "1.25"), (10, "0.01")] {
            assert_eq!(decimal(millis), expected);
        }
    }
}
