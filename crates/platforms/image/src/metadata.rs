//! Descriptions of an image: a record of its contents, and an entry for an OpenNebula marketplace. Rendering is pure.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use trellis_digest::{Sha256, hex};

use crate::recipe::Recipe;

const CHUNK_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Serialize)]
pub struct Contents {
    pub name: String,
    pub version: &'static str,
    pub role: &'static str,
    pub framework: &'static str,
    pub edge: bool,
    pub suite: String,
    /// Flower release in the framework's environment; `None` without a framework.
    pub flower_version: Option<String>,
    pub requirements: Vec<String>,
    /// Upper limit of all times in the image.
    pub made: String,
    pub disk_bytes: u64,
    pub compressed_bytes: u64,
    pub budget_bytes: u64,
    pub sha256: String,
    pub program_sha256: String,
    pub packages: Vec<Package>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Package {
    pub name: String,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashes {
    pub sha256: String,
}

impl Contents {
    pub fn new(
        recipe: &Recipe,
        epoch: i64,
        compressed_bytes: u64,
        hashes: Hashes,
        program_sha256: String,
        packages: Vec<(String, String)>,
    ) -> Self {
        let requirements = recipe.requirements();
        let mut packages: Vec<_> = packages.into_iter().map(|(name, version)| Package { name, version }).collect();
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            name: recipe.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            role: recipe.role.name(),
            framework: recipe.framework.name(),
            edge: recipe.edge,
            suite: recipe.suite.clone(),
            flower_version: (!requirements.is_empty()).then(|| recipe.flower_version.clone()),
            requirements,
            made: Timestamp::from_second(epoch).unwrap_or(Timestamp::UNIX_EPOCH).to_string(),
            disk_bytes: recipe.disk_bytes(),
            compressed_bytes,
            budget_bytes: recipe.budget_bytes(),
            sha256: hashes.sha256,
            program_sha256,
            packages,
        }
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts are JSON") + "\n"
    }

    /// Marketplace documents: the image with a VM template. `at` is the URL of published images.
    pub fn marketplace(&self, recipe: &Recipe, at: Option<&str>) -> String {
        let (memory_mib, processors) = recipe.machine();
        let file = format!("{}.qcow2", self.name);
        let url = at.map_or(format!("file:///var/tmp/{file}"), |at| format!("{}/{file}", at.trim_end_matches('/')));
        let what = if self.role == "superlink" { "the coordinator of a federation" } else { "a node of a federation" };
        let app = json!({
            "name": self.name,
            "version": self.version,
            "publisher": "Trellis",
            "short_description": format!("Flower {}: {what}", self.role),
            "description": format!(
                "{what}, configured by its context alone. TLS is on by default; what is published through OneGate is \
                 what was observed. Framework: {}.", self.framework),
            "tags": ["flower", "federated-learning", self.role, self.framework],
            "format": "qcow2",
            "creation_time": Timestamp::from_second(epoch_of(&self.made)).map(|time| time.as_second()).unwrap_or(0),
            "os-id": "Debian",
            "os-release": self.suite,
            "os-arch": "x86_64",
            "hypervisor": "KVM",
            "opennebula_version": "6.8, 6.10, 7.0, 7.2",
            "opennebula_template": {
                "cpu": processors.to_string(),
                "vcpu": processors.to_string(),
                "memory": memory_mib.to_string(),
                "os": {"arch": "x86_64"},
                "graphics": {"listen": "0.0.0.0", "type": "vnc"},
                "context": {
                    "network": "YES", "token": "YES", "report_ready": "YES", "ssh_public_key": "$USER[SSH_PUBLIC_KEY]",
                },
            },
            "images": [{
                "name": self.name,
                "url": url,
                "type": "OS",
                "dev_prefix": "vd",
                "driver": "qcow2",
                "size": self.disk_bytes,
                "checksum": {"sha256": self.sha256},
            }],
        });
        yaml(&app)
    }
}

fn epoch_of(made: &str) -> i64 {
    made.parse::<Timestamp>().map(Timestamp::as_second).unwrap_or_default()
}

/// The service with both roles; `roles` refers to the apps of its templates.
pub fn service(superlink: &str, supernode: &str) -> String {
    yaml(&json!({
        "name": "trellis-federation",
        "version": env!("CARGO_PKG_VERSION"),
        "publisher": "Trellis",
        "short_description": "A Flower federation: a SuperLink and its SuperNodes",
        "description": "A SuperLink, and SuperNodes that find it through OneGate. Nodes may be added and taken away while it runs.",
        "tags": ["flower", "federated-learning", "service"],
        "type": "SERVICE_TEMPLATE",
        "format": "raw",
        "os-id": "Debian",
        "os-arch": "x86_64",
        "hypervisor": "KVM",
        "opennebula_version": "6.8, 6.10, 7.0, 7.2",
        "roles": {"superlink": superlink, "supernode": supernode},
        "opennebula_template": {
            "name": "trellis-federation",
            "deployment": "straight",
            "ready_status_gate": true,
            "networks": {"Private": "M|network|Network of the federation| |id:"},
            "roles": [role("superlink", 1, 1, 1, &[]), role("supernode", 2, 1, 64, &["superlink"])],
        },
    }))
}

fn role(name: &str, cardinality: u32, least: u32, most: u32, parents: &[&str]) -> Value {
    json!({
        "name": name, "cardinality": cardinality, "min_vms": least, "max_vms": most, "parents": parents,
        "vm_template_contents": "NIC=[NETWORK_ID=\"$Private\"]\n", "elasticity_policies": [], "scheduled_policies": [],
    })
}

fn yaml(value: &Value) -> String {
    format!("---\n{}", trellis_spec::yaml::document(value))
}

pub fn hashes(path: &Path) -> io::Result<Hashes> {
    let mut file = File::open(path)?;
    let mut context = Sha256::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(Hashes { sha256: hex(&context.finish()) }),
            length => context.update(&chunk[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use trellis_spec::yaml;

    use super::*;
    use crate::recipe::{Framework, Role};

    fn recipe() -> Recipe {
        Recipe {
            role: Role::Supernode,
            framework: Framework::Sklearn,
            edge: false,
            suite: "bookworm".into(),
            flower_version: "1.42.0".into(),
            disk_bytes: None,
            context_package: false,
        }
    }

    fn contents() -> Contents {
        let packages = vec![("zlib1g".to_owned(), "1".to_owned()), ("apt".to_owned(), "2".to_owned())];
        Contents::new(&recipe(), 1_767_225_600, 77, Hashes { sha256: "ab".into() }, "cd".into(), packages)
    }

    #[test]
    fn the_record_contains_versions_hashes_and_sizes() {
        let record: Value = serde_json::from_str(&contents().json()).expect("JSON");
        assert_eq!(record["made"], "2026-01-01T00:00:00Z");
        assert_eq!(record["packages"][0], json!({"name": "apt", "version": "2"}));
        assert_eq!(record["requirements"][2], "flwr==1.42.0");
        assert_eq!((&record["sha256"], &record["compressed_bytes"]), (&json!("ab"), &json!(77)));
    }

    #[test]
    fn the_marketplace_entry_has_the_fields_that_marketplaces_read() {
        let text = contents().marketplace(&recipe(), Some("https://example.org/images/"));
        let entry = &yaml::read(&text, "entry").expect("YAML")[0];
        for field in [
            "name",
            "version",
            "publisher",
            "description",
            "short_description",
            "tags",
            "format",
            "creation_time",
            "os-id",
            "os-release",
            "os-arch",
            "hypervisor",
            "opennebula_version",
            "opennebula_template",
            "images",
        ] {
            assert!(!entry[field].is_null(), "{field}");
        }
        let image = &entry["images"][0];
        assert_eq!(image["url"].as_str(), Some("https://example.org/images/trellis-supernode-sklearn.qcow2"));
        assert_eq!(image["checksum"]["sha256"].as_str(), Some("ab"));
        // Texts stay texts: the memory of a template is one.
        assert_eq!(entry["opennebula_template"]["memory"].as_str(), Some("8192"));
    }

    #[test]
    fn the_service_waits_for_its_superlink() {
        let text = service("trellis-superlink", "trellis-supernode");
        let entry = &yaml::read(&text, "entry").expect("YAML")[0];
        assert_eq!(entry["roles"]["supernode"].as_str(), Some("trellis-supernode"));
        let node = &entry["opennebula_template"]["roles"][1];
        assert_eq!((node["parents"][0].as_str(), node["cardinality"].as_i64()), (Some("superlink"), Some(2)));
    }
}
